"""Timers of processors: punctuation by stream time and by the clock.

When a timer is next due is remembered with the task's state, so that it survives a restart. A timer that
missed several beats fires once and keeps its rhythm, as in Kafka Streams.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


class Numbers(Protocol):
    def get(self, name: str) -> int | None: ...

    def set(self, name: str, number: int) -> None: ...


@dataclass(slots=True)
class Timer:
    name: str
    interval_ms: int
    callback: Callable[[int], None]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


class Timers:
    def __init__(self, memory: Numbers) -> None:
        self._memory = memory
        self.by_stream_time: list[Timer] = []
        self._by_wall_clock: list[Timer] = []

    def add_stream_time(self, name: str, interval_ms: int, callback: Callable[[int], None]) -> Timer:
        """Aligned to zero: first due with the first record."""
        timer = Timer(name, interval_ms, callback)
        self.by_stream_time.append(timer)
        if self._memory.get(name) is None:
            self._memory.set(name, 0)
        return timer

    def add_wall_clock(
        self, name: str, interval_ms: int, callback: Callable[[int], None], now_ms: int
    ) -> Timer:
        timer = Timer(name, interval_ms, callback)
        self._by_wall_clock.append(timer)
        if self._memory.get(name) is None:
            self._memory.set(name, now_ms + interval_ms)
        return timer

    def fire_stream_time(self, time_ms: int) -> None:
        for timer in self.by_stream_time:
            self._fire(timer, time_ms)

    def fire_wall_clock(self, time_ms: int) -> None:
        for timer in self._by_wall_clock:
            self._fire(timer, time_ms)

    def next_wall_clock_ms(self) -> int | None:
        """When the clock next has to be looked at."""
        due = [self._memory.get(timer.name) for timer in self._by_wall_clock if not timer.cancelled]
        return min((due_ms for due_ms in due if due_ms is not None), default=None)

    def _fire(self, timer: Timer, time_ms: int) -> None:
        due_ms = self._memory.get(timer.name)
        if timer.cancelled or due_ms is None or due_ms > time_ms:
            return
        missed = (time_ms - due_ms) // timer.interval_ms
        self._memory.set(timer.name, due_ms + (missed + 1) * timer.interval_ms)
        timer.callback(time_ms)
