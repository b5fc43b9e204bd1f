"""What tasks know, brought to the driver: with the results of each Spark task, in an accumulator.

A task that Spark runs again, or a micro-batch that is repeated, is counted again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from pyspark.accumulators import AccumulatorParam

from ottla.streams.tasks.task import Task

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql import SparkSession


class Kind(Enum):
    RECORDS = "records"
    DROPPED = "dropped"
    FAILED = "failed"
    ENTRIES = "entries"
    BYTES = "bytes"


# Where the last number holds, not the sum of all.
_GAUGES = {Kind.ENTRIES, Kind.BYTES}


class Series(NamedTuple):
    """A number of a query's task: of which node or store, and for which reason."""

    kind: Kind
    query: str
    task: int
    name: str
    detail: str = ""


Report = dict[Series, int]


class _Added(AccumulatorParam[Report]):
    def zero(self, value: Report) -> Report:
        return {}

    def addInPlace(self, value1: Report, value2: Report) -> Report:  # noqa: N802
        for series, number in value2.items():
            value1[series] = number if series.kind in _GAUGES else value1.get(series, 0) + number
        return value1


class Reports:
    """One for all tasks of an application; workers get a copy that they add to."""

    def __init__(self, session: SparkSession) -> None:
        self._total: Accumulator[Report] = session.sparkContext.accumulator({}, _Added())

    def add(self, query: str, task: Task, store_bytes: Mapping[str, int]) -> None:
        report = dict(_series(query, task))
        for store, size_bytes in store_bytes.items():
            entries = task.stores[store].entry_count()
            report[Series(Kind.ENTRIES, query, task.partition, store)] = entries
            report[Series(Kind.BYTES, query, task.partition, store)] = size_bytes
        if report:
            self._total.add(report)

    def total(self) -> Report:
        """In the driver alone. A copy: another thread adds to it."""
        return dict(self._total.value)


def _series(query: str, task: Task) -> Iterator[tuple[Series, int]]:
    counts, number = task.counts, task.partition
    for node, count in counts.records.items():
        yield Series(Kind.RECORDS, query, number, node), count
    for (node, reason), count in counts.dropped.items():
        yield Series(Kind.DROPPED, query, number, node, reason), count
    for (node, action), count in counts.failed.items():
        yield Series(Kind.FAILED, query, number, node, action), count
