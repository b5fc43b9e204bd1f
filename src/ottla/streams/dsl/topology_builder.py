"""TopologyBuilder: sources, processors and sinks put together by name, without streams and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ottla.streams.dsl.functions import require_callable
from ottla.streams.dsl.graph import Graph
from ottla.streams.errors import TopologyError
from ottla.streams.operators.custom import CustomProcessor
from ottla.streams.plan.plan import Partitioner, SinkNode, SourceNode, TimestampExtractor
from ottla.streams.plan.topology import Topology
from ottla.streams.processor import ProcessorSupplier, brought_stores
from ottla.streams.serdes import Serde, Serdes
from ottla.streams.state.spec import StoreSpec


class TopologyBuilder:
    """What ``Topology.addSource``, ``addProcessor`` and ``addSink`` are in Kafka Streams. Every node has the
    name it is given, so nothing depends on its place in the program."""

    def __init__(
        self, *, default_key_serde: Serde | type = str, default_value_serde: Serde | type = str
    ) -> None:
        self._graph = Graph(default_key_serde, default_value_serde)

    def add_source(
        self,
        name: str,
        topics: str | Iterable[str] = (),
        *,
        pattern: str | None = None,
        key: Serde | type | None = None,
        value: Serde | type | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
        offset_reset: str | None = None,
    ) -> TopologyBuilder:
        """Read topics, by their names or by a regular expression that matches the whole name."""
        names = (topics,) if isinstance(topics, str) else tuple(topics)
        if bool(names) is (pattern is not None):
            raise TopologyError(f"the source {name} needs either topics or a pattern")
        if names and (other := self._graph.source_of(names)) is not None:
            raise TopologyError(f"{list(names)} is read by {other.name} already: let nodes follow that")
        reader = SourceNode(
            name, names, self._key(key), self._value(value), pattern, timestamp_extractor, offset_reset
        )
        self._graph.add_source(reader)
        return self

    def add_processor(
        self,
        name: str,
        supplier: ProcessorSupplier,
        parents: str | Iterable[str],
        *,
        stores: Iterable[str] = (),
    ) -> TopologyBuilder:
        """Run a processor on what its parents forward, with stores that were added before and those it brings
        along."""
        require_callable(supplier, f"the supplier of {name}")
        brought = brought_stores(supplier)
        self._graph.add_processor(
            name, _names(name, parents), CustomProcessor(supplier, fixed_key=False), owned=lambda: brought
        )
        return self.connect_processor_and_state_stores(name, *stores)

    def add_state_store(self, spec: StoreSpec, *processors: str) -> TopologyBuilder:
        """A store, for the processors named or for those that will name it."""
        self._graph.add_store(spec)
        for processor in processors:
            self._graph.connect_store(processor, spec.name)
        return self

    def connect_processor_and_state_stores(self, processor: str, *stores: str) -> TopologyBuilder:
        for store in stores:
            self._graph.connect_store(processor, store)
        return self

    def add_sink(
        self,
        name: str,
        topic: str | Callable[[Any, Any, int], str],
        parents: str | Iterable[str],
        *,
        key: Serde | type | None = None,
        value: Serde | type | None = None,
        partitioner: Partitioner | None = None,
    ) -> TopologyBuilder:
        """Write what the parents forward to a topic, or to the one that a function of key, value and time
        names."""
        sink = SinkNode(name, topic, self._key(key), self._value(value), partitioner)
        self._graph.add_sink(sink, _names(name, parents))
        return self

    def build(self) -> Topology:
        return Topology(self._graph.build())

    def _key(self, given: Serde | type | None) -> Serde:
        return self._graph.default_key if given is None else Serdes.of(given)

    def _value(self, given: Serde | type | None) -> Serde:
        return self._graph.default_value if given is None else Serdes.of(given)


def _names(node: str, parents: str | Iterable[str]) -> tuple[str, ...]:
    names = (parents,) if isinstance(parents, str) else tuple(parents)
    if not names:
        raise TopologyError(f"{node} follows nothing: name the nodes whose records it gets")
    return names
