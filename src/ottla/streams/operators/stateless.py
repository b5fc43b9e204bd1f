"""Stateless operators. Functions take (key, value); the builder adapts those that take the value only."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ottla.streams.operators.base import Context, Directed, Output
from ottla.streams.records import Record

Function = Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True)
class PassThrough:
    """A node that only has to be there: where streams merge, and before a repartition topic."""

    def process(self, record: Record, context: Context) -> Iterable[Output]:
        return (record,)


@dataclass(frozen=True, slots=True)
class Filter:
    predicate: Function
    negate: bool = False

    def process(self, record: Record, context: Context) -> Iterable[Output]:
        return (record,) if bool(self.predicate(record.key, record.value)) is not self.negate else ()


@dataclass(frozen=True, slots=True)
class Map:
    """The function returns the new (key, value)."""

    function: Function

    def process(self, record: Record, context: Context) -> Iterable[Output]:
        key, value = self.function(record.key, record.value)
        return (Record(key, value, record.timestamp_ms, record.headers),)


@dataclass(frozen=True, slots=True)
class MapValues:
    function: Function

    def process(self, record: Record, context: Context) -> Iterable[Output]:
        return (record.with_value(self.function(record.key, record.value)),)


@dataclass(frozen=True, slots=True)
class SelectKey:
    function: Function

    def process(self, record: Record, context: Context) -> Iterable[Output]:
        return (record.with_key(self.function(record.key, record.value)),)


@dataclass(frozen=True, slots=True)
class FlatMap:
    """The function returns any number of (key, value)."""

    function: Function

    def process(self, record: Record, context: Context) -> Iterable[Output]:
        return [
            Record(key, value, record.timestamp_ms, record.headers)
            for key, value in self.function(record.key, record.value)
        ]


@dataclass(frozen=True, slots=True)
class FlatMapValues:
    function: Function

    def process(self, record: Record, context: Context) -> Iterable[Output]:
        return [record.with_value(value) for value in self.function(record.key, record.value)]


@dataclass(frozen=True, slots=True)
class Peek:
    function: Function
    forward: bool = True

    def process(self, record: Record, context: Context) -> Iterable[Output]:
        self.function(record.key, record.value)
        return (record,) if self.forward else ()


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

    def process(self, record: Record, context: Context) -> Iterable[Output]:
        return (record.with_value(record.value.new),)


@dataclass(frozen=True, slots=True)
class DropNullKeys:
    """Before a repartition topic whose readers have no use for records without a key."""

    def process(self, record: Record, context: Context) -> Iterable[Output]:
        return () if record.key is None else (record,)
