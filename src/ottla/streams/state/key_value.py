"""Key-value store: a table, or the memory of a processor. Each value carries the timestamp of its record."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

from ottla.streams.records import ValueAndTimestamp, new_tuple
from ottla.streams.serdes import Serde
from ottla.streams.state.backend import Backend, Log, end_of_prefix, log_nothing
from ottla.streams.state.keys import key_writer
from ottla.streams.state.time_index import TimeIndex

_TIMESTAMP = struct.Struct(">q")


class KeyValueStore:
    """Values by key, in the order of the keys' bytes. Every ``get`` gives a fresh object, so changing it in
    place does not change the store."""

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
        self._write(self._key_bytes(key), self._value.serialize(value), timestamp_ms)

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
        """All entries in the order of their keys' bytes."""
        return self._shown(self._scan(b"", None))

    def reverse_all(self) -> Iterator[tuple[Any, Any]]:
        return self._shown(self._scan(b"", None, backwards=True))

    def range(self, first: Any = None, last: Any = None) -> Iterator[tuple[Any, Any]]:
        """Entries from ``first`` to ``last``, both included, ``None`` for open, in the order of the keys'
        bytes. Reads what is in the range, and no more."""
        return self._shown(self._scan(*self._bounds(first, last)))

    def reverse_range(self, first: Any = None, last: Any = None) -> Iterator[tuple[Any, Any]]:
        """The same, last one first."""
        return self._shown(self._scan(*self._bounds(first, last), backwards=True))

    def prefix_scan(self, prefix: bytes) -> Iterator[tuple[Any, Any]]:
        """Entries whose key bytes start with the prefix. Reads those, and no more."""
        return self._shown(self._scan(prefix, end_of_prefix(prefix)))

    def entry_count(self) -> int:
        return self._backend.entry_count

    def approximate_num_entries(self) -> int:
        """As Kafka Streams calls it. It is exact."""
        return self.entry_count()

    def restore(self, key: bytes, value: bytes | None, timestamp_ms: int) -> None:
        """Take an entry of the changelog."""
        assert value is not None
        self._backend.put(key, _TIMESTAMP.pack(timestamp_ms) + value)

    def flush(self) -> None:
        """Nothing waits here."""

    def _write(self, key_bytes: bytes, data: bytes | None, timestamp_ms: int) -> None:
        self._log(key_bytes, data, timestamp_ms)
        if data is None:
            self._backend.delete(key_bytes)
        else:
            self._backend.put(key_bytes, _TIMESTAMP.pack(timestamp_ms) + data)

    def _bounds(self, first: Any, last: Any) -> tuple[bytes, bytes | None]:
        last_bytes = self._key.serialize(last)
        return self._key.serialize(first) or b"", None if last_bytes is None else last_bytes + b"\0"

    def _scan(
        self, first: bytes, end: bytes | None, *, backwards: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        return self._backend.scan_back(first, end) if backwards else self._backend.scan(first, end)

    def _shown(self, found: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[Any, Any]]:
        for key, data in found:
            yield self._key.deserialize(key), self._decode(data).value

    def _decode(self, data: bytes) -> ValueAndTimestamp:
        (timestamp_ms,) = _TIMESTAMP.unpack_from(data)
        return new_tuple(ValueAndTimestamp, (self._value.deserialize(data[8:]), timestamp_ms))


_VALUES = b"v"


class ExpiringStore(KeyValueStore):
    """A key-value store that forgets what was not put again for a time, measured by stream time.

    Values written without a timestamp count from the stream time of then. What has expired is not seen any
    more, and leaves, with a tombstone in the changelog, at the next flush.
    """

    __slots__ = ("_index", "_now_ms", "_ttl_ms")

    def __init__(
        self,
        name: str,
        backend: Backend,
        key: Serde,
        value: Serde,
        *,
        ttl_ms: int,
        now_ms: Callable[[], int],
        log: Log = log_nothing,
    ) -> None:
        super().__init__(name, backend, key, value, log)
        self._ttl_ms = ttl_ms
        self._now_ms = now_ms
        self._index = TimeIndex(backend)

    def get_with_timestamp(self, key: Any) -> ValueAndTimestamp | None:
        data = self._backend.get(_VALUES + self._key_bytes(key))
        return None if data is None or not self._is_alive(data) else self._decode(data)

    def put(self, key: Any, value: Any, timestamp_ms: int = -1) -> None:
        key_bytes, data = self._key_bytes(key), self._value.serialize(value)
        time_ms = max(0, self._now_ms()) if timestamp_ms < 0 else timestamp_ms
        self._log(key_bytes, data, time_ms)
        self._set(key_bytes, data, time_ms)

    def restore(self, key: bytes, value: bytes | None, timestamp_ms: int) -> None:
        self._set(key, value, timestamp_ms)

    def entry_count(self) -> int:
        """Also counts what has expired since the last flush."""
        # Each has its place in the index.
        return self._backend.entry_count // 2

    def flush(self) -> None:
        for _, key_bytes in self._index.pop_before(self._now_ms() - self._ttl_ms + 1):
            self._backend.delete(_VALUES + key_bytes)
            self._log(key_bytes, None, -1)

    def _set(self, key_bytes: bytes, data: bytes | None, timestamp_ms: int) -> None:
        present = self._backend.get(_VALUES + key_bytes)
        if present is not None:
            self._index.remove(_TIMESTAMP.unpack_from(present)[0], key_bytes)
        if data is None:
            self._backend.delete(_VALUES + key_bytes)
        else:
            self._backend.put(_VALUES + key_bytes, _TIMESTAMP.pack(timestamp_ms) + data)
            self._index.add(timestamp_ms, key_bytes)

    def _scan(
        self, first: bytes, end: bytes | None, *, backwards: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        last = end_of_prefix(_VALUES) if end is None else _VALUES + end
        for key, data in super()._scan(_VALUES + first, last, backwards=backwards):
            if self._is_alive(data):
                yield key[len(_VALUES) :], data

    def _is_alive(self, data: bytes) -> bool:
        written_ms: int = _TIMESTAMP.unpack_from(data)[0]
        return written_ms + self._ttl_ms > self._now_ms()
