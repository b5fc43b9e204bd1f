"""Views: looking up a key in a table, whether it is stored or has to be computed from the table it came
from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ottla.streams.operators.base import Context, View
from ottla.streams.operators.suppress import unpack_change
from ottla.streams.records import ValueAndTimestamp, Windowed
from ottla.streams.serdes import Serde
from ottla.streams.state.buffer import KeyedBuffer
from ottla.streams.state.key_value import KeyValueStore
from ottla.streams.state.versioned import VersionedStore


@dataclass(frozen=True, slots=True)
class StoredView:
    store: str

    def get(self, key: Any, context: Context, as_of_ms: int | None = None) -> ValueAndTimestamp | None:
        store: KeyValueStore | VersionedStore = context.store(self.store)
        if as_of_ms is not None and isinstance(store, VersionedStore):
            return store.get_as_of(key, as_of_ms)
        return store.get_with_timestamp(key)


@dataclass(frozen=True, slots=True)
class WindowedView:
    """A table keyed by window."""

    store: str

    def get(self, key: Windowed, context: Context, as_of_ms: int | None = None) -> ValueAndTimestamp | None:
        found: ValueAndTimestamp | None = context.store(self.store).fetch_with_timestamp(
            key.key, key.window.start_ms
        )
        return found


@dataclass(frozen=True, slots=True)
class SessionView:
    store: str

    def get(self, key: Windowed, context: Context, as_of_ms: int | None = None) -> ValueAndTimestamp | None:
        value = context.store(self.store).fetch_session(key.key, *key.window)
        return None if value is None else ValueAndTimestamp(value, key.window.end_ms)


@dataclass(frozen=True, slots=True)
class FilteredView:
    parent: View
    predicate: Callable[[Any, Any], Any]
    negate: bool

    def get(self, key: Any, context: Context, as_of_ms: int | None = None) -> ValueAndTimestamp | None:
        found = self.parent.get(key, context, as_of_ms)
        if found is None or bool(self.predicate(key, found.value)) is self.negate:
            return None
        return found


@dataclass(frozen=True, slots=True)
class MappedView:
    parent: View
    function: Callable[[Any, Any], Any]

    def get(self, key: Any, context: Context, as_of_ms: int | None = None) -> ValueAndTimestamp | None:
        found = self.parent.get(key, context, as_of_ms)
        if found is None:
            return None
        return ValueAndTimestamp(self.function(key, found.value), found.timestamp_ms)


@dataclass(frozen=True, slots=True)
class JoinedView:
    left: View
    right: View
    joiner: Callable[[Any, Any, Any], Any]
    left_outer: bool
    right_outer: bool

    def get(self, key: Any, context: Context, as_of_ms: int | None = None) -> ValueAndTimestamp | None:
        left = self.left.get(key, context)
        right = self.right.get(key, context)
        if left is None and (right is None or not self.right_outer):
            return None
        if right is None and not self.left_outer:
            return None
        joined = self.joiner(
            key, None if left is None else left.value, None if right is None else right.value
        )
        timestamp_ms = max(side.timestamp_ms for side in (left, right) if side is not None)
        return None if joined is None else ValueAndTimestamp(joined, timestamp_ms)


@dataclass(frozen=True, slots=True)
class SuppressedView:
    """What a suppressed table shows: the value from before whatever waits in the buffer."""

    parent: View
    buffer: str
    key: Serde
    value: Serde

    def get(self, key: Any, context: Context, as_of_ms: int | None = None) -> ValueAndTimestamp | None:
        buffer: KeyedBuffer = context.store(self.buffer)
        member = self.key.serialize(key) or b""
        waiting_ms = buffer.locate(member)
        if waiting_ms is None:
            return self.parent.get(key, context)
        timestamp_ms, _, data = buffer.get(waiting_ms, member)[0]
        _, prior = unpack_change(data or b"")
        return None if prior is None else ValueAndTimestamp(self.value.deserialize(prior), timestamp_ms)
