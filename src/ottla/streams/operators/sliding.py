"""Aggregation in sliding windows: one for every distinct set of records within a time difference of each
other.

For a record at time t there are two windows of interest: the left one, [t - d, t], and the right one, [t +
1, t + 1 + d], which exists only if a later record falls into it. A new record updates the windows it falls
into, creates its own left window, the right window of the record before it, and its own right window if
there are younger records already. Windows would start below zero for records earlier than d; those share the
window [0, d].
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ottla.streams.operators.aggregate import Aggregator, Initializer
from ottla.streams.operators.base import Context, Output
from ottla.streams.operators.windowed import emit_closed
from ottla.streams.records import Change, Record, ValueAndTimestamp, Window, Windowed
from ottla.streams.state.window import WindowStore
from ottla.streams.windows import SlidingWindows


@dataclass(frozen=True, slots=True)
class SlidingAggregate:
    store: str
    windows: SlidingWindows
    initializer: Initializer
    aggregator: Aggregator
    send_old: bool
    final: bool = False

    def process(self, record: Record, context: Context) -> Iterable[Output]:
        if record.key is None or record.value is None:
            context.drop("null key or value in a windowed aggregation")
            return
        span_ms = self.windows.time_difference_ms
        close_ms = context.observe(record.timestamp_ms) - self.windows.grace_ms
        if record.timestamp_ms + span_ms < close_ms:
            context.drop("late record for a closed window")
            return
        store: WindowStore = context.store(self.store)
        if self.final:
            yield from emit_closed(store, record.headers, close_ms - span_ms - 1, context)
        updates = self._early if record.timestamp_ms < span_ms else self._regular
        for update in updates(record, store, close_ms, context):
            if not self.final:
                yield update

    def _regular(
        self, record: Record, store: WindowStore, close_ms: int, context: Context
    ) -> Iterator[Record]:
        time_ms, span_ms = record.timestamp_ms, self.windows.time_difference_ms
        starts: set[int] = set()
        left: ValueAndTimestamp | None = None
        right: ValueAndTimestamp | None = None
        left_exists = right_exists = False
        before_ms: int | None = None
        for start_ms, found in store.fetch_range(record.key, max(0, time_ms - 2 * span_ms), time_ms + 1):
            starts.add(start_ms)
            end_ms = start_ms + span_ms
            if start_ms == time_ms + 1:
                right_exists = True
            elif end_ms > time_ms:
                # The youngest window that holds the record has, apart from it, only what is younger or as
                # old.
                right = ValueAndTimestamp(store.fetch(record.key, start_ms), found.timestamp_ms)
                yield from self._update(record, store, start_ms, found, close_ms, context)
            elif end_ms == time_ms:
                left_exists = True
                if found.timestamp_ms < time_ms:
                    before_ms = found.timestamp_ms
                yield from self._update(record, store, start_ms, found, close_ms, context)
            else:
                left, before_ms = found, found.timestamp_ms
        if before_ms is not None and before_ms + 1 not in starts and before_ms + 1 + span_ms >= time_ms:
            yield from self._update(record, store, before_ms + 1, None, close_ms, context)
        if not left_exists:
            reaches_back = before_ms is not None and time_ms - span_ms <= before_ms
            base = ValueAndTimestamp(left.value, time_ms) if left is not None and reaches_back else None
            yield from self._update(record, store, time_ms - span_ms, base, close_ms, context)
        if not right_exists and right is not None and right.timestamp_ms > time_ms:
            yield self._create_right(record, store, right)

    def _early(self, record: Record, store: WindowStore, close_ms: int, context: Context) -> Iterator[Record]:
        time_ms = record.timestamp_ms
        starts: set[int] = set()
        shared: ValueAndTimestamp | None = None
        right: ValueAndTimestamp | None = None
        right_exists = False
        before_ms: int | None = None
        for start_ms, found in store.fetch_range(record.key, 0, time_ms + 1):
            starts.add(start_ms)
            if start_ms == time_ms + 1:
                right_exists = True
            elif start_ms == 0:
                shared = found
                if found.timestamp_ms < time_ms:
                    before_ms = found.timestamp_ms
            else:
                right = ValueAndTimestamp(store.fetch(record.key, start_ms), found.timestamp_ms)
                yield from self._update(record, store, start_ms, found, close_ms, context)
        if right is None and shared is not None and shared.timestamp_ms > time_ms:
            right = ValueAndTimestamp(store.fetch(record.key, 0), shared.timestamp_ms)
        if not right_exists and right is not None and right.timestamp_ms > time_ms:
            yield self._create_right(record, store, right)
        if before_ms is not None and before_ms + 1 not in starts:
            yield from self._update(record, store, before_ms + 1, None, close_ms, context)
        yield from self._update(record, store, 0, shared, close_ms, context)

    def _create_right(self, record: Record, store: WindowStore, right: ValueAndTimestamp) -> Record:
        start_ms = record.timestamp_ms + 1
        store.put(record.key, right.value, start_ms, right.timestamp_ms)
        key = Windowed(record.key, Window(start_ms, start_ms + self.windows.time_difference_ms))
        return Record(key, Change(right.value), right.timestamp_ms, record.headers)

    def _update(
        self,
        record: Record,
        store: WindowStore,
        start_ms: int,
        present: ValueAndTimestamp | None,
        close_ms: int,
        context: Context,
    ) -> Iterator[Record]:
        end_ms = start_ms + self.windows.time_difference_ms
        if end_ms < close_ms:
            context.drop("late record for a closed window")
            return
        base: Any = self.initializer() if present is None else present.value
        timestamp_ms = (
            record.timestamp_ms if present is None else max(record.timestamp_ms, present.timestamp_ms)
        )
        aggregate = self.aggregator(record.key, record.value, base)
        old = store.fetch(record.key, start_ms) if self.send_old else None
        store.put(record.key, aggregate, start_ms, timestamp_ms)
        key = Windowed(record.key, Window(start_ms, end_ms))
        yield Record(key, Change(aggregate, old), timestamp_ms, record.headers)
