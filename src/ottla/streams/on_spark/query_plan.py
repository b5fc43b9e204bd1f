"""From a plan to streaming queries, still without Spark: which nodes run together, and how.

Each sub-topology becomes a query: topics in, tasks by partition, topics out. Two things make it cheaper than
a literal translation. A repartition topic behind nothing but stateless nodes is not needed, because Spark
can shuffle: the consuming query computes those nodes itself. And counting, or an aggregate expression,
behind such a shuffle is Spark's own aggregation instead of a task.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from ottla.streams.operators.aggregate import StreamAggregate
from ottla.streams.operators.column_aggregate import ColumnAggregate
from ottla.streams.operators.count import add_one, zero
from ottla.streams.operators.custom import CustomProcessor
from ottla.streams.plan.plan import Plan, ProcessorNode, SinkNode, SourceNode, subtopologies
from ottla.streams.records import Change
from ottla.streams.serdes import Serde
from ottla.streams.state.spec import StoreSpec


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
    """One streaming query."""

    number: int
    kind: Kind
    plan: Plan
    # Stateless parts this query computes itself, to shuffle their output instead of reading a repartition
    # topic.
    upstream: tuple[Plan, ...] = ()
    shuffled_topics: frozenset[str] = frozenset()
    aggregation: Aggregation | None = None

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics that are read, sorted."""
        return tuple(sorted(topic for source in self.read_sources() for topic in source.topics))

    def read_sources(self) -> list[SourceNode]:
        """Sources that read topics that exist."""
        own = [source for source in self.plan.sources() if not set(source.topics) & self.shuffled_topics]
        return own + [source for part in self.upstream for source in part.sources()]


def compile_plan(plan: Plan) -> list[Query]:
    """The queries of a decorated plan, in the order of its sub-topologies."""
    parts = [plan.only(names) for names in subtopologies(plan) if not names <= plan.global_nodes]
    shuffled = _shuffled_topics(plan, parts)
    queries: list[Query] = []
    for part in parts:
        if _is_stateless(part):
            kept = _leading_to(part, {name for name in _ends(part) if not _writes(part, name, shuffled)})
            if kept.nodes:
                queries.append(Query(len(queries), Kind.STATELESS, kept))
            continue
        inputs = frozenset(topic for source in part.sources() for topic in source.topics if topic in shuffled)
        upstream = tuple(
            _leading_to(other, {name for name in _ends(other) if _writes(other, name, inputs)})
            for other in parts
            if any(_writes(other, name, inputs) for name in _ends(other))
        )
        aggregation = _native_aggregation(part)
        kind = Kind.TASKS if aggregation is None else Kind.AGGREGATION
        queries.append(Query(len(queries), kind, part, upstream, inputs, aggregation))
    return queries


def _shuffled_topics(plan: Plan, parts: list[Plan]) -> frozenset[str]:
    """Internal topics that a shuffle can stand for: written by stateless nodes only, read by stateful ones
    only."""
    shuffled = set(plan.internal_topics)
    for part in parts:
        for sink in part.sinks():
            if isinstance(sink.topic, str) and (not _is_stateless(part) or sink.partitioner is not None):
                shuffled.discard(sink.topic)
        for source in part.sources():
            if _is_stateless(part):
                shuffled -= set(source.topics)
    return frozenset(shuffled)


def _is_stateless(part: Plan) -> bool:
    return not any(
        isinstance(node, ProcessorNode)
        and (isinstance(node.operator, CustomProcessor) or set(node.stores) - part.global_stores)
        for node in part.nodes.values()
    )


def _ends(part: Plan) -> list[str]:
    return [name for name in part.nodes if not part.children.get(name)]


def _writes(part: Plan, name: str, topics: frozenset[str]) -> bool:
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
