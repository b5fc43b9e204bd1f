"""Which record of each key is the last, in memory that is bounded and known beforehand.

Records are numbered as they come. For each key there is a slot with two hashes of it and the number of its
last record: 20 bytes, where a dict would take ten times that. For each record there is one byte that says
whether it is the last of its key, so that whoever comes by again with the same records need not look at keys.

Two keys of which both hashes are the same would lose a record. They are 128 bits of a keyed function, which
makes that as likely as the disk making it up.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

SLOT_BYTES = 8 + 8 + 4
_NUMBER_MAX = 2**32 - 2

SUPERSEDED = 0
LATEST = 1
TOMBSTONE = 2
"""The last of its key, without a value."""

_ONE_LATEST = bytes([LATEST])


class LatestRecords:
    __slots__ = ("_entries_max", "_hashes", "_more_hashes", "_numbers", "_records_max", "count", "kinds")

    def __init__(self, bytes_max: int, load_factor: float, records_expected: int) -> None:
        """No larger than needed for the records that can come at most."""
        # Half of the memory is left for keys, however many records there are of each.
        self._records_max = max(min(records_expected, bytes_max // 2, _NUMBER_MAX), 1)
        wanted = int(self._records_max / load_factor) + 2
        slots = max(min((bytes_max - self._records_max) // SLOT_BYTES, wanted), 2)
        self._hashes = array("q", [0]) * slots
        self._more_hashes = array("q", [0]) * slots
        self._numbers = array("I", [0]) * slots
        """One more than the number of a record; 0 in a slot that is free."""
        # One slot stays free, or looking for a key that is not there would never end.
        self._entries_max = max(min(int(slots * load_factor), slots - 1), 1)
        self.count = 0
        """Of keys."""
        self.kinds = bytearray()
        """SUPERSEDED, LATEST or TOMBSTONE of each record, by its number."""

    @property
    def size_bytes(self) -> int:
        return len(self._numbers) * SLOT_BYTES + self._records_max

    def add(self, keys: Sequence[bytes | None], tombstones: Sequence[int]) -> int:
        """How many of the next records there was room for.

        `tombstones` are the indexes of those without a value. A record without a key is nobody's last.
        """
        kinds, hashes, more_hashes, numbers = self.kinds, self._hashes, self._more_hashes, self._numbers
        slots, count, entries_max = len(numbers), self.count, self._entries_max
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
            slot = first % slots
            while previous := numbers[slot]:
                if hashes[slot] == first and more_hashes[slot] == second:
                    kinds[previous - 1] = SUPERSEDED
                    break
                slot += 1
                if slot == slots:
                    slot = 0
            else:
                if count >= entries_max:
                    del kinds[number - 1 :]
                    break
                count += 1
                hashes[slot] = first
                more_hashes[slot] = second
            numbers[slot] = number
        self.count = count
        return len(kinds) - begin

    def __contains__(self, key: bytes) -> bool:
        numbers, slots = self._numbers, len(self._numbers)
        first = hash(key)
        second = hash(key + b"\0")
        slot = first % slots
        while numbers[slot]:
            if self._hashes[slot] == first and self._more_hashes[slot] == second:
                return True
            slot += 1
            if slot == slots:
                slot = 0
        return False
