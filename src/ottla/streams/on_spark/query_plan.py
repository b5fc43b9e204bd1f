"""From a plan to streaming queries, still without Spark: which nodes run together, and how.

Each sub-topology becomes a query: topics in, tasks by partition, topics out. Two things make it cheaper than
a literal translation. A repartition topic behind nothing but stateless nodes is not needed, because Spark
can shuffle: the consuming query computes those nodes itself. And counting, or an aggregate expression,
behind such a shuffle is Spark's own aggregation instead of a task.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import Enum
from zlib import crc32

from ottla.streams.operators.aggregate import StreamAggregate
from ottla.streams.operators.column_aggregate import ColumnAggregate
from ottla.streams.operators.count import add_one, zero
from ottla.streams.operators.custom import CustomProcessor
from ottla.streams.plan.plan import Plan, ProcessorNode, SinkNode, SourceNode, subtopologies
from ottla.streams.records import Change
from ottla.streams.serdes import Serde
from ottla.streams.state.spec import StoreSpec
from ottla.streams.tasks.clock import schedules_clock_timers

# Ends the numbers of names that the program did not give.
_GENERATED = re.compile(r"-[0-9]{10}(-|$)")
_NAMED_BY = (
    ("KSTREAM-JOIN", "StreamJoined.with_store_name"),
    ("KSTREAM-OUTER", "StreamJoined.with_store_name"),
    ("KTABLE-SUPPRESS", "Suppressed.with_name"),
)


class Kind(Enum):
    STATELESS = "stateless"
    TASKS = "tasks by partition"
    AGGREGATION = "Spark's aggregation"


@dataclass(frozen=True, slots=True)
class Aggregation:
    """An aggregation Spark does itself, and what follows it."""

    node: str
    source: SourceNode
    store: StoreSpec
    # None counts.
    column: ColumnAggregate | None
    # The nodes behind it, reading the results from a topic that does not exist.
    rest: Plan


@dataclass(frozen=True, slots=True)
class Query:
    """One streaming query. Its label is its name among the queries of an application, also after the program
    has changed: a topic that only this query's sub-topology reads."""

    label: str
    kind: Kind
    plan: Plan
    # Stateless parts this query computes itself, to shuffle their output instead of reading a repartition
    # topic.
    upstream: tuple[Plan, ...] = ()
    shuffled_topics: frozenset[str] = frozenset()
    aggregation: Aggregation | None = None
    # Whether processors have timers by the clock.
    has_clock_timers: bool = False
    # Whether the key of a record says which task has it, instead of the partition that it was read from: in
    # a topic that has grown, records of one key lie in two partitions.
    by_key: bool = False

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics that are read, sorted."""
        return tuple(sorted(topic for source in self.read_sources() for topic in source.topics))

    def read_sources(self) -> list[SourceNode]:
        """Sources that read topics that exist."""
        return self.own_sources() + [source for part in self.upstream for source in part.sources()]

    def own_sources(self) -> list[SourceNode]:
        """Those that the tasks read themselves."""
        return [source for source in self.plan.sources() if not set(source.topics) & self.shuffled_topics]


@dataclass(frozen=True, slots=True)
class Wishes:
    """What of an application's settings decides which repartition topics a shuffle may stand for."""

    # Topics wait for each other: a partition that has nothing is not to be seen through a shuffle.
    waits: bool = False
    # Some records become dead letters, each once: nodes run in one query, and what Spark aggregates is not
    # among what comes to it.
    dead_letters: bool = False


NO_WISHES = Wishes()


def compile_plan(
    plan: Plan,
    in_tasks: Collection[str] = (),
    by_key: Collection[str] = (),
    wishes: Wishes = NO_WISHES,
) -> list[Query]:
    """The queries of a decorated plan, in the order of its sub-topologies. Those with the given labels run in
    tasks, even where Spark could aggregate, or bring records to tasks by their keys."""
    parts = [plan.only(names) for names in subtopologies(plan) if not names <= plan.global_nodes]
    shuffled = _shuffled_topics(plan, parts, wishes)
    queries: list[Query] = []
    for part in parts:
        label = label_of(part)
        if _is_stateless(part):
            kept = _leading_to(part, {name for name in _ends(part) if not _writes(part, name, shuffled)})
            if kept.nodes:
                queries.append(Query(label, Kind.STATELESS, kept))
            continue
        inputs = frozenset(topic for source in part.sources() for topic in source.topics if topic in shuffled)
        upstream = tuple(
            _leading_to(other, {name for name in _ends(other) if _writes(other, name, inputs)})
            for other in parts
            if any(_writes(other, name, inputs) for name in _ends(other))
        )
        aggregation = None if label in in_tasks else _native_aggregation(part)
        kind = Kind.TASKS if aggregation is None else Kind.AGGREGATION
        timers = schedules_clock_timers(part)
        queries.append(Query(label, kind, part, upstream, inputs, aggregation, timers, label in by_key))
    return queries


