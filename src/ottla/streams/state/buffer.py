"""Time-ordered buffer: what waits for its time, by key. Suppression and the unmatched side of a join live
here."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ottla.streams.state.backend import Backend
from ottla.streams.state.entry_lists import Entry, EntryLists, Tally
from ottla.streams.state.time_index import TimeIndex


class TimeOrderedBuffer:
    """Entries by a time and a member; a member holds a list of entries. Leaves in order of time, then
    member."""

    __slots__ = ("_index", "_lists", "_tally", "name")

    def __init__(self, name: str, backend: Backend) -> None:
        self.name = name
        self._lists = EntryLists(backend, b"b")
        self._index = TimeIndex(backend)
        self._tally = Tally(backend)

    def get(self, time_ms: int, member: bytes) -> list[Entry]:
        return list(self._lists.get(_list_key(time_ms, member)))

    def put(self, time_ms: int, member: bytes, entries: list[Entry]) -> None:
        """Set the entries of a member at a time; an empty list removes it."""
        list_key = _list_key(time_ms, member)
        listed = self._lists.get(list_key)
        self._tally.add(len(entries) - len(listed), _bytes_of(entries) - _bytes_of(listed))
        listed[:] = entries
        self._lists.changed(list_key)
        if entries:
            self._index.add(time_ms, member)
        else:
            self._index.remove(time_ms, member)

    def first(self) -> tuple[int, bytes] | None:
        """The time and the member that would leave first."""
        return self._index.first()

    def pop_before(self, time_ms: int) -> Iterator[tuple[int, bytes, list[Entry]]]:
        for due_ms, member in self._index.pop_before(time_ms):
            list_key = _list_key(due_ms, member)
            listed = self._lists.get(list_key)
            entries = list(listed)
            self._tally.add(-len(entries), -_bytes_of(entries))
            listed.clear()
            self._lists.changed(list_key)
            yield due_ms, member, entries

    @property
    def records(self) -> int:
        return self._tally.entries

    @property
    def size_bytes(self) -> int:
        return self._tally.size_bytes

    def entry_count(self) -> int:
        return self.records

    def flush(self) -> None:
        self._lists.flush()
        self._tally.flush()


class KeyedBuffer(TimeOrderedBuffer):
    """A buffer in which a member waits at one time only: a later entry takes the place of the earlier one."""

    __slots__ = ("_times",)

    def __init__(self, name: str, backend: Backend) -> None:
        super().__init__(name, backend)
        self._times = EntryLists(backend, b"k")

    def locate(self, member: bytes) -> int | None:
        """When the member is due, if it waits."""
        listed = self._times.get(member)
        return listed[0][0] if listed else None

    def hold(self, time_ms: int, member: bytes, entry: Entry) -> None:
        """Let an entry wait: until the given time, or the earlier one the member already waits for."""
        waiting_ms = self.locate(member)
        due_ms = time_ms if waiting_ms is None else waiting_ms
        self.put(due_ms, member, [entry])
        self._times.get(member)[:] = [(due_ms, 0, None)]
        self._times.changed(member)

    def forget(self, member: bytes) -> None:
        """Take a member out."""
        waiting_ms = self.locate(member)
        if waiting_ms is not None:
            self.put(waiting_ms, member, [])
            self._times.get(member).clear()
            self._times.changed(member)

    def release_before(self, time_ms: int) -> Iterator[tuple[bytes, Entry]]:
        for _, member, entries in self.pop_before(time_ms):
            self._times.get(member).clear()
            self._times.changed(member)
            yield member, entries[0]

    def flush(self) -> None:
        super().flush()
        self._times.flush()


def _list_key(time_ms: int, member: bytes) -> bytes:
    return struct.pack(">q", time_ms) + member


def _bytes_of(entries: list[Entry]) -> int:
    return sum(len(entry[2] or b"") for entry in entries)
