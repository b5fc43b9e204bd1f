"""Timers of processors: punctuation by stream time and by the clock.

When a timer is next due is remembered with the task's state, so that it survives a restart and a task that is
made anew for the next records; so does that it was cancelled. A timer that missed several beats fires once
and keeps its rhythm, as in Kafka Streams.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

# When a cancelled timer is due.
_NEVER_MS = (1 << 63) - 1


class Numbers(Protocol):
    def get(self, name: str) -> int | None: ...

    def set(self, name: str, number: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Timer:
    name: str
    interval_ms: int
    callback: Callable[[int], None]
    memory: Numbers

    def cancel(self) -> None:
        self.memory.set(self.name, _NEVER_MS)

    def begin(self, due_ms: int) -> None:
        """Unless it is known from before."""
        if self.memory.get(self.name) is None:
            self.memory.set(self.name, due_ms)

    @property
    def due_ms(self) -> int:
        due_ms = self.memory.get(self.name)
        assert due_ms is not None
        return due_ms

    def fire(self, time_ms: int) -> None:
        due_ms = self.due_ms
        if due_ms <= time_ms:
            missed = (time_ms - due_ms) // self.interval_ms
            self.memory.set(self.name, due_ms + (missed + 1) * self.interval_ms)
            self.callback(time_ms)


class Timers:
    def __init__(self, memory: Numbers) -> None:
        self._memory = memory
        self.by_stream_time: list[Timer] = []
        self.by_wall_clock: list[Timer] = []

    def add_stream_time(self, name: str, interval_ms: int, callback: Callable[[int], None]) -> Timer:
        """Aligned to zero: first due with the first record."""
        return self._add(self.by_stream_time, Timer(name, interval_ms, callback, self._memory), 0)

    def add_wall_clock(
        self, name: str, interval_ms: int, callback: Callable[[int], None], now_ms: int
    ) -> Timer:
        timer = Timer(name, interval_ms, callback, self._memory)
        return self._add(self.by_wall_clock, timer, now_ms + interval_ms)

    def fire_stream_time(self, time_ms: int) -> None:
        for timer in self.by_stream_time:
            timer.fire(time_ms)

    def fire_wall_clock(self, time_ms: int) -> None:
        for timer in self.by_wall_clock:
            timer.fire(time_ms)

    def next_wall_clock_ms(self) -> int | None:
        """When the clock next has to be looked at."""
        due_ms = min((timer.due_ms for timer in self.by_wall_clock), default=_NEVER_MS)
        return None if due_ms == _NEVER_MS else due_ms

    @staticmethod
    def _add(timers: list[Timer], timer: Timer, due_ms: int) -> Timer:
        timer.begin(due_ms)
        timers.append(timer)
        return timer
