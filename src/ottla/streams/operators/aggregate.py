"""Aggregations of a stream or a table by key, without windows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ottla.streams.errors import StreamsError
from ottla.streams.operators.base import Context, Output, Step
from ottla.streams.records import Change, Headers, Record, ValueAndTimestamp, new_tuple
from ottla.streams.state.key_value import KeyValueStore

Initializer = Callable[[], Any]
Aggregator = Callable[[Any, Any, Any], Any]
Reducer = Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True)
class StreamAggregate:
    """count and aggregate: folds every value of a key. A null result deletes the key."""

    store: str
    initializer: Initializer
    aggregator: Aggregator
    send_old: bool

    def bind(self, context: Context, forward: Step) -> Step:
        initializer, aggregator = self.initializer, self.aggregator

        def fold(key: Any, value: Any, present: ValueAndTimestamp | None) -> Any:
            return aggregator(key, value, initializer() if present is None else present.value)

        return _folded(context, forward, self.store, fold, send_old=self.send_old)


@dataclass(frozen=True, slots=True)
class StreamReduce:
    """reduce: the first value of a key stands for itself."""

    store: str
    reducer: Callable[[Any, Any], Any]
    send_old: bool

    def bind(self, context: Context, forward: Step) -> Step:
        reducer = self.reducer

        def fold(key: Any, value: Any, present: ValueAndTimestamp | None) -> Any:
            return value if present is None else reducer(present.value, value)

        return _folded(context, forward, self.store, fold, send_old=self.send_old)


def _folded(
    context: Context,
    forward: Step,
    name: str,
    fold: Callable[[Any, Any, ValueAndTimestamp | None], Any],
    *,
    send_old: bool,
) -> Step:
    store: KeyValueStore = context.store(name)
    get, put = store.get_with_timestamp, store.put

    def step(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
        if key is None or value is None:
            context.drop("null key or value in an aggregation")
            return
        present = get(key)
        folded = fold(key, value, present)
        if present is not None and present.timestamp_ms > timestamp_ms:
            timestamp_ms = present.timestamp_ms
        # Read again: the function may have changed the object it was given.
        old = store.get(key) if send_old else None
        put(key, folded, timestamp_ms)
        forward(key, new_tuple(Change, (folded, old)), timestamp_ms, headers)

    return step


@dataclass(frozen=True, slots=True)
class TableRepartition:
    """group_by of a table: the old value has to leave its group before, or as, the new one joins its own."""

    selector: Callable[[Any, Any], tuple[Any, Any]]

    def process(self, record: Record, context: Context) -> Iterable[Output]:
        if record.key is None:
            raise StreamsError("the key of a table that is grouped must not be null")
        change: Change = record.value
        new = self._select(record.key, change.new)
        old = self._select(record.key, change.old)
        if new is not None and old is not None and new[0] == old[0]:
            return (Record(new[0], Change(new[1], old[1]), record.timestamp_ms, record.headers),)
        moves = []
        if old is not None:
            moves.append(Record(old[0], Change(None, old[1]), record.timestamp_ms, record.headers))
        if new is not None:
            moves.append(Record(new[0], Change(new[1], None), record.timestamp_ms, record.headers))
        return moves

    def _select(self, key: Any, value: Any) -> tuple[Any, Any] | None:
        if value is None:
            return None
        selected_key, selected_value = self.selector(key, value)
        return None if selected_key is None or selected_value is None else (selected_key, selected_value)


@dataclass(frozen=True, slots=True)
class TableAggregate:
    """count and aggregate of a grouped table: takes the old value out, then puts the new one in."""

    store: str
    initializer: Initializer
    adder: Aggregator
    subtractor: Aggregator
    send_old: bool

    def process(self, record: Record, context: Context) -> Iterable[Output]:
        def add(aggregate: Any, value: Any) -> Any:
            base = self.initializer() if aggregate is None else aggregate
            return self.adder(record.key, value, base)

        def subtract(aggregate: Any, value: Any) -> Any:
            return self.subtractor(record.key, value, aggregate)

        return _exchanged(record, context, self.store, add, subtract, send_old=self.send_old)


@dataclass(frozen=True, slots=True)
class TableReduce:
    """reduce of a grouped table."""

    store: str
    adder: Reducer
    subtractor: Reducer
    send_old: bool

    def process(self, record: Record, context: Context) -> Iterable[Output]:
        def add(aggregate: Any, value: Any) -> Any:
            return value if aggregate is None else self.adder(aggregate, value)

        return _exchanged(record, context, self.store, add, self.subtractor, send_old=self.send_old)


def _exchanged(
    record: Record, context: Context, name: str, add: Reducer, subtract: Reducer, *, send_old: bool
) -> Iterable[Output]:
    """The old value of a change goes out of the aggregate, the new one in."""
    if record.key is None:
        raise StreamsError(f"the key of the table aggregate {name} must not be null")
    store: KeyValueStore = context.store(name)
    change: Change = record.value
    present = store.get_with_timestamp(record.key)
    aggregate = None if present is None else present.value
    timestamp_ms = record.timestamp_ms
    if present is not None and (change.old is not None or change.new is not None):
        timestamp_ms = max(timestamp_ms, present.timestamp_ms)
    if change.old is not None and aggregate is not None:
        aggregate = subtract(aggregate, change.old)
    if change.new is not None:
        aggregate = add(aggregate, change.new)
    # Read again rather than remembered: a user's function may have changed the object it was given.
    old = store.get(record.key) if send_old else None
    store.put(record.key, aggregate, timestamp_ms)
    return (Record(record.key, Change(aggregate, old), timestamp_ms, record.headers),)
