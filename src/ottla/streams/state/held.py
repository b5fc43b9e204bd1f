"""Stores that hold what is read and written as objects until the next flush.

Most keys of a micro-batch come several times in it. Read from bytes once and written once, the times in
between cost a look into a dictionary. That needs keys that are equal only where their bytes are, and values
that come back from bytes as they went in and that nobody can change in place. For others `open_store` takes
the stores that these are built on.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

from ottla.streams.records import ValueAndTimestamp, Windowed, new_tuple
from ottla.streams.serdes import Serde
from ottla.streams.state.backend import Backend, Log, log_nothing
from ottla.streams.state.key_value import KeyValueStore
from ottla.streams.state.window import WindowStore

# What is held at most, in entries and in bytes of values; when it is more, all is flushed.
HELD_MAX: Final = 1 << 15
HELD_BYTES_MAX: Final = 8 * 1024 * 1024

# Not float: zero equals minus zero, and what is not a number does not equal itself.
_KEYS = frozenset({str, int, bytes, bool})
_UNKNOWN = new_tuple(ValueAndTimestamp, (None, -1))
_NEVER_MS = -(1 << 63)
_TIME = struct.Struct(">q")
_TIMES = struct.Struct(">qq")


def can_be_held(key: Serde, value: Serde) -> bool:
    return key.exact in _KEYS and value.exact is not None


class HeldKeyValueStore(KeyValueStore):
    __slots__ = ("_changed", "_held", "_held_bytes", "_key_kind", "_value_bytes", "_value_kind")

    def __init__(self, name: str, backend: Backend, key: Serde, value: Serde, log: Log = log_nothing) -> None:
        super().__init__(name, backend, key, value, log)
        self._key_kind, self._value_kind = key.exact, value.exact
        self._value_bytes = value.quick_writer()
        # None: there is no value.
        self._held: dict[Any, ValueAndTimestamp | None] = {}
        # What the backend does not know yet: bytes and timestamp.
        self._changed: dict[Any, tuple[bytes | None, int]] = {}
        self._held_bytes = 0

    def get_with_timestamp(self, key: Any) -> ValueAndTimestamp | None:
        if type(key) is not self._key_kind:
            self.flush()
            return super().get_with_timestamp(key)
        found = self._held.get(key, _UNKNOWN)
        if found is _UNKNOWN:
            data = self._backend.get(self._key_bytes(key))
            found = None if data is None else self._decode(data)
            self._hold(key, found, data)
        return found

    def put(self, key: Any, value: Any, timestamp_ms: int = -1) -> None:
        if type(key) is not self._key_kind or (type(value) is not self._value_kind and value is not None):
            self.flush()
            super().put(key, value, timestamp_ms)
            return
        # Made into bytes at once: what cannot be is the fault of the record that brings it.
        data = self._value_bytes(value)
        _TIME.pack(timestamp_ms)
        if key not in self._held:
            self._key_bytes(key)
        self._changed[key] = (data, timestamp_ms)
        self._hold(key, None if data is None else new_tuple(ValueAndTimestamp, (value, timestamp_ms)), data)

    def entry_count(self) -> int:
        self._write_changed()
        return super().entry_count()

    def flush(self) -> None:
        self._write_changed()
        self._held.clear()
        self._held_bytes = 0

    def _hold(self, key: Any, found: ValueAndTimestamp | None, data: bytes | None) -> None:
        self._held[key] = found
        self._held_bytes += 0 if data is None else len(data)
        if len(self._held) > HELD_MAX or self._held_bytes > HELD_BYTES_MAX:
            self.flush()

    def _write_changed(self) -> None:
        for key, (data, timestamp_ms) in self._changed.items():
            self._write(self._key_bytes(key), data, timestamp_ms)
        self._changed.clear()

    def _scan(
        self, first: bytes, end: bytes | None, *, backwards: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        self._write_changed()
        return super()._scan(first, end, backwards=backwards)


class HeldWindowStore(WindowStore):
    __slots__ = (
        "_changed",
        "_held",
        "_held_bytes",
        "_key_kind",
        "_live_ms",
        "_newest_ms",
        "_value_bytes",
        "_value_kind",
    )

    def __init__(
        self,
        name: str,
        backend: Backend,
        key: Serde,
        value: Serde,
        *,
        size_ms: int,
        retention_ms: int,
        log: Log = log_nothing,
    ) -> None:
        super().__init__(name, backend, key, value, size_ms=size_ms, retention_ms=retention_ms, log=log)
        self._key_kind, self._value_kind = key.exact, value.exact
        self._value_bytes = value.quick_writer()
        # By start and key.
        self._held: dict[tuple[int, Any], ValueAndTimestamp | None] = {}
        self._changed: dict[tuple[int, Any], tuple[bytes | None, int]] = {}
        self._held_bytes = 0
        self._newest_ms = _NEVER_MS
        # The oldest start that is not forgotten yet, once it was asked for.
        self._live_ms: int | None = None

    def put(self, key: Any, value: Any, start_ms: int, timestamp_ms: int = -1) -> None:
        if type(key) is not self._key_kind or (type(value) is not self._value_kind and value is not None):
            self.flush()
            super().put(key, value, start_ms, timestamp_ms)
            self._live_ms = None
            return
        # Made into bytes at once: what cannot be is the fault of the record that brings it.
        data = self._value_bytes(value)
        _TIMES.pack(start_ms, timestamp_ms)
        place = (start_ms, key)
        if place not in self._held:
            self._key_bytes(key)
        if start_ms > self._newest_ms:
            self._latest.observe(start_ms)
            self._newest_ms, self._live_ms = start_ms, None
        if start_ms < self._oldest_live_ms():
            return
        self._changed[place] = (data, timestamp_ms)
        self._hold(place, None if data is None else new_tuple(ValueAndTimestamp, (value, timestamp_ms)), data)

    def fetch_with_timestamp(self, key: Any, start_ms: int) -> ValueAndTimestamp | None:
        if type(key) is not self._key_kind:
            self.flush()
            return super().fetch_with_timestamp(key, start_ms)
        if start_ms < self._oldest_live_ms():
            return None
        place = (start_ms, key)
        found = self._held.get(place, _UNKNOWN)
        if found is _UNKNOWN:
            found = super().fetch_with_timestamp(key, start_ms)
            self._hold(place, found, None)
        return found

    def fetch_range(self, key: Any, from_ms: int, to_ms: int) -> list[tuple[int, ValueAndTimestamp]]:
        self._write_changed()
        return super().fetch_range(key, from_ms, to_ms)

    def fetch_all(self, from_ms: int, to_ms: int) -> Iterator[tuple[Windowed, Any]]:
        self._write_changed()
        return super().fetch_all(from_ms, to_ms)

    def entry_count(self) -> int:
        self._write_changed()
        return super().entry_count()

    def flush(self) -> None:
        self._write_changed()
        self._held.clear()
        self._held_bytes = 0
        super().flush()

    def _hold(self, place: tuple[int, Any], found: ValueAndTimestamp | None, data: bytes | None) -> None:
        self._held[place] = found
        self._held_bytes += 0 if data is None else len(data)
        if len(self._held) > HELD_MAX or self._held_bytes > HELD_BYTES_MAX:
            self.flush()

    def _write_changed(self) -> None:
        for (start_ms, key), (data, timestamp_ms) in self._changed.items():
            self._write(self._key_bytes(key), start_ms, timestamp_ms, data)
        self._changed.clear()

    def _oldest_live_ms(self) -> int:
        if self._live_ms is None:
            self._live_ms = super()._oldest_live_ms()
        return self._live_ms
