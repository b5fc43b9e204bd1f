"""Elections that are asked for, or due from time to time: the preferred leader again, or any at all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple

from ottla.config import BrokerConfig
from ottla.controller.command import Deciding, Result
from ottla.controller.leadership import Leadership
from ottla.controller.partition_change import Election, PartitionTarget
from ottla.metadata.image import MetadataImage, PartitionImage
from ottla.metadata.records import NO_LEADER, MetadataRecord, PartitionChangeRecord
from ottla.wire.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    InvalidRequest,
    KafkaError,
    PreferredLeaderNotAvailable,
    UnknownTopicOrPartition,
)

ELECTIONS_MAX = 1000
"""In one go of a periodic command, so that clients find their new leaders a few at a time."""


class ElectionType(IntEnum):
    """Numbers of the protocol."""

    PREFERRED = 0
    UNCLEAN = 1


class TopicPartitions(NamedTuple):
    topic: str
    partitions: tuple[int, ...]


class ElectionOutcome(NamedTuple):
    topic: str
    partition: int
    error: KafkaError | None = None


def elect_leaders(
    image: MetadataImage,
    config: BrokerConfig,
    election_type: int,
    asked: Sequence[TopicPartitions] | None,
) -> Deciding[list[ElectionOutcome]]:
    """All partitions where none are asked for; those that need no election are not in the answer then."""
    if election_type not in ElectionType.__members__.values():
        raise InvalidRequest(f"Unknown election type {election_type}")
    leadership = Leadership(image, config)
    records: dict[tuple[str, int], MetadataRecord] = {}
    outcomes = []
    for topic, partitions in _all_partitions(image) if asked is None else asked:
        yield
        for index in partitions:
            try:
                record = _elect(image, leadership, ElectionType(election_type), topic, index)
                records[topic, index] = record
                outcomes.append(ElectionOutcome(topic, index))
            except KafkaError as error:
                if asked is not None or not isinstance(error, ElectionNotNeeded):
                    outcomes.append(ElectionOutcome(topic, index, error))
    return Result([*records.values()], outcomes)


def balance_leaders(image: MetadataImage, config: BrokerConfig) -> Deciding[bool]:
    """Leadership goes back to the preferred replicas that are in sync. True says that there may be more."""

    def wants(partition: PartitionImage) -> bool:
        return partition.leader != partition.replicas[0] and partition.replicas[0] in partition.isr

    leadership = Leadership(image, config)
    records: list[MetadataRecord] = []
    for _, topic in sorted(image.topics.items()):
        yield
        for index, partition in enumerate(topic.partitions):
            if wants(partition):
                record = leadership.change(topic, index, PartitionTarget(election=Election.PREFERRED))
                if record is not None:
                    records.append(record)
                    if len(records) == ELECTIONS_MAX:
                        return Result(records, True)
    return Result(records, False)


def elect_unclean_leaders(image: MetadataImage, config: BrokerConfig) -> Deciding[bool]:
    """Where the setting was turned on after the last leader was gone. True says that there may be more."""
    leadership = Leadership(image, config)
    records: list[MetadataRecord] = []
    for _, topic in sorted(image.topics.items()):
        yield
        if not any(partition.leader == NO_LEADER for partition in topic.partitions):
            continue
        if not leadership.unclean_allowed(topic):
            continue
        for index, partition in enumerate(topic.partitions):
            if partition.leader == NO_LEADER:
                record = leadership.change(topic, index, PartitionTarget(election=Election.UNCLEAN))
                if record is not None:
                    records.append(record)
                    if len(records) == ELECTIONS_MAX:
                        return Result(records, True)
    return Result(records, False)


def _all_partitions(image: MetadataImage) -> Iterable[TopicPartitions]:
    for name, topic in sorted(image.topics.items()):
        yield TopicPartitions(name, tuple(range(len(topic.partitions))))


def _elect(
    image: MetadataImage, leadership: Leadership, election_type: ElectionType, name: str, index: int
) -> PartitionChangeRecord:
    topic = image.topics.get(name)
    if topic is None:
        raise UnknownTopicOrPartition(f"No such topic as {name}")
    partition = topic.partition(index)
    if partition is None:
        raise UnknownTopicOrPartition(f"No such partition as {name}-{index}")
    if election_type is ElectionType.PREFERRED:
        if partition.leader == partition.replicas[0]:
            raise ElectionNotNeeded(f"{name}-{index} is led by its preferred leader {partition.leader}")
        record = leadership.change(topic, index, PartitionTarget(election=Election.PREFERRED))
        if record is None:
            raise PreferredLeaderNotAvailable(
                f"Broker {partition.replicas[0]}, the preferred leader of {name}-{index}, is not alive "
                "or not in sync"
            )
        return record
    if partition.leader != NO_LEADER:
        raise ElectionNotNeeded(f"{name}-{index} is led by broker {partition.leader}")
    record = leadership.change(topic, index, PartitionTarget(election=Election.UNCLEAN))
    if record is None:
        raise EligibleLeadersNotAvailable(_why_nobody(image, f"{name}-{index}", partition))
    return record


def _why_nobody(image: MetadataImage, name: str, partition: PartitionImage) -> str:
    empty = [
        str(replica)
        for replica in partition.replicas
        if (broker := image.brokers.get(replica)) is not None
        and broker.active
        and not broker.has_online(partition.directory(replica))
    ]
    if not empty:
        return f"None of the replicas of {name} is alive"
    return (
        f"None of the replicas of {name} has its log: broker {', '.join(empty)} is alive, but without the "
        "data directory or the folder that the log was in; bring that back, or another replica. If all are "
        "gone for good, delete the topic"
    )
