"""The one interface state needs from its host: a map from bytes to bytes, in the order of the keys.

The test driver gives a dictionary, Spark its state store with pages over it (``ordered``). Stores are built
so that a record touches a few keys and never reads everything: what has to be found by time is an index by
time (``time_index``).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from typing import Protocol

# Told of every change of a store: the key's bytes, the value's bytes or none, the timestamp.
Log = Callable[[bytes, bytes | None, int], None]


def log_nothing(key: bytes, value: bytes | None, timestamp_ms: int) -> None:
    """For stores nobody follows."""


class Host(Protocol):
    """What can be had of any place that keeps bytes."""

    def get(self, key: bytes) -> bytes | None: ...

    def put(self, key: bytes, value: bytes) -> None: ...

    def delete(self, key: bytes) -> None: ...


class Backend(Host, Protocol):
    @property
    def entry_count(self) -> int: ...

    def scan(self, first: bytes = b"", end: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Entries from one key up to, and without, another, in order."""
        ...

    def scan_back(self, first: bytes = b"", end: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """The same entries, last one first."""
        ...


def end_of_prefix(prefix: bytes) -> bytes | None:
    """The first key after all that begin with a prefix; None if there is none."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


class MemoryBackend:
    """A dictionary."""

    __slots__ = ("_keys", "entries")

    def __init__(self, entries: dict[bytes, bytes] | None = None) -> None:
        self.entries: dict[bytes, bytes] = {} if entries is None else entries
        # Sorted, once somebody has asked for an order.
        self._keys: list[bytes] | None = None

    @property
    def entry_count(self) -> int:
        return len(self.entries)

    def get(self, key: bytes) -> bytes | None:
        return self.entries.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        if self._keys is not None and key not in self.entries:
            insort(self._keys, key)
        self.entries[key] = value

    def delete(self, key: bytes) -> None:
        if self.entries.pop(key, None) is not None and self._keys is not None:
            del self._keys[bisect_left(self._keys, key)]

    def scan(self, first: bytes = b"", end: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        return iter(self._between(first, end))

    def scan_back(self, first: bytes = b"", end: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        return reversed(self._between(first, end))

    def _between(self, first: bytes, end: bytes | None) -> list[tuple[bytes, bytes]]:
        if self._keys is None:
            self._keys = sorted(self.entries)
        keys = self._keys
        stop = len(keys) if end is None else bisect_left(keys, end)
        return [(key, self.entries[key]) for key in keys[bisect_left(keys, first) : stop]]
