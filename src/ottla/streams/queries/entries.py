"""The latest value of every key, in the order of the keys' bytes. Knows nothing of topics."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple


class Stored(NamedTuple):
    value: bytes
    timestamp_ms: int
    partition: int = 0


class SortedEntries:
    """Reads of one key cost a dictionary look-up; ranges sort the keys once after new ones have come."""

    def __init__(self) -> None:
        self._by_key: dict[bytes, Stored] = {}
        # Entries that are hidden by one of the same key in another partition: when the number of tasks has
        # changed, a key moves, and is written and deleted in no particular order.
        self._hidden: dict[bytes, dict[int, Stored]] = {}
        self._keys: list[bytes] = []
        self._is_sorted = True

    def __len__(self) -> int:
        return len(self._by_key)

    def apply(self, key: bytes, value: bytes | None, timestamp_ms: int, partition: int = 0) -> None:
        """`None` deletes the key, as a tombstone does, where it was put in the same partition."""
        present = self._by_key.get(key)
        if value is None:
            self._delete(key, present, partition)
            return
        if present is None:
            self._keys.append(key)
            self._is_sorted = False
        elif present.partition != partition:
            hidden = self._hidden.setdefault(key, {})
            hidden[present.partition] = present
            hidden.pop(partition, None)
        self._by_key[key] = Stored(value, timestamp_ms, partition)

    def _delete(self, key: bytes, present: Stored | None, partition: int) -> None:
        hidden = self._hidden.get(key, {})
        if present is not None and present.partition == partition:
            if hidden:
                self._by_key[key] = hidden.popitem()[1]
            else:
                del self._by_key[key]  # its place among the sorted keys is skipped from now on
        else:
            hidden.pop(partition, None)
        if not hidden:
            self._hidden.pop(key, None)

    def get(self, key: bytes) -> Stored | None:
        return self._by_key.get(key)

    def range(self, low: bytes | None, high: bytes | None) -> Iterator[tuple[bytes, Stored]]:
        """From `low` to `high`, both included; `None` is no bound."""
        keys = self._sorted()
        at = 0 if low is None else bisect_left(keys, low)
        for index in range(at, len(keys)):
            key = keys[index]
            if high is not None and key > high:
                return
            yield key, self._by_key[key]

    def prefix(self, prefix: bytes) -> Iterator[tuple[bytes, Stored]]:
        for key, stored in self.range(prefix, None):
            if not key.startswith(prefix):
                return
            yield key, stored

    def _sorted(self) -> list[bytes]:
        if not self._is_sorted or len(self._keys) != len(self._by_key):
            # A new list: an iteration over the old one may still be going on.
            self._keys = sorted(self._by_key)
            self._is_sorted = True
        return self._keys
