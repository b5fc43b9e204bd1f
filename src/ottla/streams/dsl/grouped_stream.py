"""KGroupedStream: records of one key brought together, to be counted, reduced or aggregated — at once or by
windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.streams.dsl.functions import of_key_value_and_aggregate, require_callable
from ottla.streams.dsl.parameters import Grouped, Materialized
from ottla.streams.dsl.repartition import repartition
from ottla.streams.dsl.tables import AggregatedTable
from ottla.streams.errors import TopologyError
from ottla.streams.expressions import is_expression
from ottla.streams.operators.aggregate import StreamAggregate, StreamReduce
from ottla.streams.operators.base import Operator
from ottla.streams.operators.column_aggregate import ColumnAggregate
from ottla.streams.operators.count import add_one, zero
from ottla.streams.operators.views import StoredView
from ottla.streams.serdes import Serde, Serdes
from ottla.streams.state.spec import StoreKind, StoreSpec
from ottla.streams.windows import AggregationWindows, SessionWindows

if TYPE_CHECKING:
    from ottla.streams.dsl.cogrouped import CogroupedKStream
    from ottla.streams.dsl.kstream import KStream
    from ottla.streams.dsl.ktable import KTable
    from ottla.streams.dsl.windowed_stream import SessionWindowedKStream, WindowedKStream


class KGroupedStream:
    def __init__(self, stream: KStream, grouped: Grouped, *, repartition_required: bool) -> None:
        self.graph = stream.graph
        self.stream = stream
        self.key_serde = grouped.key or stream.key_serde or self.graph.default_key
        self.value_serde = grouped.value or stream.value_serde or self.graph.default_value
        self.topic_name = grouped.name
        self.repartition_required = repartition_required

    def count(self, materialized: Materialized | None = None, *, named: str | None = None) -> KTable:
        """How many records of each key there were."""
        if materialized is not None and materialized.name is None:
            # Kafka Streams uses up a number here.
            self.graph.generate_store("KSTREAM-AGGREGATE-")
        materialized = materialized or Materialized()
        value = materialized.value or Serdes.long()
        return self._aggregate(
            "KSTREAM-AGGREGATE-",
            materialized,
            named,
            value,
            lambda store, send_old: StreamAggregate(store, zero, add_one, send_old),
        )

    def reduce(
        self, reducer: Any, materialized: Materialized | None = None, *, named: str | None = None
    ) -> KTable:
        """Combine the values of each key, two at a time: the function gets what there is and what comes."""
        require_callable(reducer, "the reducer")
        materialized = materialized or Materialized()
        return self._aggregate(
            "KSTREAM-REDUCE-",
            materialized,
            named,
            materialized.value or self.value_serde,
            lambda store, send_old: StreamReduce(store, reducer, send_old),
        )

    def aggregate(
        self,
        initializer: Any,
        aggregator: Any = None,
        materialized: Materialized | None = None,
        *,
        named: str | None = None,
    ) -> KTable:
        """Fold the values of each key, starting from what the initializer gives.

        A Spark aggregate expression, such as ``expr("sum(value)")``, stands for initializer and aggregator.
        """
        materialized = materialized or Materialized()
        if is_expression(initializer):
            return self._aggregate_column(initializer, materialized, named)
        require_callable(initializer, "the initializer")
        fold = of_key_value_and_aggregate(aggregator)
        return self._aggregate(
            "KSTREAM-AGGREGATE-",
            materialized,
            named,
            materialized.value or self.graph.default_value,
            lambda store, send_old: StreamAggregate(store, initializer, fold, send_old),
        )

    def windowed_by(self, windows: AggregationWindows) -> WindowedKStream | SessionWindowedKStream:
        """Aggregate by windows of time, sliding windows or sessions."""
        from ottla.streams.dsl.windowed_stream import SessionWindowedKStream, WindowedKStream

        if isinstance(windows, SessionWindows):
            return SessionWindowedKStream(self, windows)
        return WindowedKStream(self, windows)

    def cogroup(self, aggregator: Any) -> CogroupedKStream:
        """Begin to aggregate several grouped streams into one table."""
        from ottla.streams.dsl.cogrouped import CogroupedKStream

        return CogroupedKStream(self.graph).cogroup(self, aggregator)

    def parent_for(self, store: str) -> tuple[str, frozenset[str]]:
        """The node an aggregation follows, behind a repartition topic if the key may have changed."""
        if not self.repartition_required:
            return self.stream.name, self.stream.sources
        prefix = self.topic_name or store
        # No aggregation counts what has no key, so it need not travel either.
        source = repartition(
            self.graph, self.stream.name, prefix, self.key_serde, self.value_serde, drops_null_keys=True
        )
        return source, frozenset({source})

    def _aggregate_column(self, expression: Any, materialized: Materialized, named: str | None) -> KTable:
        if materialized.value is None:
            raise TopologyError(
                "an aggregate expression needs the serde of its result: Materialized.with_(value=...)"
            )
        history = StoreSpec(
            self.graph.generate_store("KSTREAM-HISTORY-"),
            StoreKind.KEY_VALUE,
            self.key_serde,
            Serdes.string(),
        )
        return self._aggregate(
            "KSTREAM-AGGREGATE-",
            materialized,
            named,
            materialized.value,
            lambda store, send_old: ColumnAggregate(
                expression, self.key_serde, self.value_serde, store, history.name, send_old
            ),
            extra=(history,),
        )

    def _aggregate(
        self,
        prefix: str,
        materialized: Materialized,
        named: str | None,
        value: Serde,
        make: Callable[[str, bool], Operator],
        extra: tuple[StoreSpec, ...] = (),
    ) -> KTable:
        from ottla.streams.dsl.ktable import KTable

        store = materialized.name or self.graph.generate_store(prefix)
        name = self.graph.name(named, prefix)
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
        parent, sources = self.parent_for(store)
        self.graph.add_processor(
            name, [parent], lambda: make(store, state.send_old), owned=lambda: (spec, *extra)
        )
        return KTable(self.graph, name, key, value, sources, state)
