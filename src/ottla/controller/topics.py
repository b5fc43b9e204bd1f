"""Creating and deleting topics, adding partitions: checks and records as Apache Kafka's controller has them.

Each item of a request succeeds or fails on its own. `partitions` builds the records of new partitions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from ottla.config import BrokerConfig
from ottla.controller.command import RECORDS_MAX, Deciding, Result, check_size
from ottla.controller.configs import check_topic_values
from ottla.controller.partitions import assigned_partitions, placed_partitions
from ottla.controller.topic_names import (
    by_unified_name,
    can_collide,
    check_name,
    unified,
)
from ottla.log.types import METADATA_PARTITION
from ottla.metadata.image import MetadataImage, ResourceType
from ottla.metadata.internal_topics import INTERNAL_TOPICS
from ottla.metadata.records import ConfigRecord, MetadataRecord, RemoveTopicRecord, TopicRecord
from ottla.metadata.uuids import random_uuid
from ottla.wire.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopic,
    KafkaError,
    PolicyViolation,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)

DEFAULT = -1
"""A number of partitions or replicas left to the broker's configuration."""


class NewTopic(NamedTuple):
    name: str
    partition_count: int = DEFAULT
    replication_factor: int = DEFAULT
    assignments: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """Partition index and broker ids; excludes the two numbers above."""
    configs: tuple[tuple[str, str | None], ...] = ()


class TopicDefaults(NamedTuple):
    partition_count: int
    replication_factor: int
    config: BrokerConfig
    """Where the settings come from that the topic does not have itself."""


class TopicOutcome(NamedTuple):
    name: str | None
    """None for a deletion by an id that no topic has."""
    topic_id: UUID | None = None
    error: KafkaError | None = None
    partition_count: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = MappingProxyType({})


class TopicRef(NamedTuple):
    """By name or by id, never both."""

    name: str | None = None
    topic_id: UUID | None = None


class NewPartitions(NamedTuple):
    topic: str
    total_count: int
    assignments: tuple[tuple[int, ...], ...] | None = None
    """Broker ids of each partition to add."""


def create_topics(
    image: MetadataImage, topics: Sequence[NewTopic], defaults: TopicDefaults, random: Random
) -> Deciding[list[TopicOutcome]]:
    try:
        _check_partition_total(topics, defaults)
    except PolicyViolation as error:
        return Result([], [TopicOutcome(topic.name, error=error) for topic in topics])
    counts = Counter(topic.name for topic in topics)
    taken = by_unified_name(image.topics)
    records: list[MetadataRecord] = []
    outcomes = []
    for topic in topics:
        yield
        try:
            if counts[topic.name] > 1:
                raise InvalidRequest("Duplicate topic name.")
            _check_new_name(topic.name, image, taken)
            created, outcome = _create_topic(image, topic, defaults, random)
        except KafkaError as error:
            outcomes.append(TopicOutcome(topic.name, error=error))
            continue
        records += created
        outcomes.append(outcome)
        if can_collide(topic.name):
            taken[unified(topic.name)] = topic.name
    try:
        check_size(records)
    except PolicyViolation as error:
        return Result([], [TopicOutcome(topic.name, error=error) for topic in topics])
    return Result(records, outcomes)


def delete_topics(image: MetadataImage, topics: Sequence[TopicRef]) -> Deciding[list[TopicOutcome]]:
    counts = Counter(topics)
    requested_ids = {topic.topic_id for topic in topics if topic.topic_id is not None}
    records: list[MetadataRecord] = []
    outcomes = []
    for topic in topics:
        yield
        try:
            name, topic_id = _find_for_deletion(image, topic, counts, requested_ids)
        except KafkaError as error:
            outcomes.append(TopicOutcome(topic.name, topic.topic_id, error))
            continue
        records.append(RemoveTopicRecord(topic_id=topic_id))
        outcomes.append(TopicOutcome(name, topic_id))
    return Result(records, outcomes)


def create_partitions(
    image: MetadataImage, requests: Sequence[NewPartitions], random: Random
) -> Deciding[list[TopicOutcome]]:
    counts = Counter(request.topic for request in requests)
    records: list[MetadataRecord] = []
    outcomes = []
    for request in requests:
        yield
        try:
            if counts[request.topic] > 1:
                raise InvalidRequest("Duplicate topic name.")
            records += _add_partitions(image, request, random)
            outcomes.append(TopicOutcome(request.topic, partition_count=request.total_count))
        except KafkaError as error:
            outcomes.append(TopicOutcome(request.topic, error=error))
    try:
        check_size(records)
    except PolicyViolation as error:
        return Result([], [TopicOutcome(request.topic, error=error) for request in requests])
    return Result(records, outcomes)


def _check_partition_total(topics: Sequence[NewTopic], defaults: TopicDefaults) -> None:
    """Before anything is placed: a count in the billions must cost nothing."""
    total = 0
    for topic in topics:
        if topic.assignments:
            total += len(topic.assignments)
        elif topic.partition_count == DEFAULT:
            total += defaults.partition_count
        else:
            total += max(topic.partition_count, 0)
    if total > RECORDS_MAX:
        raise PolicyViolation(
            f"Excessively large number of partitions per request: {total}, at most {RECORDS_MAX} are allowed."
        )


def _check_new_name(name: str, image: MetadataImage, taken: Mapping[str, str]) -> None:
    if name == METADATA_PARTITION.topic:
        raise InvalidRequest(f"Creation of internal topic {METADATA_PARTITION.topic} is prohibited.")
    if name in image.topics:
        raise TopicAlreadyExists(f"Topic '{name}' already exists.")
    check_name(name)
    if can_collide(name) and (other := taken.get(unified(name))) is not None:
        raise InvalidTopic(f"Topic '{name}' collides with existing topic: {other}")


