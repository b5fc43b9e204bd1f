"""The stored formats, byte for byte where Apache Kafka's tools would notice."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinator.groups.offset_records import OffsetCommitKey, OffsetCommitValue
from ottla.coordinator.groups.records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    CurrentPartitions,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    TargetPartitions,
    decode,
    encode,
)
from ottla.coordinator.host.shard_kind import UnknownRecord

TOPIC = uuid.UUID("00010203-0405-0607-0809-0a0b0c0d0e0f")


def test_an_offset_commit_is_written_as_kafka_writes_it() -> None:
    key, value = encode(OffsetCommitKey("g", "t", 3), OffsetCommitValue(7, 2, "m", 9, topic_id=TOPIC))
    assert key.hex(" ") == "00 01 00 01 67 00 01 74 00 00 00 03"
    assert value is not None
    assert value.hex() == (
        "0004" + "0000000000000007" + "00000002" + "026d" + "0000000000000009" + "010010" + TOPIC.hex
    )


def test_an_offset_commit_with_its_own_retention_is_written_in_version_1() -> None:
    _, value = encode(OffsetCommitKey("g", "t", 0), OffsetCommitValue(7, -1, "", 9, 11))
    assert value is not None
    assert value.hex() == "0001" + "0000000000000007" + "0000" + "0000000000000009" + "000000000000000b"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("0000000000000000000700016d0000000000000009", OffsetCommitValue(7, -1, "m", 9)),
        ("0002000000000000000700016d0000000000000009", OffsetCommitValue(7, -1, "m", 9)),
        ("000300000000000000070000000200016d0000000000000009", OffsetCommitValue(7, 2, "m", 9)),
    ],
)
def test_older_versions_of_offset_commits_are_read(data: str, expected: OffsetCommitValue) -> None:
    key = bytes.fromhex("000000016700017400000000")
    assert decode(key, bytes.fromhex(data)) == (OffsetCommitKey("g", "t", 0), expected)


def test_a_classic_group_is_written_as_kafka_writes_it() -> None:
    member = MemberMetadata(
        member_id="m",
        group_instance_id=None,
        client_id="c",
        client_host="h",
        rebalance_timeout=5,
        session_timeout=6,
        subscription=b"S",
        assignment=b"A",
    )
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=1,
        protocol="range",
        leader="m",
        current_state_timestamp=9,
        members=(member,),
    )
    key_bytes, value_bytes = encode(GroupMetadataKey("g"), value)
    assert key_bytes.hex() == "0002000167"
    assert value_bytes is not None
    assert value_bytes.hex() == (
        "0003" + "0008" + b"consumer".hex() + "00000001" + "0005" + b"range".hex() + "00016d"
        "0000000000000009" + "00000001" + "00016d" + "ffff" + "000163" + "000168"
        "00000005" + "00000006" + "0000000153" + "0000000141"
    )
    assert decode(key_bytes, value_bytes) == (GroupMetadataKey("g"), value)


def test_a_classic_member_of_a_consumer_group_has_kafkas_mark_of_presence() -> None:
    value = ConsumerGroupMemberMetadataValue(
        instance_id=None,
        rack_id=None,
        client_id="c",
        client_host="h",
        subscribed_topic_names=("t",),
        subscribed_topic_regex=None,
        rebalance_timeout_ms=5,
        server_assignor=None,
        classic_member_metadata=ClassicMemberMetadata(
            session_timeout_ms=6, supported_protocols=(ClassicProtocol(name="r", metadata=b"S"),)
        ),
    )
    key, data = encode(ConsumerGroupMemberMetadataKey("g", "m"), value)
    assert key.hex() == "000500016700016d"
    assert data is not None
    # one tagged field: tag 0, 12 bytes, present, session time-out, one protocol, no further tags
    assert data.hex().endswith("01000c010000000602027202530000")
    assert decode(key, data)[1] == value


def test_an_optional_structure_that_is_there_and_null_reads_as_none() -> None:
    """As Kafka 4.3.1 writes members of the consumer protocol: tag 0, one byte, null."""
    value = ConsumerGroupMemberMetadataValue(
        instance_id=None,
        rack_id=None,
        client_id="c",
        client_host="h",
        subscribed_topic_names=("t",),
        subscribed_topic_regex=None,
        rebalance_timeout_ms=5,
        server_assignor=None,
    )
    key, data = encode(ConsumerGroupMemberMetadataKey("g", "m"), value)
    assert data is not None
    assert data.endswith(b"\x00")
    assert decode(key, data[:-1] + bytes.fromhex("010001ff")) == decode(key, data)
    assert decode(key, data)[1] == value


def test_epochs_of_partitions_that_are_there_and_null_read_as_none() -> None:
    partitions = CurrentPartitions(topic_id=TOPIC, partitions=(1,))
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=3,
        previous_member_epoch=2,
        state=1,
        assigned_partitions=(partitions,),
        partitions_pending_revocation=(),
    )
    key, data = encode(ConsumerGroupCurrentMemberAssignmentKey("g", "m"), value)
    assert data is not None
    # the tags of the partitions, no partitions to revoke, the tags of the whole
    assert data.endswith(bytes.fromhex("00 01 00"))
    assert decode(key, data[:-3] + bytes.fromhex("01 00 01 00" + "01 00"))[1] == value


RECORDS = [
    (ConsumerGroupMetadataKey("g"), ConsumerGroupMetadataValue(epoch=3, metadata_hash=-5)),
    (
        ConsumerGroupMemberMetadataKey("g", "m"),
        ConsumerGroupMemberMetadataValue(
            instance_id="i",
            rack_id="r",
            client_id="",
            client_host="",
            subscribed_topic_names=(),
            subscribed_topic_regex="a.*",
            rebalance_timeout_ms=-1,
            server_assignor="uniform",
        ),
    ),
    (
        ConsumerGroupTargetAssignmentMetadataKey("g"),
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=3, assignment_timestamp=77),
    ),
    (
        ConsumerGroupTargetAssignmentMemberKey("g", "m"),
        ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=(TargetPartitions(topic_id=TOPIC, partitions=(0, 2)),)
        ),
    ),
    (
        ConsumerGroupCurrentMemberAssignmentKey("g", "m"),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=3,
            previous_member_epoch=2,
            state=1,
            assigned_partitions=(
                CurrentPartitions(topic_id=TOPIC, partitions=(0, 2), assignment_epochs=(1, 3)),
            ),
            partitions_pending_revocation=(CurrentPartitions(topic_id=TOPIC, partitions=(1,)),),
        ),
    ),
    (
        ConsumerGroupRegularExpressionKey("g", "a.*"),
        ConsumerGroupRegularExpressionValue(topics=("ab", "ac"), version=7, timestamp=8),
    ),
]


@pytest.mark.parametrize(("key", "value"), RECORDS)
def test_consumer_group_records_round_trip(key: object, value: object) -> None:
    assert decode(*encode(key, value)) == (key, value)
    assert decode(encode(key, None)[0], None) == (key, None)


@given(
    group=st.text(max_size=40),
    topic=st.text(max_size=40),
    partition=st.integers(0, 2**31 - 1),
    value=st.builds(
        OffsetCommitValue,
        st.integers(-1, 2**63 - 1),
        st.integers(-1, 2**31 - 1),
        st.text(max_size=300),
        st.integers(0, 2**62),
        st.just(-1),
        st.none() | st.uuids(),
    ),
)
def test_offset_commits_round_trip(group: str, topic: str, partition: int, value: OffsetCommitValue) -> None:
    key = OffsetCommitKey(group, topic, partition)
    assert decode(*encode(key, value)) == (key, value)


@pytest.mark.parametrize("key", [None, b"", b"\x00", b"\x00\x63\x00\x00", b"\x00\x02\x00\x09x"])
def test_what_is_not_known_or_broken_is_told_apart(key: bytes | None) -> None:
    with pytest.raises(UnknownRecord):
        decode(key, None)


def test_a_value_of_an_unknown_version_is_told_apart() -> None:
    with pytest.raises(UnknownRecord, match="version 9"):
        decode(b"\x00\x02\x00\x01g", b"\x00\x09")
