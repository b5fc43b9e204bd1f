"""Stateless operators. Functions take (key, value); the builder adapts those that take the value only."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ottla.streams.operators.base import Context, Directed, Output, Step
from ottla.streams.records import Headers, Record

Function = Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True)
class PassThrough:
    """A node that only has to be there: where streams merge, and before a repartition topic."""

    def bind(self, context: Context, forward: Step) -> Step:
        return forward


@dataclass(frozen=True, slots=True)
class Filter:
    predicate: Function
    negate: bool = False

    def bind(self, context: Context, forward: Step) -> Step:
        predicate, negate = self.predicate, self.negate

        def step(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
            if bool(predicate(key, value)) is not negate:
                forward(key, value, timestamp_ms, headers)

        return step


@dataclass(frozen=True, slots=True)
class Map:
    """The function returns the new (key, value)."""

    function: Function

    def bind(self, context: Context, forward: Step) -> Step:
        function = self.function

        def step(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
            key, value = function(key, value)
            forward(key, value, timestamp_ms, headers)

        return step


@dataclass(frozen=True, slots=True)
class MapValues:
    function: Function

    def bind(self, context: Context, forward: Step) -> Step:
        function = self.function

        def step(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
            forward(key, function(key, value), timestamp_ms, headers)

        return step


@dataclass(frozen=True, slots=True)
class SelectKey:
    function: Function

    def bind(self, context: Context, forward: Step) -> Step:
        function = self.function

        def step(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
            forward(function(key, value), value, timestamp_ms, headers)

        return step


@dataclass(frozen=True, slots=True)
class FlatMap:
    """The function returns any number of (key, value)."""

    function: Function

    def bind(self, context: Context, forward: Step) -> Step:
        function = self.function

        def step(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
            # All or none: it may fail on the way.
            for new_key, new_value in [(each, other) for each, other in function(key, value)]:
                forward(new_key, new_value, timestamp_ms, headers)

        return step


@dataclass(frozen=True, slots=True)
class FlatMapValues:
    function: Function

    def bind(self, context: Context, forward: Step) -> Step:
        function = self.function

        def step(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
            for each in list(function(key, value)):
                forward(key, each, timestamp_ms, headers)

        return step


@dataclass(frozen=True, slots=True)
class Peek:
    function: Function
    forward: bool = True

    def bind(self, context: Context, forward: Step) -> Step:
        function, passes = self.function, self.forward

        def step(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
            function(key, value)
            if passes:
                forward(key, value, timestamp_ms, headers)

        return step


@dataclass(frozen=True, slots=True)
class Branch:
    """Sends a record to the child of the first predicate that holds, or to the default child, or nowhere."""

    predicates: tuple[tuple[Function, str], ...]
    default: str | None

    def process(self, record: Record, context: Context) -> Iterable[Output]:
        for predicate, child in self.predicates:
            if predicate(record.key, record.value):
                return (Directed(child, record),)
        return () if self.default is None else (Directed(self.default, record),)


@dataclass(frozen=True, slots=True)
class ToStream:
    """A table's changes as a stream of its new values."""

    def bind(self, context: Context, forward: Step) -> Step:
        def step(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
            forward(key, value[0], timestamp_ms, headers)

        return step


@dataclass(frozen=True, slots=True)
class DropNullKeys:
    """Before a repartition topic whose readers have no use for records without a key."""

    def bind(self, context: Context, forward: Step) -> Step:
        def step(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
            if key is not None:
                forward(key, value, timestamp_ms, headers)

        return step
