"""An index by time: members leave in the order of their time, then of their bytes.

It is what expires windows and sessions, and what holds back results until their time has come. Members are
kept by spans of time, each in pages of its own (see ``paged``), and one entry lists the spans in use: adding
and removing touches one page however many members there are, and nothing is read of spans that are not due.
"""

from __future__ import annotations

import heapq
import struct
from bisect import insort
from collections.abc import Iterator

from ottla.streams.state.backend import Backend
from ottla.streams.state.entry_lists import EntryLists
from ottla.streams.state.paged import PagedBackend

_PREFIX = b"t"
_SPANS = b"spans"
_TIME = struct.Struct(">q")

Member = tuple[int, bytes]


class TimeIndex:
    __slots__ = (
        "_backend",
        "_heap",
        "_heap_span",
        "_lists",
        "_members",
        "_spans",
        "_spans_stored",
        "_width_ms",
    )

    def __init__(self, backend: Backend, width_ms: int) -> None:
        self._backend = backend
        self._lists = EntryLists(backend, _PREFIX)
        self._width_ms = max(1, width_ms)
        self._members: dict[int, PagedBackend] = {}
        self._spans: list[int] | None = None
        self._spans_stored: list[int] = []
        # Members of the first span by time, made when somebody asks what comes first. Those that were removed
        # meanwhile are still in it.
        self._heap: list[Member] = []
        self._heap_span: int | None = None

    def add(self, time_ms: int, member: bytes) -> None:
        span = time_ms // self._width_ms
        members, key = self._of(span), _TIME.pack(time_ms) + member
        if members.get(key) is not None:
            return
        members.put(key, b"")
        if span == self._heap_span:
            heapq.heappush(self._heap, (time_ms, member))
        if span not in self.spans():
            insort(self.spans(), span)

    def remove(self, time_ms: int, member: bytes) -> None:
        span = time_ms // self._width_ms
        if span not in self.spans():
            return
        members = self._of(span)
        members.delete(_TIME.pack(time_ms) + member)
        if members.is_empty():
            self.spans().remove(span)

    def first(self) -> Member | None:
        """The earliest time in the index, and the first of its members. Not while ``pop_before`` goes on."""
        spans = self.spans()
        if not spans:
            return None
        if self._heap_span != spans[0]:
            self._heap_span, self._heap = spans[0], self._all_of(spans[0])
            heapq.heapify(self._heap)
        while not self._is_in(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0]

    def pop_before(self, time_ms: int) -> Iterator[Member]:
        """Take out, in order, all members with an earlier time. Members added meanwhile wait for the next
        call."""
        spans = self.spans()
        if not spans or spans[0] * self._width_ms >= time_ms:
            return
        first = self.first()
        if first is None or first[0] >= time_ms:
            return
        due: list[Member] = []
        for span in spans:
            if span * self._width_ms >= time_ms:
                break
            if span == self._heap_span:
                while self._heap and self._heap[0][0] < time_ms:
                    due.append(heapq.heappop(self._heap))
            else:
                due.extend(sorted(member for member in self._all_of(span) if member[0] < time_ms))
        left = len(due)
        try:
            for member in due:
                left -= 1
                if self._is_in(member):
                    self.remove(*member)
                    yield member
        finally:
            if left:
                # Whoever takes them stopped: those left are in the index, but no longer in the heap.
                self._heap_span = None

    def spans(self) -> list[int]:
        """Those with members, in order."""
        if self._spans is None:
            self._spans_stored = [entry[0] for entry in self._lists.get(_SPANS)]
            self._spans = list(self._spans_stored)
        return self._spans

    def members(self) -> list[Member]:
        """Everything in the index, in order."""
        return sorted(member for span in self.spans() for member in self._all_of(span))

    def flush(self) -> None:
        for _, members in sorted(self._members.items()):
            members.flush()
        if self._spans is not None and self._spans != self._spans_stored:
            self._lists.get(_SPANS)[:] = [(span, 0, None) for span in self._spans]
            self._lists.changed(_SPANS)
        self._lists.flush()
        self._members.clear()
        self._spans = None
        self._heap_span = None
        self._heap = []

    def _of(self, span: int) -> PagedBackend:
        members = self._members.get(span)
        if members is None:
            members = PagedBackend(PrefixedBackend(self._backend, _PREFIX + _TIME.pack(span)))
            self._members[span] = members
        return members

    def _is_in(self, member: Member) -> bool:
        key = _TIME.pack(member[0]) + member[1]
        return self._of(member[0] // self._width_ms).get(key) is not None

    def _all_of(self, span: int) -> list[Member]:
        return [(_TIME.unpack_from(key)[0], key[_TIME.size :]) for key, _ in self._of(span).items()]


class PrefixedBackend:
    """The entries of another backend whose keys begin with a prefix."""

    __slots__ = ("_backend", "_prefix")

    def __init__(self, backend: Backend, prefix: bytes) -> None:
        self._backend = backend
        self._prefix = prefix

    def get(self, key: bytes) -> bytes | None:
        return self._backend.get(self._prefix + key)

    def put(self, key: bytes, value: bytes) -> None:
        self._backend.put(self._prefix + key, value)

    def delete(self, key: bytes) -> None:
        self._backend.delete(self._prefix + key)

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        size = len(self._prefix)
        return ((key[size:], value) for key, value in self._backend.items() if key.startswith(self._prefix))
