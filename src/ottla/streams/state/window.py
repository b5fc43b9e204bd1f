"""Window store: values by key and the start of their window, forgotten after the retention.

Entries of a key are listed by segments of time as long as a window, so that a tumbling window is one list and
a range of a join touches two or three. What is older than the retention, measured from the youngest start
ever put, is gone.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from ottla.streams.records import ValueAndTimestamp, Window, Windowed
from ottla.streams.serdes import Serde
from ottla.streams.state.backend import Backend, Log, log_nothing
from ottla.streams.state.entry_lists import Entry, EntryLists, Tally
from ottla.streams.state.keys import key_writer
from ottla.streams.state.latest_time import LatestTime
from ottla.streams.state.time_index import TimeIndex
from ottla.streams.windows import UNLIMITED_MS

# Of a longer range, lists are looked for instead of asked for one by one.
_SEGMENTS_MAX = 16


class WindowStore:
    __slots__ = (
        "_duplicates",
        "_index",
        "_key",
        "_key_bytes",
        "_latest",
        "_lists",
        "_log",
        "_retention_ms",
        "_segment_ms",
        "_size_ms",
        "_tally",
        "_value",
        "name",
    )

    def __init__(
        self,
        name: str,
        backend: Backend,
        key: Serde,
        value: Serde,
        *,
        size_ms: int,
        retention_ms: int,
        retain_duplicates: bool = False,
        log: Log = log_nothing,
    ) -> None:
        self.name = name
        self._log = log
        self._key = key
        self._key_bytes = key_writer(key)
        self._value = value
        self._size_ms = size_ms
        self._segment_ms = max(1, size_ms)
        self._retention_ms = retention_ms
        self._duplicates = retain_duplicates
        self._lists = EntryLists(backend, b"w")
        self._index = TimeIndex(backend)
        self._latest = LatestTime(backend)
        self._tally = Tally(backend)

    def put(self, key: Any, value: Any, start_ms: int, timestamp_ms: int = -1) -> None:
        """Set the value of a window; ``None`` deletes it. Of a store with duplicates, it only adds."""
        if value is None and self._duplicates:
            return
        self._latest.observe(start_ms)
        if start_ms < self._oldest_live_ms():
            return
        self._write(self._key_bytes(key), start_ms, timestamp_ms, self._value.serialize(value))

    def restore(self, key: bytes, value: bytes | None, timestamp_ms: int) -> None:
        """Take an entry of the changelog."""
        key_bytes, (start_ms,) = key[:-8], struct.unpack(">q", key[-8:])
        self._latest.observe(start_ms)
        if start_ms >= self._oldest_live_ms():
            self._set(key_bytes, start_ms, timestamp_ms, value)

    def _write(self, key_bytes: bytes, start_ms: int, timestamp_ms: int, data: bytes | None) -> None:
        self._log(key_bytes + struct.pack(">q", start_ms), data, timestamp_ms)
        self._set(key_bytes, start_ms, timestamp_ms, data)

    def _set(self, key_bytes: bytes, start_ms: int, timestamp_ms: int, data: bytes | None) -> None:
        list_key = self._list_key(key_bytes, start_ms // self._segment_ms)
        listed = self._lists.get(list_key)
        before = len(listed)
        if not listed:
            self._index.add(start_ms // self._segment_ms * self._segment_ms, key_bytes)
        if not self._duplicates:
            listed[:] = [entry for entry in listed if entry[0] != start_ms]
        if data is not None:
            listed.append((start_ms, timestamp_ms, data))
            # Stable: duplicates of one time keep the order in which they came.
            listed.sort(key=_start)
        self._tally.add(len(listed) - before)
        self._lists.changed(list_key)

    def fetch(self, key: Any, start_ms: int) -> Any:
        found = self.fetch_with_timestamp(key, start_ms)
        return None if found is None else found.value

    def fetch_with_timestamp(self, key: Any, start_ms: int) -> ValueAndTimestamp | None:
        if start_ms < self._oldest_live_ms():
            return None
        listed = self._lists.get(self._list_key(self._key_bytes(key), start_ms // self._segment_ms))
        for start, timestamp_ms, data in listed:
            if start == start_ms:
                return ValueAndTimestamp(self._value.deserialize(data), timestamp_ms)
        return None

    def fetch_range(self, key: Any, from_ms: int, to_ms: int) -> list[tuple[int, ValueAndTimestamp]]:
        """Windows of a key that start in the range, both ends included, oldest first."""
        key_bytes = self._key_bytes(key)
        return [
            (start, ValueAndTimestamp(self._value.deserialize(data), timestamp_ms))
            for start, timestamp_ms, data in self._entries(key_bytes, from_ms, to_ms)
        ]

    def fetch_all(self, from_ms: int, to_ms: int) -> Iterator[tuple[Windowed, Any]]:
        """Windows of all keys that start in the range, by start, then by key bytes."""
        found: list[tuple[int, bytes, bytes | None]] = []
        first_segment = from_ms // self._segment_ms * self._segment_ms
        for segment_start, key_bytes in list(self._index.members(first_segment, to_ms + 1)):
            segment_end = segment_start + self._segment_ms - 1
            listed = self._entries(key_bytes, max(from_ms, segment_start), min(to_ms, segment_end))
            found.extend((start, key_bytes, data) for start, _, data in listed)
        for start, key_bytes, data in sorted(found, key=lambda each: each[:2]):
            window = Window(start, min(start + self._size_ms, UNLIMITED_MS))
            yield Windowed(self._key.deserialize(key_bytes), window), self._value.deserialize(data)

    def all(self) -> Iterator[tuple[Windowed, Any]]:
        return self.fetch_all(0, UNLIMITED_MS)

    def flush(self) -> None:
        for segment_start, key_bytes in self._index.pop_before(self._oldest_live_ms() - self._segment_ms + 1):
            list_key = self._list_key(key_bytes, segment_start // self._segment_ms)
            listed = self._lists.get(list_key)
            self._tally.add(-len(listed))
            listed.clear()
            self._lists.changed(list_key)
        self._lists.flush()
        self._latest.flush()
        self._tally.flush()

    def entry_count(self) -> int:
        """Windows, also those that are about to be forgotten."""
        return self._tally.entries

    def _entries(self, key_bytes: bytes, from_ms: int, to_ms: int) -> list[Entry]:
        from_ms = max(from_ms, self._oldest_live_ms())
        found: list[Entry] = []
        first, last = from_ms // self._segment_ms, to_ms // self._segment_ms
        if last - first < _SEGMENTS_MAX:
            lists = [self._lists.get(self._list_key(key_bytes, each)) for each in range(first, last + 1)]
        else:
            size = len(key_bytes) + 8
            between = self._lists.between(self._list_key(key_bytes, first), self._list_key(key_bytes, last))
            # Keys that begin with this one are among them.
            lists = [listed for key, listed in between if len(key) == size]
        for listed in lists:
            found.extend(entry for entry in listed if from_ms <= entry[0] <= to_ms)
        return found

    def _oldest_live_ms(self) -> int:
        return self._latest.minus(self._retention_ms - 1)

    @staticmethod
    def _list_key(key_bytes: bytes, segment: int) -> bytes:
        return key_bytes + struct.pack(">q", segment)


def _start(entry: Entry) -> int:
    return entry[0]
