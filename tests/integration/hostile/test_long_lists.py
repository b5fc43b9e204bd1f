"""One request that names hundreds of thousands of things, beside a client that asks small questions."""

from __future__ import annotations

import datetime
import struct
import time
import uuid
from collections.abc import Callable

import pytest
from bystander import Bystander
from kio.schema.create_partitions.v3.request import CreatePartitionsRequest, CreatePartitionsTopic
from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest
from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
from kio.schema.delete_records.v2.request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_groups.v5.request import DescribeGroupsRequest
from kio.schema.describe_producers.v0.request import DescribeProducersRequest, TopicRequest
from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.list_offsets.v7.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
from kio.schema.offset_commit.v8.request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kio.schema.offset_fetch.v8.request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kio.schema.share_fetch.v2 import request as share_fetching
from raw_client import RawConnection, framed, parse_response, request_frame, wait_for_coordinator

from ottla.testing import BrokerProcess
from ottla.varints import uvarint

COUNT = 300_000
STALL_SECONDS_MAX = 1.0
SHORT_STALL_SECONDS_MAX = 0.5
HOT_STALL_SECONDS_MAX = 1.5
SHARE_OF_TIME_MAX = 0.2
"""Of what the request takes, where a machine is so busy that everything takes long."""
TOPIC = 2
BROKER_LOGGER = 8
OFFSET_COMMIT = 8
CREATE_TOPICS = 19
MANY = 100_000
LONG = datetime.timedelta(seconds=30)


def metadata() -> bytes:
    request = MetadataRequest(
        topics=tuple(MetadataRequestTopic(topic_id=None, name=f"name-{i}") for i in range(COUNT)),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    return request_frame(3, 12, request)


def list_offsets() -> bytes:
    partitions = tuple(
        ListOffsetsPartition(partition_index=i, current_leader_epoch=-1, timestamp=-1) for i in range(COUNT)
    )
    topic = ListOffsetsTopic(name="nowhere", partitions=partitions)
    return request_frame(2, 7, ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=(topic,)))


def describe_configs() -> bytes:
    resources = tuple(
        DescribeConfigsResource(resource_type=TOPIC, resource_name=f"name-{i}", configuration_keys=None)
        for i in range(COUNT)
    )
    request = DescribeConfigsRequest(resources=resources, include_synonyms=False, include_documentation=False)
    return request_frame(32, 4, request)


@pytest.mark.parametrize("frame", [metadata, list_offsets, describe_configs], ids=lambda make: make.__name__)
def test_a_long_list_holds_up_nobody(frame: Callable[[], bytes]) -> None:
    with (
        BrokerProcess() as broker,
        Bystander(broker.bootstrap_servers) as bystander,
        RawConnection(broker.bootstrap_servers, timeout_s=60) as attacker,
    ):
        attacker.send(frame())
        assert len(attacker.receive()) > COUNT
        bystander.assert_was_served()
        assert bystander.slowest_s < STALL_SECONDS_MAX, f"a bystander waited {bystander.slowest_s:.2f} s"
        assert broker.stop() == 0


def offset_fetch() -> bytes:
    topics = tuple(OffsetFetchRequestTopics(name=f"name-{i}", partition_indexes=(0,)) for i in range(MANY))
    group = OffsetFetchRequestGroup(group_id="g", topics=topics)
    return request_frame(9, 8, OffsetFetchRequest(groups=(group,), require_stable=False))


def create_topics() -> bytes:
    topics = tuple(
        CreatableTopic(name=f"new-{i}", num_partitions=0, replication_factor=1, assignments=(), configs=())
        for i in range(MANY)
    )
    return request_frame(19, 7, CreateTopicsRequest(topics=topics, timeout=LONG, validate_only=False))


def delete_topics() -> bytes:
    topics = tuple(DeleteTopicState(name=f"name-{i}", topic_id=None) for i in range(MANY))
    return request_frame(20, 6, DeleteTopicsRequest(topics=topics, timeout=LONG))


