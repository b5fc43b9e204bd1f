"""Faults that repeat, said once in a while."""

from __future__ import annotations

from collections import OrderedDict

from ottla.runtime.clock import Clock

_INTERVAL_SECONDS = 60.0


class Seldom:
    """Asked before each message of a kind; true for the first, then once per interval."""

    __slots__ = ("_clock", "_due", "_interval_seconds")

    def __init__(self, clock: Clock, interval_seconds: float = _INTERVAL_SECONDS) -> None:
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._due = float("-inf")

    def is_due(self) -> bool:
        now = self._clock.monotonic()
        if now < self._due:
            return False
        self._due = now + self._interval_seconds
        return True


class SeldomEach:
    """As `Seldom`, for each of many, of whom the first are forgotten."""

    def __init__(self, clock: Clock, kept_max: int = 1000) -> None:
        self._clock = clock
        self._kept_max = kept_max
        self._due: OrderedDict[str, float] = OrderedDict()

    def is_due(self, whose: str) -> bool:
        now = self._clock.monotonic()
        if now < self._due.get(whose, now):
            return False
        self._due[whose] = now + _INTERVAL_SECONDS
        self._due.move_to_end(whose)
        if len(self._due) > self._kept_max:
            self._due.popitem(last=False)
        return True
