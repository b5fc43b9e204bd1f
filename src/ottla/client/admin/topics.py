"""Topics, their partitions, records and offsets: listed, described, created, deleted."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from ottla.client.cluster import ClusterClient, OffsetAt
from ottla.client.errors import ClusterUnreachable, error_for, raise_for_code
from ottla.client.metadata import TopicInfo
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError, UnknownTopicOrPartition


class Partition(NamedTuple):
    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


class PartitionState(NamedTuple):
    number: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] | None
    last_known_elr: tuple[int, ...] | None


class TopicState(NamedTuple):
    name: str
    id: UUID | None
    internal: bool
    partitions: tuple[PartitionState, ...]


async def list_topics(cluster: ClusterClient) -> dict[str, TopicState]:
    """All topics by name, in order."""
    return {name: _state(topic) for name, topic in (await cluster.topics_matching(".*")).items()}


async def find_topics(cluster: ClusterClient, names: Iterable[str]) -> dict[str, TopicState]:
    """Those of the names that exist."""
    return {name: _state(topic) for name, topic in (await cluster.topics(names)).items()}


async def describe_topics(
    cluster: ClusterClient, names: Sequence[str], partitions_max: int = 2000
) -> list[TopicState]:
    """With eligible leader replicas where the cluster knows them."""
    if not names:
        return []
    if not await cluster.serves(ApiKey.DESCRIBE_TOPIC_PARTITIONS):
        found = await find_topics(cluster, names)
        return [_existing(found, name) for name in names]
    states: dict[str, list[PartitionState]] = {}
    facts: dict[str, tuple[UUID | None, bool]] = {}
    cursor: dict[str, Any] | None = None
    while True:
        answer = await cluster.ask(
            None,
            ApiKey.DESCRIBE_TOPIC_PARTITIONS,
            {
                "topics": [{"name": name} for name in names],
                "response_partition_limit": partitions_max,
                "cursor": cursor,
            },
            about="",
        )
        for topic in answer.topics:
            raise_for_code(topic.error_code, None, f"topic {topic.name}")
            facts[topic.name] = (topic.topic_id, topic.is_internal)
            states.setdefault(topic.name, []).extend(
                PartitionState(
                    partition.partition_index,
                    partition.leader_id,
                    partition.replica_nodes,
                    partition.isr_nodes,
                    partition.eligible_leader_replicas,
                    partition.last_known_elr,
                )
                for partition in topic.partitions
            )
        if answer.next_cursor is None:
            return [
                TopicState(name, *facts[name], tuple(sorted(partitions)))
                for name, partitions in sorted(states.items())
            ]
        cursor = {
            "topic_name": answer.next_cursor.topic_name,
            "partition_index": answer.next_cursor.partition_index,
        }


async def create_topic(
    cluster: ClusterClient,
    name: str,
    *,
    partitions: int | None = None,
    replication_factor: int | None = None,
    configs: Mapping[str, str] | None = None,
    assignment: Sequence[Sequence[int]] = (),
) -> Any:
    """What the cluster says of the new topic; what is None is up to the cluster."""
    answer = await cluster.ask(
        None,
        ApiKey.CREATE_TOPICS,
        {
            "topics": [
                {
                    "name": name,
                    "num_partitions": -1 if partitions is None else partitions,
                    "replication_factor": -1 if replication_factor is None else replication_factor,
                    "assignments": [
                        {"partition_index": index, "broker_ids": list(brokers)}
                        for index, brokers in enumerate(assignment)
                    ],
                    "configs": [{"name": key, "value": value} for key, value in (configs or {}).items()],
                }
            ],
            "timeout": cluster.timeouts.request_ms,
        },
        about="",
    )
    (result,) = answer.topics
    raise_for_code(result.error_code, result.error_message, "")
    return result


async def add_partitions(
    cluster: ClusterClient,
    names: Iterable[str],
    count: int,
    assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
) -> None:
    """`count` is how many each topic has then; `assignments` say where the new ones of each topic go."""
    answer = await cluster.ask(
        None,
        ApiKey.CREATE_PARTITIONS,
        {
            "topics": [
                {
                    "name": name,
                    "count": count,
                    "assignments": [{"broker_ids": list(brokers)} for brokers in assignments[name]]
                    if assignments
                    else None,
                }
                for name in names
            ],
            "timeout": cluster.timeouts.request_ms,
        },
        about="",
    )
    for result in answer.results:
        raise_for_code(result.error_code, result.error_message, "")


async def delete_records(
    cluster: ClusterClient, before: Mapping[Partition, int]
) -> dict[Partition, int | KafkaError]:
    """Where each partition begins now; an offset of -1 deletes all that is committed."""
    found: dict[Partition, int | KafkaError] = {}
    for leader, partitions in (await by_leader(cluster, before)).items():
        topics: dict[str, list[dict[str, int]]] = defaultdict(list)
        for partition in partitions:
            topics[partition.topic].append({"partition_index": partition.number, "offset": before[partition]})
        answer = await cluster.ask(
            leader,
            ApiKey.DELETE_RECORDS,
            {
                "topics": [{"name": name, "partitions": items} for name, items in topics.items()],
                "timeout": cluster.timeouts.request_ms,
            },
            about="",
        )
        for topic in answer.topics:
            for item in topic.partitions:
                partition = Partition(topic.name, item.partition_index)
                found[partition] = (
                    item.low_watermark
                    if item.error_code == ErrorCode.none
                    else error_for(item.error_code, None, "")
                )
    return dict(sorted(found.items()))


class NewTopic(NamedTuple):
    name: str
    partitions: int = -1
    replication_factor: int = -1
    """-1: what the brokers have for a default."""
    settings: Mapping[str, str] = {}


async def create_topics(cluster: ClusterClient, topics: Iterable[NewTopic]) -> None:
    """Those that exist are left as they are."""
    rows = [
        {
            "name": topic.name,
            "num_partitions": topic.partitions,
            "replication_factor": topic.replication_factor,
            "assignments": [],
            "configs": [{"name": key, "value": value} for key, value in topic.settings.items()],
        }
        for topic in topics
    ]

    def check(answer: Any) -> None:
        for topic in answer.topics:
            if topic.error_code not in {ErrorCode.none, ErrorCode.topic_already_exists}:
                raise error_for(topic.error_code, topic.error_message, f"creation of {topic.name}")

    await cluster.ask_controller(ApiKey.CREATE_TOPICS, {"topics": rows, "validate_only": False}, check)


async def delete_topics(cluster: ClusterClient, names: Sequence[str]) -> None:
    answer = await cluster.ask(
        None,
        ApiKey.DELETE_TOPICS,
        {
            "topics": [{"name": name, "topic_id": None} for name in names],
            "topic_names": list(names),
            "timeout": cluster.timeouts.request_ms,
        },
        about="",
    )
    for result in answer.responses:
        raise_for_code(result.error_code, result.error_message, "")


async def list_offsets(
    cluster: ClusterClient, wanted: Mapping[Partition, int], *, read_committed: bool = False
) -> dict[Partition, OffsetAt | KafkaError]:
    """What each partition's leader says for a timestamp, or for a negative number such as LATEST."""
    found: dict[Partition, OffsetAt | KafkaError] = {}
    for leader, partitions in (await by_leader(cluster, wanted)).items():
        asked = {partition: wanted[partition] for partition in partitions}
        found.update(await _offsets_of(cluster, leader, asked, read_committed))
    return {partition: found[partition] for partition in sorted(wanted) if partition in found}


