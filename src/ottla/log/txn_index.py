"""The aborted transactions of a segment: those whose marker stands in it.

`<base offset>.txnindex` has Apache Kafka's layout, in the order of the markers, and exists once there is one:

    version i16 · producer id i64 · first offset i64 · offset of the marker i64 · last stable offset i64

The last stable offset is that of the log right after the marker: whoever reads below it needs none of the
entries behind.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterable, Sequence

from ottla.log.aborted import AbortedTransaction
from ottla.runtime.disk import Disk

_ENTRY = struct.Struct(">hqqqq")
_VERSION = 0


class TransactionIndex:
    __slots__ = ("_disk", "_entries", "count", "has_file", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._entries: list[AbortedTransaction] | None = None
        self.path = path
        self.count = 0
        self.has_file = False
        """Whether there is a file; for an existing segment, whoever found it says so."""

    def attach(self, base_offset: int) -> bool:
        """Take over what the file holds, if there is one. False if that cannot be right."""
        if not self.has_file:
            return True
        data = self._disk.read_file(self.path)
        if len(data) % _ENTRY.size:
            return False
        previous = base_offset - 1
        for version, _, first, last, _ in _ENTRY.iter_unpack(data):
            if version != _VERSION or not first <= last or last <= previous:
                return False
            previous = last
        self.count = len(data) // _ENTRY.size
        return True

    @property
    def entries(self) -> Sequence[AbortedTransaction]:
        if self._entries is None:
            self._entries = []
            if self.count:
                data = self._disk.read_file(self.path)[: self.count * _ENTRY.size]
                self._entries = [
                    AbortedTransaction(first, last, producer_id, stable)
                    for _, producer_id, first, last, stable in _ENTRY.iter_unpack(data)
                ]
        return self._entries

    @staticmethod
    def encode(entries: Iterable[AbortedTransaction]) -> bytes:
        return b"".join(
            _ENTRY.pack(_VERSION, producer_id, first, last, stable)
            for first, last, producer_id, stable in entries
        )

    def stored(self) -> bytes:
        """What the file has, now."""
        return self._disk.read_file(self.path) if self.has_file else b""

    def replaced(self, entries: Sequence[AbortedTransaction]) -> None:
        """The file has these now."""
        self.has_file = True
        self.count = len(entries)
        self._entries = list(entries)

    def append(self, aborted: AbortedTransaction) -> None:
        """Nothing has changed when OSError is raised."""
        with contextlib.closing(self._disk.open(self.path, create=True)) as file:
            # What a crash left behind the last whole entry would shift all that follow.
            if file.size != self.count * _ENTRY.size:
                file.truncate(self.count * _ENTRY.size)
            file.append([self.encode([aborted])])
        self.has_file = True
        self.count += 1
        if self._entries is not None:
            self._entries.append(aborted)

    def truncate(self, offset: int) -> None:
        """Forget transactions that ended at or after an offset: they are open again, or gone."""
        kept = [aborted for aborted in self.entries if aborted.last_offset < offset]
        if len(kept) < self.count:
            self._cut(len(kept))
        self._entries = kept

    def reset(self) -> None:
        """Forget all that is known, and what the file says, to find it out anew."""
        if self.has_file:
            self._cut(0)
        self._entries = None

    def _cut(self, count: int) -> None:
        with contextlib.closing(self._disk.open(self.path)) as file:
            file.truncate(count * _ENTRY.size)
        self.count = count

    def overlapping(self, offset: int, upto: int) -> tuple[list[AbortedTransaction], bool]:
        """(those with anything between the offsets, whether later segments can have no more of them)."""
        found = []
        for aborted in self.entries:
            if aborted.last_offset >= offset and aborted.first_offset < upto:
                found.append(aborted)
            if aborted.last_stable_offset >= upto:
                return found, True
        return found, False

    def forget(self) -> None:
        """Give back the memory that lookups took."""
        self._entries = None
