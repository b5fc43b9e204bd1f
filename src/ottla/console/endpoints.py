"""An operation of the API as one declaration: its route, its parameters, its place in the OpenAPI document,
whether it changes anything. Pages call the same functions without HTTP in between."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, get_type_hints

from ottla.console.clusters import Cluster

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Endpoint(Generic[T]):
    method: str
    path: str
    """Below a cluster's; `{name}` are fields of what is asked."""
    summary: str
    asked: type[T]
    answer: Callable[[Cluster, T], Awaitable[Any]]
    """Something that JSON can hold, or a whole response."""
    only_looks: bool = False
    """Asked with a body, like a change, and none."""

    @property
    def has_body(self) -> bool:
        return self.method != "GET"

    @property
    def changes(self) -> bool:
        return self.has_body and not self.only_looks

    async def __call__(self, cluster: Cluster, asked: T) -> Any:
        return await self.answer(cluster, asked)


Answer = Callable[[Cluster, T], Awaitable[Any]]


def endpoint(
    method: str, path: str, summary: str, *, only_looks: bool = False
) -> Callable[[Answer[T]], Endpoint[T]]:
    """Of a function that takes a cluster and what is asked."""

    def declare(answer: Answer[T]) -> Endpoint[T]:
        return Endpoint(method, path, summary, get_type_hints(answer)["asked"], answer, only_looks)

    return declare
