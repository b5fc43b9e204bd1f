"""The graph under construction: nodes are drafts until ``build``, because later operations can ask more of
them.

Whether a table is stored, and whether its old values are sent along, depends on what the program does with
it further down. Names are numbered as Kafka Streams numbers them, including the numbers it skips, so that
internal topics have the same names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from ottla.streams.errors import TopologyError
from ottla.streams.operators.base import Operator
from ottla.streams.plan.plan import Node, Plan, ProcessorNode, RepartitionTopic, SinkNode, SourceNode
from ottla.streams.serdes import Serde, Serdes
from ottla.streams.state.spec import StoreSpec

_LEGAL_NAME = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class Draft:
    """A processor whose operator and stores are settled at the end."""

    make: Callable[[], Operator]
    # Stores the processor brings along, and names of those it only looks at.
    owned: Callable[[], Iterable[StoreSpec]]
    used: Callable[[], Iterable[str]]


def _nothing() -> tuple[()]:
    return ()


class Graph:
    def __init__(self, default_key: Serde | type, default_value: Serde | type) -> None:
        self.default_key = Serdes.of(default_key)
        self.default_value = Serdes.of(default_value)
        self._counter = 0
        self._nodes: dict[str, SourceNode | SinkNode | Draft] = {}
        self._children: dict[str, list[str]] = {}
        self._stores: dict[str, StoreSpec] = {}
        self._internal: dict[str, RepartitionTopic] = {}
        self._copartitioned: list[frozenset[str]] = []
        self._global_nodes: set[str] = set()
        self._connections: dict[str, list[str]] = {}

    # Names.

    def generate(self, prefix: str) -> str:
        name = f"{prefix}{self._counter:010d}"
        self._counter += 1
        return name

    def generate_store(self, prefix: str) -> str:
        return self.generate(f"{prefix}STATE-STORE-")

    def name(self, given: str | None, prefix: str, suffix: str = "") -> str:
        """The given name, or a numbered one. The number is used up either way, as Kafka Streams does."""
        generated = self.generate(prefix)
        if given is None:
            return generated
        if not _LEGAL_NAME.fullmatch(given):
            raise TopologyError(f"the name {given!r} may contain letters, digits, '.', '_' and '-' only")
        return given + suffix

    # Nodes.

    def add_source(self, source: SourceNode) -> None:
        self._add(source.name, source, ())
        if source.offset_reset not in {None, "earliest", "latest"}:
            raise TopologyError(f"offset reset is {source.offset_reset!r}: choose 'earliest' or 'latest'")

    def add_sink(self, sink: SinkNode, parents: Iterable[str]) -> None:
        self._add(sink.name, sink, parents)

    def add_processor(
        self,
        name: str,
        parents: Iterable[str],
        make: Callable[[], Operator] | Operator,
        *,
        owned: Callable[[], Iterable[StoreSpec]] = _nothing,
        used: Callable[[], Iterable[str]] = _nothing,
    ) -> None:
        maker = make if callable(make) else _always(make)
        self._add(name, Draft(maker, owned, used), parents)

    def connect(self, parent: str, child: str) -> None:
        self._children[parent].append(child)

    def add_store(self, spec: StoreSpec) -> None:
        if spec.name in self._stores:
            raise TopologyError(f"a store named {spec.name} exists already: give each store its own name")
        self._stores[spec.name] = spec

    def connect_store(self, processor: str, store: str) -> None:
        if store not in self._stores:
            raise TopologyError(f"there is no store named {store}: add it with add_state_store first")
        if not isinstance(self._nodes.get(processor), Draft):
            raise TopologyError(f"there is no processor named {processor} to connect the store {store} to")
        self._connections.setdefault(processor, []).append(store)

    def add_internal_topic(self, topic: RepartitionTopic) -> None:
        self._internal[topic.name] = topic

    def is_internal(self, topic: str) -> bool:
        return topic in self._internal

    def has(self, name: str) -> bool:
        return name in self._nodes

    def source_of(self, topics: tuple[str, ...]) -> SourceNode | None:
        """The source that already reads exactly these topics: one task reads a topic once."""
        for node in self._nodes.values():
            if isinstance(node, SourceNode) and node.pattern is None and set(node.topics) & set(topics):
                if node.topics != topics:
                    raise TopologyError(
                        f"topics {list(topics)} overlap with the source {node.name} of {list(node.topics)}: "
                        "read both with the same list of topics"
                    )
                return node
        return None

    def require_copartitioning(self, *sources: frozenset[str]) -> frozenset[str]:
        merged = frozenset().union(*sources)
        self._copartitioned.append(merged)
        return merged

    def mark_global(self, *names: str) -> None:
        self._global_nodes.update(names)

    def build(self) -> Plan:
        nodes: dict[str, Node] = {}
        stores = dict(self._stores)
        for name, node in self._nodes.items():
            if isinstance(node, Draft):
                operator = node.make()
                used: dict[str, None] = {}
                for spec in node.owned():
                    if stores.setdefault(spec.name, spec) != spec:
                        raise TopologyError(f"two stores are named {spec.name}: give each its own name")
                    used[spec.name] = None
                used.update(dict.fromkeys(node.used()))
                used.update(dict.fromkeys(self._connections.get(name, ())))
                nodes[name] = ProcessorNode(name, operator, tuple(used))
            else:
                nodes[name] = node
        if not any(isinstance(node, SourceNode) for node in nodes.values()):
            raise TopologyError("the topology reads no topic: begin with builder.stream() or builder.table()")
        _require_writing(nodes, stores)
        children = {name: tuple(self._children[name]) for name in nodes}
        global_stores = {
            store
            for name in self._global_nodes
            if isinstance(filler := nodes[name], ProcessorNode)
            for store in filler.stores
        }
        return Plan(
            nodes=nodes,
            children=children,
            stores=stores,
            internal_topics=dict(self._internal),
            copartitioned=tuple(self._copartitioned),
            global_nodes=frozenset(self._global_nodes),
            global_stores=frozenset(global_stores),
        )

    def _add(self, name: str, node: SourceNode | SinkNode | Draft, parents: Iterable[str]) -> None:
        if name in self._nodes:
            raise TopologyError(f"a node named {name} exists already: give each operation its own name")
        parents = tuple(parents)
        for parent in parents:
            if parent not in self._nodes:
                raise TopologyError(f"{name} follows {parent}, which does not exist")
            if isinstance(self._nodes[parent], SinkNode):
                raise TopologyError(f"{name} follows {parent}, which is a sink and has no children")
        self._nodes[name] = node
        self._children[name] = []
        for parent in parents:
            self._children[parent].append(name)


def _require_writing(nodes: Mapping[str, Node], stores: Mapping[str, StoreSpec]) -> None:
    """Raises for what can only be read: each record would fail."""
    written = [(f"the store {name}", spec.key, spec.value) for name, spec in stores.items()]
    written += [
        (f"the topic {node.topic}" if isinstance(node.topic, str) else name, node.key, node.value)
        for name, node in nodes.items()
        if isinstance(node, SinkNode)
    ]
    for what, key, value in written:
        for serde in (key, value):
            if serde.missing:
                raise TopologyError(f"{what} cannot be written as {serde.name}, which lacks {serde.missing}")


def _always(operator: Operator) -> Callable[[], Operator]:
    return lambda: operator