def _create_topic(
    image: MetadataImage, topic: NewTopic, defaults: TopicDefaults, random: Random
) -> tuple[list[MetadataRecord], TopicOutcome]:
    configs = _check_new_configs(topic.configs, defaults.config)
    if topic.assignments:
        partitions = assigned_partitions(image, _numbered_assignments(topic))
    else:
        if topic.replication_factor < DEFAULT or topic.replication_factor == 0:
            raise InvalidReplicationFactor(
                "Replication factor must be larger than 0, or -1 to use the default value."
            )
        if topic.partition_count < DEFAULT or topic.partition_count == 0:
            raise InvalidPartitions("Number of partitions was set to an invalid non-positive value.")
        count = defaults.partition_count if topic.partition_count == DEFAULT else topic.partition_count
        factor = (
            defaults.replication_factor if topic.replication_factor == DEFAULT else topic.replication_factor
        )
        partitions = placed_partitions(image, count, factor, random)
    topic_id = random_uuid(random)
    # Configs stand between the topic and its partitions, so that these find them when they are replayed.
    records: list[MetadataRecord] = [TopicRecord(name=topic.name, topic_id=topic_id)]
    records += (
        ConfigRecord(resource_type=ResourceType.TOPIC, resource_name=topic.name, name=name, value=value)
        for name, value in configs.items()
    )
    records += (partition.to_record(topic_id, index) for index, partition in enumerate(partitions))
    outcome = TopicOutcome(
        topic.name,
        topic_id,
        partition_count=len(partitions),
        replication_factor=len(partitions[0].replicas),
        configs=configs,
    )
    return records, outcome


def _numbered_assignments(topic: NewTopic) -> list[tuple[int, ...]]:
    if topic.replication_factor != DEFAULT:
        raise InvalidRequest(
            "A manual partition assignment was specified, but replication factor was not set to -1."
        )
    if topic.partition_count != DEFAULT:
        raise InvalidRequest(
            "A manual partition assignment was specified, but numPartitions was not set to -1."
        )
    by_index: dict[int, tuple[int, ...]] = {}
    for index, broker_ids in topic.assignments:
        if index in by_index:
            raise InvalidReplicaAssignment(
                f"Found multiple manual partition assignments for partition {index}"
            )
        by_index[index] = broker_ids
    if sorted(by_index) != list(range(len(by_index))):
        raise InvalidReplicaAssignment("partitions should be a consecutive 0-based integer sequence")
    return [by_index[index] for index in range(len(by_index))]


def _check_new_configs(configs: tuple[tuple[str, str | None], ...], config: BrokerConfig) -> dict[str, str]:
    values = {name: value for name, value in configs if value is not None}
    if len(values) != len(configs):
        missing = [name for name, value in configs if value is None]
        if missing:
            raise InvalidConfig(f"Null value not supported for topic configs: {','.join(missing)}")
        raise InvalidRequest("Error due to duplicate config keys")
    check_topic_values(config, values)
    return values


def _find_for_deletion(
    image: MetadataImage, topic: TopicRef, counts: Mapping[TopicRef, int], requested_ids: set[UUID]
) -> tuple[str, UUID]:
    if topic.name is None:
        if topic.topic_id is None:
            raise InvalidRequest("Neither topic name nor id were specified.")
        if counts[topic] > 1:
            raise InvalidRequest("Duplicate topic id.")
        found = image.topic_by_id(topic.topic_id)
        if found is None:
            raise UnknownTopicId("This server does not host this topic ID.")
        return found.name, found.id
    if topic.topic_id is not None:
        raise InvalidRequest("You may not specify both topic name and topic id.")
    if counts[topic] > 1:
        raise InvalidRequest("Duplicate topic name.")
    found = image.topics.get(topic.name)
    if found is None:
        raise UnknownTopicOrPartition("This server does not host this topic-partition.")
    if found.id in requested_ids:
        raise InvalidRequest("The provided topic name maps to an ID that was already supplied.")
    return found.name, found.id


def _add_partitions(image: MetadataImage, request: NewPartitions, random: Random) -> list[MetadataRecord]:
    topic = image.topics.get(request.topic)
    if topic is None:
        raise UnknownTopicOrPartition("This server does not host this topic-partition.")
    if request.topic in INTERNAL_TOPICS:
        # Which partition has a group's offsets follows from their number: other brokers would look elsewhere.
        raise InvalidRequest(
            f"No partitions can be added to {request.topic}: committed offsets and transactions would not be "
            "found any more. Their number is chosen before the topic is first used "
            "(offsets.topic.num.partitions, transaction.state.log.num.partitions, "
            "share.coordinator.state.topic.num.partitions)."
        )
    existing = len(topic.partitions)
    if request.total_count == existing:
        raise InvalidPartitions(f"Topic already has {existing} partition(s).")
    additional = request.total_count - existing
    if additional < 0:
        raise InvalidPartitions(
            f"The topic {request.topic} currently has {existing} partition(s); "
            f"{request.total_count} would not be an increase."
        )
    if additional > RECORDS_MAX:
        raise PolicyViolation(
            f"Excessively large number of partitions per request: {additional}, "
            f"at most {RECORDS_MAX} are allowed."
        )
    factor = len(topic.partitions[0].replicas)
    if request.assignments is None:
        partitions = placed_partitions(image, additional, factor, random)
    else:
        if len(request.assignments) != additional:
            raise InvalidReplicaAssignment(
                f"Attempted to add {additional} additional partition(s), but only "
                f"{len(request.assignments)} assignment(s) were specified."
            )
        partitions = assigned_partitions(
            image, request.assignments, first_index=existing, replication_factor=factor
        )
    return [partition.to_record(topic.id, existing + index) for index, partition in enumerate(partitions)]
