"""KGroupedTable: rows of a table brought together by another key, to be aggregated as rows come, change and
go."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.streams.dsl.functions import of_key_value_and_aggregate, require_callable
from ottla.streams.dsl.graph import Graph
from ottla.streams.dsl.parameters import Grouped, Materialized
from ottla.streams.dsl.repartition import SUFFIX
from ottla.streams.dsl.tables import AggregatedTable
from ottla.streams.operators.aggregate import TableAggregate, TableReduce
from ottla.streams.operators.base import Operator
from ottla.streams.operators.count import add_one, take_one, zero
from ottla.streams.operators.views import StoredView
from ottla.streams.plan.plan import RepartitionTopic, SinkNode, SourceNode
from ottla.streams.serdes import Serde, Serdes, change_serde
from ottla.streams.state.spec import StoreKind, StoreSpec

if TYPE_CHECKING:
    from ottla.streams.dsl.ktable import KTable


class KGroupedTable:
    def __init__(self, graph: Graph, name: str, grouped: Grouped) -> None:
        self.graph = graph
        self.name = name
        self.key_serde = grouped.key or graph.default_key
        self.value_serde = grouped.value or graph.default_value
        self.topic_name = grouped.name

    def count(self, materialized: Materialized | None = None, *, named: str | None = None) -> KTable:
        """How many rows there are in each group."""
        materialized = materialized or Materialized()
        return self._aggregate(
            "KTABLE-AGGREGATE-",
            materialized,
            named,
            materialized.value or Serdes.long(),
            lambda store, send_old: TableAggregate(store, zero, add_one, take_one, send_old),
        )

    def reduce(
        self,
        adder: Any,
        subtractor: Any,
        materialized: Materialized | None = None,
        *,
        named: str | None = None,
    ) -> KTable:
        """Combine the values of a group; the subtractor takes out a value that changed or left."""
        require_callable(adder, "the adder")
        require_callable(subtractor, "the subtractor")
        materialized = materialized or Materialized()
        return self._aggregate(
            "KTABLE-REDUCE-",
            materialized,
            named,
            materialized.value or self.value_serde,
            lambda store, send_old: TableReduce(store, adder, subtractor, send_old),
        )

    def aggregate(
        self,
        initializer: Any,
        adder: Any,
        subtractor: Any,
        materialized: Materialized | None = None,
        *,
        named: str | None = None,
    ) -> KTable:
        """Fold the values of a group; the subtractor undoes what the adder did for a value that changed or
        left."""
        require_callable(initializer, "the initializer")
        add = of_key_value_and_aggregate(adder, "the adder")
        subtract = of_key_value_and_aggregate(subtractor, "the subtractor")
        materialized = materialized or Materialized()
        return self._aggregate(
            "KTABLE-AGGREGATE-",
            materialized,
            named,
            materialized.value or self.graph.default_value,
            lambda store, send_old: TableAggregate(store, initializer, add, subtract, send_old),
        )

    def _aggregate(
        self,
        prefix: str,
        materialized: Materialized,
        named: str | None,
        value: Serde,
        make: Callable[[str, bool], Operator],
    ) -> KTable:
        from ottla.streams.dsl.ktable import KTable

        graph = self.graph
        store = materialized.name or graph.generate_store(prefix)
        sink = graph.name(named, "KSTREAM-SINK-", "-sink")
        source = graph.name(named, "KSTREAM-SOURCE-", "-source")
        name = graph.name(named, prefix)
        topic = (self.topic_name or store) + SUFFIX
        if not graph.is_internal(topic):
            wire = change_serde(self.value_serde)
            graph.add_internal_topic(RepartitionTopic(topic))
            graph.add_sink(SinkNode(sink, topic, self.key_serde, wire), [self.name])
            graph.add_source(SourceNode(source, (topic,), self.key_serde, wire))
        else:
            shared = graph.source_of((topic,))
            assert shared is not None
            source = shared.name
        key = materialized.key or self.key_serde
        spec = StoreSpec(
            store,
            StoreKind.KEY_VALUE,
            key,
            value,
            queryable=materialized.name is not None,
            logged=materialized.logged,
        )
        state = AggregatedTable(spec, StoredView(store))
        graph.add_processor(name, [source], lambda: make(store, state.send_old), owned=lambda: (spec,))
        return KTable(graph, name, key, value, frozenset({source}), state)
