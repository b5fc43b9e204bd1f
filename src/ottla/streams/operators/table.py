"""Tables: their source, and the stateless operators on them. Records carry a ``Change``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ottla.streams.operators.base import Context, Output, Step
from ottla.streams.records import Change, Headers, Record, new_tuple
from ottla.streams.state.key_value import KeyValueStore
from ottla.streams.state.versioned import NOT_PUT, UNDEFINED, VersionedStore

Function = Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True)
class TableSource:
    """Turns records into updates: the latest value of a key, by arrival, is its row; a null value deletes
    it."""

    store: str | None
    send_old: bool

    def bind(self, context: Context, forward: Step) -> Step:
        store: KeyValueStore | None = None if self.store is None else context.store(self.store)
        send_old = self.send_old

        def step(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
            if key is None:
                context.drop("null key in a table")
                return
            old = None
            if store is not None:
                old = store.get(key) if send_old else None
                store.put(key, value, timestamp_ms)
            forward(key, new_tuple(Change, (value, old)), timestamp_ms, headers)

        return step


@dataclass(frozen=True, slots=True)
class VersionedTableSource:
    """Turns records into versions of rows. Those that come after a later version of their row go into the
    history and no further: what the table is now does not change by them."""

    store: str
    send_old: bool

    def process(self, record: Record, context: Context) -> Iterable[Output]:
        if record.key is None:
            context.drop("null key in a table")
            return ()
        store: VersionedStore = context.store(self.store)
        old = store.get(record.key) if self.send_old else None
        until_ms = store.put(record.key, record.value, record.timestamp_ms)
        if until_ms == NOT_PUT:
            context.drop("late record for the history of a table")
        if until_ms != UNDEFINED:
            return ()
        return (record.with_value(Change(record.value, old)),)


@dataclass(frozen=True, slots=True)
class TableFilter:
    """A row that does not pass becomes a tombstone, because it may have passed before."""

    predicate: Function
    negate: bool
    store: str | None
    send_old: bool

    def process(self, record: Record, context: Context) -> Iterable[Output]:
        change: Change = record.value
        new = self._pass(record.key, change.new)
        store: KeyValueStore | None = None if self.store is None else context.store(self.store)
        old = None
        if self.send_old:
            old = self._pass(record.key, change.old) if store is None else store.get(record.key)
            if old is None and new is None:
                return ()
        if store is not None:
            store.put(record.key, new, record.timestamp_ms)
        return (record.with_value(Change(new, old)),)

    def _pass(self, key: Any, value: Any) -> Any:
        passes = value is not None and bool(self.predicate(key, value)) is not self.negate
        return value if passes else None


@dataclass(frozen=True, slots=True)
class TableMapValues:
    function: Function
    store: str | None
    send_old: bool

    def process(self, record: Record, context: Context) -> Iterable[Output]:
        change: Change = record.value
        new = self._map(record.key, change.new)
        store: KeyValueStore | None = None if self.store is None else context.store(self.store)
        old = None
        if self.send_old:
            old = self._map(record.key, change.old) if store is None else store.get(record.key)
        if store is not None:
            store.put(record.key, new, record.timestamp_ms)
        return (record.with_value(Change(new, old)),)

    def _map(self, key: Any, value: Any) -> Any:
        return None if value is None else self.function(key, value)


@dataclass(frozen=True, slots=True)
class KeepTable:
    """Stores the result of a join or cogroup where a name was asked for, and passes it on."""

    store: str | None
    send_old: bool

    def process(self, record: Record, context: Context) -> Iterable[Output]:
        change: Change = record.value
        if self.store is not None:
            store: KeyValueStore = context.store(self.store)
            old = store.get(record.key) if self.send_old else None
            store.put(record.key, change.new, record.timestamp_ms)
            return (record.with_value(Change(change.new, old)),)
        return (record if self.send_old else record.with_value(Change(change.new)),)
