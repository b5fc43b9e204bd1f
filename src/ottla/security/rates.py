"""How much of something there was lately, measured as Apache Kafka measures it for quotas.

The time is an argument; milliseconds throughout.
"""

from __future__ import annotations

from collections import deque

WAIT_MS_MAX = 2**31 - 1
"""More does not fit into an answer."""


class SampledRate:
    """Per second, over the last `samples` windows. A rate that has just begun is taken as spread over all but
    one of them, so that a short burst is no violation."""

    __slots__ = ("_samples", "_values", "_window_ms")

    def __init__(self, samples: int, window_ms: int) -> None:
        self._samples = samples
        self._window_ms = window_ms
        self._values: deque[list[float]] = deque()
        """[when it began, how much], oldest first."""

    def record(self, amount: float, now_ms: float) -> None:
        values = self._values
        if not values or now_ms - values[-1][0] >= self._window_ms:
            self._forget(now_ms)
            values.append([now_ms, amount])
        else:
            values[-1][1] += amount

    def take_back(self, amount: float, now_ms: float) -> None:
        self.record(-amount, now_ms)

    def measure(self, now_ms: float) -> tuple[float, float]:
        """(per second, over how many milliseconds)."""
        self._forget(now_ms)
        if not self._values:
            return 0.0, self._shortest_ms
        elapsed_ms = now_ms - self._values[0][0]
        missing = self._samples - 1 - elapsed_ms // self._window_ms
        if missing > 0:
            elapsed_ms += missing * self._window_ms
        total = sum(value for _, value in self._values)
        return total / elapsed_ms * 1000, elapsed_ms

    @property
    def _shortest_ms(self) -> float:
        return max(self._samples - 1, 1) * self._window_ms

    def is_idle(self, now_ms: float) -> bool:
        self._forget(now_ms)
        return not self._values

    def _forget(self, now_ms: float) -> None:
        oldest_ms = now_ms - self._samples * self._window_ms
        values = self._values
        while values and values[0][0] <= oldest_ms:
            values.popleft()


class RateLimit:
    """Counts, and says how long whoever caused it has to wait for the rate to be what it may be."""

    __slots__ = ("_rate", "_window_ms", "_windows", "per_second")

    def __init__(self, per_second: float, samples: int, window_ms: int) -> None:
        self.per_second = per_second
        self._rate = SampledRate(samples, window_ms)
        self._windows = max(samples - 1, 1)
        self._window_ms = window_ms

    def record(self, amount: float, now_ms: float) -> int:
        self._rate.record(amount, now_ms)
        return self.throttle_ms(now_ms)

    def take_back(self, amount: float, now_ms: float) -> None:
        self._rate.take_back(amount, now_ms)

    def throttle_ms(self, now_ms: float, *, longest_windows: int | None = None) -> int:
        rate, window_ms = self._rate.measure(now_ms)
        if rate <= self.per_second:
            return 0
        wait_ms = min(round((rate - self.per_second) / self.per_second * window_ms), WAIT_MS_MAX)
        return wait_ms if longest_windows is None else min(wait_ms, longest_windows * self._window_ms)

    @property
    def window_amount(self) -> float:
        """As much as there may be at once after a pause."""
        return self.per_second * self._windows * self._window_ms / 1000

    def is_idle(self, now_ms: float) -> bool:
        return self._rate.is_idle(now_ms)


class TokenBucket:
    """For changes of the cluster, of which a whole burst may come at once: what is there is given as a whole,
    into debt if need be, and who comes while there is debt has to wait."""

    __slots__ = ("_burst_s", "_filled_at_ms", "_tokens", "per_second")

    def __init__(self, per_second: float, samples: int, window_ms: int) -> None:
        self.per_second = per_second
        self._burst_s = samples * window_ms / 1000
        self._tokens = self._burst_s * per_second
        self._filled_at_ms: float | None = None

    def throttle_ms(self, now_ms: float) -> int:
        self._fill(now_ms)
        return min(round(-self._tokens / self.per_second * 1000), WAIT_MS_MAX) if self._tokens < 0 else 0

    def record(self, amount: float, now_ms: float) -> int:
        self._fill(now_ms)
        self._tokens = min(self._tokens - amount, self._burst_s * self.per_second)
        return self.throttle_ms(now_ms)

    def is_idle(self, now_ms: float) -> bool:
        self._fill(now_ms)
        return self._tokens >= self._burst_s * self.per_second

    def _fill(self, now_ms: float) -> None:
        if self._filled_at_ms is not None:
            gained = (now_ms - self._filled_at_ms) / 1000 * self.per_second
            self._tokens = min(self._tokens + gained, self._burst_s * self.per_second)
        self._filled_at_ms = now_ms
