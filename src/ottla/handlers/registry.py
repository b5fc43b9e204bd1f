"""Which function answers which API: `@handles(ApiKey.METADATA, 0, 13)` is the whole registration."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from ottla.wire.api import ApiKey

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Api:
    key: ApiKey
    min_version: int
    max_version: int
    handler: Callable[..., Any]
    is_async: bool


REGISTRY: dict[int, Api] = {}


def handles(key: ApiKey, min_version: int, max_version: int) -> Callable[[F], F]:
    """The decorated function takes (broker, context, request) and returns the response, or is a coroutine."""

    def register(handler: F) -> F:
        if key in REGISTRY:
            raise ValueError(f"{key.name} already has a handler: {REGISTRY[key].handler.__qualname__}")
        is_async = inspect.iscoroutinefunction(handler)
        REGISTRY[key] = Api(key, min_version, max_version, handler, is_async)
        return handler

    return register
