"""Time-outs as data: what is due, by key, with one heap per shard.

Heartbeats move a deadline further out thousands of times a second, so moving one only notes the new time; the
heap entry is put back when it surfaces too early.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple


class Timer(NamedTuple):
    """What is timed: the kind decides what happens, group and member (or neither) whom it concerns."""

    kind: str
    group: str = ""
    member: str = ""


class _Entry:
    __slots__ = ("deadline_ms", "detail", "queued_ms")

    def __init__(self, deadline_ms: int, detail: int) -> None:
        self.deadline_ms = deadline_ms
        self.detail = detail
        self.queued_ms = deadline_ms
        """Where in the heap this timer stands; other entries of the same timer are leftovers."""


class Timers:
    __slots__ = ("_entries", "_heap")

    def __init__(self) -> None:
        self._entries: dict[Timer, _Entry] = {}
        self._heap: list[tuple[int, Timer]] = []

    def schedule(self, timer: Timer, deadline_ms: int, detail: int = 0) -> None:
        """`detail` comes back with the timer: the epoch or generation it was set for."""
        entry = self._entries.get(timer)
        if entry is None:
            self._entries[timer] = _Entry(deadline_ms, detail)
        else:
            entry.deadline_ms, entry.detail = deadline_ms, detail
            if entry.queued_ms <= deadline_ms:
                return
            entry.queued_ms = deadline_ms
        heapq.heappush(self._heap, (deadline_ms, timer))

    def schedule_if_absent(self, timer: Timer, deadline_ms: int) -> None:
        if timer not in self._entries:
            self.schedule(timer, deadline_ms)

    def cancel(self, timer: Timer) -> None:
        self._entries.pop(timer, None)

    def __contains__(self, timer: Timer) -> bool:
        return timer in self._entries

    def next_deadline_ms(self) -> int | None:
        """No timer is due before this; it may be that none is due then either."""
        heap = self._heap
        while heap:
            at, timer = heap[0]
            entry = self._entries.get(timer)
            if entry is not None and entry.queued_ms == at:
                return at
            heapq.heappop(heap)
        return None

    def pop_due(self, now_ms: int) -> tuple[Timer, int] | None:
        """The earliest timer that is due, removed, with its detail. Equal deadlines go by key."""
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            at, timer = heapq.heappop(heap)
            entry = self._entries.get(timer)
            if entry is None or entry.queued_ms != at:
                continue
            if entry.deadline_ms > at:
                entry.queued_ms = entry.deadline_ms
                heapq.heappush(heap, (entry.deadline_ms, timer))
                continue
            del self._entries[timer]
            return timer, entry.detail
        return None
