"""Stream-stream join: every pair of records of a key whose times lie within the window.

Each side keeps its records in a window store. For left and outer joins a record without a partner waits in a
shared buffer until its window has closed, and only then leaves alone (KIP-633): a result is never taken back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ottla.streams.operators.base import Context, Output
from ottla.streams.records import Record
from ottla.streams.serdes import Serde
from ottla.streams.state.buffer import TimeOrderedBuffer
from ottla.streams.state.window import WindowStore

# At one timestamp the right side leaves before the left, as in Kafka Streams' key order.
_LEFT, _RIGHT = b"\x01", b"\x00"


@dataclass(frozen=True, slots=True)
class RememberForJoin:
    """Keeps a record where the other side finds it."""

    store: str

    def process(self, record: Record, context: Context) -> Iterable[Output]:
        if record.key is not None and record.value is not None:
            store: WindowStore = context.store(self.store)
            store.put(record.key, record.value, record.timestamp_ms)
        return (record,)


@dataclass(frozen=True, slots=True)
class StreamJoinSide:
    """One side of the join: looks for partners of its records in the store of the other side."""

    is_left: bool
    other_store: str
    pending_store: str | None
    clock: str
    # How far back and ahead of this side's record the other side's record may lie.
    before_ms: int
    after_ms: int
    # How long a record of the left and of the right side can still find a partner, without grace.
    left_open_ms: int
    right_open_ms: int
    grace_ms: int
    outer: bool
    joiner: Callable[[Any, Any, Any], Any]
    key: Serde
    left_value: Serde
    right_value: Serde

    def process(self, record: Record, context: Context) -> Iterable[Output]:
        stream_ms = context.observe(record.timestamp_ms, self.clock)
        if record.key is None and record.value is not None and self.outer:
            yield record.with_value(self._join(record.key, record.value, None))
            return
        if record.key is None or record.value is None:
            context.drop("null key or value in a join")
            return
        pending: TimeOrderedBuffer | None = None
        if self.pending_store is not None:
            pending = context.store(self.pending_store)
            if record.timestamp_ms == stream_ms:
                yield from self._emit_unmatched(record, pending, stream_ms)
        from_ms = max(0, record.timestamp_ms - self.before_ms)
        to_ms = max(0, record.timestamp_ms + self.after_ms)
        others: WindowStore = context.store(self.other_store)
        partners = others.fetch_range(record.key, from_ms, to_ms)
        for other_ms, other in partners:
            if pending is not None:
                pending.put(other_ms, self._member(record.key, not self.is_left), [])
            joined = self._join(record.key, record.value, other.value)
            yield Record(record.key, joined, max(record.timestamp_ms, other_ms), record.headers)
        if self.outer and not partners:
            # Kafka Streams leaves the grace out here, and can join a record later that it gave out alone.
            if pending is None or to_ms + self.grace_ms < stream_ms:
                yield record.with_value(self._join(record.key, record.value, None))
            else:
                serde = self.left_value if self.is_left else self.right_value
                member = self._member(record.key, self.is_left)
                waiting = pending.get(record.timestamp_ms, member)
                entry = (record.timestamp_ms, 0, serde.serialize(record.value))
                pending.put(record.timestamp_ms, member, [*waiting, entry])

    def _emit_unmatched(self, record: Record, pending: TimeOrderedBuffer, stream_ms: int) -> Iterator[Record]:
        open_ms = min(self.left_open_ms, self.right_open_ms) + self.grace_ms
        kept: list[tuple[int, bytes, Any]] = []
        for time_ms, member, entries in pending.pop_before(stream_ms - open_ms):
            is_left = member[:1] == _LEFT
            side_open_ms = (self.left_open_ms if is_left else self.right_open_ms) + self.grace_ms
            if time_ms + side_open_ms >= stream_ms:
                kept.append((time_ms, member, entries))
                continue
            key = self.key.deserialize(member[1:])
            serde = self.left_value if is_left else self.right_value
            for _, _, data in entries:
                value = serde.deserialize(data)
                joined = self.joiner(key, value, None) if is_left else self.joiner(key, None, value)
                yield Record(key, joined, time_ms, record.headers)
        for time_ms, member, entries in kept:
            pending.put(time_ms, member, entries)

    def _join(self, key: Any, mine: Any, other: Any) -> Any:
        return self.joiner(key, mine, other) if self.is_left else self.joiner(key, other, mine)

    def _member(self, key: Any, is_left: bool) -> bytes:
        return (_LEFT if is_left else _RIGHT) + (self.key.serialize(key) or b"")
