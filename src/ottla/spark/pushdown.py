"""Filters that the source applies itself: on topic, partition and offset wholly, on timestamp in part."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

_NEVER_NULL = ("topic", "partition", "offset", "timestamp", "timestampType")


@dataclass(slots=True)
class PushedFilters:
    topics: set[str] | None = None
    partitions: set[int] | None = None
    offset_min: int | None = None
    offset_end: int | None = None
    timestamp_min_ms: int | None = None

    def take(self, filters: Iterable[Filter]) -> list[Filter]:
        """Those that Spark has to apply all the same."""
        return [found for found in filters if not self._take(found)]

    def wants(self, topic: str, partition: int) -> bool:
        return (self.topics is None or topic in self.topics) and (
            self.partitions is None or partition in self.partitions
        )

    def _take(self, found: Filter) -> bool:
        column: Sequence[str] = getattr(found, "attribute", ())
        if len(column) != 1:
            return False
        name = column[0]
        value: Any = getattr(found, "value", None)
        if isinstance(found, IsNotNull):
            return name in _NEVER_NULL
        if name == "timestamp":
            self._narrow_time(found, value)
            # Timestamps need not rise with offsets, so that what comes after the first match may fail.
            return False
        values = list(value) if isinstance(found, In) else [value]
        if isinstance(found, EqualTo | EqualNullSafe | In):
            if name == "topic" and all(isinstance(item, str) for item in values):
                self.topics = set(values) if self.topics is None else self.topics & set(values)
                return True
            if name == "partition" and all(isinstance(item, int) for item in values):
                self.partitions = set(values) if self.partitions is None else self.partitions & set(values)
                return True
        return name == "offset" and isinstance(value, int) and self._narrow_offsets(found, value)

    def _narrow_offsets(self, found: Filter, value: int) -> bool:
        lowest, end = {
            EqualTo: (value, value + 1),
            EqualNullSafe: (value, value + 1),
            GreaterThan: (value + 1, None),
            GreaterThanOrEqual: (value, None),
            LessThan: (None, value),
            LessThanOrEqual: (None, value + 1),
        }.get(type(found), (None, None))
        if lowest is None and end is None:
            return False
        if lowest is not None:
            self.offset_min = lowest if self.offset_min is None else max(self.offset_min, lowest)
        if end is not None:
            self.offset_end = end if self.offset_end is None else min(self.offset_end, end)
        return True

    def _narrow_time(self, found: Filter, value: Any) -> None:
        if isinstance(found, EqualTo | GreaterThan | GreaterThanOrEqual) and isinstance(value, datetime):
            if value.tzinfo is None:
                return
            lowest_ms = int(value.timestamp() * 1000) - 1  # float and microseconds round either way
            known_ms = self.timestamp_min_ms
            self.timestamp_min_ms = lowest_ms if known_ms is None else max(known_ms, lowest_ms)
