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
    is_hot: bool
    first_flexible: int


REGISTRY: dict[int, Api] = {}
NEVER_FLEXIBLE = 1 << 15


def handles(
    key: ApiKey,
    min_version: int,
    max_version: int,
    *,
    hot: bool = False,
    first_flexible: int = NEVER_FLEXIBLE,
) -> Callable[[F], F]:
    """The decorated function takes (broker, context, request) and returns the response, or is a coroutine.

    A hot handler is spared kio and the context: it takes (broker, version, frame, position) and returns the
    body as buffers, a `PendingReply`, or None where the protocol has no answer.
    """

    def register(handler: F) -> F:
        if key in REGISTRY:
            raise ValueError(f"{key.name} already has a handler: {REGISTRY[key].handler.__qualname__}")
        is_async = inspect.iscoroutinefunction(handler)
        REGISTRY[key] = Api(key, min_version, max_version, handler, is_async, hot, first_flexible)
        return handler

    return register
