"""AssignReplicasToDirs: a broker tells in which of its directories its replicas are.

So the controller knows, when a directory fails, which replicas failed with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from ottla.config import BrokerConfig
from ottla.controller.brokers import check_broker_epoch
from ottla.controller.command import Deciding, Result
from ottla.controller.leadership import Leadership
from ottla.controller.partition_change import PartitionTarget
from ottla.metadata.image import MetadataImage, TopicImage
from ottla.metadata.records import NO_LEADER, MetadataRecord
from ottla.wire.errors import (
    InvalidRequest,
    KafkaError,
    NotLeaderOrFollower,
    UnknownTopicId,
    UnknownTopicOrPartition,
)


class DirectoryAssignment(NamedTuple):
    directory: UUID
    topic_id: UUID
    partition: int


class DirectoryOutcome(NamedTuple):
    assignment: DirectoryAssignment
    error: KafkaError | None = None


def assign_directories(
    image: MetadataImage,
    config: BrokerConfig,
    broker_id: int,
    broker_epoch: int,
    assignments: Sequence[DirectoryAssignment],
) -> Deciding[list[DirectoryOutcome]]:
    """Raises StaleBrokerEpoch where the broker itself is not who it was."""
    check_broker_epoch(image, broker_id, broker_epoch)
    broker = image.brokers[broker_id]
    staying = Leadership(image, config)
    leaving = Leadership(image, config, leaving=broker_id)
    records: list[MetadataRecord] = []
    outcomes = []
    seen: set[tuple[UUID, int]] = set()
    for assignment in assignments:
        yield
        key = (assignment.topic_id, assignment.partition)
        try:
            if key in seen:
                raise InvalidRequest(f"Partition {assignment.partition} is assigned to two directories.")
            seen.add(key)
            topic = _find(image, broker_id, assignment)
        except KafkaError as error:
            outcomes.append(DirectoryOutcome(assignment, error))
            continue
        partition = topic.partitions[assignment.partition]
        target = PartitionTarget(directories={broker_id: assignment.directory})
        if partition.leader != NO_LEADER and not broker.has_online(partition.directory(broker_id)):
            # The directory it was in is gone: this is another log, which has yet to be fetched.
            target = target._replace(lost=broker_id)
        leadership = staying
        if not broker.has_online(assignment.directory):
            leadership = leaving
            target = target._replace(
                isr=tuple(replica for replica in partition.isr if replica != broker_id),
                election=leadership.election(topic),
            )
        record = leadership.change(topic, assignment.partition, target)
        if record is not None:
            records.append(record)
        outcomes.append(DirectoryOutcome(assignment))
    return Result(records, outcomes)


def _find(image: MetadataImage, broker_id: int, assignment: DirectoryAssignment) -> TopicImage:
    topic = image.topic_by_id(assignment.topic_id)
    if topic is None:
        raise UnknownTopicId("This server does not host this topic ID.")
    partition = topic.partition(assignment.partition)
    if partition is None:
        raise UnknownTopicOrPartition(f"Topic {topic.name} has no partition {assignment.partition}")
    if broker_id not in partition.replicas:
        raise NotLeaderOrFollower(f"Broker {broker_id} has no replica of {topic.name}-{assignment.partition}")
    return topic
