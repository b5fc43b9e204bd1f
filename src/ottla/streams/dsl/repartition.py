"""Repartitioning: writes a stream to an internal topic and reads it back, so that records of one key meet."""

from __future__ import annotations

import re

from ottla.streams.dsl.graph import Graph
from ottla.streams.operators.stateless import DropNullKeys, PassThrough
from ottla.streams.plan.plan import Partitioner, RepartitionTopic, SinkNode, SourceNode
from ottla.streams.serdes import Serde

SUFFIX = "-repartition"

_GENERATED = re.compile(r"KSTREAM.*-[0-9]{10}")


def repartition(
    graph: Graph,
    parent: str,
    prefix: str,
    key: Serde,
    value: Serde,
    *,
    partitions: int | None = None,
    partitioner: Partitioner | None = None,
    drops_null_keys: bool = False,
) -> str:
    """Add filter, sink, topic and source; the name of the source. Done once for one topic and parent.

    The filter is there because Kafka Streams has it, which lets null keys pass since its version 3.7.
    """
    topic = prefix if prefix.endswith(SUFFIX) else prefix + SUFFIX
    sink = graph.generate("KSTREAM-SINK-")
    null_filter = graph.generate("KSTREAM-FILTER-")
    source = graph.generate("KSTREAM-SOURCE-")
    if not _GENERATED.fullmatch(prefix):
        sink, null_filter, source = f"{topic}-sink", f"{topic}-filter", f"{topic}-source"
    if graph.has(source):
        return source
    graph.add_internal_topic(RepartitionTopic(topic, partitions))
    graph.add_processor(null_filter, [parent], DropNullKeys() if drops_null_keys else PassThrough())
    graph.add_sink(SinkNode(sink, topic, key, value, partitioner), [null_filter])
    graph.add_source(SourceNode(source, (topic,), key, value))
    return source