def create_partitions() -> bytes:
    topics = tuple(CreatePartitionsTopic(name=f"name-{i}", count=9, assignments=None) for i in range(MANY))
    return request_frame(37, 3, CreatePartitionsRequest(topics=topics, timeout=LONG, validate_only=False))


def delete_records() -> bytes:
    partitions = tuple(DeleteRecordsPartition(partition_index=0, offset=0) for _ in range(MANY))
    topic = DeleteRecordsTopic(name="t", partitions=partitions)
    return request_frame(21, 2, DeleteRecordsRequest(topics=(topic,), timeout=LONG))


def describe_producers() -> bytes:
    topic = TopicRequest(name="t", partition_indexes=tuple(range(MANY)))
    return request_frame(61, 0, DescribeProducersRequest(topics=(topic,)))


def alter_topics() -> bytes:
    return _alter(TOPIC, "retention.ms", "1000")


def alter_loggers() -> bytes:
    return _alter(BROKER_LOGGER, "root", "INFO")


def _alter(resource_type: int, name: str, value: str) -> bytes:
    change = AlterableConfig(name=name, config_operation=0, value=value)
    resources = tuple(
        AlterConfigsResource(resource_type=resource_type, resource_name=f"name-{i}", configs=(change,))
        for i in range(MANY)
    )
    return request_frame(44, 1, IncrementalAlterConfigsRequest(resources=resources, validate_only=False))


