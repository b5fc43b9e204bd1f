"""Key-value store: a table, or the memory of a processor. Each value carries the timestamp of its record."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from ottla.streams.records import ValueAndTimestamp
from ottla.streams.serdes import Serde
from ottla.streams.state.backend import Backend, Log, log_nothing
from ottla.streams.state.keys import key_writer

_TIMESTAMP = struct.Struct(">q")


class KeyValueStore:
    """Values by key. Every ``get`` gives a fresh object, so changing it in place does not change the
    store."""

    __slots__ = ("_backend", "_key", "_key_bytes", "_log", "_value", "name")

    def __init__(self, name: str, backend: Backend, key: Serde, value: Serde, log: Log = log_nothing) -> None:
        self.name = name
        self._log = log
        self._backend = backend
        self._key = key
        self._key_bytes = key_writer(key)
        self._value = value

    def get(self, key: Any) -> Any:
        found = self.get_with_timestamp(key)
        return None if found is None else found.value

    def get_with_timestamp(self, key: Any) -> ValueAndTimestamp | None:
        data = self._backend.get(self._key_bytes(key))
        return None if data is None else self._decode(data)

    def put(self, key: Any, value: Any, timestamp_ms: int = -1) -> None:
        """Set the value; ``None`` deletes."""
        key_bytes, data = self._key_bytes(key), self._value.serialize(value)
        self._log(key_bytes, data, timestamp_ms)
        if data is None:
            self._backend.delete(key_bytes)
        else:
            self._backend.put(key_bytes, _TIMESTAMP.pack(timestamp_ms) + data)

    def put_if_absent(self, key: Any, value: Any, timestamp_ms: int = -1) -> Any:
        """The value there was; sets the given one only if there was none."""
        present = self.get(key)
        if present is None:
            self.put(key, value, timestamp_ms)
        return present

    def delete(self, key: Any) -> Any:
        present = self.get(key)
        self.put(key, None)
        return present

    def all(self) -> Iterator[tuple[Any, Any]]:
        """All entries in the order of their keys' bytes. Reads the whole store."""
        return self._between(None, None)

    def range(self, first: Any = None, last: Any = None) -> Iterator[tuple[Any, Any]]:
        """Entries from ``first`` to ``last``, both included, ``None`` for open. Reads the whole store."""
        return self._between(self._key.serialize(first), self._key.serialize(last))

    def reverse_range(self, first: Any = None, last: Any = None) -> Iterator[tuple[Any, Any]]:
        entries: list[tuple[Any, Any]] = list(self.range(first, last))
        return iter(entries[::-1])

    def prefix_scan(self, prefix: bytes) -> Iterator[tuple[Any, Any]]:
        """Entries whose key bytes start with the prefix. Reads the whole store."""
        for key, data in sorted(self._backend.items()):
            if key.startswith(prefix):
                yield self._key.deserialize(key), self._decode(data).value

    def approximate_num_entries(self) -> int:
        return sum(1 for _ in self._backend.items())

    def restore(self, key: bytes, value: bytes, timestamp_ms: int) -> None:
        """Take an entry of the changelog."""
        self._backend.put(key, _TIMESTAMP.pack(timestamp_ms) + value)

    def flush(self) -> None:
        """Nothing waits here."""

    def _between(self, first: bytes | None, last: bytes | None) -> Iterator[tuple[Any, Any]]:
        for key, data in sorted(self._backend.items()):
            if (first is None or key >= first) and (last is None or key <= last):
                yield self._key.deserialize(key), self._decode(data).value

    def _decode(self, data: bytes) -> ValueAndTimestamp:
        return ValueAndTimestamp(self._value.deserialize(data[8:]), _TIMESTAMP.unpack_from(data)[0])
