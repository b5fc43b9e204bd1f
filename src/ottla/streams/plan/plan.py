"""The plan: what a program wants done, as immutable data between the builder and whoever executes it.

A plan is a graph of sources, processors and sinks with the stores they use. It says nothing about Spark or
threads: the test driver runs it record by record, ``spark_plan`` compiles it into streaming queries,
``topology`` prints it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ottla.streams.operators.base import Operator
from ottla.streams.records import InputRecord
from ottla.streams.serdes import Serde
from ottla.streams.state.spec import StoreKind, StoreSpec

TimestampExtractor = Callable[[InputRecord, Any], int]
# (topic, key, value, number of partitions) -> partition, or None for the hash of the key.
Partitioner = Callable[[str, Any, Any, int], int | None]


@dataclass(frozen=True, slots=True)
class SourceNode:
    """Reads topics, by name or by a pattern that must match the whole name."""

    name: str
    topics: tuple[str, ...]
    key: Serde
    value: Serde
    pattern: str | None = None
    timestamp_extractor: TimestampExtractor | None = None
    offset_reset: str | None = None

    def reads(self, topic: str) -> bool:
        return topic in self.topics or (
            self.pattern is not None and re.fullmatch(self.pattern, topic) is not None
        )


@dataclass(frozen=True, slots=True)
class ProcessorNode:
    """Works on records. ``stores`` are those it uses, its own and those of tables it looks up."""

    name: str
    operator: Operator
    stores: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SinkNode:
    """Writes a topic, or the one a function of (key, value, timestamp) names."""

    name: str
    topic: str | Callable[[Any, Any, int], str]
    key: Serde
    value: Serde
    partitioner: Partitioner | None = None


Node = SourceNode | ProcessorNode | SinkNode


@dataclass(frozen=True, slots=True)
class RepartitionTopic:
    """A topic the application owns, to bring records of one key together, by the name that the program knows
    it by. Without a number of partitions it gets as many as the largest source upstream has."""

    name: str
    partitions: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    nodes: Mapping[str, Node]
    # In the order of the program, which is the order in which children are served.
    children: Mapping[str, tuple[str, ...]]
    stores: Mapping[str, StoreSpec]
    internal_topics: Mapping[str, RepartitionTopic]
    # Source nodes whose topics need the same number of partitions.
    copartitioned: tuple[frozenset[str], ...] = ()
    # Nodes that keep a full copy of their topic in every task, and their stores.
    global_nodes: frozenset[str] = field(default_factory=frozenset)
    global_stores: frozenset[str] = field(default_factory=frozenset)

    def parents(self, name: str) -> tuple[str, ...]:
        return tuple(parent for parent, children in self.children.items() if name in children)

    def sources(self) -> list[SourceNode]:
        return [node for node in self.nodes.values() if isinstance(node, SourceNode)]

    def sinks(self) -> list[SinkNode]:
        return [node for node in self.nodes.values() if isinstance(node, SinkNode)]

    def changelogs(self, application_id: str) -> dict[str, str]:
        """The topics of stores that have a changelog, by store."""
        return {
            name: f"{application_id}-{spec.changelog}"
            for name, spec in self.stores.items()
            if spec.queryable and spec.logged and name not in self.global_stores
        }

    def versioned_changelogs(self, application_id: str) -> frozenset[str]:
        """Those that have several values of a key, by their time."""
        return frozenset(
            topic
            for name, topic in self.changelogs(application_id).items()
            if self.stores[name].kind is StoreKind.VERSIONED
        )

    def decorated(self, application_id: str) -> Plan:
        """The same plan with internal topics named after the application."""

        def decorate(topic: str) -> str:
            return f"{application_id}-{topic}" if topic in self.internal_topics else topic

        nodes: dict[str, Node] = {}
        for name, node in self.nodes.items():
            match node:
                case SourceNode():
                    nodes[name] = replace(node, topics=tuple(decorate(topic) for topic in node.topics))
                case SinkNode(topic=str(topic)):
                    nodes[name] = replace(node, topic=decorate(topic))
                case _:
                    nodes[name] = node
        internal = {decorate(name): topic for name, topic in self.internal_topics.items()}
        return replace(self, nodes=nodes, internal_topics=internal)

    def only(self, names: frozenset[str]) -> Plan:
        """The part of the plan with the given nodes."""
        nodes = {name: node for name, node in self.nodes.items() if name in names}
        used = {store for node in nodes.values() if isinstance(node, ProcessorNode) for store in node.stores}
        return replace(
            self,
            nodes=nodes,
            children={name: tuple(c for c in self.children.get(name, ()) if c in names) for name in nodes},
            stores={name: spec for name, spec in self.stores.items() if name in used},
            global_nodes=self.global_nodes & names,
            global_stores=self.global_stores & used,
        )


def subtopologies(plan: Plan) -> list[frozenset[str]]:
    """Groups of nodes that must run in one task: connected by edges or by a shared store, global nodes apart.

    Topics cut: a sink and a source of the same topic belong together only if something else connects them.
    """
    group: dict[str, str] = {name: name for name in plan.nodes}

    def find(name: str) -> str:
        while group[name] != name:
            group[name] = group[group[name]]
            name = group[name]
        return name

    def join(first: str, second: str) -> None:
        group[find(second)] = find(first)

    for parent, children in plan.children.items():
        for child in children:
            join(parent, child)
    users: dict[str, str] = {}
    for name, node in plan.nodes.items():
        if isinstance(node, ProcessorNode):
            for store in node.stores:
                if store not in plan.global_stores:
                    join(users.setdefault(store, name), name)
    # Joined streams of one topic run together, because one task reads each partition once.
    readers: dict[str, str] = {}
    for source in plan.sources():
        for topic in source.topics:
            join(readers.setdefault(topic, source.name), source.name)
    for sources in plan.copartitioned:
        first, *others = sorted(sources)
        for other in others:
            join(first, other)
    # Numbered by their sources' names, as Kafka Streams does.
    members: dict[str, set[str]] = {find(source): set() for source in sorted(s.name for s in plan.sources())}
    for name in plan.nodes:
        members.setdefault(find(name), set()).add(name)
    return [frozenset(names) for names in members.values()]
