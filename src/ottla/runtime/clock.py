"""Time, as an argument. Timers (sleep, time-outs) come from the event loop, which the simulator replaces."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since the Unix epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back; the event loop's own time."""
        ...


class SystemClock:
    # Bound methods of the C functions would be faster still, but now_ms must return an int.
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()
