"""Sparse indexes of a segment: offset to file position, and timestamp to offset.

Both are sorted files of fixed entries, relative to the segment's base offset, as Apache Kafka writes them: an
offset entry names the last offset of a batch and where the batch begins; a time entry says that no record up
to that offset has a larger timestamp. New entries wait in memory until they are written in groups, so that
appending rarely touches the index files; what these hold is looked up where it lies.
"""

from __future__ import annotations

import contextlib
import struct
import sys
from array import array
from bisect import bisect_right

from ottla.runtime.disk import Disk, ReadableBuffer

# Bounds the memory of a partition that is never flushed; one write of the index per few megabytes of log.
WAITING_MAX = 1024

OFFSET_ENTRY = struct.Struct(">ii")  # relative offset, position
TIME_ENTRY = struct.Struct(">qi")  # timestamp, relative offset


class IndexFile:
    """The entries already written. The file is only open while it is worked on."""

    __slots__ = ("_disk", "_entry", "_view", "count", "path")

    def __init__(self, disk: Disk, path: str, entry: struct.Struct, count: int = 0) -> None:
        self._disk = disk
        self._entry = entry
        self._view: ReadableBuffer | None = None
        self.path = path
        self.count = count

    def create(self) -> None:
        self._disk.open(self.path, create=True).close()

    def attach(self) -> bool:
        """Take over what the file holds. False if it is missing or cannot be a sorted row of entries."""
        try:
            file = self._disk.open(self.path)
        except FileNotFoundError:
            return False
        with contextlib.closing(file):
            size = self._entry.size
            if file.size % size:
                return False
            last_two = file.read(max(file.size - 2 * size, 0), 2 * size)
            entries = list(self._entry.iter_unpack(last_two))
            # An index that was preallocated or never reached the disk ends in zeros.
            if len(entries) == 2 and not (entries[0][0] < entries[1][0] and entries[0][1] < entries[1][1]):
                return False
            self.count = file.size // size
        return True

    def append(self, data: bytes) -> None:
        file = self._disk.open(self.path, create=True)
        try:
            # What a crash or a failed write left behind the last whole entry would shift all that follow.
            if file.size != self.count * self._entry.size:
                file.truncate(self.count * self._entry.size)
            file.append([data])
        finally:
            file.close()
        self.count += len(data) // self._entry.size
        self._view = None

    def truncate(self, count: int) -> None:
        self._view = None
        self.count = count
        with contextlib.closing(self._disk.open(self.path, create=True)) as file:
            file.truncate(count * self._entry.size)

    def view(self) -> ReadableBuffer:
        view = self._view
        if view is None:
            with contextlib.closing(self._disk.open(self.path)) as file:
                view = self._view = file.view(0, self.count * self._entry.size)
        return view

    def is_in_memory(self) -> bool:
        """Whether looking something up will not wait for the disk."""
        if self._view is None and self.count:
            with contextlib.closing(self._disk.open(self.path)) as file:
                self._view = file.view_nowait(0, self.count * self._entry.size)
            return self._view is not None
        return True

    def forget(self) -> None:
        """Give back the memory that lookups took."""
        self._view = None

    def entry(self, slot: int) -> tuple[int, int]:
        first, second = self._entry.unpack_from(self.view(), slot * self._entry.size)
        return first, second

    def floor(self, value: int, field: int) -> int:
        """The last slot whose field is at most `value`, or -1."""
        if not self.count:
            return -1
        unpack, view, size = self._entry.unpack_from, self.view(), self._entry.size
        return bisect_right(range(self.count), value, key=lambda slot: unpack(view, slot * size)[field]) - 1


class OffsetIndex:
    __slots__ = ("_offsets", "_positions", "file")

    def __init__(self, disk: Disk, path: str, count: int = 0) -> None:
        self.file = IndexFile(disk, path, OFFSET_ENTRY, count)
        self._offsets = array("i")
        self._positions = array("i")

    def __len__(self) -> int:
        return self.file.count + len(self._offsets)

    def append(self, relative_offset: int, position: int) -> None:
        self._offsets.append(relative_offset)
        self._positions.append(position)

    @property
    def waiting(self) -> int:
        return len(self._offsets)

    def floor_offset(self, relative_offset: int) -> int:
        """Where to begin looking for an offset: a batch at or before the one that holds it."""
        slot = bisect_right(self._offsets, relative_offset) - 1
        if slot >= 0:
            return self._positions[slot]
        slot = self.file.floor(relative_offset, 0)
        return self.file.entry(slot)[1] if slot >= 0 else 0

    def floor_position(self, position: int) -> int:
        """The last indexed start of a batch at or before `position`; 0 is always one."""
        slot = bisect_right(self._positions, position) - 1
        if slot >= 0:
            return self._positions[slot]
        slot = self.file.floor(position, 1)
        return self.file.entry(slot)[1] if slot >= 0 else 0

    def next_position(self, position: int) -> int | None:
        """The first indexed start of a batch after `position`."""
        slot = self.file.floor(position, 1) + 1
        if slot < self.file.count:
            return self.file.entry(slot)[1]
        slot = bisect_right(self._positions, position)
        return self._positions[slot] if slot < len(self._positions) else None

    def write(self) -> None:
        if self._offsets:
            pairs = array("i", bytes(8 * len(self._offsets)))
            pairs[0::2] = self._offsets
            pairs[1::2] = self._positions
            if sys.byteorder == "little":
                pairs.byteswap()
            self.file.append(pairs.tobytes())
            del self._offsets[:], self._positions[:]

    def truncate(self, relative_offset: int) -> None:
        """Forget entries at and after an offset; at and after 0, all."""
        self.write()
        self.file.truncate(self.file.floor(relative_offset - 1, 0) + 1 if relative_offset else 0)


class TimeIndex:
    __slots__ = ("_last_timestamp", "_offsets", "_timestamps", "file")

    def __init__(self, disk: Disk, path: str, count: int = 0) -> None:
        self.file = IndexFile(disk, path, TIME_ENTRY, count)
        self._timestamps = array("q")
        self._offsets = array("i")
        self._last_timestamp: int | None = None

    def __len__(self) -> int:
        return self.file.count + len(self._timestamps)

    @property
    def last(self) -> tuple[int, int]:
        """(timestamp, relative offset) of the last entry; (-1, 0) when there is none."""
        if self._timestamps:
            return self._timestamps[-1], self._offsets[-1]
        return self.file.entry(self.file.count - 1) if self.file.count else (-1, 0)

    def append(self, timestamp: int, relative_offset: int) -> None:
        """Unless the timestamp is not larger than the last: then nothing new would be said."""
        last = self._last_timestamp
        if last is None:
            last = self.last[0]
        if timestamp > last:
            self._last_timestamp = timestamp
            self._timestamps.append(timestamp)
            self._offsets.append(relative_offset)

    def floor_timestamp(self, timestamp: int) -> int:
        """The offset to begin at: no batch before the one that holds it has a timestamp as large as this."""
        slot = bisect_right(self._timestamps, timestamp) - 1
        if slot >= 0:
            return self._offsets[slot]
        slot = self.file.floor(timestamp, 0)
        return self.file.entry(slot)[1] if slot >= 0 else 0

    def write(self) -> None:
        if self._timestamps:
            self.file.append(b"".join(map(TIME_ENTRY.pack, self._timestamps, self._offsets)))
            del self._timestamps[:], self._offsets[:]

    def truncate(self, relative_offset: int) -> None:
        self.write()
        self.file.truncate(self.file.floor(relative_offset - 1, 1) + 1 if relative_offset else 0)
        self._last_timestamp = None
