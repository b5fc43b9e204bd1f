"""User functions: adapts how many arguments they take."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ottla.streams.errors import TopologyError


def _arguments(function: Callable[..., Any]) -> int | None:
    """How many positional arguments a function needs; ``None`` if it does not tell, as some built-ins."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters):
        return None
    required = [p for p in parameters if p.kind in positional and p.default is inspect.Parameter.empty]
    return len(required) or min(1, sum(p.kind in positional for p in parameters))


def require_callable(function: Any, what: str) -> None:
    if not callable(function):
        raise TopologyError(f"{what} is {function!r}: give a function")


def of_key_and_value(function: Any, what: str) -> Callable[[Any, Any], Any]:
    """A function of (key, value); one that takes a single argument gets the value."""
    require_callable(function, what)
    count = _arguments(function)
    if count == 2:
        return function  # type: ignore[no-any-return]
    if count in {1, None}:
        return lambda key, value: function(value)
    raise TopologyError(f"{what} takes {count} arguments: it gets the value, or key and value")


def of_key_and_both(joiner: Any, what: str = "the joiner") -> Callable[[Any, Any, Any], Any]:
    """A function of (key, left, right); one that takes two arguments gets the values."""
    require_callable(joiner, what)
    count = _arguments(joiner)
    if count == 3:
        return joiner  # type: ignore[no-any-return]
    if count in {2, None}:
        return lambda key, left, right: joiner(left, right)
    raise TopologyError(f"{what} takes {count} arguments: it gets both values, or the key and both values")


def of_key_value_and_aggregate(
    aggregator: Any, what: str = "the aggregator"
) -> Callable[[Any, Any, Any], Any]:
    """A function of (key, value, aggregate); one that takes two arguments gets value and aggregate."""
    require_callable(aggregator, what)
    count = _arguments(aggregator)
    if count == 3:
        return aggregator  # type: ignore[no-any-return]
    if count in {2, None}:
        return lambda key, value, aggregate: aggregator(value, aggregate)
    raise TopologyError(f"{what} takes {count} arguments: it gets key, value and aggregate")
