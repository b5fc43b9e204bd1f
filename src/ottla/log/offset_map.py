"""The last offset of each key, in memory that is bounded and known beforehand.

Keys are kept as digests of 16 bytes, in one block with open addressing: 24 bytes per slot, where a dict would
take five times that. Two keys with the same digest would lose a record; 128 bits make that as likely as the
disk making it up.
"""

from __future__ import annotations

import struct
from hashlib import blake2b

DIGEST_BYTES = 16
_SLOT = struct.Struct(f"={DIGEST_BYTES}sq")
SLOT_BYTES = _SLOT.size
_EMPTY = bytes(DIGEST_BYTES)
_OFFSET = struct.Struct("=q")
NOT_FOUND = -1


class OffsetMap:
    __slots__ = ("_slots", "_table", "count", "entries_max", "latest_offset")

    def __init__(self, bytes_max: int, load_factor: float, keys_expected: int) -> None:
        """No larger than needed for the keys that can come at most."""
        wanted = int(keys_expected / load_factor) + 2
        self._slots = max(min(bytes_max // SLOT_BYTES, wanted), 2)
        self._table = bytearray(self._slots * SLOT_BYTES)
        # One slot stays free, or looking for a key that is not there would never end.
        self.entries_max = max(min(int(self._slots * load_factor), self._slots - 1), 1)
        self.count = 0
        self.latest_offset = -1
        """Up to where the log is covered."""

    @property
    def is_full(self) -> bool:
        return self.count >= self.entries_max

    @property
    def size_bytes(self) -> int:
        return len(self._table)

    def put(self, key: bytes, offset: int) -> None:
        """Offsets must ascend; the map must not be full."""
        digest = blake2b(key, digest_size=DIGEST_BYTES).digest()
        table = self._table
        slot = int.from_bytes(digest[:8], "little") % self._slots
        while True:
            at = slot * SLOT_BYTES
            found = table[at : at + DIGEST_BYTES]
            if found == digest:
                break
            if found == _EMPTY:
                self.count += 1
                break
            slot = (slot + 1) % self._slots
        _SLOT.pack_into(table, at, digest, offset)

    def get(self, key: bytes) -> int:
        digest = blake2b(key, digest_size=DIGEST_BYTES).digest()
        table = self._table
        slot = int.from_bytes(digest[:8], "little") % self._slots
        while True:
            at = slot * SLOT_BYTES
            found = table[at : at + DIGEST_BYTES]
            if found == digest:
                return int(_OFFSET.unpack_from(table, at + DIGEST_BYTES)[0])
            if found == _EMPTY:
                return NOT_FOUND
            slot = (slot + 1) % self._slots
