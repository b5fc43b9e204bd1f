"""Session store: aggregates by key and span of activity, forgotten after the retention.

The sessions of one key form one list: there are few of them, and merging looks at its neighbours.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from ottla.streams.records import Window, Windowed
from ottla.streams.serdes import Serde
from ottla.streams.state.backend import Backend, Log, log_nothing
from ottla.streams.state.entry_lists import EntryLists, Tally
from ottla.streams.state.latest_time import LatestTime
from ottla.streams.state.time_index import TimeIndex


class SessionStore:
    __slots__ = ("_index", "_key", "_latest", "_lists", "_log", "_retention_ms", "_tally", "_value", "name")

    def __init__(
        self,
        name: str,
        backend: Backend,
        key: Serde,
        value: Serde,
        *,
        retention_ms: int,
        log: Log = log_nothing,
    ) -> None:
        self.name = name
        self._log = log
        self._key = key
        self._value = value
        self._retention_ms = retention_ms
        self._lists = EntryLists(backend, b"s")
        self._index = TimeIndex(backend)
        self._latest = LatestTime(backend)
        self._tally = Tally(backend)

    def find_sessions(
        self, key: Any, earliest_end_ms: int, latest_start_ms: int
    ) -> list[tuple[Windowed, Any]]:
        """Sessions of a key that end at or after one time and start at or before another, oldest first."""
        earliest_end_ms = max(earliest_end_ms, self._oldest_live_ms())
        return [
            (Windowed(key, Window(start, end)), self._value.deserialize(data))
            for start, end, data in self._lists.get(self._key.serialize(key) or b"")
            if end >= earliest_end_ms and start <= latest_start_ms
        ]

    def fetch(self, key: Any) -> list[tuple[Windowed, Any]]:
        """All live sessions of a key."""
        return self.find_sessions(key, 0, (1 << 63) - 1)

    def fetch_session(self, key: Any, start_ms: int, end_ms: int) -> Any:
        for windowed, value in self.fetch(key):
            if windowed.window == (start_ms, end_ms):
                return value
        return None

    def put(self, session: Windowed, value: Any) -> None:
        """Set the aggregate of a session; ``None`` removes it."""
        start, end = session.window
        key_bytes, data = self._key.serialize(session.key) or b"", self._value.serialize(value)
        self._log(key_bytes + struct.pack(">qq", end, start), data, end)
        self._set(key_bytes, start, end, data)

    def restore(self, key: bytes, value: bytes | None, timestamp_ms: int) -> None:
        """Take an entry of the changelog."""
        end, start = struct.unpack(">qq", key[-16:])
        self._set(key[:-16], start, end, value)

    def _set(self, key_bytes: bytes, start: int, end: int, data: bytes | None) -> None:
        self._latest.observe(end)
        listed = self._lists.get(key_bytes)
        before = len(listed)
        listed[:] = [entry for entry in listed if entry[:2] != (start, end)]
        if data is None or end < self._oldest_live_ms():
            self._index.remove(end, key_bytes)
            # Another session of the key may end at the same time.
            if any(entry[1] == end for entry in listed):
                self._index.add(end, key_bytes)
        else:
            listed.append((start, end, data))
            listed.sort(key=lambda entry: entry[:2])
            self._index.add(end, key_bytes)
        self._tally.add(len(listed) - before)
        self._lists.changed(key_bytes)

    def remove(self, session: Windowed) -> None:
        self.put(session, None)

    def ended_before(self, end_ms: int) -> list[tuple[Windowed, Any]]:
        """Live sessions of all keys that end before a time, by end, then by key bytes."""
        found: list[tuple[Windowed, Any]] = []
        for end, key_bytes in list(self._index.members(before_ms=end_ms)):
            key = self._key.deserialize(key_bytes)
            found.extend(
                (Windowed(key, Window(start, entry_end)), self._value.deserialize(data))
                for start, entry_end, data in self._lists.get(key_bytes)
                if entry_end == end
            )
        return found

    def all(self) -> Iterator[tuple[Windowed, Any]]:
        return iter(self.ended_before((1 << 63) - 1))

    def flush(self) -> None:
        oldest_ms = self._oldest_live_ms()
        for _, key_bytes in self._index.pop_before(oldest_ms):
            listed = self._lists.get(key_bytes)
            before = len(listed)
            listed[:] = [entry for entry in listed if entry[1] >= oldest_ms]
            self._tally.add(len(listed) - before)
            self._lists.changed(key_bytes)
        self._lists.flush()
        self._latest.flush()
        self._tally.flush()

    def entry_count(self) -> int:
        return self._tally.entries

    def _oldest_live_ms(self) -> int:
        return self._latest.minus(self._retention_ms - 1)
