"""The latest time that a store has seen, kept with the store: what is too old is measured from it."""

from __future__ import annotations

from ottla.streams.state.backend import Backend
from ottla.streams.state.entry_lists import EntryLists

_ONLY = b""


class LatestTime:
    __slots__ = ("_is_changed", "_is_known", "_kept", "_time_ms")

    def __init__(self, backend: Backend) -> None:
        self._kept = EntryLists(backend, b"c")
        # Asked for with every record, so it is not looked up each time.
        self._time_ms: int | None = None
        self._is_known = self._is_changed = False

    def observe(self, time_ms: int) -> None:
        latest_ms = self._latest()
        if latest_ms is None or time_ms > latest_ms:
            self._time_ms = time_ms
            self._is_changed = True

    def minus(self, span_ms: int) -> int:
        """The time that lies so long before; 0 where there is none, or nothing was seen yet."""
        latest_ms = self._latest()
        return 0 if latest_ms is None else max(0, latest_ms - span_ms)

    def flush(self) -> None:
        if self._is_changed:
            assert self._time_ms is not None
            self._kept.get(_ONLY)[:] = [(self._time_ms, 0, None)]
            self._kept.changed(_ONLY)
            self._is_changed = False
        self._kept.flush()

    def _latest(self) -> int | None:
        if not self._is_known:
            kept = self._kept.get(_ONLY)
            self._time_ms = kept[0][0] if kept else None
            self._is_known = True
        return self._time_ms
