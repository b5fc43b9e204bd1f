"""Windowed groupings: aggregation by time windows, sliding windows and sessions into tables keyed by
window."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ottla.streams.dsl.functions import of_key_and_both, of_key_value_and_aggregate, require_callable
from ottla.streams.dsl.parameters import EmitStrategy, Materialized
from ottla.streams.dsl.tables import AggregatedTable
from ottla.streams.errors import TopologyError
from ottla.streams.operators.base import Operator, View
from ottla.streams.operators.count import add_counts, add_one, zero
from ottla.streams.operators.session import SessionAggregate
from ottla.streams.operators.sliding import SlidingAggregate
from ottla.streams.operators.views import SessionView, WindowedView
from ottla.streams.operators.windowed import WindowAggregate
from ottla.streams.serdes import Serde, Serdes, session_windowed_serde, time_windowed_serde
from ottla.streams.state.spec import StoreKind, StoreSpec
from ottla.streams.windows import (
    AggregationWindows,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UnlimitedWindows,
)

if TYPE_CHECKING:
    from ottla.streams.dsl.grouped_stream import KGroupedStream
    from ottla.streams.dsl.ktable import KTable

Fold = Callable[[Any, Any, Any], Any]


def reducing(reducer: Callable[[Any, Any], Any]) -> Fold:
    """A reducer as an aggregator that starts from nothing."""

    def fold(key: Any, value: Any, aggregate: Any) -> Any:
        return value if aggregate is None else reducer(aggregate, value)

    return fold


def nothing() -> None:
    return None


def windowed_key_serde(windows: AggregationWindows, key: Serde) -> Serde:
    match windows:
        case SessionWindows():
            return session_windowed_serde(key)
        case SlidingWindows():
            return time_windowed_serde(key, windows.time_difference_ms)
        case TimeWindows() | UnlimitedWindows():
            return time_windowed_serde(key, windows.size_ms)


def window_store_spec(
    store: str, windows: AggregationWindows, key: Serde, value: Serde, materialized: Materialized
) -> StoreSpec:
    """The store of a windowed aggregation, which keeps a window at least until it is closed."""
    retention_ms = materialized.retention_ms or windows.retention_ms
    if retention_ms < windows.retention_ms:
        raise TopologyError(
            f"the retention of {store} is {retention_ms} ms: it must cover the window and its grace, "
            f"{windows.retention_ms} ms"
        )
    spec = StoreSpec(
        store,
        StoreKind.WINDOW,
        key,
        value,
        retention_ms=retention_ms,
        queryable=materialized.name is not None,
        logged=materialized.logged,
    )
    match windows:
        case SessionWindows():
            # The end belongs to a session, so one that ended just the retention ago is still open.
            return replace(spec, kind=StoreKind.SESSION, retention_ms=retention_ms + 1)
        case SlidingWindows():
            return replace(spec, size_ms=max(1, windows.time_difference_ms))
        case TimeWindows() | UnlimitedWindows():
            return replace(spec, size_ms=windows.size_ms)


def grace_of(windows: AggregationWindows) -> int:
    """How long after the end of a window its result can still change.

    Sessions and sliding windows include their end, and so take records a millisecond longer than time
    windows.
    """
    match windows:
        case SessionWindows():
            return windows.retention_ms + 1
        case SlidingWindows():
            return windows.grace_ms + 1
        case TimeWindows() | UnlimitedWindows():
            return windows.grace_ms


def view_of(windows: AggregationWindows, store: str) -> View:
    return SessionView(store) if isinstance(windows, SessionWindows) else WindowedView(store)


class _Windowed:
    """What the windowed groupings share: the emit strategy and how their nodes are added."""

    def __init__(self, grouped: KGroupedStream, windows: AggregationWindows) -> None:
        self.grouped = grouped
        self.windows = windows
        self.final = False

    def _add(
        self,
        prefix: str,
        materialized: Materialized,
        named: str | None,
        value: Serde,
        make: Callable[[str, bool], Operator],
    ) -> KTable:
        from ottla.streams.dsl.ktable import KTable

        graph = self.grouped.graph
        store = materialized.name or graph.generate_store(prefix)
        name = graph.name(named, prefix)
        key = materialized.key or self.grouped.key_serde
        spec = window_store_spec(store, self.windows, key, value, materialized)
        state = AggregatedTable(spec, view_of(self.windows, store))
        parent, sources = self.grouped.parent_for(store)
        graph.add_processor(name, [parent], lambda: make(store, state.send_old), owned=lambda: (spec,))
        windowed_key = windowed_key_serde(self.windows, key)
        return KTable(graph, name, windowed_key, value, sources, state, grace_ms=grace_of(self.windows))

    def _burn(self, materialized: Materialized | None) -> Materialized:
        if (
            materialized is not None
            and materialized.name is None
            and not isinstance(self.windows, SlidingWindows)
        ):
            self.grouped.graph.generate_store("KSTREAM-AGGREGATE-")
        return materialized or Materialized()

    def _emit(self, strategy: str) -> None:
        if strategy not in {EmitStrategy.ON_WINDOW_UPDATE, EmitStrategy.ON_WINDOW_CLOSE}:
            raise TopologyError(
                f"emit strategy is {strategy!r}: use EmitStrategy.on_window_update() or on_window_close()"
            )
        if strategy == EmitStrategy.ON_WINDOW_CLOSE and isinstance(self.windows, UnlimitedWindows):
            raise TopologyError("an unlimited window never closes: use EmitStrategy.on_window_update()")
        self.final = strategy == EmitStrategy.ON_WINDOW_CLOSE


class WindowedKStream(_Windowed):
    """Grouped by key and time window."""

    def __init__(
        self, grouped: KGroupedStream, windows: TimeWindows | UnlimitedWindows | SlidingWindows
    ) -> None:
        super().__init__(grouped, windows)

    def emit_strategy(self, strategy: str) -> WindowedKStream:
        """Give results with every update, or once when a window closes."""
        self._emit(strategy)
        return self

    def count(self, materialized: Materialized | None = None, *, named: str | None = None) -> KTable:
        materialized = self._burn(materialized)
        value = materialized.value or Serdes.long()
        return self._fold("KSTREAM-AGGREGATE-", materialized, named, value, zero, add_one)

    def reduce(
        self, reducer: Any, materialized: Materialized | None = None, *, named: str | None = None
    ) -> KTable:
        require_callable(reducer, "the reducer")
        materialized = materialized or Materialized()
        value = materialized.value or self.grouped.value_serde
        return self._fold("KSTREAM-REDUCE-", materialized, named, value, nothing, reducing(reducer))

    def aggregate(
        self,
        initializer: Any,
        aggregator: Any,
        materialized: Materialized | None = None,
        *,
        named: str | None = None,
    ) -> KTable:
        require_callable(initializer, "the initializer")
        materialized = materialized or Materialized()
        value = materialized.value or self.grouped.graph.default_value
        fold = of_key_value_and_aggregate(aggregator)
        return self._fold("KSTREAM-AGGREGATE-", materialized, named, value, initializer, fold)

    def _fold(
        self,
        prefix: str,
        materialized: Materialized,
        named: str | None,
        value: Serde,
        initializer: Callable[[], Any],
        fold: Fold,
    ) -> KTable:
        return self._add(
            prefix, materialized, named, value, window_operator(self.windows, initializer, fold, self.final)
        )


class SessionWindowedKStream(_Windowed):
    """Grouped by key and session."""

    def __init__(self, grouped: KGroupedStream, windows: SessionWindows) -> None:
        super().__init__(grouped, windows)

    def emit_strategy(self, strategy: str) -> SessionWindowedKStream:
        """Give results with every update, or once when a session closes."""
        self._emit(strategy)
        return self

    def count(self, materialized: Materialized | None = None, *, named: str | None = None) -> KTable:
        materialized = self._burn(materialized)
        value = materialized.value or Serdes.long()
        return self._fold("KSTREAM-AGGREGATE-", materialized, named, value, zero, add_one, add_counts)

    def reduce(
        self, reducer: Any, materialized: Materialized | None = None, *, named: str | None = None
    ) -> KTable:
        require_callable(reducer, "the reducer")
        materialized = materialized or Materialized()
        value = materialized.value or self.grouped.value_serde

        def merge(key: Any, first: Any, second: Any) -> Any:
            return second if first is None else reducer(first, second)

        return self._fold("KSTREAM-REDUCE-", materialized, named, value, nothing, reducing(reducer), merge)

    def aggregate(
        self,
        initializer: Any,
        aggregator: Any,
        merger: Any,
        materialized: Materialized | None = None,
        *,
        named: str | None = None,
    ) -> KTable:
        """The merger combines the aggregates of two sessions that turn out to be one."""
        require_callable(initializer, "the initializer")
        materialized = materialized or Materialized()
        value = materialized.value or self.grouped.graph.default_value
        fold = of_key_value_and_aggregate(aggregator)
        merge = of_key_and_both(merger, "the merger")
        return self._fold("KSTREAM-AGGREGATE-", materialized, named, value, initializer, fold, merge)

    def _fold(
        self,
        prefix: str,
        materialized: Materialized,
        named: str | None,
        value: Serde,
        initializer: Callable[[], Any],
        fold: Fold,
        merge: Fold,
    ) -> KTable:
        windows = self.windows
        assert isinstance(windows, SessionWindows)
        make = session_operator(windows, initializer, fold, merge, self.final)
        return self._add(prefix, materialized, named, value, make)


def window_operator(
    windows: AggregationWindows, initializer: Callable[[], Any], fold: Fold, final: bool = False
) -> Callable[[str, bool], Operator]:
    """Makes the operator of a windowed aggregation once its store and what is asked of it are known."""
    if isinstance(windows, SlidingWindows):
        sliding = windows
        return lambda store, send_old: SlidingAggregate(store, sliding, initializer, fold, send_old, final)
    assert isinstance(windows, TimeWindows | UnlimitedWindows)
    fixed = windows
    return lambda store, send_old: WindowAggregate(store, fixed, initializer, fold, send_old, final)


def session_operator(
    windows: SessionWindows, initializer: Callable[[], Any], fold: Fold, merge: Fold, final: bool = False
) -> Callable[[str, bool], Operator]:
    return lambda store, send_old: SessionAggregate(store, windows, initializer, fold, merge, send_old, final)
