"""Suppression: holds back updates of a table until its window has closed, or for a time of quiet
accumulation."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ottla.streams.errors import StreamsError
from ottla.streams.operators.base import Context, Output
from ottla.streams.records import Change, Record
from ottla.streams.serdes import Serde
from ottla.streams.state.buffer import KeyedBuffer
from ottla.streams.state.entry_lists import Entry

_LENGTH = struct.Struct(">ii")


@dataclass(frozen=True, slots=True)
class Suppress:
    """Only the last update of a key in the buffer leaves, when stream time has passed its due time by the
    wait."""

    buffer: str
    wait_ms: int
    # Windowed keys wait from the end of their window, others from the time of their first update.
    by_window_end: bool
    # Tombstones of windows nobody has seen need not leave.
    drop_tombstones: bool
    records_max: int | None
    bytes_max: int | None
    emit_early_when_full: bool
    key: Serde
    value: Serde

    def process(self, record: Record, context: Context) -> Iterable[Output]:
        stream_ms = context.observe(record.timestamp_ms)
        buffer: KeyedBuffer = context.store(self.buffer)
        member = self.key.serialize(record.key) or b""
        waiting_ms = buffer.locate(member)
        change: Change = record.value
        old = self.value.serialize(change.old)
        if waiting_ms is not None:
            # What went out last is what came before the first update still waiting.
            _, old = unpack_change(buffer.get(waiting_ms, member)[0][2] or b"")
        due_ms = record.key.window.end_ms if self.by_window_end else record.timestamp_ms
        entry = (record.timestamp_ms, 0, pack_change(self.value.serialize(change.new), old))
        buffer.hold(due_ms, member, entry)
        for released, released_entry in buffer.release_before(stream_ms - self.wait_ms + 1):
            yield from self._release(released, released_entry)
        yield from self._make_room(buffer)

    def _make_room(self, buffer: KeyedBuffer) -> Iterator[Record]:
        while self._is_full(buffer):
            if not self.emit_early_when_full:
                raise StreamsError(
                    f"the buffer {self.buffer} exceeds its limit: {buffer.records} records of at most "
                    f"{self.records_max} and {buffer.size_bytes} bytes of at most {self.bytes_max}; "
                    "raise the limit or use emit_early_when_full()"
                )
            first = buffer.first()
            if first is None:
                return
            due_ms, member = first
            entry = buffer.get(due_ms, member)[0]
            buffer.forget(member)
            yield from self._release(member, entry)

    def _is_full(self, buffer: KeyedBuffer) -> bool:
        too_many = self.records_max is not None and buffer.records > self.records_max
        return too_many or (self.bytes_max is not None and buffer.size_bytes > self.bytes_max)

    def _release(self, member: bytes, entry: Entry) -> Iterator[Record]:
        new, old = unpack_change(entry[2] or b"")
        if new is None and self.drop_tombstones:
            return
        change = Change(self.value.deserialize(new), self.value.deserialize(old))
        yield Record(self.key.deserialize(member), change, entry[0])


def pack_change(new: bytes | None, old: bytes | None) -> bytes:
    sizes = _LENGTH.pack(-1 if new is None else len(new), -1 if old is None else len(old))
    return sizes + (new or b"") + (old or b"")


def unpack_change(data: bytes) -> tuple[bytes | None, bytes | None]:
    new_size, old_size = _LENGTH.unpack_from(data)
    end = _LENGTH.size + max(0, new_size)
    new = None if new_size < 0 else data[_LENGTH.size : end]
    return new, None if old_size < 0 else data[end:]
