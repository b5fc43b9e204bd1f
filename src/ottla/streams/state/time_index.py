"""An index by time: members leave in the order of their time, then of their bytes.

It is what expires windows and sessions, and what holds back results until their time has come. Members are
paged by spans of time, and one page lists the spans in use, so that finding what is due costs a look at the
first span.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ottla.streams.state.backend import Backend
from ottla.streams.state.pages import Pages

_SPANS = b"spans"


class TimeIndex:
    __slots__ = ("_backend", "_first_ms", "_members", "_pages", "_spans", "_width_ms")

    def __init__(self, backend: Backend, width_ms: int) -> None:
        self._backend = backend
        self._pages = Pages(backend, b"t")
        self._width_ms = max(1, width_ms)
        # Decoded pages as dictionaries, because members come and go one by one.
        self._members: dict[int, dict[tuple[int, bytes], None]] = {}
        self._spans: list[int] | None = None
        self._first_ms: int | None = None

    def add(self, time_ms: int, member: bytes) -> None:
        span = time_ms // self._width_ms
        members = self._load(span)
        if not members and span not in self.spans():
            self.spans().append(span)
            self.spans().sort()
        members[time_ms, member] = None
        if self._first_ms is not None:
            self._first_ms = min(self._first_ms, time_ms)

    def remove(self, time_ms: int, member: bytes) -> None:
        span = time_ms // self._width_ms
        members = self._load(span)
        members.pop((time_ms, member), None)
        if not members and span in self.spans():
            self.spans().remove(span)
        if self._first_ms == time_ms:
            self._first_ms = None

    def first_ms(self) -> int | None:
        """The earliest time in the index."""
        if self._first_ms is None and self.spans():
            self._first_ms = min(time_ms for time_ms, _ in self._load(self.spans()[0]))
        return self._first_ms if self.spans() else None

    def pop_before(self, time_ms: int) -> Iterator[tuple[int, bytes]]:
        """Take out, in order, all members with an earlier time. Members added meanwhile wait for the next
        call."""
        first = self.first_ms()
        if first is None or first >= time_ms:
            return
        due: list[tuple[int, bytes]] = []
        for span in list(self.spans()):
            if span * self._width_ms >= time_ms:
                break
            due.extend(sorted(member for member in self._load(span) if member[0] < time_ms))
        for due_ms, member in due:
            self.remove(due_ms, member)
            yield due_ms, member

    def spans(self) -> list[int]:
        if self._spans is None:
            self._spans = [entry[0] for entry in self._pages.get(_SPANS)]
        return self._spans

    def _load(self, span: int) -> dict[tuple[int, bytes], None]:
        members = self._members.get(span)
        if members is None:
            page = self._pages.get(struct.pack(">q", span))
            members = self._members[span] = {(entry[0], entry[2] or b""): None for entry in page}
        return members

    def members(self) -> list[tuple[int, bytes]]:
        """Everything in the index, in order."""
        return sorted(member for span in self.spans() for member in self._load(span))

    def flush(self) -> None:
        for span, members in sorted(self._members.items()):
            key = struct.pack(">q", span)
            page = self._pages.get(key)
            wanted = [(time_ms, 0, member) for time_ms, member in sorted(members)]
            if page != wanted:
                page[:] = wanted
                self._pages.changed(key)
        if self._spans is not None:
            page = self._pages.get(_SPANS)
            wanted_spans = [(span, 0, None) for span in self._spans]
            if page != wanted_spans:
                page[:] = wanted_spans
                self._pages.changed(_SPANS)
        self._pages.flush()
        self._members.clear()
        self._spans = None
        self._first_ms = None
