"""Latencies of many requests: percentiles, and the lines that Kafka's performance tools print of them."""

from __future__ import annotations

import time
from array import array
from typing import Any

_MIB = 1024 * 1024


class Statistics:
    """Of records sent: all of them, and those since the last report."""

    def __init__(self, *, steady: bool = False) -> None:
        self._steady = steady
        self._latencies_s = array("d")
        self._began = self._window_began = time.perf_counter()
        self._window_from = 0
        self._bytes_before = 0
        self.bytes = 0

    @property
    def count(self) -> int:
        return len(self._latencies_s)

    def record(self, latency_s: float, size_bytes: int) -> None:
        """Called for every record: what can be worked out later is."""
        self._latencies_s.append(latency_s)
        self.bytes += size_bytes

    def window_seconds(self) -> float:
        return time.perf_counter() - self._window_began

    def take_window(self) -> str:
        """What happened since the last report; the next one begins here."""
        window = [latency_s * 1000 for latency_s in self._latencies_s[self._window_from :]]
        seconds = self.window_seconds()
        line = (
            f"{len(window)} records sent, {len(window) / seconds:.1f} records/sec "
            f"({(self.bytes - self._bytes_before) / seconds / _MIB:.2f} MB/sec), "
            f"{sum(window) / max(len(window), 1):.1f} ms avg latency, "
            f"{max(window, default=0):.1f} ms max latency."
        )
        self._window_from = len(self._latencies_s)
        self._bytes_before = self.bytes
        self._window_began = time.perf_counter()
        return line

    def totals(self) -> dict[str, Any]:
        seconds = time.perf_counter() - self._began
        ordered = sorted(latency_s * 1000 for latency_s in self._latencies_s)
        return {
            "records": self.count,
            "recordsPerSecond": self.count / seconds,
            "mbPerSecond": self.bytes / seconds / _MIB,
            "latencyAverageMs": sum(ordered) / max(len(ordered), 1),
            "latencyMaxMs": ordered[-1] if ordered else 0.0,
            **{name: int(percentile(ordered, part)) for name, part in _PERCENTILES.items()},
        }

    def total_line(self) -> str:
        totals = self.totals()
        percentiles = ", ".join(f"{totals[name]} ms {name}" for name in _PERCENTILES)
        return (
            f"{totals['records']}{' steady state' if self._steady else ''} records sent, "
            f"{totals['recordsPerSecond']:f} records/sec ({totals['mbPerSecond']:.2f} MB/sec), "
            f"{totals['latencyAverageMs']:.2f} ms avg latency, {totals['latencyMaxMs']:.2f} ms max latency, "
            f"{percentiles}."
        )


_PERCENTILES = {"50th": 0.5, "95th": 0.95, "99th": 0.99, "99.9th": 0.999}


def percentile(ordered: list[float], part: float) -> float:
    return ordered[int(part * len(ordered))] if ordered else 0.0
