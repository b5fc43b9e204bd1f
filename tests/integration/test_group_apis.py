"""The life of a group on the wire, with requests of every version that the broker offers."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from dataclasses import fields
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from raw_client import RawConnection

import ottla.testing
from ottla.coordinator.groups.matching import Matched, Matching
from ottla.handlers.registry import REGISTRY
from ottla.wire.api import ApiKey

NEWEST = 10
SUBSCRIPTION = b"\0\0\0\0\0\1\0\6orders\xff\xff\xff\xff"


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    with ottla.testing.broker(set={"offsets.topic.num.partitions": 5}) as started:
        admin = AdminClient({"bootstrap.servers": started.bootstrap_servers})
        admin.create_topics([NewTopic("orders", 2, 1)])["orders"].result(20)
        yield started.bootstrap_servers


class Client:
    """Speaks each API in the newest version up to `age` that both sides know."""

    def __init__(self, connection: RawConnection, age: int) -> None:
        self.connection = connection
        self.age = age

    def version(self, key: ApiKey) -> int:
        api = REGISTRY[key]
        return max(api.min_version, min(api.max_version, self.age))

    def make(self, api: ApiKey, name: str, /, **values: Any) -> Any:
        """An entity of that version, without the fields that it does not have."""
        entity_type = getattr(sys.modules[load_request_schema(api, self.version(api)).__module__], name)
        known = {field.name for field in fields(entity_type)}
        return entity_type(**{field: value for field, value in values.items() if field in known})

    def call(self, api: ApiKey, name: str, /, **values: Any) -> Any:
        return self.connection.call(api, self.version(api), self.make(api, f"{name}Request", **values))


@pytest.fixture(params=range(NEWEST + 1))
def client(broker: str, request: pytest.FixtureRequest) -> Iterator[Client]:
    with RawConnection(broker) as connection:
        yield Client(connection, request.param)


def orders_id(client: Client) -> uuid.UUID:
    metadata = client.connection.call(
        ApiKey.METADATA,
        10,
        load_request_schema(ApiKey.METADATA, 10)(
            topics=None,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        ),
    )
    (topic_id,) = [topic.topic_id for topic in metadata.topics if topic.name == "orders"]
    assert isinstance(topic_id, uuid.UUID)
    return topic_id


def find_coordinator(client: Client, group: str) -> None:
    found = client.call(
        ApiKey.FIND_COORDINATOR, "FindCoordinator", key=group, key_type=0, coordinator_keys=(group,)
    )
    if client.version(ApiKey.FIND_COORDINATOR) >= 4:
        (found,) = found.coordinators
    assert found.error_code is ErrorCode.none
    assert found.host == "127.0.0.1"


def join(client: Client, group: str, member_id: str = "") -> Any:
    return client.call(
        ApiKey.JOIN_GROUP,
        "JoinGroup",
        group_id=group,
        session_timeout=timedelta(seconds=10),
        rebalance_timeout=timedelta(seconds=10),
        member_id=member_id,
        protocol_type="consumer",
        protocols=(
            client.make(ApiKey.JOIN_GROUP, "JoinGroupRequestProtocol", name="range", metadata=SUBSCRIPTION),
        ),
    )


def sync(client: Client, group: str, joined: Any) -> Any:
    assignment = client.make(
        ApiKey.SYNC_GROUP, "SyncGroupRequestAssignment", member_id=joined.member_id, assignment=b"mine"
    )
    return client.call(
        ApiKey.SYNC_GROUP,
        "SyncGroup",
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=(assignment,),
    )


def commit(client: Client, group: str, topic_id: uuid.UUID, **identity: Any) -> list[ErrorCode]:
    key = ApiKey.OFFSET_COMMIT
    partitions = tuple(
        client.make(
            key,
            "OffsetCommitRequestPartition",
            partition_index=index,
            committed_offset=42,
            committed_leader_epoch=0,
            committed_metadata="note",
        )
        for index in (0, 9)
    )
    topic = client.make(
        key, "OffsetCommitRequestTopic", name="orders", topic_id=topic_id, partitions=partitions
    )
    response = client.call(
        key,
        "OffsetCommit",
        group_id=group,
        retention_time=timedelta(milliseconds=-1),
        topics=(topic,),
        **identity,
    )
    return [item.error_code for item in response.topics[0].partitions]


def committed(client: Client, group: str, topic_id: uuid.UUID) -> list[tuple[int, int, str]]:
    key, version = ApiKey.OFFSET_FETCH, client.version(ApiKey.OFFSET_FETCH)
    topic_type = "OffsetFetchRequestTopics" if version >= 8 else "OffsetFetchRequestTopic"
    topic = client.make(key, topic_type, name="orders", topic_id=topic_id, partition_indexes=(0, 1))
    if version < 8:
        response = client.call(key, "OffsetFetch", group_id=group, topics=(topic,), require_stable=True)
    else:
        wanted = client.make(key, "OffsetFetchRequestGroup", group_id=group, topics=(topic,))
        response = client.call(key, "OffsetFetch", groups=(wanted,), require_stable=True).groups[0]
    if version >= 2:
        assert response.error_code is ErrorCode.none
    return [(p.partition_index, p.committed_offset, p.metadata) for p in response.topics[0].partitions]


def test_the_life_of_a_classic_group(client: Client) -> None:
    group = f"classic-{client.age}"
    topic_id = orders_id(client)
    find_coordinator(client, group)
    joined = join(client, group)
    if client.version(ApiKey.JOIN_GROUP) >= 4:
        assert joined.error_code is ErrorCode.member_id_required
        joined = join(client, group, joined.member_id)
    assert joined.error_code is ErrorCode.none
    assert (joined.leader, joined.generation_id, joined.protocol_name) == (joined.member_id, 1, "range")
    assert [member.metadata for member in joined.members] == [SUBSCRIPTION]
    synced = sync(client, group, joined)
    assert (synced.error_code, synced.assignment) == (ErrorCode.none, b"mine")
    member = {"group_id": group, "generation_id": 1, "member_id": joined.member_id}
    assert client.call(ApiKey.HEARTBEAT, "Heartbeat", **member).error_code is ErrorCode.none
    stale = {**member, "generation_id": 7}
    assert client.call(ApiKey.HEARTBEAT, "Heartbeat", **stale).error_code is ErrorCode.illegal_generation

    codes = commit(client, group, topic_id, generation_id_or_member_epoch=1, member_id=joined.member_id)
    assert codes == [ErrorCode.none, ErrorCode.unknown_topic_or_partition]
    assert committed(client, group, topic_id) == [(0, 42, "note"), (1, -1, "")]

    listed = client.call(ApiKey.LIST_GROUPS, "ListGroups", states_filter=(), types_filter=())
    assert group in [item.group_id for item in listed.groups]
    described = client.call(
        ApiKey.DESCRIBE_GROUPS, "DescribeGroups", groups=(group, "gone"), include_authorized_operations=False
    )
    found, missing = described.groups
    assert (found.group_state, found.members[0].client_host) == ("Stable", "/127.0.0.1")
    assert found.members[0].member_assignment == b"mine"
    assert missing.group_state == "Dead"

    delete = client.call(ApiKey.DELETE_GROUPS, "DeleteGroups", groups_names=(group,))
    assert delete.results[0].error_code is ErrorCode.non_empty_group
    leaving: Any = ()
    if client.version(ApiKey.LEAVE_GROUP) >= 3:
        leaving = (client.make(ApiKey.LEAVE_GROUP, "MemberIdentity", member_id=joined.member_id),)
    left = client.call(
        ApiKey.LEAVE_GROUP, "LeaveGroup", group_id=group, member_id=joined.member_id, members=leaving
    )
    assert left.error_code is ErrorCode.none
    delete = client.call(ApiKey.DELETE_GROUPS, "DeleteGroups", groups_names=(group,))
    assert delete.results[0].error_code is ErrorCode.none
    assert committed(client, group, topic_id) == [(0, -1, ""), (1, -1, "")]


def test_leaving_a_group_one_is_not_in(client: Client) -> None:
    leaving: Any = ()
    version = client.version(ApiKey.LEAVE_GROUP)
    if version >= 3:
        leaving = (client.make(ApiKey.LEAVE_GROUP, "MemberIdentity", member_id="who"),)
    find_coordinator(client, "nobody")
    left = client.call(ApiKey.LEAVE_GROUP, "LeaveGroup", group_id="nobody", member_id="who", members=leaving)
    error = left.members[0].error_code if version >= 3 else left.error_code
    assert error is ErrorCode.unknown_member_id


@pytest.mark.parametrize("client", [0, 1], indirect=True)
def test_the_life_of_a_consumer_group(client: Client) -> None:
    group = f"consumer-{client.age}"
    topic_id = orders_id(client)
    find_coordinator(client, group)
    key = ApiKey.CONSUMER_GROUP_HEARTBEAT
    joined = client.call(
        key,
        "ConsumerGroupHeartbeat",
        group_id=group,
        member_id="" if client.age == 0 else "me",
        member_epoch=0,
        rebalance_timeout=timedelta(seconds=10),
        subscribed_topic_names=("orders",),
        topic_partitions=(),
    )
    assert joined.error_code is ErrorCode.none
    assert joined.heartbeat_interval == timedelta(seconds=5)
    (assigned,) = joined.assignment.topic_partitions
    assert (assigned.topic_id, assigned.partitions) == (topic_id, (0, 1))

    described = client.call(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        "ConsumerGroupDescribe",
        group_ids=(group, "gone"),
        include_authorized_operations=True,
    )
    found, missing = described.groups
    assert (found.group_state, found.assignor_name, found.members[0].client_id) == (
        "Stable",
        "uniform",
        "raw",
    )
    assert found.members[0].assignment.topic_partitions[0].topic_name == "orders"
    assert found.authorized_operations > 0
    assert missing.error_code is ErrorCode.group_id_not_found

    left = client.call(
        key,
        "ConsumerGroupHeartbeat",
        group_id=group,
        member_id=joined.member_id,
        member_epoch=-1,
        rebalance_timeout=timedelta(milliseconds=-1),
        topic_partitions=None,
    )
    assert (left.error_code, left.member_epoch) == (ErrorCode.none, -1)
    refused = client.call(
        key,
        "ConsumerGroupHeartbeat",
        group_id=group,
        member_id=joined.member_id,
        member_epoch=3,
        rebalance_timeout=timedelta(milliseconds=-1),
        topic_partitions=None,
    )
    assert refused.error_code is ErrorCode.unknown_member_id
    assert "rejoin" in refused.error_message


def test_an_expression_is_matched_outside_of_commands(broker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[list[str]] = []
    search = Matching.run

    async def run(matching: Matching, expressions: list[str]) -> Matched:
        searched.append(expressions)
        return await search(matching, expressions)

    monkeypatch.setattr(Matching, "run", run)
    with RawConnection(broker) as connection:
        client = Client(connection, NEWEST)
        find_coordinator(client, "expressive")

        def heartbeat(epoch: int, **values: Any) -> Any:
            return client.call(
                ApiKey.CONSUMER_GROUP_HEARTBEAT,
                "ConsumerGroupHeartbeat",
                group_id="expressive",
                member_id="me",
                member_epoch=epoch,
                rebalance_timeout=timedelta(seconds=10),
                topic_partitions=(),
                **values,
            )

        joined = heartbeat(0, subscribed_topic_regex="ord.*s")
        assert [topic.topic_id for topic in joined.assignment.topic_partitions] == [orders_id(client)]
        assert heartbeat(joined.member_epoch).error_code is ErrorCode.none
        assert heartbeat(joined.member_epoch, subscribed_topic_regex="ord.*s").error_code is ErrorCode.none
        assert searched == [["ord.*s"]]
        refused = heartbeat(joined.member_epoch, subscribed_topic_regex="(")
        assert refused.error_code is ErrorCode.invalid_regular_expression


def test_offsets_can_be_deleted(broker: str) -> None:
    with RawConnection(broker) as connection:
        client = Client(connection, NEWEST)
        find_coordinator(client, "tool")
        topic_id = orders_id(client)
        assert commit(client, "tool", topic_id, member_id="")[0] is ErrorCode.none
        partitions = tuple(
            client.make(ApiKey.OFFSET_DELETE, "OffsetDeleteRequestPartition", partition_index=index)
            for index in (0, 9)
        )
        topic = client.make(
            ApiKey.OFFSET_DELETE, "OffsetDeleteRequestTopic", name="orders", partitions=partitions
        )
        deleted = client.call(ApiKey.OFFSET_DELETE, "OffsetDelete", group_id="tool", topics=(topic,))
        assert [item.error_code for item in deleted.topics[0].partitions] == [
            ErrorCode.none,
            ErrorCode.unknown_topic_or_partition,
        ]
        assert committed(client, "tool", topic_id)[0] == (0, -1, "")


def test_topic_ids_that_nobody_has(broker: str) -> None:
    with RawConnection(broker) as connection:
        client = Client(connection, NEWEST)
        find_coordinator(client, "lost")
        assert commit(client, "lost", uuid.UUID(int=5), member_id="") == [ErrorCode.unknown_topic_id] * 2


def test_other_coordinators_are_not_here(broker: str) -> None:
    with RawConnection(broker) as connection:
        client = Client(connection, NEWEST)
        found = client.call(
            ApiKey.FIND_COORDINATOR, "FindCoordinator", key_type=2, coordinator_keys=("share",)
        )
        assert found.coordinators[0].error_code is ErrorCode.invalid_request
