"""How replicas move: new ones come first, and old ones go when the new ones are in sync.

Beginning one is a command here. `partition_change` completes it, as soon as the ISR allows that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ottla.config import BrokerConfig
from ottla.controller.command import Deciding, Result, check_size
from ottla.controller.elections import TopicPartitions
from ottla.controller.leadership import Leadership
from ottla.controller.partition_change import PartitionTarget
from ottla.controller.partitions import check_assignment
from ottla.metadata.image import MetadataImage, PartitionImage, TopicImage
from ottla.metadata.records import MetadataRecord
from ottla.wire.errors import (
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    KafkaError,
    NoReassignmentInProgress,
    PolicyViolation,
    UnknownTopicOrPartition,
)


class Reassignment(NamedTuple):
    topic: str
    partition: int
    replicas: tuple[int, ...] | None
    """None cancels what is going on."""


class ReassignmentOutcome(NamedTuple):
    topic: str
    partition: int
    error: KafkaError | None = None


class OngoingReassignment(NamedTuple):
    topic: str
    partition: int
    state: PartitionImage


def alter_reassignments(
    image: MetadataImage,
    config: BrokerConfig,
    reassignments: Sequence[Reassignment],
    *,
    may_change_factor: bool = True,
) -> Deciding[list[ReassignmentOutcome]]:
    leadership = Leadership(image, config)
    records: list[MetadataRecord] = []
    outcomes = []
    seen: set[tuple[str, int]] = set()
    for reassignment in reassignments:
        yield
        key = (reassignment.topic, reassignment.partition)
        try:
            if key in seen:
                raise InvalidRequest(f"{key[0]}-{key[1]} is named more than once.")
            seen.add(key)
            topic, partition = _find(image, reassignment)
            if reassignment.replicas is None:
                target = _back(leadership, topic, reassignment.partition)
            else:
                check_assignment(image, reassignment.replicas)
                if not may_change_factor:
                    _check_factor(partition, reassignment.replicas)
                target = _towards(partition, reassignment.replicas)
            record = leadership.change(topic, reassignment.partition, target)
            if record is not None:
                records.append(record)
            outcomes.append(ReassignmentOutcome(*key))
        except KafkaError as error:
            outcomes.append(ReassignmentOutcome(*key, error))
    try:
        check_size(records)
    except PolicyViolation as error:
        return Result([], [outcome._replace(error=error) for outcome in outcomes])
    return Result(records, outcomes)


def list_reassignments(
    image: MetadataImage, asked: Sequence[TopicPartitions] | None
) -> Deciding[list[OngoingReassignment]]:
    """Those of the partitions that are asked for, or all."""
    found = []
    names = sorted(image.topics) if asked is None else [topic.topic for topic in asked]
    for position, name in enumerate(names):
        yield
        topic = image.topics.get(name)
        if topic is None:
            continue
        indexes = range(len(topic.partitions)) if asked is None else asked[position].partitions
        for index in indexes:
            partition = topic.partition(index)
            if partition is not None and partition.is_reassigned:
                found.append(OngoingReassignment(name, index, partition))
    return Result([], found)


def _find(image: MetadataImage, reassignment: Reassignment) -> tuple[TopicImage, PartitionImage]:
    topic = image.topics.get(reassignment.topic)
    if topic is None:
        raise UnknownTopicOrPartition(f"Unable to find a topic named {reassignment.topic}.")
    partition = topic.partition(reassignment.partition)
    if partition is None:
        raise UnknownTopicOrPartition(
            f"Unable to find partition {reassignment.topic}:{reassignment.partition}."
        )
    return topic, partition


def _towards(partition: PartitionImage, replicas: tuple[int, ...]) -> PartitionTarget:
    """Also from the middle of another one: who is being added and still wanted has to catch up as before."""
    settled = {*partition.replicas} - {*partition.adding_replicas}
    removing = tuple(sorted({*partition.replicas} - {*replicas}))
    return PartitionTarget(
        replicas=replicas + removing,
        removing=removing,
        adding=tuple(sorted({*replicas} - settled)),
    )


def _back(leadership: Leadership, topic: TopicImage, index: int) -> PartitionTarget:
    partition = topic.partitions[index]
    if not partition.is_reassigned:
        raise NoReassignmentInProgress(f"No reassignment of {topic.name}-{index} is in progress.")
    replicas = tuple(replica for replica in partition.replicas if replica not in partition.adding_replicas)
    if not replicas:
        raise InvalidReplicaAssignment(f"All replicas of {topic.name}-{index} are being added.")
    isr = tuple(replica for replica in partition.isr if replica in replicas)
    if not isr and not leadership.unclean_allowed(topic):
        raise InvalidReplicaAssignment(
            f"Unable to revert partition assignment for {topic.name}:{index} because it would require an "
            "unclean leader election."
        )
    return PartitionTarget(
        isr=isr or replicas[:1],
        replicas=replicas,
        removing=(),
        adding=(),
        election=leadership.election(topic),
    )


def _check_factor(partition: PartitionImage, replicas: tuple[int, ...]) -> None:
    factor = len({*partition.replicas, *partition.adding_replicas} - {*partition.removing_replicas})
    if factor != len(replicas):
        raise InvalidReplicationFactor(f"The replication factor is changed from {factor} to {len(replicas)}")
