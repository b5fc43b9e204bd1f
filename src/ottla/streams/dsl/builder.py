"""StreamsBuilder: where a program begins. Describes streams and tables over topics; ``build`` gives the
topology."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ottla.streams.dsl.graph import Graph
from ottla.streams.dsl.kstream import KStream
from ottla.streams.dsl.ktable import GlobalKTable, KTable
from ottla.streams.dsl.parameters import Consumed, Materialized
from ottla.streams.dsl.tables import source_table
from ottla.streams.errors import TopologyError
from ottla.streams.operators.custom import CustomProcessor
from ottla.streams.operators.table import TableSource
from ottla.streams.plan.plan import SourceNode
from ottla.streams.plan.topology import Topology
from ottla.streams.processor import ProcessorSupplier
from ottla.streams.serdes import Serde, Serdes
from ottla.streams.state.spec import StoreKind, StoreSpec
from ottla.streams.windows import Duration


class StreamsBuilder:
    """Serdes that no operation gives are the defaults given here: text for keys and values."""

    def __init__(
        self, *, default_key_serde: Serde | type = str, default_value_serde: Serde | type = str
    ) -> None:
        self._graph = Graph(default_key_serde, default_value_serde)

    def stream(self, topics: str | Iterable[str], consumed: Consumed | None = None) -> KStream:
        """A stream of the records of one or more topics."""
        names = (topics,) if isinstance(topics, str) else tuple(topics)
        return self._stream(names, None, consumed or Consumed())

    def stream_pattern(self, pattern: str, consumed: Consumed | None = None) -> KStream:
        """A stream of all topics whose whole name matches a regular expression."""
        return self._stream((), pattern, consumed or Consumed())

    def table(
        self,
        topic: str,
        consumed: Consumed | None = None,
        materialized: Materialized | None = None,
        *,
        history: Duration | None = None,
    ) -> KTable:
        """A topic as a table: the latest value of each key. With a ``history``, streams that are joined meet
        the row of their record's time, as far back as that goes."""
        consumed, materialized = consumed or Consumed(), materialized or Materialized()
        graph = self._graph
        generated_store = None if materialized.name else graph.generate_store(f"{topic}-")
        source_name = graph.name(consumed.name, "KSTREAM-SOURCE-", "-source")
        table_name = graph.name(consumed.name, "KTABLE-SOURCE-")
        key, value = self._serdes(consumed)
        key, value = materialized.key or key, materialized.value or value
        source_name = self._source(source_name, (topic,), None, key, value, consumed)
        store = materialized.name or generated_store or ""
        state = source_table(store, key, value, materialized, history)
        graph.add_processor(table_name, [source_name], state.operator, owned=state.owned)
        return KTable(graph, table_name, key, value, frozenset({source_name}), state)

    def global_table(
        self, topic: str, consumed: Consumed | None = None, materialized: Materialized | None = None
    ) -> GlobalKTable:
        """A topic as a table of which every task has a full copy, for joins by any key."""
        consumed, materialized = consumed or Consumed(), materialized or Materialized()
        graph = self._graph
        generated_store = None if materialized.name else graph.generate_store(f"{topic}-")
        source_name = graph.name(consumed.name, "KSTREAM-SOURCE-", "-source")
        table_name = graph.name(consumed.name, "KTABLE-SOURCE-")
        key, value = self._serdes(consumed)
        spec = StoreSpec(
            materialized.name or generated_store or "",
            StoreKind.KEY_VALUE,
            materialized.key or key,
            materialized.value or value,
            queryable=materialized.name is not None,
            # The topic itself is the log of a global store.
            logged=False,
        )
        if graph.source_of((topic,)) is not None:
            raise TopologyError(
                f"the topic {topic} is read by another source: a global table needs it for itself"
            )
        graph.add_source(SourceNode(source_name, (topic,), spec.key, spec.value))
        graph.add_processor(table_name, [source_name], TableSource(spec.name, False), owned=lambda: (spec,))
        graph.mark_global(source_name, table_name)
        return GlobalKTable(spec)

    def add_state_store(self, spec: StoreSpec) -> StreamsBuilder:
        """A store that processors connect to by its name."""
        self._graph.add_store(spec)
        return self

    def add_global_store(
        self, spec: StoreSpec, topic: str, supplier: ProcessorSupplier, consumed: Consumed | None = None
    ) -> StreamsBuilder:
        """A store every task has a full copy of, filled from a topic by a processor."""
        consumed = consumed or Consumed()
        spec = replace(spec, logged=False)
        self._graph.add_store(spec)
        source_name = self._graph.name(consumed.name, "KSTREAM-SOURCE-", "-source")
        processor_name = self._graph.name(consumed.name, "KTABLE-SOURCE-")
        key, value = self._serdes(consumed)
        self._graph.add_source(SourceNode(source_name, (topic,), key, value))
        self._graph.add_processor(
            processor_name, [source_name], CustomProcessor(supplier, fixed_key=False), owned=lambda: (spec,)
        )
        self._graph.mark_global(source_name, processor_name)
        return self

    def build(self) -> Topology:
        return Topology(self._graph.build())

    def _stream(self, topics: tuple[str, ...], pattern: str | None, consumed: Consumed) -> KStream:
        if not topics and pattern is None:
            raise TopologyError("a stream needs at least one topic")
        key, value = self._serdes(consumed)
        name = self._graph.name(consumed.name, "KSTREAM-SOURCE-")
        name = self._source(name, topics, pattern, key, value, consumed)
        return KStream(self._graph, name, key, value, frozenset({name}))

    def _source(
        self,
        name: str,
        topics: tuple[str, ...],
        pattern: str | None,
        key: Serde,
        value: Serde,
        consumed: Consumed,
    ) -> str:
        shared = self._graph.source_of(topics)
        if shared is not None:
            if (shared.key, shared.value) != (key, value):
                raise TopologyError(f"{list(topics)} is read twice with different serdes: use the same ones")
            return shared.name
        extractor, reset = consumed.timestamp_extractor, consumed.offset_reset
        self._graph.add_source(SourceNode(name, topics, key, value, pattern, extractor, reset))
        return name

    def _serdes(self, consumed: Consumed) -> tuple[Serde, Serde]:
        return (
            Serdes.of(consumed.key or self._graph.default_key),
            Serdes.of(consumed.value or self._graph.default_value),
        )
