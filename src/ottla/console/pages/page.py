"""A page as one declaration: its address, what it takes, and how it is made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar, get_type_hints

from ottla.console.clusters import Cluster
from ottla.console.html import Html

T = TypeVar("T")


class View(NamedTuple):
    title: str
    body: Html
    section: str = ""
    """Which entry of the navigation it belongs to."""


Render = Callable[[Cluster, T], Awaitable[View]]


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    path: str
    """Below a cluster's."""
    asked: type[T]
    render: Render[T]


def page(path: str) -> Callable[[Render[T]], Page[T]]:
    """Of a function that takes a cluster and what is asked."""

    def declare(render: Render[T]) -> Page[T]:
        return Page(path, get_type_hints(render)["asked"], render)

    return declare
