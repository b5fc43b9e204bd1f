"""Which record of each key is the last, in memory that is bounded and known beforehand.

Records are numbered as they come. For each key there is a slot with two hashes of it and the number of its
last record: 24 bytes, where a dict would take eight times that. For each record there is one byte that says
whether it is the last of its key, so that whoever comes by again with the same records need not look at keys.

Two keys of which both hashes are the same would lose a record. They are 128 bits of a keyed function, which
makes that as likely as the disk making it up.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

# The number of the record, counted from 1 so that 0 is a free slot, and two hashes. Side by side, so that
# looking for a key waits for memory once.
_WORDS = 3
SLOT_BYTES = 8 * _WORDS

SUPERSEDED = 0
LATEST = 1
TOMBSTONE = 2
"""The last of its key, without a value."""

_ONE_LATEST = bytes([LATEST])


class LatestRecords:
    __slots__ = ("_entries_max", "_records_max", "_table", "count", "kinds")

    def __init__(self, bytes_max: int, load_factor: float, records_expected: int) -> None:
        """No larger than needed for the records that can come at most."""
        # Half of the memory is left for keys, however many records there are of each.
        self._records_max = max(min(records_expected, bytes_max // 2), 1)
        wanted = int(self._records_max / load_factor) + 2
        slots = max(min((bytes_max - self._records_max) // SLOT_BYTES, wanted), 2)
        self._table = array("q", [0]) * (slots * _WORDS)
        # One slot stays free, or looking for a key that is not there would never end.
        self._entries_max = max(min(int(slots * load_factor), slots - 1), 1)
        self.count = 0
        """Of keys."""
        self.kinds = bytearray()
        """SUPERSEDED, LATEST or TOMBSTONE of each record, by its number."""

    @property
    def size_bytes(self) -> int:
        return len(self._table) * 8 + self._records_max

    def add(self, keys: Sequence[bytes | None], tombstones: Sequence[int]) -> int:
        """How many of the next records there was room for.

        `tombstones` are the indexes of those without a value. A record without a key is nobody's last.
        """
        kinds, table, count, entries_max = self.kinds, self._table, self.count, self._entries_max
        end = len(table)
        slots = end // _WORDS
        begin = number = len(kinds)
        room = self._records_max - begin
        if len(keys) > room:
            keys = keys[:room]
        kinds += _ONE_LATEST * len(keys)
        for index in tombstones:
            if index < len(keys):
                kinds[begin + index] = TOMBSTONE
        # Millions of times: no calls but to the hash function.
        for key in keys:
            number += 1
            if key is None:
                kinds[number - 1] = SUPERSEDED
                continue
            first = hash(key)
            second = hash(key + b"\0")
            at = first % slots * _WORDS
            while previous := table[at]:
                if table[at + 1] == first and table[at + 2] == second:
                    kinds[previous - 1] = SUPERSEDED
                    break
                at += _WORDS
                if at == end:
                    at = 0
            else:
                if count >= entries_max:
                    del kinds[number - 1 :]
                    break
                count += 1
                table[at + 1] = first
                table[at + 2] = second
            table[at] = number
        self.count = count
        return len(kinds) - begin

    def __contains__(self, key: bytes) -> bool:
        table, end = self._table, len(self._table)
        first = hash(key)
        second = hash(key + b"\0")
        at = first % (end // _WORDS) * _WORDS
        while table[at]:
            if table[at + 1] == first and table[at + 2] == second:
                return True
            at += _WORDS
            if at == end:
                at = 0
        return False
