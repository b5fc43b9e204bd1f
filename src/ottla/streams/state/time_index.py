"""An index by time: members leave in the order of their time, then of their bytes.

It is what expires windows and sessions, and what holds back results until their time has come. A member is an
entry of its own, its key begins with the time: whatever is due is the beginning of a range.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ottla.streams.state.backend import Backend, end_of_prefix

_PREFIX = b"t"
_TIME = struct.Struct(">Q")
# Added to a time, so that times before 1970 come first.
_ZERO = 1 << 63
_LATEST = _ZERO - 1

Member = tuple[int, bytes]


class TimeIndex:
    __slots__ = ("_backend", "_first", "_is_first_known")

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        # Asked for with every record, so it is not looked up each time.
        self._first: Member | None = None
        self._is_first_known = False

    def add(self, time_ms: int, member: bytes) -> None:
        self._backend.put(_key(time_ms) + member, b"")
        if self._is_first_known and (self._first is None or (time_ms, member) < self._first):
            self._first = (time_ms, member)

    def remove(self, time_ms: int, member: bytes) -> None:
        self._backend.delete(_key(time_ms) + member)
        if self._first == (time_ms, member):
            self._is_first_known = False

    def first(self) -> Member | None:
        """The earliest time in the index, and the first of its members."""
        if not self._is_first_known:
            self._first = next(self.members(), None)
            self._is_first_known = True
        return self._first

    def pop_before(self, time_ms: int) -> Iterator[Member]:
        """Take out, in order, all members with an earlier time. Members added meanwhile wait for the next
        call; those that nobody took stay."""
        first = self.first()
        if first is None or first[0] >= time_ms:
            return
        for member in list(self.members(before_ms=time_ms)):
            if self._backend.get(_key(member[0]) + member[1]) is not None:
                self.remove(*member)
                yield member

    def members(self, from_ms: int = -_ZERO, before_ms: int | None = None) -> Iterator[Member]:
        """Those with a time in a range, in order."""
        end = end_of_prefix(_PREFIX) if before_ms is None else _key(before_ms)
        for key, _ in self._backend.scan(_key(from_ms), end):
            yield _TIME.unpack_from(key, 1)[0] - _ZERO, key[1 + _TIME.size :]


def _key(time_ms: int) -> bytes:
    return _PREFIX + _TIME.pack(min(time_ms, _LATEST) + _ZERO)
