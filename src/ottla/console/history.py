"""What was measured of a cluster in the last hour: rates by topic and group, and how far groups are behind.

Counts come from the protocol alone: ends of logs, committed offsets, sizes of leaders' logs. Rates are
between two looks. A series is kept only of what has moved, so its cost follows traffic and not
the number of topics.
"""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

from ottla.client.admin.topics import Partition

SAMPLES = 360
SERIES_MAX = 4000
"""Of eight bytes for each sample: about eleven mebibytes."""
WHOLE = ""
"""The name under which the sum of all topics is kept, the cluster's own left out."""
_OWN_PREFIX = "__"

Kind: TypeAlias = Literal["recordsIn", "recordsOut", "bytesIn", "lag", "groupOut"]


class Sample(NamedTuple):
    at_s: float
    """Of a clock that never goes back."""
    at_ms: int
    """As people read it."""
    ends: Mapping[Partition, int]
    sizes: Mapping[Partition, int]
    """Of leaders' logs, in bytes."""
    committed: Mapping[str, Mapping[Partition, int]]
    """By group."""


class History:
    def __init__(self, samples: int = SAMPLES, series_max: int = SERIES_MAX) -> None:
        self._samples = samples
        self._series_max = series_max
        self._times = array("q", [0]) * samples
        self._taken = 0
        self._series: dict[tuple[Kind, str], array[float]] = {}
        self._before: Sample | None = None

    def note(self, sample: Sample) -> None:
        before, self._before = self._before, sample
        self._turn(sample.at_ms)
        for group, lag in _lags(sample).items():
            self._put("lag", group, lag)
        if before is None or sample.at_s <= before.at_s:
            return
        elapsed_s = sample.at_s - before.at_s
        read_by_topic: dict[str, int] = defaultdict(int)
        for group, committed in sample.committed.items():
            read = _growth(before.committed.get(group, {}), committed)
            self._put("groupOut", group, sum(read.values()) / elapsed_s)
            for topic, count in read.items():
                read_by_topic[topic] += count
        self._put_all("recordsIn", _growth(before.ends, sample.ends), elapsed_s)
        self._put_all("bytesIn", _growth(before.sizes, sample.sizes), elapsed_s)
        self._put_all("recordsOut", read_by_topic, elapsed_s)

    def note_gap(self, at_ms: int) -> None:
        """The cluster did not answer: charts have a hole there, and rates begin anew."""
        self._before = None
        self._turn(at_ms)

    @property
    def times_ms(self) -> list[int]:
        return [self._times[at] for at in self._order()]

    def values(self, kind: Kind, name: str = WHOLE) -> list[float | None]:
        """As many as there are times; what never moved is zero, and what was not measured None."""
        series = self._series.get((kind, name))
        if series is None:
            return [0.0 if self._taken > 1 else None for _ in self._order()]
        return [None if math.isnan(series[at]) else round(series[at], 3) for at in self._order()]

    def last(self, kind: Kind, name: str = WHOLE) -> float | None:
        """The newest that there is."""
        if self._taken == 0:
            return None
        series = self._series.get((kind, name))
        if series is None:
            return 0.0 if self._taken > 1 else None
        newest = series[(self._taken - 1) % self._samples]
        return None if math.isnan(newest) else newest

    def _order(self) -> list[int]:
        kept = min(self._taken, self._samples)
        return [at % self._samples for at in range(self._taken - kept, self._taken)]

    def _turn(self, at_ms: int) -> None:
        place = self._taken % self._samples
        self._taken += 1
        self._times[place] = at_ms
        for series in self._series.values():
            series[place] = math.nan

    def _put_all(self, kind: Kind, counts: Mapping[str, int], elapsed_s: float) -> None:
        moved = {topic: count for topic, count in counts.items() if count}
        for topic in {*moved, *(name for of, name in list(self._series) if of == kind and name != WHOLE)}:
            if topic in counts:
                self._put(kind, topic, counts[topic] / elapsed_s)
        whole = sum(count for topic, count in moved.items() if not topic.startswith(_OWN_PREFIX))
        self._put(kind, WHOLE, whole / elapsed_s)

    def _put(self, kind: Kind, name: str, value: float) -> None:
        series = self._series.get((kind, name))
        if series is None:
            if value == 0 and name != WHOLE:
                return
            if len(self._series) >= self._series_max:
                self._drop_still_ones()
            if len(self._series) >= self._series_max and name != WHOLE:
                return
            # It was zero until now, or its first move would be drawn from nowhere.
            series = array("d", [0.0 if name != WHOLE else math.nan]) * self._samples
            self._series[kind, name] = series
        series[(self._taken - 1) % self._samples] = value

    def _drop_still_ones(self) -> None:
        self._series = {
            key: series
            for key, series in self._series.items()
            if key[1] == WHOLE or any(value > 0 for value in series)
        }


def _growth(before: Mapping[Partition, int], now: Mapping[Partition, int]) -> dict[str, int]:
    """By topic. What shrinks, by retention or because it was made anew, has not grown."""
    grown: dict[str, int] = defaultdict(int)
    for place, count in now.items():
        grown[place.topic] += max(count - before.get(place, count), 0)
    return grown


def _lags(sample: Sample) -> dict[str, int]:
    return {
        group: sum(max(sample.ends[place] - at, 0) for place, at in committed.items() if place in sample.ends)
        for group, committed in sample.committed.items()
    }