def is_generated(name: str) -> bool:
    """Whether a node, store or topic has its name by its place in the program."""
    return _GENERATED.search(name) is not None


def naming_remedy(store: str) -> str:
    """What gives a store whose name is generated one of the program's."""
    return next((remedy for mark, remedy in _NAMED_BY if mark in store), "Materialized.as_")


def label_of(part: Plan) -> str:
    """Of the query of a sub-topology. No other one reads a topic of this one, so each of its topics tells it
    from the others. One whose name was given is best: numbers change with the program."""
    names = [
        part.internal_topics[topic].name if topic in part.internal_topics else topic
        for source in part.sources()
        for topic in source.topics
    ]
    if names:
        return min(names, key=lambda name: (is_generated(name), name))
    pattern = min(source.pattern or "" for source in part.sources())
    return f"{re.sub(r'[^A-Za-z0-9._-]', '_', pattern)}-{crc32(pattern.encode()):08x}"


def _shuffled_topics(plan: Plan, parts: list[Plan], wishes: Wishes) -> frozenset[str]:
    """Internal topics that a shuffle can stand for: written by stateless nodes only, read by stateful ones
    only."""
    shuffled = set(plan.internal_topics)
    for part in parts:
        for sink in part.sinks():
            if isinstance(sink.topic, str) and (not _is_stateless(part) or sink.partitioner is not None):
                shuffled.discard(sink.topic)
        read = _topics_read(part)
        is_aggregated = wishes.dead_letters and _native_aggregation(part) is not None
        if _is_stateless(part) or is_aggregated or (wishes.waits and len(read) > 1):
            shuffled -= read
    if wishes.dead_letters:
        for part in parts:
            written = {sink.topic for sink in part.sinks() if isinstance(sink.topic, str)} & shuffled
            readers = [other for other in parts if _topics_read(other) & written]
            if len(readers) > 1 or not all(_writes(part, name, written) for name in _ends(part)):
                shuffled -= written
    return frozenset(shuffled)


def _topics_read(part: Plan) -> set[str]:
    return {topic for source in part.sources() for topic in source.topics}


def _is_stateless(part: Plan) -> bool:
    return not any(
        isinstance(node, ProcessorNode)
        and (isinstance(node.operator, CustomProcessor) or set(node.stores) - part.global_stores)
        for node in part.nodes.values()
    )


def _ends(part: Plan) -> list[str]:
    return [name for name in part.nodes if not part.children.get(name)]


def _writes(part: Plan, name: str, topics: Collection[object]) -> bool:
    node = part.nodes[name]
    return isinstance(node, SinkNode) and node.topic in topics


def _leading_to(part: Plan, ends: set[str]) -> Plan:
    """The nodes on the way to the given ones."""
    wanted = set(ends)
    waiting = list(ends)
    while waiting:
        for parent in part.parents(waiting.pop()):
            if parent not in wanted:
                wanted.add(parent)
                waiting.append(parent)
    return part.only(frozenset(wanted))


def _native_aggregation(part: Plan) -> Aggregation | None:
    stateful = [node for node in part.nodes.values() if isinstance(node, ProcessorNode) and node.stores]
    sources = part.sources()
    if len(stateful) != 1 or len(sources) != 1 or part.children[sources[0].name] != (stateful[0].name,):
        return None
    if any(
        isinstance(node, ProcessorNode) and isinstance(node.operator, CustomProcessor)
        for node in part.nodes.values()
    ):
        return None
    node, source = stateful[0], sources[0]
    column: ColumnAggregate | None = None
    match node.operator:
        case StreamAggregate(initializer=initializer, aggregator=aggregator, send_old=False):
            if (initializer, aggregator) != (zero, add_one):
                return None
        case ColumnAggregate(send_old=False) as aggregate:
            column = aggregate
        case _:
            return None
    store = part.stores[node.operator.store]
    # Spark groups by the bytes of the key, and cannot ask a function for the time of a record.
    if source.timestamp_extractor is not None or source.key != store.key:
        return None
    return Aggregation(node.name, source, store, column, _rest(part, node, store))


def _rest(part: Plan, node: ProcessorNode, store: StoreSpec) -> Plan:
    names = frozenset(part.nodes) - {node.name} - {source.name for source in part.sources()}
    rest = part.only(names)
    results = SourceNode(node.name, (results_topic(node.name),), store.key, _change_reader(store.value))
    return replace(
        rest,
        nodes={node.name: results, **rest.nodes},
        children={node.name: part.children[node.name], **rest.children},
    )


def results_topic(node: str) -> str:
    """Where the nodes behind Spark's aggregation read its results from: no topic can have this name."""
    return f"results of {node}"


def _change_reader(value: Serde) -> Serde:
    return Serde(value.name, value.writer, lambda data: Change(value.reader(data)))