async def offsets_told(
    cluster: ClusterClient, leaders: Mapping[Partition, int], timestamp: int
) -> dict[Partition, int]:
    """Asked of whom one knows to lead, all at once. What these cannot tell is left out: it may be gone by
    now, or they are."""
    asked: dict[int, dict[Partition, int]] = defaultdict(dict)
    for partition, leader in leaders.items():
        if leader >= 0:
            asked[leader][partition] = timestamp

    async def of(leader: int) -> dict[Partition, OffsetAt | KafkaError]:
        try:
            return await _offsets_of(cluster, leader, asked[leader], read_committed=False)
        except (KafkaError, ClusterUnreachable):
            return {}

    found: dict[Partition, int] = {}
    for answer in await asyncio.gather(*map(of, asked)):
        found |= {place: at.offset for place, at in answer.items() if not isinstance(at, KafkaError)}
    return found


async def _offsets_of(
    cluster: ClusterClient, leader: int, wanted: Mapping[Partition, int], read_committed: bool
) -> dict[Partition, OffsetAt | KafkaError]:
    topics: dict[str, list[dict[str, int]]] = defaultdict(list)
    for partition, timestamp in wanted.items():
        topics[partition.topic].append({"partition_index": partition.number, "timestamp": timestamp})
    answer = await cluster.ask(
        leader,
        ApiKey.LIST_OFFSETS,
        {
            "replica_id": -1,
            "isolation_level": 1 if read_committed else 0,
            "topics": [{"name": name, "partitions": items} for name, items in topics.items()],
            "timeout": cluster.timeouts.request_ms,
        },
        about="",
    )
    found: dict[Partition, OffsetAt | KafkaError] = {}
    for topic in answer.topics:
        for item in topic.partitions:
            partition = Partition(topic.name, item.partition_index)
            found[partition] = (
                error_for(item.error_code, None, str(partition))
                if item.error_code != ErrorCode.none
                else OffsetAt(item.offset, item.timestamp, item.leader_epoch)
            )
    return found


async def offsets_or_fail(
    cluster: ClusterClient, wanted: Mapping[Partition, int], *, read_committed: bool = False
) -> dict[Partition, OffsetAt]:
    offsets: dict[Partition, OffsetAt] = {}
    for partition, found in (await list_offsets(cluster, wanted, read_committed=read_committed)).items():
        if isinstance(found, KafkaError):
            raise found
        offsets[partition] = found
    return offsets


async def by_leader(cluster: ClusterClient, wanted: Iterable[Partition]) -> dict[int, list[Partition]]:
    """Partitions grouped by the broker that leads them."""
    partitions = sorted(wanted)
    topics = await find_topics(cluster, sorted({partition.topic for partition in partitions}))
    grouped: dict[int, list[Partition]] = defaultdict(list)
    for partition in partitions:
        topic = _existing(topics, partition.topic)
        leaders = {state.number: state.leader for state in topic.partitions}
        if partition.number not in leaders:
            raise UnknownTopicOrPartition(f"topic {topic.name} has no partition {partition.number}")
        if leaders[partition.number] < 0:
            raise error_for(
                ErrorCode.leader_not_available, f"partition {partition} has no leader at present", ""
            )
        grouped[leaders[partition.number]].append(partition)
    return dict(grouped)


def _existing(topics: Mapping[str, TopicState], name: str) -> TopicState:
    if name not in topics:
        raise UnknownTopicOrPartition(f"topic {name} does not exist")
    return topics[name]


def _state(topic: TopicInfo) -> TopicState:
    partitions = tuple(
        PartitionState(info.index, info.leader, info.replicas, info.isr, None, None)
        for info in topic.partitions.values()
    )
    return TopicState(topic.name, topic.id, topic.is_internal, partitions)
