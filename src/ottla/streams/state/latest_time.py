"""The latest time that a store has seen, kept with the store: what is too old is measured from it."""

from __future__ import annotations

from ottla.streams.state.backend import Backend
from ottla.streams.state.entry_lists import EntryLists

_ONLY = b""


class LatestTime:
    __slots__ = ("_kept",)

    def __init__(self, backend: Backend) -> None:
        self._kept = EntryLists(backend, b"c")

    def observe(self, time_ms: int) -> None:
        kept = self._kept.get(_ONLY)
        if not kept or time_ms > kept[0][0]:
            kept[:] = [(time_ms, 0, None)]
            self._kept.changed(_ONLY)

    def minus(self, span_ms: int) -> int:
        """The time that lies so long before; 0 where there is none, or nothing was seen yet."""
        kept = self._kept.get(_ONLY)
        return max(0, kept[0][0] - span_ms) if kept else 0

    def flush(self) -> None:
        self._kept.flush()
