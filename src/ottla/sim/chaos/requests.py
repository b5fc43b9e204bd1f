"""What clients ask for, on top of `Client`: administration, groups, reading."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple
from uuid import UUID

from ottla.records.batch import crc_matches, iter_headers
from ottla.records.records import Record, iter_records
from ottla.sim.client import Client, RequestFailed
from ottla.wire.errors import ErrorCode

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
TOPIC_SOURCE = 1
EARLIEST = -2
_SET, _DELETE = 0, 1
_SAFE_DOWNGRADE = 2
_TIMEOUT = datetime.timedelta(seconds=10)


def schema(api: str, version: int) -> Any:
    return import_module(f"kio.schema.{api}.v{version}.request")


def check(outcome: Any) -> None:
    if outcome.error_code is not ErrorCode.none:
        raise RequestFailed(outcome.error_code, getattr(outcome, "error_message", None))


async def create_topic(client: Client, name: str, partitions: int, configs: Mapping[str, str]) -> UUID:
    module = schema("create_topics", 7)
    topic = module.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=-1,
        assignments=(),
        configs=tuple(module.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()),
    )
    response = await client.send(module.CreateTopicsRequest(topics=(topic,), timeout=_TIMEOUT))
    check(response.topics[0])
    found: UUID = response.topics[0].topic_id
    return found


async def delete_topic(client: Client, *, name: str | None = None, topic_id: UUID | None = None) -> None:
    module = schema("delete_topics", 6)
    state = module.DeleteTopicState(name=name, topic_id=topic_id)
    response = await client.send(module.DeleteTopicsRequest(topics=(state,), timeout=_TIMEOUT))
    check(response.responses[0])


async def grow_topic(client: Client, name: str, count: int) -> None:
    module = schema("create_partitions", 3)
    topic = module.CreatePartitionsTopic(name=name, count=count, assignments=None)
    request = module.CreatePartitionsRequest(topics=(topic,), timeout=_TIMEOUT, validate_only=False)
    check((await client.send(request)).results[0])


async def alter_settings(
    client: Client, resource: int, name: str, settings: Mapping[str, str | None]
) -> None:
    module = schema("incremental_alter_configs", 1)
    configs = tuple(
        module.AlterableConfig(name=key, config_operation=_DELETE if value is None else _SET, value=value)
        for key, value in settings.items()
    )
    altered = module.AlterConfigsResource(resource_type=resource, resource_name=name, configs=configs)
    response = await client.send(
        module.IncrementalAlterConfigsRequest(resources=(altered,), validate_only=False)
    )
    check(response.responses[0])


async def topic_settings(client: Client, name: str) -> dict[str, str | None]:
    """Those it has of its own."""
    module = schema("describe_configs", 4)
    wanted = module.DescribeConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=None
    )
    result = (await client.send(module.DescribeConfigsRequest(resources=(wanted,)))).results[0]
    check(result)
    return {config.name: config.value for config in result.configs if config.config_source == TOPIC_SOURCE}


async def disable_feature(client: Client, name: str) -> None:
    module = schema("update_features", 1)
    update = module.FeatureUpdateKey(feature=name, max_version_level=0, upgrade_type=_SAFE_DOWNGRADE)
    answer = await client.send(
        module.UpdateFeaturesRequest(timeout=_TIMEOUT, feature_updates=(update,), validate_only=False)
    )
    check(answer)


async def delete_records(client: Client, topic: str, partition: int, offset: int) -> None:
    module = schema("delete_records", 2)
    wanted = module.DeleteRecordsPartition(partition_index=partition, offset=offset)
    response = await client.send(
        module.DeleteRecordsRequest(
            topics=(module.DeleteRecordsTopic(name=topic, partitions=(wanted,)),), timeout=_TIMEOUT
        )
    )
    check(response.topics[0].partitions[0])


async def all_topics(client: Client) -> dict[str, tuple[UUID, int]]:
    """Id and number of partitions."""
    response = await client.metadata()
    return {
        topic.name: (topic.topic_id, len(topic.partitions))
        for topic in response.topics
        if topic.name and topic.topic_id
    }


async def first_offset(client: Client, topic: str, partition: int) -> int:
    module = schema("list_offsets", 7)
    wanted = module.ListOffsetsPartition(partition_index=partition, timestamp=EARLIEST)
    response = await client.send(
        module.ListOffsetsRequest(
            replica_id=-1,
            isolation_level=0,
            topics=(module.ListOffsetsTopic(name=topic, partitions=(wanted,)),),
        )
    )
    outcome = response.topics[0].partitions[0]
    check(outcome)
    return int(outcome.offset)


class CorruptBatch(Exception):
    """A batch came that does not match its checksum."""


class Page(NamedTuple):
    records: list[Record]
    next_offset: int
    is_last: bool


async def fetch_page(client: Client, topic: str, partition: int, offset: int) -> Page:
    """As much as comes at once."""
    module = schema("fetch", 12)
    wanted = module.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
    response = await client.send(
        module.FetchRequest(
            max_wait=datetime.timedelta(0),
            min_bytes=1,
            max_bytes=1 << 20,
            topics=(module.FetchTopic(topic=topic, partitions=(wanted,)),),
            forgotten_topics_data=(),
        )
    )
    check(response)
    outcome = response.responses[0].partitions[0]
    check(outcome)
    data = outcome.records or b""
    records: list[Record] = []
    asked_offset = offset
    for at, header in iter_headers(data):
        batch = data[at : at + header.size]
        if not crc_matches(batch, header.crc):
            if offset > asked_offset:
                # What came before it counts; the next page begins with the damage.
                return Page(records, offset, is_last=False)
            raise CorruptBatch(f"{topic}-{partition}: the batch at offset {header.base_offset}")
        if not header.is_control:
            records += [record for record in iter_records(batch) if record.offset >= offset]
        offset = header.last_offset + 1
    if data and offset <= asked_offset:
        raise CorruptBatch(f"{topic}-{partition}: nothing whole comes at offset {asked_offset}")
    return Page(records, offset, not data or offset >= outcome.high_watermark)


async def commit_offset(
    client: Client, group: str, topic: str, partition: int, offset: int, *, generation: int, member: str
) -> None:
    module = schema("offset_commit", 9)
    committed = module.OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata=None
    )
    response = await client.send(
        module.OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member,
            topics=(module.OffsetCommitRequestTopic(name=topic, partitions=(committed,)),),
        )
    )
    check(response.topics[0].partitions[0])


async def committed_offsets(client: Client, group: str, topic: str, partitions: int) -> dict[int, int]:
    module = schema("offset_fetch", 8)
    wanted = module.OffsetFetchRequestTopics(name=topic, partition_indexes=tuple(range(partitions)))
    asked = module.OffsetFetchRequestGroup(group_id=group, topics=(wanted,))
    answer = (await client.send(module.OffsetFetchRequest(groups=(asked,)))).groups[0]
    check(answer)
    found: dict[int, int] = {}
    for partition in answer.topics[0].partitions:
        check(partition)
        found[int(partition.partition_index)] = int(partition.committed_offset)
    return found


class Membership(NamedTuple):
    generation: int
    member: str


async def join_group(client: Client, group: str, member: str = "") -> Membership:
    """As the group's leader, if it is to be; the answer to a first join is an id to join again with."""
    module = schema("join_group", 9)
    request = module.JoinGroupRequest(
        group_id=group,
        session_timeout=datetime.timedelta(seconds=10),
        rebalance_timeout=datetime.timedelta(seconds=3),
        member_id=member,
        protocol_type="consumer",
        protocols=(module.JoinGroupRequestProtocol(name="range", metadata=b"\0\1"),),
    )
    response = await client.send(request)
    if response.error_code is ErrorCode.member_id_required:
        return await join_group(client, group, response.member_id)
    check(response)
    syncing = schema("sync_group", 5)
    synced = await client.send(
        syncing.SyncGroupRequest(
            group_id=group,
            generation_id=response.generation_id,
            member_id=response.member_id,
            protocol_type="consumer",
            protocol_name=response.protocol_name,
            assignments=tuple(
                syncing.SyncGroupRequestAssignment(member_id=other.member_id, assignment=b"\0")
                for other in response.members
            ),
        )
    )
    check(synced)
    return Membership(int(response.generation_id), str(response.member_id))


async def find_coordinator(client: Client, key: str, key_type: int) -> None:
    check(await client.send(schema("find_coordinator", 3).FindCoordinatorRequest(key=key, key_type=key_type)))
