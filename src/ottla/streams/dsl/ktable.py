"""KTable and GlobalKTable: the latest value of each key, and everything one can do with a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ottla.streams.dsl.foreign_key_join import join_on_foreign_key
from ottla.streams.dsl.functions import of_key_and_both, of_key_and_value, require_callable
from ottla.streams.dsl.graph import Graph
from ottla.streams.dsl.grouped_table import KGroupedTable
from ottla.streams.dsl.kstream import KStream
from ottla.streams.dsl.parameters import Grouped, Materialized, Suppressed, TableJoined
from ottla.streams.dsl.tables import DerivedTable, JoinedTable, SourceTable, SuppressedTable, TableState
from ottla.streams.errors import TopologyError
from ottla.streams.operators.aggregate import TableRepartition
from ottla.streams.operators.base import Operator, View
from ottla.streams.operators.custom import CustomProcessor
from ottla.streams.operators.stateless import ToStream
from ottla.streams.operators.suppress import Suppress
from ottla.streams.operators.table import KeepTable, TableFilter, TableMapValues
from ottla.streams.operators.table_join import TableJoinSide
from ottla.streams.operators.table_transform import TableTransformSupplier
from ottla.streams.operators.views import FilteredView, MappedView
from ottla.streams.processor import TransformerSupplier, brought_stores
from ottla.streams.serdes import Serde
from ottla.streams.state.spec import StoreKind, StoreSpec


@dataclass(frozen=True, slots=True)
class GlobalKTable:
    """A table of which every task has a full copy. It can only be joined with."""

    spec: StoreSpec

    @property
    def queryable_store_name(self) -> str | None:
        return self.spec.name if self.spec.queryable else None


class KTable:
    def __init__(
        self,
        graph: Graph,
        name: str,
        key: Serde | None,
        value: Serde | None,
        sources: frozenset[str],
        state: TableState,
        *,
        grace_ms: int | None = None,
    ) -> None:
        self.graph = graph
        self.name = name
        self.key_serde = key
        self.value_serde = value
        self.sources = sources
        self.state = state
        # How long windows stay open, if this is a windowed table.
        self.grace_ms = grace_ms

    def filter(
        self, predicate: Any, materialized: Materialized | None = None, *, named: str | None = None
    ) -> KTable:
        """Keep rows for which the predicate holds; a row that stops doing so is deleted."""
        return self._filter(predicate, materialized, named, negate=False)

    def filter_not(
        self, predicate: Any, materialized: Materialized | None = None, *, named: str | None = None
    ) -> KTable:
        """Drop rows for which the predicate holds."""
        return self._filter(predicate, materialized, named, negate=True)

    def map_values(
        self, function: Any, materialized: Materialized | None = None, *, named: str | None = None
    ) -> KTable:
        """A new value for each row."""
        mapper = of_key_and_value(function, "the function of map_values")
        return self._derive(
            "KTABLE-MAPVALUES-",
            materialized,
            named,
            materialized.value if materialized else None,
            lambda view: MappedView(view, mapper),
            lambda store, send_old: TableMapValues(mapper, store, send_old),
        )

    def transform_values(
        self,
        supplier: TransformerSupplier,
        materialized: Materialized | None = None,
        *,
        stores: Sequence[str] = (),
        named: str | None = None,
    ) -> KTable:
        """A new value for each row, by a ``ValueTransformer`` that may use stores and set timers."""
        require_callable(supplier, "the supplier of transform_values")
        materialized = materialized or Materialized()
        graph, prefix = self.graph, "KTABLE-TRANSFORMVALUES-"
        store = materialized.name or graph.generate_store(prefix)
        name = graph.name(named, prefix)
        key = materialized.key or self.key_serde
        spec = StoreSpec(
            store,
            StoreKind.KEY_VALUE,
            key or graph.default_key,
            materialized.value or graph.default_value,
            queryable=materialized.name is not None,
            logged=materialized.logged,
        )
        state = SourceTable(spec, stored=materialized.name is not None)

        def operator() -> Operator:
            transform = TableTransformSupplier(supplier, store if state.stored else None, state.send_old)
            return CustomProcessor(transform, fixed_key=True)

        brought = brought_stores(supplier)
        graph.add_processor(
            name,
            [self.name],
            operator,
            owned=lambda: (*state.owned(), *brought),
            used=lambda: stores,
        )
        return KTable(graph, name, key, materialized.value, self.sources, state, grace_ms=self.grace_ms)

    def to_stream(self, key_selector: Any = None, *, named: str | None = None) -> KStream:
        """The updates of the table as a stream; a deleted row is a record without a value."""
        name = self.graph.name(named, "KTABLE-TOSTREAM-")
        self.graph.add_processor(name, [self.name], ToStream())
        stream = KStream(self.graph, name, self.key_serde, self.value_serde, self.sources)
        return stream if key_selector is None else stream.select_key(key_selector)

    def group_by(self, selector: Any, grouped: Grouped | None = None) -> KGroupedTable:
        """Group rows by a key made from key and value: the function returns the new key and value."""
        grouped = grouped or Grouped()
        name = self.graph.name(grouped.name, "KTABLE-SELECT-")
        operator = TableRepartition(of_key_and_value(selector, "the selector"))
        self.graph.add_processor(name, [self.name], operator)
        self.state.enable_old(force=True)
        return KGroupedTable(self.graph, name, grouped)

    def suppress(self, suppressed: Suppressed) -> KTable:
        """Hold back updates until the window has closed, or for a span of time."""
        if suppressed.wait_ms is None and self.grace_ms is None:
            raise TopologyError(
                "until_window_closes() needs a windowed table: aggregate with windowed_by() first"
            )
        name = suppressed.name or self.graph.generate("KTABLE-SUPPRESS-")
        store = (
            f"{suppressed.name}-store" if suppressed.name else self.graph.generate_store("KTABLE-SUPPRESS-")
        )
        final = suppressed.wait_ms is None
        wait_ms = (self.grace_ms or 0) if suppressed.wait_ms is None else suppressed.wait_ms
        key, value = self._key(), self._value()
        # Narrow enough that looking for what is due touches little, wide enough that few spans are open.
        spec = StoreSpec(store, StoreKind.KEYED_BUFFER, key, value)
        state = SuppressedTable(self.state, spec)
        operator = Suppress(
            buffer=store,
            wait_ms=wait_ms,
            by_window_end=final,
            drop_tombstones=final,
            records_max=suppressed.buffer.records_max,
            bytes_max=suppressed.buffer.bytes_max,
            emit_early_when_full=suppressed.buffer.emit_early and not final,
            key=key,
            value=value,
        )
        self.graph.add_processor(name, [self.name], operator, owned=lambda: (spec,))
        return KTable(
            self.graph, name, self.key_serde, self.value_serde, self.sources, state, grace_ms=self.grace_ms
        )

    def join(
        self,
        other: KTable,
        joiner: Any,
        materialized: Materialized | None = None,
        *,
        foreign_key: Any = None,
        table_joined: TableJoined | None = None,
        named: str | None = None,
    ) -> KTable:
        """Rows with a partner in the other table: of the same key, or of the foreign key a function
        extracts."""
        if foreign_key is not None:
            options = table_joined or TableJoined(named)
            return join_on_foreign_key(self, other, foreign_key, joiner, materialized, options, left=False)
        return self._join(other, joiner, materialized, named, left=False, right=False)

    def left_join(
        self,
        other: KTable,
        joiner: Any,
        materialized: Materialized | None = None,
        *,
        foreign_key: Any = None,
        table_joined: TableJoined | None = None,
        named: str | None = None,
    ) -> KTable:
        """As ``join``; rows without a partner are joined with ``None``."""
        if foreign_key is not None:
            options = table_joined or TableJoined(named)
            return join_on_foreign_key(self, other, foreign_key, joiner, materialized, options, left=True)
        return self._join(other, joiner, materialized, named, left=True, right=False)

    def outer_join(
        self,
        other: KTable,
        joiner: Any,
        materialized: Materialized | None = None,
        *,
        named: str | None = None,
    ) -> KTable:
        """As ``join``; rows of both tables without a partner are joined with ``None``."""
        return self._join(other, joiner, materialized, named, left=True, right=True)

    @property
    def queryable_store_name(self) -> str | None:
        """The name under which the table can be queried, if it was given one."""
        spec: StoreSpec | None = getattr(self.state, "spec", None)
        return spec.name if spec is not None and spec.queryable else None

    def _key(self) -> Serde:
        return self.key_serde or self.graph.default_key

    def _value(self) -> Serde:
        return self.value_serde or self.graph.default_value

    def _filter(
        self, predicate: Any, materialized: Materialized | None, named: str | None, *, negate: bool
    ) -> KTable:
        test = of_key_and_value(predicate, "the predicate")
        return self._derive(
            "KTABLE-FILTER-",
            materialized,
            named,
            materialized.value if materialized and materialized.value else self.value_serde,
            lambda view: FilteredView(view, test, negate),
            lambda store, send_old: TableFilter(test, negate, store, send_old),
        )

    def _derive(
        self,
        prefix: str,
        materialized: Materialized | None,
        named: str | None,
        value: Serde | None,
        derive: Callable[[View], View],
        make: Callable[[str | None, bool], Operator],
    ) -> KTable:
        if materialized is not None and materialized.name is None:
            # Kafka Streams uses up a number here.
            self.graph.generate_store(prefix)
        name = self.graph.name(named, prefix)
        key = materialized.key if materialized and materialized.key else self.key_serde
        spec = self._spec(materialized, key, value)
        state = DerivedTable(self.state, spec, derive)
        store = None if spec is None else spec.name
        self.graph.add_processor(
            name,
            [self.name],
            lambda: make(store, state.send_old),
            owned=lambda: () if spec is None else (spec,),
        )
        return KTable(self.graph, name, key, value, self.sources, state, grace_ms=self.grace_ms)

    def _spec(
        self, materialized: Materialized | None, key: Serde | None, value: Serde | None
    ) -> StoreSpec | None:
        if materialized is None or materialized.name is None:
            return None
        return StoreSpec(
            materialized.name,
            StoreKind.KEY_VALUE,
            key or self.graph.default_key,
            value or self.graph.default_value,
            queryable=True,
            logged=materialized.logged,
        )

    def _join(
        self,
        other: KTable,
        joiner: Any,
        materialized: Materialized | None,
        named: str | None,
        *,
        left: bool,
        right: bool,
    ) -> KTable:
        function = of_key_and_both(joiner)
        graph = self.graph
        spec = self._spec(
            materialized,
            materialized.key if materialized and materialized.key else self.key_serde,
            materialized.value if materialized else None,
        )
        if materialized is not None and materialized.name is None:
            graph.generate_store("KTABLE-MERGE-")
        merge = graph.name(named, "KTABLE-MERGE-")
        sources = graph.require_copartitioning(self.sources, other.sources)
        if left:
            self.state.enable_old(force=True)
        if right:
            other.state.enable_old(force=True)
        this_name = graph.name(named, "KTABLE-JOINTHIS-", "-join-this")
        other_name = graph.name(named, "KTABLE-JOINOTHER-", "-join-other")
        this_state, other_state = self.state, other.state
        state = JoinedTable(this_state, other_state, spec, function, left, right)
        this_state.view()
        other_state.view()
        graph.add_processor(
            this_name,
            [self.name],
            lambda: TableJoinSide(True, other_state.view(), function, left, right, state.send_old),
            used=other_state.view_stores,
        )
        graph.add_processor(
            other_name,
            [other.name],
            lambda: TableJoinSide(False, this_state.view(), function, right, left, state.send_old),
            used=this_state.view_stores,
        )
        store = None if spec is None else spec.name
        graph.add_processor(
            merge,
            [this_name, other_name],
            lambda: KeepTable(store, state.send_old),
            owned=lambda: () if spec is None else (spec,),
        )
        value = materialized.value if materialized else None
        key = spec.key if spec is not None else self.key_serde
        return KTable(graph, merge, key, value, sources, state)
