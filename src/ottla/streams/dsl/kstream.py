"""KStream: an unbounded sequence of records, and everything one can do with it.

Functions take the value, or key and value. ``filter``, ``map_values``, ``flat_map_values`` and
``select_key`` also take a Spark column expression, which runs without Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ottla.streams.dsl.branches import BranchedKStream
from ottla.streams.dsl.functions import of_key_and_both, of_key_and_value, require_callable
from ottla.streams.dsl.graph import Graph
from ottla.streams.dsl.grouped_stream import KGroupedStream
from ottla.streams.dsl.parameters import Grouped, Joined, Materialized, Produced, Repartitioned, StreamJoined
from ottla.streams.dsl.repartition import repartition
from ottla.streams.dsl.stream_joins import join_streams
from ottla.streams.dsl.tables import source_table
from ottla.streams.errors import TopologyError
from ottla.streams.expressions import is_expression
from ottla.streams.operators.base import Operator
from ottla.streams.operators.columns import ColumnFilter, ColumnMapValues, ColumnSelectKey
from ottla.streams.operators.custom import CustomProcessor
from ottla.streams.operators.stateless import (
    Filter,
    FlatMap,
    FlatMapValues,
    Map,
    MapValues,
    PassThrough,
    Peek,
    SelectKey,
)
from ottla.streams.operators.table_join import LateTableJoin, StreamTableJoin
from ottla.streams.operators.views import StoredView
from ottla.streams.plan.plan import SinkNode
from ottla.streams.processor import ProcessorSupplier, brought_stores
from ottla.streams.serdes import Serde
from ottla.streams.state.spec import StoreKind, StoreSpec
from ottla.streams.windows import Duration, JoinWindows

if TYPE_CHECKING:
    from ottla.streams.dsl.ktable import GlobalKTable, KTable


class KStream:
    def __init__(
        self,
        graph: Graph,
        name: str,
        key: Serde | None,
        value: Serde | None,
        sources: frozenset[str],
        *,
        repartition_required: bool = False,
    ) -> None:
        self.graph = graph
        self.name = name
        self.key_serde = key
        self.value_serde = value
        self.sources = sources
        self.repartition_required = repartition_required

    # Stateless.

    def filter(self, predicate: Any, *, named: str | None = None) -> KStream:
        """Keep records for which the predicate holds."""
        return self._filter(predicate, named, negate=False)

    def filter_not(self, predicate: Any, *, named: str | None = None) -> KStream:
        """Drop records for which the predicate holds."""
        return self._filter(predicate, named, negate=True)

    def map(self, function: Any, *, named: str | None = None) -> KStream:
        """New key and value: the function returns the pair."""
        operator = Map(of_key_and_value(function, "the function of map"))
        return self._derive(operator, "KSTREAM-MAP-", named, key=None, value=None, repartition_required=True)

    def map_values(self, function: Any, *, named: str | None = None) -> KStream:
        """A new value under the same key."""
        operator: Operator
        if is_expression(function):
            operator = ColumnMapValues(function, self._key(), self._value())
        else:
            operator = MapValues(of_key_and_value(function, "the function of map_values"))
        return self._derive(operator, "KSTREAM-MAPVALUES-", named, key=self.key_serde, value=None)

    def flat_map(self, function: Any, *, named: str | None = None) -> KStream:
        """Any number of records for one: the function returns pairs of key and value."""
        operator = FlatMap(of_key_and_value(function, "the function of flat_map"))
        return self._derive(
            operator, "KSTREAM-FLATMAP-", named, key=None, value=None, repartition_required=True
        )

    def flat_map_values(self, function: Any, *, named: str | None = None) -> KStream:
        """Any number of values for one, under the same key. A column expression has to explode."""
        operator: Operator
        if is_expression(function):
            operator = ColumnMapValues(function, self._key(), self._value())
        else:
            operator = FlatMapValues(of_key_and_value(function, "the function of flat_map_values"))
        return self._derive(operator, "KSTREAM-FLATMAPVALUES-", named, key=self.key_serde, value=None)

    def select_key(self, function: Any, *, named: str | None = None) -> KStream:
        """A new key for the same value."""
        operator: Operator
        if is_expression(function):
            operator = ColumnSelectKey(function, self._key(), self._value())
        else:
            operator = SelectKey(of_key_and_value(function, "the function of select_key"))
        return self._derive(
            operator,
            "KSTREAM-KEY-SELECT-",
            named,
            key=None,
            value=self.value_serde,
            repartition_required=True,
        )

    def peek(self, action: Any, *, named: str | None = None) -> KStream:
        """Look at every record; it passes unchanged."""
        operator = Peek(of_key_and_value(action, "the action of peek"))
        return self._derive(operator, "KSTREAM-PEEK-", named, key=self.key_serde, value=self.value_serde)

    def foreach(self, action: Any, *, named: str | None = None) -> None:
        """Do something with every record, as the end of the stream."""
        operator = Peek(of_key_and_value(action, "the action of foreach"), forward=False)
        self._derive(operator, "KSTREAM-FOREACH-", named, key=None, value=None)

    def print(self, label: str | None = None, *, named: str | None = None) -> None:
        """Print every record to standard output, where the task runs."""
        shown = label or self.name

        def show(key: Any, value: Any) -> None:
            print(f"[{shown}]: {key}, {value}")

        self._derive(Peek(show, forward=False), "KSTREAM-PRINTER-", named, key=None, value=None)

    def merge(self, other: KStream, *, named: str | None = None) -> KStream:
        """The records of both streams. Their order to each other is not defined."""
        name = self.graph.name(named, "KSTREAM-MERGE-")
        self.graph.add_processor(name, dict.fromkeys((self.name, other.name)), PassThrough())
        same_key = self.key_serde if self.key_serde == other.key_serde else None
        same_value = self.value_serde if self.value_serde == other.value_serde else None
        moved = self.repartition_required or other.repartition_required
        sources = self.sources | other.sources
        return KStream(self.graph, name, same_key, same_value, sources, repartition_required=moved)

    def split(self, *, named: str | None = None) -> BranchedKStream:
        """Begin to split the stream into branches."""
        return BranchedKStream(self, named)

    # Topics.

    def to(self, topic: str | Callable[[Any, Any, int], str], produced: Produced | None = None) -> None:
        """Write the stream to a topic, or to the one a function of (key, value, timestamp) names."""
        produced = produced or Produced()
        name = self.graph.name(produced.name, "KSTREAM-SINK-")
        key, value = produced.key or self._key(), produced.value or self._value()
        self.graph.add_sink(SinkNode(name, topic, key, value, produced.partitioner), [self.name])

    def repartition(self, repartitioned: Repartitioned | None = None) -> KStream:
        """Send the stream through an internal topic, partitioned by its key."""
        options = repartitioned or Repartitioned()
        prefix = options.name or self.graph.generate("KSTREAM-REPARTITION-")
        key, value = options.key or self._key(), options.value or self._value()
        source = repartition(
            self.graph,
            self.name,
            prefix,
            key,
            value,
            partitions=options.partitions,
            partitioner=options.partitioner,
        )
        return KStream(self.graph, source, key, value, frozenset({source}))

    def to_table(
        self,
        materialized: Materialized | None = None,
        *,
        named: str | None = None,
        history: Duration | None = None,
    ) -> KTable:
        """The stream as a table: every record updates the row of its key. For ``history`` see
        ``StreamsBuilder.table``."""
        from ottla.streams.dsl.ktable import KTable

        materialized = materialized or Materialized()
        name = self.graph.name(named, "KSTREAM-TOTABLE-")
        store = materialized.name or self.graph.generate_store("KSTREAM-TOTABLE-")
        key, value = materialized.key or self._key(), materialized.value or self._value()
        parent, sources = self.name, self.sources
        if self.repartition_required:
            parent = repartition(self.graph, self.name, name, key, value, drops_null_keys=True)
            sources = frozenset({parent})
        state = source_table(store, key, value, materialized, history)
        self.graph.add_processor(name, [parent], state.operator, owned=state.owned)
        return KTable(self.graph, name, key, value, sources, state)

    # Grouping.

    def group_by_key(self, grouped: Grouped | None = None) -> KGroupedStream:
        """Group by the key the records have."""
        return KGroupedStream(self, grouped or Grouped(), repartition_required=self.repartition_required)

    def group_by(self, selector: Any, grouped: Grouped | None = None) -> KGroupedStream:
        """Group by a key made from key and value."""
        grouped = grouped or Grouped()
        selected = self.select_key(selector, named=grouped.name)
        return KGroupedStream(selected, grouped, repartition_required=True)

    # Joins.

    def join(
        self,
        other: KStream | KTable | GlobalKTable,
        joiner: Any,
        windows: JoinWindows | None = None,
        joined: Joined | StreamJoined | None = None,
        *,
        key_selector: Any = None,
        named: str | None = None,
    ) -> KStream:
        """Inner join with a stream (within windows), a table (by key) or a global table (by a selected
        key)."""
        return self._join(other, joiner, windows, joined, key_selector, named, left=False, right=False)

    def left_join(
        self,
        other: KStream | KTable | GlobalKTable,
        joiner: Any,
        windows: JoinWindows | None = None,
        joined: Joined | StreamJoined | None = None,
        *,
        key_selector: Any = None,
        named: str | None = None,
    ) -> KStream:
        """As ``join``; records of this stream without a partner are joined with ``None``."""
        return self._join(other, joiner, windows, joined, key_selector, named, left=True, right=False)

    def outer_join(
        self, other: KStream, joiner: Any, windows: JoinWindows, joined: StreamJoined | None = None
    ) -> KStream:
        """As ``join`` with a stream; records of both streams without a partner are joined with ``None``."""
        return self._join(other, joiner, windows, joined, None, None, left=True, right=True)

    # Processors.

    def process(
        self, supplier: ProcessorSupplier, *, stores: Sequence[str] = (), named: str | None = None
    ) -> KStream:
        """Run a processor, which may change keys, use stores and set timers."""
        return self._process(supplier, stores, named, "KSTREAM-PROCESSOR-", fixed_key=False)

    def process_values(
        self, supplier: ProcessorSupplier, *, stores: Sequence[str] = (), named: str | None = None
    ) -> KStream:
        """Run a processor that keeps keys."""
        return self._process(supplier, stores, named, "KSTREAM-PROCESSVALUES-", fixed_key=True)

    # For the other parts of the DSL.

    def repartitioned_for(self, prefix: str, key: Serde | None = None, value: Serde | None = None) -> KStream:
        """This stream, through a repartition topic if its key may have changed."""
        if not self.repartition_required:
            return self
        key, value = key or self._key(), value or self._value()
        source = repartition(self.graph, self.name, prefix, key, value)
        return KStream(self.graph, source, key, value, frozenset({source}))

    def _key(self) -> Serde:
        return self.key_serde or self.graph.default_key

    def _value(self) -> Serde:
        return self.value_serde or self.graph.default_value

    def _filter(self, predicate: Any, named: str | None, *, negate: bool) -> KStream:
        operator: Operator
        if is_expression(predicate):
            operator = ColumnFilter(predicate, self._key(), self._value(), negate)
        else:
            operator = Filter(of_key_and_value(predicate, "the predicate"), negate)
        return self._derive(operator, "KSTREAM-FILTER-", named, key=self.key_serde, value=self.value_serde)

    def _derive(
        self,
        operator: Operator,
        prefix: str,
        named: str | None,
        *,
        key: Serde | None,
        value: Serde | None,
        repartition_required: bool = False,
        owned: Sequence[StoreSpec] = (),
    ) -> KStream:
        name = self.graph.name(named, prefix)
        self.graph.add_processor(name, [self.name], operator, owned=lambda: owned)
        moved = self.repartition_required or repartition_required
        return KStream(self.graph, name, key, value, self.sources, repartition_required=moved)

    def _process(
        self,
        supplier: ProcessorSupplier,
        stores: Iterable[str],
        named: str | None,
        prefix: str,
        *,
        fixed_key: bool,
    ) -> KStream:
        require_callable(supplier, "the processor supplier")
        stream = self._derive(
            CustomProcessor(supplier, fixed_key),
            prefix,
            named,
            key=self.key_serde if fixed_key else None,
            value=None,
            repartition_required=not fixed_key,
            owned=brought_stores(supplier),
        )
        for store in stores:
            self.graph.connect_store(stream.name, store)
        return stream

    def _join(
        self,
        other: KStream | KTable | GlobalKTable,
        joiner: Any,
        windows: JoinWindows | None,
        joined: Joined | StreamJoined | None,
        key_selector: Any,
        named: str | None,
        *,
        left: bool,
        right: bool,
    ) -> KStream:
        from ottla.streams.dsl.ktable import GlobalKTable

        function = of_key_and_both(joiner)
        if isinstance(other, KStream):
            if windows is None:
                raise TopologyError("a join of two streams needs JoinWindows: how far apart may records lie?")
            if isinstance(joined, Joined):
                raise TopologyError("a join of two streams takes StreamJoined, not Joined")
            options = joined or StreamJoined(name=named)
            return join_streams(self, other, function, windows, options, left=left, right=right)
        if windows is not None or isinstance(joined, StreamJoined):
            raise TopologyError(
                "a join with a table takes no windows: it uses the table as it is at that moment"
            )
        if isinstance(other, GlobalKTable):
            if key_selector is None:
                raise TopologyError(
                    "a join with a global table needs key_selector=: the table key of a record"
                )
            return self._join_global(other, function, key_selector, named, left=left)
        return self._join_table(other, function, joined or Joined(name=named), left=left)

    def _join_table(self, table: KTable, joiner: Any, joined: Joined, *, left: bool) -> KStream:
        stream = self.repartitioned_for(joined.name or self.name, joined.key, joined.value)
        name = self.graph.name(joined.name, "KSTREAM-LEFTJOIN-" if left else "KSTREAM-JOIN-")
        sources = self.graph.require_copartitioning(stream.sources, table.sources)
        state = table.state
        state.view()
        key = joined.key or stream.key_serde
        if not joined.grace_ms:
            self.graph.add_processor(
                name,
                [stream.name],
                lambda: StreamTableJoin(state.view(), joiner, left),
                used=state.view_stores,
            )
            return KStream(self.graph, name, key, None, sources)
        history_ms = state.history_ms()
        if history_ms is None or history_ms < joined.grace_ms:
            has = "has no history" if history_ms is None else f"has a history of {history_ms} ms"
            raise TopologyError(
                f"the join {name} has a grace period of {joined.grace_ms} ms, and its table {has}: give it "
                "one as long or longer, with builder.table(topic, history=…)"
            )
        buffer = StoreSpec(
            f"{name}-buffer",
            StoreKind.BUFFER,
            key or self.graph.default_key,
            joined.value or stream.value_serde or self.graph.default_value,
        )
        self.graph.add_processor(
            name,
            [stream.name],
            lambda: LateTableJoin(
                StreamTableJoin(state.view(), joiner, left),
                buffer.name,
                joined.grace_ms,
                buffer.key,
                buffer.value,
            ),
            owned=lambda: (buffer,),
            used=state.view_stores,
        )
        return KStream(self.graph, name, key, None, sources)

    def _join_global(
        self, table: GlobalKTable, joiner: Any, key_selector: Any, named: str | None, *, left: bool
    ) -> KStream:
        name = self.graph.name(named, "KSTREAM-LEFTJOIN-")
        selector = of_key_and_value(key_selector, "the key selector")
        operator = StreamTableJoin(StoredView(table.spec.name), joiner, left, selector)
        store = table.spec.name
        self.graph.add_processor(name, [self.name], operator, used=lambda: (store,))
        moved = self.repartition_required
        return KStream(self.graph, name, self.key_serde, None, self.sources, repartition_required=moved)
