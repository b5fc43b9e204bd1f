"""Aggregation in tumbling, hopping and unlimited windows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ottla.streams.operators.aggregate import Aggregator, Initializer
from ottla.streams.operators.base import Context, Step
from ottla.streams.records import Change, Headers, Record, Window, Windowed, new_tuple
from ottla.streams.state.window import WindowStore
from ottla.streams.windows import TimeWindows, UnlimitedWindows

_BEFORE_ALL_MS = -(1 << 63)


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

    def bind(self, context: Context, forward: Step) -> Step:
        store: WindowStore = context.store(self.store)
        fetch, put = store.fetch_with_timestamp, store.put
        initializer, aggregator = self.initializer, self.aggregator
        final, send_old = self.final, self.send_old
        size_ms, grace_ms = self.windows.size_ms, self.windows.grace_ms
        windows_for = _remembering(self.windows)
        # Nobody else moves the node's own time.
        stream_ms = _BEFORE_ALL_MS

        def step(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
            nonlocal stream_ms
            if key is None:
                context.drop("null key in a windowed aggregation")
                return
            if timestamp_ms > stream_ms:
                stream_ms = context.observe(timestamp_ms)
            close_ms = stream_ms - grace_ms
            if final:
                # Before the update: a store forgets old windows as soon as it sees a new one.
                for closed in emit_closed(store, headers, close_ms - size_ms, context):
                    forward(*closed)
            for window in windows_for(timestamp_ms):
                start_ms, end_ms = window
                if end_ms <= close_ms:
                    context.drop("late record for a closed window")
                    continue
                present = fetch(key, start_ms)
                updated_ms = timestamp_ms
                if present is None:
                    aggregate = initializer()
                else:
                    aggregate = present.value
                    updated_ms = max(updated_ms, present.timestamp_ms)
                aggregate = aggregator(key, value, aggregate)
                old = store.fetch(key, start_ms) if send_old else None
                put(key, aggregate, start_ms, updated_ms)
                if not final:
                    change = new_tuple(Change, (aggregate, old))
                    forward(new_tuple(Windowed, (key, window)), change, updated_ms, headers)

        return step


def _remembering(windows: TimeWindows | UnlimitedWindows) -> Callable[[int], list[Window]]:
    """Finds the windows of a time: often those of the time before."""
    if not isinstance(windows, TimeWindows) or windows.size_ms % windows.advance_ms:
        return windows.windows_for
    find, advance_ms = windows.windows_for, windows.advance_ms
    last_number = -1
    last: list[Window] = []

    def windows_for(timestamp_ms: int) -> list[Window]:
        nonlocal last_number, last
        number = timestamp_ms // advance_ms
        if number != last_number:
            last_number, last = number, find(timestamp_ms)
        return last

    return windows_for


def emit_closed(
    store: WindowStore, headers: Headers, last_start_ms: int, context: Context
) -> Iterator[Record]:
    """Results of windows that start at or before a time and were not given out yet, oldest first."""
    done_ms = context.recall("emitted")
    first_ms = 0 if done_ms is None else done_ms + 1
    if last_start_ms < first_ms:
        return
    context.remember("emitted", last_start_ms)
    for key, aggregate in list(store.fetch_all(first_ms, last_start_ms)):
        yield Record(key, Change(aggregate), key.window.end_ms, headers)