def describe_groups() -> bytes:
    names = tuple(f"g{i}" for i in range(MANY // 5))
    return request_frame(15, 5, DescribeGroupsRequest(groups=names, include_authorized_operations=False))


def delete_groups() -> bytes:
    return request_frame(42, 2, DeleteGroupsRequest(groups_names=tuple(f"g{i}" for i in range(MANY // 5))))


def find_coordinator() -> bytes:
    keys = tuple(f"g{i}" for i in range(MANY))
    return request_frame(10, 4, FindCoordinatorRequest(key_type=0, coordinator_keys=keys))


def share_fetch() -> bytes:
    partitions = tuple(
        share_fetching.FetchPartition(partition_index=i, acknowledgement_batches=()) for i in range(MANY)
    )
    request = share_fetching.ShareFetchRequest(
        group_id="g",
        member_id="m",
        share_session_epoch=0,
        max_wait=datetime.timedelta(0),
        min_bytes=1,
        max_bytes=1 << 20,
        max_records=500,
        batch_size=500,
        share_acquire_mode=0,
        is_renew_ack=False,
        topics=(share_fetching.FetchTopic(topic_id=uuid.UUID(int=7), partitions=partitions),),
        forgotten_topics_data=(),
    )
    return request_frame(78, 2, request)


@pytest.mark.parametrize(
    "frame",
    [
        share_fetch,
        offset_fetch,
        create_topics,
        delete_topics,
        create_partitions,
        delete_records,
        describe_producers,
        alter_topics,
        alter_loggers,
        describe_groups,
        delete_groups,
        find_coordinator,
    ],
    ids=lambda make: make.__name__,
)
def test_a_long_list_holds_up_nobody_for_long(frame: Callable[[], bytes]) -> None:
    with BrokerProcess() as broker, RawConnection(broker.bootstrap_servers, timeout_s=60) as attacker:
        _send_beside_bystander(broker, attacker, frame())
        assert broker.stop() == 0


def _send_beside_bystander(broker: BrokerProcess, attacker: RawConnection, frame: bytes) -> bytes:
    wait_for_coordinator(attacker, "g")
    topic = CreatableTopic(name="t", num_partitions=3, replication_factor=1, assignments=(), configs=())
    request = CreateTopicsRequest(topics=(topic,), timeout=LONG, validate_only=False)
    attacker.call(CREATE_TOPICS, 7, request)
    with Bystander(broker.bootstrap_servers) as bystander:
        began = time.monotonic()
        attacker.send(frame)
        answer = attacker.receive()
        took_s = time.monotonic() - began
        assert len(answer) > MANY
        bystander.assert_was_served()
        limit_s = max(SHORT_STALL_SECONDS_MAX, SHARE_OF_TIME_MAX * took_s)
        assert bystander.slowest_s < limit_s, f"waited {bystander.slowest_s:.2f} s of {took_s:.2f}"
    return answer


def test_a_commit_of_many_offsets_holds_up_nobody_and_keeps_them() -> None:
    partitions = tuple(
        OffsetCommitRequestPartition(
            partition_index=i % 4, committed_offset=i, committed_leader_epoch=-1, committed_metadata=""
        )
        for i in range(MANY)
    )
    request = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=(OffsetCommitRequestTopic(name="t", partitions=partitions),),
    )
    wanted = OffsetFetchRequestTopics(name="t", partition_indexes=(0, 1, 2))
    group = OffsetFetchRequestGroup(group_id="g", topics=(wanted,))
    with BrokerProcess() as broker, RawConnection(broker.bootstrap_servers, timeout_s=60) as attacker:
        frame = request_frame(OFFSET_COMMIT, 8, request)
        answer = parse_response(OFFSET_COMMIT, 8, _send_beside_bystander(broker, attacker, frame))
        codes = [partition.error_code for partition in answer.topics[0].partitions]
        # The topic has three partitions.
        none, unknown = ErrorCode.none, ErrorCode.unknown_topic_or_partition
        assert codes == [none, none, none, unknown] * (MANY // 4)
        fetched = attacker.call(9, 8, OffsetFetchRequest(groups=(group,), require_stable=False))
        offsets = [partition.committed_offset for partition in fetched.groups[0].topics[0].partitions]
        assert offsets == [MANY - 4, MANY - 3, MANY - 2]
        assert broker.stop() == 0


def fetch(count: int) -> bytes:
    partitions = b"".join(struct.pack(">iiqiqib", i, -1, 0, -1, -1, 1000, 0) for i in range(count))
    body = struct.pack(">iiiibii", -1, 0, 0, 1000, 0, 0, -1) + b"\x02\x02t" + uvarint(count + 1) + partitions
    return framed(struct.pack(">hhihb", 1, 12, 7, -1, 0) + body + b"\0\x01\x01\0")


def produce(count: int) -> bytes:
    partitions = b"".join(struct.pack(">ii", i, 0) for i in range(count))
    body = struct.pack(">hhiih", -1, 1, 1000, 1, 1) + b"t" + struct.pack(">i", count) + partitions
    return framed(struct.pack(">hhih", 0, 7, 7, -1) + body)


@pytest.mark.parametrize("frame", [fetch, produce], ids=lambda make: make.__name__)
def test_hot_requests_name_as_much_as_can_be_answered_at_once(frame: Callable[[int], bytes]) -> None:
    answered, refused = 30_000, 300_000
    with BrokerProcess() as broker, Bystander(broker.bootstrap_servers) as bystander:
        with RawConnection(broker.bootstrap_servers, timeout_s=60) as attacker:
            attacker.send(frame(answered))
            assert len(attacker.receive()) > answered
            attacker.send(frame(refused))
            assert attacker.was_closed()
        bystander.assert_was_served()
        assert bystander.slowest_s < HOT_STALL_SECONDS_MAX, f"a bystander waited {bystander.slowest_s:.2f} s"
        assert broker.stop() == 0


def test_no_request_names_a_million_things() -> None:
    topic = TopicRequest(name="t", partition_indexes=tuple(range(1_000_000)))
    with (
        BrokerProcess() as broker,
        Bystander(broker.bootstrap_servers) as bystander,
        RawConnection(broker.bootstrap_servers, timeout_s=60) as attacker,
    ):
        attacker.send(request_frame(61, 0, DescribeProducersRequest(topics=(topic,))))
        assert attacker.was_closed()
        bystander.assert_was_served()
        assert broker.stop() == 0
