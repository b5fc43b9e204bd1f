"""Whether bytes go faster than they may: an average over a few windows of time, as in Apache Kafka.

Nothing waits in here. Who is told that it is too fast leaves off, and asks again later; what goes on all the
same is counted, too.
"""

from __future__ import annotations

from collections import deque

from ottla.runtime.clock import Clock


class Throttle:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._window_seconds = 1.0
        self._windows_max = 11
        self.bytes_per_second: float = float("inf")
        self._windows: deque[tuple[float, int]] = deque()
        """Since when, and how many bytes."""

    def configure(self, bytes_per_second: float, windows_max: int, window_seconds: float) -> None:
        """From now on, counting what has gone already."""
        self.bytes_per_second = bytes_per_second
        self._windows_max = windows_max
        self._window_seconds = window_seconds

    def count(self, size: int) -> None:
        now = self._clock.monotonic()
        if self._windows and now - self._windows[-1][0] < self._window_seconds:
            since, counted = self._windows.pop()
            self._windows.append((since, counted + size))
        else:
            self._windows.append((now, size))
        self._forget(now)

    @property
    def is_exceeded(self) -> bool:
        now = self._clock.monotonic()
        self._forget(now)
        if not self._windows:
            return False
        seconds = max(now - self._windows[0][0], self._window_seconds)
        return sum(size for _, size in self._windows) > self.bytes_per_second * seconds

    def _forget(self, now: float) -> None:
        oldest = now - self._windows_max * self._window_seconds
        while self._windows and self._windows[0][0] < oldest:
            self._windows.popleft()
