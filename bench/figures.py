"""The figures of the comparison: what each is called, its unit, which way is better, and the target."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatch

RECORD_SIZES = {"100b": 100, "1kb": 1000}
ACKS = {"acks1": 1, "all": -1}
RATES = {"1k": 1_000, "10k": 10_000}
PERCENTILES = ("p50", "p99", "p99.9")


class Better(Enum):
    HIGHER = "≥"
    LOWER = "≤"


@dataclass(frozen=True, slots=True)
class Figure:
    id: str
    title: str
    unit: str
    better: Better
    target: float | None = None

    def met(self, ratio: float) -> bool | None:
        """Whether Ottla's value as a multiple of the peer's reaches the target; None without a target."""
        if self.target is None:
            return None
        return ratio >= self.target if self.better is Better.HIGHER else ratio <= self.target

    def matches(self, pattern: str) -> bool:
        return fnmatch(self.id, pattern) or pattern in self.id


def _throughput(id: str, title: str) -> Figure:
    return Figure(id, title, "MB/s", Better.HIGHER, 1.5)


def _latency(prefix: str, title: str) -> list[Figure]:
    return [
        Figure(f"{prefix}.{percentile}", f"{title}, {percentile}", "ms", Better.LOWER, target)
        for percentile, target in zip(PERCENTILES, (None, 1.0, None), strict=True)
    ]


def _all() -> list[Figure]:
    figures = []
    for client, who in (("replay", "replay"), ("java", "Kafka's tool")):
        for size, value_bytes in RECORD_SIZES.items():
            for acks, count in ACKS.items():
                title = f"produce {value_bytes} B, acks={'all' if count < 0 else count} ({who})"
                figures.append(_throughput(f"{client}.produce.{size}.{acks}", title))
    figures += [
        _throughput("replay.consume.beginning", "consume from the beginning (replay)"),
        _throughput("replay.consume.tail", "consume the tail while producing (replay)"),
        _throughput("java.consume.beginning", "consume from the beginning (Kafka's tool)"),
        Figure(
            "replay.requests", "single-record produce requests (replay)", "requests/s", Better.HIGHER, 1.5
        ),
        Figure("replay.requests.cpu", "broker CPU per single-record request", "µs", Better.LOWER, 0.5),
        Figure("replay.cpu.produce", "broker CPU per GB produced (1 kB)", "s/GB", Better.LOWER, 0.5),
        Figure("replay.cpu.consume", "broker CPU per GB consumed (1 kB)", "s/GB", Better.LOWER, 0.5),
    ]
    for name, rate in RATES.items():
        figures += _latency(f"replay.latency.{name}", f"latency at {rate:,} records/s (replay)")
    figures += _latency("java.latency", "latency, one at a time (Kafka's tool)")
    figures += [
        Figure("start", "process start to first acknowledged record", "s", Better.LOWER, 0.1),
        Figure("memory.idle", "memory (RSS), idle", "MB", Better.LOWER, 0.1),
        Figure("memory.loaded", "memory (RSS), after load", "MB", Better.LOWER, 0.1),
        Figure("memory.private", "memory without mapped files, after load", "MB", Better.LOWER, 0.1),
    ]
    return figures


FIGURES = {figure.id: figure for figure in _all()}


def select(patterns: list[str]) -> set[str]:
    """Ids of the figures that match any pattern; all of them where there is none."""
    if not patterns:
        return set(FIGURES)
    chosen = set()
    for pattern in patterns:
        matching = {figure.id for figure in FIGURES.values() if figure.matches(pattern)}
        if not matching:
            raise ValueError(f"no figure matches {pattern!r}; --list shows them all")
        chosen |= matching
    return chosen
