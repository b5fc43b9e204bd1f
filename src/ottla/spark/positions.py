"""Offsets of all partitions of a source: what options mean on a live cluster, and how Spark stores them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from ottla.client.cluster import EARLIEST, LATEST, ClusterClient
from ottla.spark.sink_options import InvalidOption
from ottla.spark.source_options import Position, SourceOptions

Partition: TypeAlias = tuple[str, int]
Offsets: TypeAlias = dict[Partition, int]
Stored: TypeAlias = dict[str, Any]
"""As in Spark's checkpoints: {"topic": {"0": 23}}, in order, since Spark compares the text.

Before the topics stands which cluster has them: {"@cluster": "4L6g3nShT-eMCtK--X86sw"}. Checkpoints of
earlier versions, and of Spark's own Kafka source, do not say.
"""

# No topic can have this name.
CLUSTER: Final = "@cluster"


class TopicMissing(Exception):
    """A topic or partition that was asked for does not exist; the text names it and the remedy."""


def to_stored(offsets: Mapping[Partition, int], cluster_id: str | None = None) -> Stored:
    stored: Stored = {} if cluster_id is None else {CLUSTER: cluster_id}
    for (topic, partition), offset in sorted(offsets.items()):
        stored.setdefault(topic, {})[str(partition)] = offset
    return stored


def from_stored(stored: Stored) -> Offsets:
    return {
        (topic, int(partition)): offset
        for topic, offsets in stored.items()
        if topic != CLUSTER
        for partition, offset in offsets.items()
    }


async def find_partitions(cluster: ClusterClient, options: SourceOptions) -> list[Partition]:
    """Raises TopicMissing. A pattern may match nothing yet."""
    subscription = options.subscription
    if subscription.pattern is not None:
        topics = await cluster.topics_matching(subscription.pattern)
        return [(name, index) for name, topic in topics.items() for index in topic.partitions]
    if subscription.topics:
        topics = await cluster.topics(subscription.topics)
        if missing := [name for name in subscription.topics if name not in topics]:
            raise TopicMissing(
                f"Topic {', '.join(missing)} does not exist on {options.bootstrap_servers}. Check the option "
                f"subscribe, or create it: kafka-topics --create --topic {missing[0]} --bootstrap-server "
                f"{options.bootstrap_servers}"
            )
        return sorted((name, index) for name, topic in topics.items() for index in topic.partitions)
    topics = await cluster.topics({topic for topic, _ in subscription.partitions})
    for topic, partition in subscription.partitions:
        if topic not in topics or partition not in topics[topic].partitions:
            has = "does not exist"
            if topic in topics:
                has = f"has partitions 0 to {len(topics[topic].partitions) - 1}"
            raise TopicMissing(
                f"assign names partition {partition} of topic {topic}, which {has} on "
                f"{options.bootstrap_servers}."
            )
    return list(subscription.partitions)


async def offsets_at(
    cluster: ClusterClient, partitions: Iterable[Partition], timestamp: int, options: SourceOptions
) -> Offsets:
    found = await cluster.list_offsets(
        dict.fromkeys(partitions, timestamp), read_committed=options.read_committed
    )
    return {partition: at.offset for partition, at in found.items()}


async def resolve(
    cluster: ClusterClient,
    position: Position,
    partitions: list[Partition],
    options: SourceOptions,
    *,
    is_start: bool,
) -> Offsets:
    """Real offsets for every partition. Raises InvalidOption where the option leaves one open."""
    asked: Offsets
    if position.everywhere is not None:
        return await offsets_at(cluster, partitions, position.everywhere, options)
    if position.offsets is not None:
        given = dict(position.offsets)
        _require_same(position.option, given, partitions)
        asked = {partition: offset for partition, offset in given.items() if offset in (EARLIEST, LATEST)}
        found = await cluster.list_offsets(asked, read_committed=options.read_committed)
        return given | {partition: at.offset for partition, at in found.items()}
    if position.timestamps_ms is not None:
        asked = dict(position.timestamps_ms)
        _require_same(position.option, asked, partitions)
    else:
        assert position.timestamp_ms is not None
        asked = dict.fromkeys(partitions, position.timestamp_ms)
    found = await cluster.list_offsets(asked, read_committed=options.read_committed)
    offsets = {partition: at.offset for partition, at in found.items()}
    too_late = sorted(partition for partition, offset in offsets.items() if offset < 0)
    if too_late and is_start and not options.latest_if_none_so_young:
        topic, partition = too_late[0]
        raise InvalidOption(
            f"{position.option}: no record of {topic}-{partition} is of {asked[too_late[0]]} ms or younger. "
            "Set startingOffsetsByTimestampStrategy=latest to begin with what comes next."
        )
    return offsets | await offsets_at(cluster, too_late, LATEST, options)


def _require_same(option: str, given: Mapping[Partition, int], partitions: list[Partition]) -> None:
    wrong = sorted(set(given) ^ set(partitions))
    if not wrong:
        return
    topic, partition = wrong[0]
    if wrong[0] in given:
        raise InvalidOption(f"{option} names {topic}-{partition}, which is not among the partitions to read.")
    raise InvalidOption(
        f"{option} has no entry for {topic}-{partition}; name every partition, with -2 for earliest or -1 "
        "for latest where you do not care."
    )
