"""The one interface state needs from its host: a map from bytes to bytes.

The test driver gives a dictionary, Spark its state store. Stores are built so that a record touches a few
keys and never scans: what has to be found by time is paged by time (see ``pages`` and ``time_index``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

# An object for a key, one for a value, and their place in a dictionary.
_ENTRY_MEMORY_BYTES = 200

# Told of every change of a store: the key's bytes, the value's bytes or none, the timestamp.
Log = Callable[[bytes, bytes | None, int], None]


def log_nothing(key: bytes, value: bytes | None, timestamp_ms: int) -> None:
    """For stores nobody follows."""


class Backend(Protocol):
    def get(self, key: bytes) -> bytes | None: ...

    def put(self, key: bytes, value: bytes) -> None: ...

    def delete(self, key: bytes) -> None: ...

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Everything, in any order. Costs as much as the store is large."""
        ...


class MemoryBackend:
    """A dictionary."""

    __slots__ = ("entries",)

    def __init__(self, entries: dict[bytes, bytes] | None = None) -> None:
        self.entries: dict[bytes, bytes] = {} if entries is None else entries

    def get(self, key: bytes) -> bytes | None:
        return self.entries.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        self.entries[key] = value

    def delete(self, key: bytes) -> None:
        self.entries.pop(key, None)

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        return iter(list(self.entries.items()))


class Host(Backend, Protocol):
    """What a ``WriteBackBackend`` writes to: it may hold things back itself."""

    @property
    def memory_bytes(self) -> int: ...

    def flush(self) -> None: ...

    def release(self) -> None: ...


class WriteBackBackend:
    """Keeps what was read and written in memory until ``release``, for hosts where every access costs more
    than looking into a dictionary. The host gets what has changed on ``flush``."""

    __slots__ = ("_dirty", "_entries", "_host", "_written_bytes")

    def __init__(self, host: Host) -> None:
        self._host = host
        self._entries: dict[bytes, bytes | None] = {}
        # In the order of the first change, which is that of records: a restart does the same again.
        self._dirty: dict[bytes, None] = {}
        self._written_bytes = 0

    @property
    def memory_bytes(self) -> int:
        """About what is held in memory, rather more than less."""
        return self._host.memory_bytes + self._written_bytes + len(self._entries) * _ENTRY_MEMORY_BYTES

    def get(self, key: bytes) -> bytes | None:
        try:
            return self._entries[key]
        except KeyError:
            value = self._entries[key] = self._host.get(key)
            return value

    def put(self, key: bytes, value: bytes) -> None:
        self._entries[key] = value
        self._dirty[key] = None
        self._written_bytes += len(value)

    def delete(self, key: bytes) -> None:
        self._entries[key] = None
        self._dirty[key] = None

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        merged: dict[bytes, bytes | None] = dict(self._host.items())
        for key in self._dirty:
            merged[key] = self._entries[key]
        return iter([(key, value) for key, value in merged.items() if value is not None])

    def flush(self) -> None:
        """Write what has changed; all that was read or written stays in memory."""
        for key in self._dirty:
            value = self._entries[key]
            if value is None:
                self._host.delete(key)
            else:
                self._host.put(key, value)
        self._dirty.clear()
        self._host.flush()

    def release(self) -> None:
        """Write what has changed and hold nothing in memory."""
        self.flush()
        self._host.release()
        self._entries.clear()
        self._written_bytes = 0
