"""Short lists of entries under one key, decoded once and written back on ``flush``.

Windows of a key, sessions of a key and everything due in a span of time each form one list.
"""

from __future__ import annotations

import struct

from ottla.streams.state.backend import Backend

Entry = tuple[int, int, bytes | None]

_HEAD = struct.Struct(">qqi")


def encode_entries(entries: list[Entry]) -> bytes:
    parts: list[bytes] = []
    for first, second, value in entries:
        if value is None:
            parts.append(_HEAD.pack(first, second, -1))
        else:
            parts.append(_HEAD.pack(first, second, len(value)))
            parts.append(value)
    return b"".join(parts)


def decode_entries(data: bytes) -> list[Entry]:
    entries: list[Entry] = []
    position = 0
    while position < len(data):
        first, second, size = _HEAD.unpack_from(data, position)
        position += _HEAD.size
        if size < 0:
            entries.append((first, second, None))
        else:
            entries.append((first, second, data[position : position + size]))
            position += size
    return entries


class EntryLists:
    """The lists of one store. A list handed out may be changed in place if ``changed`` is told."""

    __slots__ = ("_backend", "_dirty", "_lists", "_prefix")

    def __init__(self, backend: Backend, prefix: bytes) -> None:
        self._backend = backend
        self._prefix = prefix
        self._lists: dict[bytes, list[Entry]] = {}
        self._dirty: set[bytes] = set()

    def get(self, key: bytes) -> list[Entry]:
        listed = self._lists.get(key)
        if listed is None:
            data = self._backend.get(self._prefix + key)
            listed = self._lists[key] = [] if data is None else decode_entries(data)
        return listed

    def changed(self, key: bytes) -> None:
        self._dirty.add(key)

    def between(self, first: bytes, last: bytes) -> list[tuple[bytes, list[Entry]]]:
        """Lists that hold something, by their keys, both ends included."""
        self.flush()
        size = len(self._prefix)
        found = self._backend.scan(self._prefix + first, self._prefix + last + b"\0")
        return [(key[size:], decode_entries(data)) for key, data in found]

    def flush(self) -> None:
        for key in sorted(self._dirty):
            listed = self._lists[key]
            if listed:
                self._backend.put(self._prefix + key, encode_entries(listed))
            else:
                self._backend.delete(self._prefix + key)
        self._dirty.clear()
        self._lists.clear()


class Tally:
    """How many entries a store has, and the bytes of their values, kept with the store."""

    __slots__ = ("_kept",)

    def __init__(self, backend: Backend) -> None:
        self._kept = EntryLists(backend, b"n")

    @property
    def entries(self) -> int:
        kept = self._kept.get(b"")
        return kept[0][0] if kept else 0

    @property
    def size_bytes(self) -> int:
        kept = self._kept.get(b"")
        return kept[0][1] if kept else 0

    def add(self, entries: int, size_bytes: int = 0) -> None:
        if entries or size_bytes:
            total = self.entries + entries, self.size_bytes + size_bytes
            # What has nothing left is as what never had anything.
            self._kept.get(b"")[:] = [(*total, None)] if any(total) else []
            self._kept.changed(b"")

    def flush(self) -> None:
        self._kept.flush()
