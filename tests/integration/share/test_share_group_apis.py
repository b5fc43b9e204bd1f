"""Share groups by the protocol: membership, where they are, and what tools do to them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from group_calls import GroupCalls
from kio.schema.errors import ErrorCode
from share_member import ACCEPT, RELEASE, Member, acquired, create_topic, produce

import ottla.testing
from ottla.wire.api import ApiKey

NONE = ErrorCode.none


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    with ottla.testing.broker() as started:
        yield started.bootstrap_servers


@pytest.fixture
def calls(broker: str) -> Iterator[GroupCalls]:
    made = GroupCalls(broker)
    yield made
    made.connection.close()


def make_topic(broker: str, name: str, partitions: int = 2, replicas: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": broker})
    admin.create_topics([NewTopic(name, partitions, replicas)])[name].result(20)


def read_by(reply: object) -> list[int]:
    return [p for topic in reply.assignment.topic_partitions for p in topic.partitions]  # type: ignore[attr-defined]


def test_members_join_share_and_leave(broker: str, calls: GroupCalls) -> None:
    make_topic(broker, "joined")
    first = calls.join("joiners", "m1", "joined")
    assert read_by(first) == [0, 1], "the first heartbeat says what to read"
    second = calls.beat("joiners", "m2", 0, "joined")
    third = calls.beat("joiners", "m1", first.member_epoch)
    assert sorted(read_by(second) + read_by(third)) == [0, 1]
    described = calls.describe("joiners")
    assert (described.group_state, described.assignor_name, len(described.members)) == ("Stable", "simple", 2)
    assert calls.listed(["share"]) == [("joiners", "share", "Stable")]
    assert ("joiners", "share", "Stable") not in calls.listed(["consumer", "classic"])
    assert calls.beat("joiners", "m3", 5).error_code is ErrorCode.unknown_member_id
    assert calls.delete_group("joiners") is ErrorCode.non_empty_group
    for member in ("m1", "m2"):
        assert calls.beat("joiners", member, -1).member_epoch == -1
    assert calls.describe("joiners").group_state == "Empty"
    assert calls.delete_group("joiners") is NONE
    assert calls.describe("joiners").error_code is ErrorCode.group_id_not_found


def test_where_a_group_is_can_be_told_altered_and_deleted(broker: str, calls: GroupCalls) -> None:
    make_topic(broker, "placed")
    producer = Producer({"bootstrap.servers": broker})
    for _ in range(5):
        producer.produce("placed", b"x", partition=0)
    producer.flush()
    calls.join("placers", "m", "placed")
    (topic,) = calls.offsets("placers").topics
    assert [(p.partition_index, p.start_offset, p.lag) for p in topic.partitions] == [
        (0, -1, -1),
        (1, -1, -1),
    ]
    assert calls.alter("placers", "placed", {0: 1}).error_code is ErrorCode.non_empty_group
    calls.beat("placers", "m", -1)
    (altered,) = calls.alter("placers", "placed", {0: 2, 7: 1}).responses
    assert [p.error_code for p in altered.partitions] == [NONE, ErrorCode.unknown_topic_or_partition]
    asked = calls.offsets("placers", {"placed": [0], "missing": [0]})
    (placed, missing) = asked.topics
    assert [(p.start_offset, p.lag) for p in placed.partitions] == [(2, 3)]
    assert [(p.start_offset, p.error_code) for p in missing.partitions] == [(-1, NONE)], "as Apache Kafka"
    (beyond,) = calls.offsets("placers", {"placed": [9]}).topics
    assert [p.error_code for p in beyond.partitions] == [ErrorCode.unknown_topic_or_partition]
    assert calls.offsets("placers", {"placed": [0]}, version=0).topics[0].partitions[0].start_offset == 2
    deleted = calls.delete_offsets("placers", "placed", "missing")
    assert [(t.topic_name, t.error_code) for t in deleted.responses] == [
        ("placed", NONE),
        ("missing", ErrorCode.unknown_topic_or_partition),
    ]
    assert calls.offsets("placers").topics == ()
    assert calls.alter("begun-by-a-tool", "placed", {0: 4}).error_code is NONE
    assert calls.offsets("begun-by-a-tool").topics[0].partitions[0].lag == 1
    assert calls.delete_group("begun-by-a-tool") is NONE
    assert calls.offsets("begun-by-a-tool").error_code is ErrorCode.group_id_not_found


def test_a_cluster_without_share_groups_says_so(tmp_path: Path) -> None:
    with ottla.testing.broker() as started:
        calls = GroupCalls(started.bootstrap_servers)
        turned_off = calls.call(
            ApiKey.UPDATE_FEATURES,
            1,
            timeout=5000,
            feature_updates=[{"feature": "share.version", "max_version_level": 0, "upgrade_type": 2}],
        )
        assert turned_off.error_code is NONE, turned_off
        for answer in (
            calls.beat("g", "m", 0, "t"),
            calls.describe("g"),
            calls.offsets("g"),
            calls.alter("g", "t", {0: 0}),
            calls.delete_offsets("g", "t"),
        ):
            assert answer.error_code is ErrorCode.unsupported_version
        began = time.monotonic()
        member = Member(started.bootstrap_servers, "g", uuid.uuid4())
        answer = member.fetch(wait_ms=200)
        member.connection.close()
        assert answer.error_code is ErrorCode.unsupported_version
        assert time.monotonic() - began >= 0.2, "who is refused at once comes again at once, for ever"


def test_groups_and_states_survive_the_broker(tmp_path: Path) -> None:
    with ottla.testing.broker(data_dir=str(tmp_path)) as started:
        make_topic(started.bootstrap_servers, "kept")
        calls = GroupCalls(started.bootstrap_servers)
        epoch = calls.join("keepers", "m", "kept").member_epoch
        calls.connection.close()
    with ottla.testing.broker(data_dir=str(tmp_path)) as started:
        calls = GroupCalls(started.bootstrap_servers)
        while (found := calls.describe("keepers")).error_code is not NONE:
            assert found.error_code in (ErrorCode.coordinator_load_in_progress, ErrorCode.not_coordinator)
        assert [(m.member_id, m.member_epoch) for m in found.members] == [("m", epoch)]
        assert calls.beat("keepers", "m", epoch).error_code is NONE
        assert [p.partition_index for p in calls.offsets("keepers").topics[0].partitions] == [0, 1]


def test_a_member_reads_what_it_was_assigned(broker: str, calls: GroupCalls) -> None:
    topic_id = create_topic(broker, "read", partitions=1)
    produce(broker, "read", "a", "b", "c")
    admin = AdminClient({"bootstrap.servers": broker})
    setting = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.GROUP, "readers", incremental_configs=[setting])
    admin.incremental_alter_configs([resource])[resource].result(10)
    assert read_by(calls.join("readers", "one", "read")) == [0]
    member = Member(broker, "readers", topic_id)
    while not (rows := acquired(member.fetch())):
        pass
    assert rows == [(0, 2, 1)]
    member.fetch([(0, 2, [ACCEPT, RELEASE, ACCEPT])])
    (topic,) = calls.offsets("readers").topics
    assert [p.lag for p in topic.partitions] == [1], "the one that was given back"
    member.connection.close()
