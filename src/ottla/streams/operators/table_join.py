"""Joins that look up a table: table-table by key, stream-table, stream-global table."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ottla.streams.operators.base import Context, Output, Step, View
from ottla.streams.records import Change, Headers, Record
from ottla.streams.serdes import Serde
from ottla.streams.state.buffer import TimeOrderedBuffer


@dataclass(frozen=True, slots=True)
class TableJoinSide:
    """One side of a table-table join: an update of this side meets the current row of the other."""

    is_left: bool
    other: View
    joiner: Callable[[Any, Any, Any], Any]
    # Whether a row of this side, and of the other side, stands in the result without a partner.
    mine_alone: bool
    other_alone: bool
    send_old: bool

    def process(self, record: Record, context: Context) -> Iterable[Output]:
        if record.key is None:
            context.drop("null key in a join")
            return ()
        change: Change = record.value
        found = self.other.get(record.key, context)
        other = None if found is None else found.value
        if other is None and (not self.mine_alone or (change.new is None and change.old is None)):
            return ()
        timestamp_ms = record.timestamp_ms if found is None else max(record.timestamp_ms, found.timestamp_ms)
        new = self._join(record.key, change.new, other)
        old = self._join(record.key, change.old, other) if self.send_old else None
        return (Record(record.key, Change(new, old), timestamp_ms, record.headers),)

    def _join(self, key: Any, mine: Any, other: Any) -> Any:
        if mine is None and (other is None or not self.other_alone):
            return None
        if other is None and not self.mine_alone:
            return None
        return self.joiner(key, mine, other) if self.is_left else self.joiner(key, other, mine)


@dataclass(frozen=True, slots=True)
class StreamTableJoin:
    """A record of a stream meets the current row of a table, by its own key or by one taken from the
    record; where the table has versions, the row of the record's time."""

    table: View
    joiner: Callable[[Any, Any, Any], Any]
    left: bool
    key_selector: Callable[[Any, Any], Any] | None = None

    def bind(self, context: Context, forward: Step) -> Step:
        find, joiner = self.table.get, self.joiner
        left, key_selector = self.left, self.key_selector

        def step(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
            if value is None:
                context.drop("null value in a join")
                return
            row_key = key if key_selector is None else key_selector(key, value)
            if row_key is None and not left:
                context.drop("null key in a join")
                return
            found = None if row_key is None else find(row_key, context, timestamp_ms)
            if found is not None:
                forward(key, joiner(key, value, found.value), timestamp_ms, headers)
            elif left:
                forward(key, joiner(key, value, None), timestamp_ms, headers)

        return step


@dataclass(frozen=True, slots=True)
class LateTableJoin:
    """A stream-table join with a grace period (KIP-923): records wait until stream time has passed them by
    it, so that rows that come later than they should are found. A record that is later still is joined at
    once."""

    join: StreamTableJoin
    buffer: str
    grace_ms: int
    key: Serde
    value: Serde

    def bind(self, context: Context, forward: Step) -> Step:
        join = self.join.bind(context, forward)
        buffer: TimeOrderedBuffer = context.store(self.buffer)

        def step(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
            due_ms = context.observe(timestamp_ms) - self.grace_ms
            if value is None or key is None or timestamp_ms < due_ms:
                join(key, value, timestamp_ms, headers)
            else:
                member = self.key.serialize(key) or b""
                data = _packed(headers, self.value.serialize(value) or b"")
                waiting = buffer.get(timestamp_ms, member)
                buffer.put(timestamp_ms, member, [*waiting, (0, 0, data)])
            for time_ms, member, entries in buffer.pop_before(due_ms + 1):
                for _, _, packed in entries:
                    own_headers, content = _unpacked(packed or b"")
                    waited = self.key.deserialize(member), self.value.deserialize(content)
                    join(*waited, time_ms, own_headers)

        return step


_COUNT = struct.Struct(">I")
_HEADER = struct.Struct(">Ii")


def _packed(headers: Headers, value: bytes) -> bytes:
    parts = [_COUNT.pack(len(headers))]
    for name, content in headers:
        text = name.encode()
        parts += [_HEADER.pack(len(text), -1 if content is None else len(content)), text, content or b""]
    return b"".join([*parts, value])


def _unpacked(data: bytes) -> tuple[Headers, bytes]:
    (count,), at = _COUNT.unpack_from(data), _COUNT.size
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name_size, size = _HEADER.unpack_from(data, at)
        begin = at + _HEADER.size + name_size
        name = data[at + _HEADER.size : begin].decode()
        at = begin + max(0, size)
        headers.append((name, None if size < 0 else data[begin:at]))
    return tuple(headers), data[at:]
