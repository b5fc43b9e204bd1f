"""Aggregation in tumbling, hopping and unlimited windows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ottla.streams.operators.aggregate import Aggregator, Initializer
from ottla.streams.operators.base import Context, Output
from ottla.streams.records import Change, Record, Windowed
from ottla.streams.state.window import WindowStore
from ottla.streams.windows import TimeWindows, UnlimitedWindows


@dataclass(frozen=True, slots=True)
class WindowAggregate:
    """Folds a record into every window it falls into that is still open.

    A window closes when stream time has passed its end by the grace. With ``final`` results leave only then,
    once.
    """

    store: str
    windows: TimeWindows | UnlimitedWindows
    initializer: Initializer
    aggregator: Aggregator
    send_old: bool
    final: bool = False

    def process(self, record: Record, context: Context) -> Iterable[Output]:
        if record.key is None:
            context.drop("null key in a windowed aggregation")
            return
        store: WindowStore = context.store(self.store)
        close_ms = context.observe(record.timestamp_ms) - self.windows.grace_ms
        if self.final:
            # Before the update: a store forgets old windows as soon as it sees a new one.
            yield from emit_closed(store, record, close_ms - self.windows.size_ms, context)
        for window in self.windows.windows_for(record.timestamp_ms):
            if window.end_ms <= close_ms:
                context.drop("late record for a closed window")
                continue
            present = store.fetch_with_timestamp(record.key, window.start_ms)
            timestamp_ms = record.timestamp_ms
            if present is None:
                aggregate = self.initializer()
            else:
                aggregate = present.value
                timestamp_ms = max(timestamp_ms, present.timestamp_ms)
            aggregate = self.aggregator(record.key, record.value, aggregate)
            old = store.fetch(record.key, window.start_ms) if self.send_old else None
            store.put(record.key, aggregate, window.start_ms, timestamp_ms)
            if not self.final:
                key = Windowed(record.key, window)
                yield Record(key, Change(aggregate, old), timestamp_ms, record.headers)


def emit_closed(store: WindowStore, record: Record, last_start_ms: int, context: Context) -> Iterator[Record]:
    """Results of windows that start at or before a time and were not given out yet, oldest first."""
    done_ms = context.recall("emitted")
    first_ms = 0 if done_ms is None else done_ms + 1
    if last_start_ms < first_ms:
        return
    context.remember("emitted", last_start_ms)
    for key, aggregate in list(store.fetch_all(first_ms, last_start_ms)):
        yield Record(key, Change(aggregate), key.window.end_ms, record.headers)
