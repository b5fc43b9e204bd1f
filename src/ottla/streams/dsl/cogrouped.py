"""CogroupedKStream: several grouped streams folded into one table, each with its own aggregator."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.streams.dsl.functions import of_key_and_both, of_key_value_and_aggregate, require_callable
from ottla.streams.dsl.graph import Graph
from ottla.streams.dsl.parameters import Materialized
from ottla.streams.dsl.tables import AggregatedTable
from ottla.streams.dsl.windowed_stream import (
    grace_of,
    session_operator,
    view_of,
    window_operator,
    window_store_spec,
    windowed_key_serde,
)
from ottla.streams.operators.aggregate import StreamAggregate
from ottla.streams.operators.base import Operator
from ottla.streams.operators.stateless import PassThrough
from ottla.streams.operators.views import StoredView
from ottla.streams.serdes import Serde
from ottla.streams.state.spec import StoreKind, StoreSpec
from ottla.streams.windows import AggregationWindows, SessionWindows

if TYPE_CHECKING:
    from ottla.streams.dsl.grouped_stream import KGroupedStream
    from ottla.streams.dsl.ktable import KTable

Fold = Callable[[Any, Any, Any], Any]


class CogroupedKStream:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.groups: list[tuple[KGroupedStream, Fold]] = []

    def cogroup(self, grouped: KGroupedStream, aggregator: Any) -> CogroupedKStream:
        """Add a grouped stream with its own aggregator."""
        self.groups.append((grouped, of_key_value_and_aggregate(aggregator)))
        return self

    def aggregate(
        self, initializer: Any, materialized: Materialized | None = None, *, named: str | None = None
    ) -> KTable:
        require_callable(initializer, "the initializer")
        materialized = materialized or Materialized()
        store = materialized.name or self.graph.generate_store("COGROUPKSTREAM-AGGREGATE-")
        key = materialized.key or self.groups[0][0].key_serde
        value = materialized.value or self.graph.default_value
        spec = StoreSpec(
            store,
            StoreKind.KEY_VALUE,
            key,
            value,
            queryable=materialized.name is not None,
            logged=materialized.logged,
        )

        def operator(fold: Fold) -> Callable[[str, bool], Operator]:
            return lambda name, send_old: StreamAggregate(name, initializer, fold, send_old)

        state = AggregatedTable(spec, StoredView(store))
        return self._add(spec, state, operator, key, value, named, 0)

    def windowed_by(self, windows: AggregationWindows) -> WindowedCogroupedKStream:
        return WindowedCogroupedKStream(self, windows)

    def _add(
        self,
        spec: StoreSpec,
        state: AggregatedTable,
        operator: Callable[[Fold], Callable[[str, bool], Operator]],
        key: Serde,
        value: Serde,
        named: str | None,
        grace_ms: int,
    ) -> KTable:
        from ottla.streams.dsl.ktable import KTable

        parents = [(grouped.parent_for(spec.name), fold) for grouped, fold in self.groups]
        sources = self.graph.require_copartitioning(*(sources for (_, sources), _ in parents))
        names: list[str] = []
        for index, ((parent, _), fold) in enumerate(parents):
            name = self.graph.name(named, "COGROUPKSTREAM-AGGREGATE-", f"-cogroup-agg-{index}")
            make = operator(fold)
            self.graph.add_processor(name, [parent], _bind(make, spec.name, state), owned=lambda: (spec,))
            names.append(name)
        merge = self.graph.name(named, "COGROUPKSTREAM-MERGE-", "-cogroup-merge")
        self.graph.add_processor(merge, names, PassThrough())
        return KTable(self.graph, merge, key, value, sources, state, grace_ms=grace_ms)


class WindowedCogroupedKStream:
    """Cogrouped streams by windows or sessions."""

    def __init__(self, cogrouped: CogroupedKStream, windows: AggregationWindows) -> None:
        self._cogrouped = cogrouped
        self._windows = windows

    def aggregate(
        self,
        initializer: Any,
        materialized: Materialized | None = None,
        *,
        merger: Any = None,
        named: str | None = None,
    ) -> KTable:
        """Sessions need a merger as well, which combines the aggregates of two sessions."""
        require_callable(initializer, "the initializer")
        materialized = materialized or Materialized()
        graph, windows = self._cogrouped.graph, self._windows
        store = materialized.name or graph.generate_store("COGROUPKSTREAM-AGGREGATE-")
        key = materialized.key or self._cogrouped.groups[0][0].key_serde
        value = materialized.value or graph.default_value
        spec = window_store_spec(store, windows, key, value, materialized)

        def operator(fold: Fold) -> Callable[[str, bool], Operator]:
            if isinstance(windows, SessionWindows):
                return session_operator(windows, initializer, fold, of_key_and_both(merger, "the merger"))
            return window_operator(windows, initializer, fold)

        state = AggregatedTable(spec, view_of(windows, store))
        windowed_key = windowed_key_serde(windows, key)
        return self._cogrouped._add(spec, state, operator, windowed_key, value, named, grace_of(windows))


def _bind(
    make: Callable[[str, bool], Operator], store: str, state: AggregatedTable
) -> Callable[[], Operator]:
    return lambda: make(store, state.send_old)
