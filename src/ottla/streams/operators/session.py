"""Aggregation in session windows: a record joins, extends or merges the sessions within the gap around it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ottla.streams.operators.aggregate import Aggregator, Initializer
from ottla.streams.operators.base import Context, Output
from ottla.streams.records import Change, Record, Window, Windowed
from ottla.streams.state.session import SessionStore
from ottla.streams.windows import SessionWindows


@dataclass(frozen=True, slots=True)
class SessionAggregate:
    """Sessions that are merged leave a tombstone under their old window. With ``final`` only closed ones
    leave, once."""

    store: str
    windows: SessionWindows
    initializer: Initializer
    aggregator: Aggregator
    merger: Callable[[Any, Any, Any], Any]
    send_old: bool
    final: bool = False

    def process(self, record: Record, context: Context) -> Iterable[Output]:
        if record.key is None:
            context.drop("null key in a windowed aggregation")
            return
        store: SessionStore = context.store(self.store)
        time_ms, gap_ms = record.timestamp_ms, self.windows.inactivity_gap_ms
        close_ms = context.observe(time_ms) - self.windows.grace_ms - gap_ms
        merged = store.find_sessions(record.key, max(0, time_ms - gap_ms), time_ms + gap_ms)
        aggregate = self.initializer()
        start_ms = end_ms = time_ms
        for session, value in merged:
            aggregate = self.merger(record.key, aggregate, value)
            start_ms = min(start_ms, session.window.start_ms)
            end_ms = max(end_ms, session.window.end_ms)
        if end_ms < close_ms:
            context.drop("late record for a closed session")
        else:
            window = Window(start_ms, end_ms)
            if window != (time_ms, time_ms):
                for session, _ in merged:
                    old = store.fetch_session(record.key, *session.window) if self.send_old else None
                    store.remove(session)
                    if not self.final:
                        yield Record(session, Change(None, old), session.window.end_ms, record.headers)
            aggregate = self.aggregator(record.key, record.value, aggregate)
            key = Windowed(record.key, window)
            store.put(key, aggregate)
            if not self.final:
                yield Record(key, Change(aggregate), end_ms, record.headers)
        if self.final:
            yield from self._emit_closed(store, record, close_ms, context)

    def _emit_closed(
        self, store: SessionStore, record: Record, close_ms: int, context: Context
    ) -> Iterable[Record]:
        done_ms = context.recall("emitted") or 0
        if close_ms <= done_ms:
            return
        context.remember("emitted", close_ms)
        for key, aggregate in store.ended_before(close_ms):
            if key.window.end_ms >= done_ms:
                yield Record(key, Change(aggregate), key.window.end_ms, record.headers)
