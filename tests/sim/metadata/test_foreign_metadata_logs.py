"""Logs as Apache Kafka leaves them, or others: what can be gone on from, and what is refused and why."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from kio.schema.types import BrokerId
from kio.schema.voters_record.v0.data import KRaftVersionFeature, Voter, VotersRecord
from kio.serial import entity_writer
from kio.static.primitive import i16
from metadata_node import HOST, LOG_DIR, MetadataNode

from ottla.controller.topics import NewTopic
from ottla.metadata.access_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    QuotaEntity,
    RemoveAccessControlEntryRecord,
)
from ottla.metadata.cluster_records import (
    BrokerRegistrationChangeRecord,
    RegisterControllerRecord,
)
from ottla.metadata.control import ControlType
from ottla.metadata.foreign_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    NoOpRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from ottla.metadata.meta_properties import prepare
from ottla.metadata.quotas import quota_records
from ottla.metadata.records import (
    FeatureLevelRecord,
    MetadataRecord,
    MetadataRecordError,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
    decode_record,
    encode_record,
)
from ottla.metadata.snapshot import list_snapshots, read_snapshot
from ottla.raft.metadata_log import QuorumError, open_metadata_log
from ottla.records.batch import iter_headers
from ottla.records.records import Record, encode_batch, iter_records
from ottla.sim.world import SimWorld

VERSION_OF_4_3 = FeatureLevelRecord(name="metadata.version", feature_level=30)
VERSION = FeatureLevelRecord(name="metadata.version", feature_level=25)
TOPIC_ID = UUID(int=300)
LEFT_BY_KAFKA: list[MetadataRecord] = [
    BeginTransactionRecord(name="Bootstrap records"),
    VERSION,
    FeatureLevelRecord(name="group.version", feature_level=1),
    EndTransactionRecord(),
    RegisterControllerRecord(controller_id=1, incarnation_id=UUID(int=9), end_points=(), features=()),
    RegisterBrokerRecord(
        broker_id=1, incarnation_id=UUID(int=10), broker_epoch=5, end_points=(), features=()
    ),
    BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, fenced=-1),
    NoOpRecord(),
    TopicRecord(name="orders", topic_id=TOPIC_ID),
    PartitionRecord(
        partition_id=0,
        topic_id=TOPIC_ID,
        replicas=(1,),
        isr=(1,),
        leader=-1,
        leader_epoch=3,
        partition_epoch=4,
        directories=(UUID(int=200),),
    ),
]


def encoded(records: list[MetadataRecord]) -> list[Record]:
    return [Record(None, encode_record(record), 1) for record in records]


def started_on(
    batches: list[tuple[list[Record], bool]], check: Callable[[MetadataNode], None] = lambda _: None
) -> None:
    """Start a node on a log with these batches of records, each with whether it is a control batch."""
    with SimWorld(1) as world:
        node = MetadataNode(world)
        runtime = world.runtime(HOST)
        prepare(runtime.disk, runtime.random, node.config.log_dirs, node.config.node_id)
        log = open_metadata_log(runtime, node.config)
        for records, control in batches:
            batch = encode_batch(records, base_offset=log.next_offset, leader_epoch=8, control=control)
            log.append_as_follower(batch)
        log.close()

        async def scenario() -> None:
            await node.start()
            check(node)
            await node.controller.create_topics([NewTopic("new")])

        world.run(scenario())


def voters(*voter_ids: int) -> Record:
    feature = KRaftVersionFeature(min_supported_version=i16(0), max_supported_version=i16(1))
    message = VotersRecord(
        version=i16(0),
        voters=tuple(
            Voter(
                voter_id=BrokerId(voter_id),
                voter_directory_id=UUID(int=200),
                endpoints=(),
                k_raft_version_feature=feature,
            )
            for voter_id in voter_ids
        ),
    )
    buffer = io.BytesIO()
    entity_writer(VotersRecord)(buffer, message)
    return Record(b"\0\0\0" + bytes([ControlType.KRAFT_VOTERS]), buffer.getvalue(), 1)


def test_a_log_that_kafka_left_goes_on_in_a_new_epoch() -> None:
    def check(node: MetadataNode) -> None:
        assert node.loaded.features == {"metadata.version": 25, "group.version": 1}
        assert node.loaded.brokers[1].active
        assert list(node.loaded.controllers) == [1]
        assert node.loaded.topics["orders"].partitions[0].leader == -1
        # The broker was gone; now that it is back, it leads again.
        partition = node.image.topics["orders"].partitions[0]
        assert (partition.leader, partition.leader_epoch) == (1, 4)
        assert node.image.epoch == 9
        assert node.image.features == node.loaded.features

    started_on([([voters(1)], True), (encoded(LEFT_BY_KAFKA), False)], check)


def test_a_transaction_left_open_is_aborted() -> None:
    records: list[MetadataRecord] = [
        VERSION,
        BeginTransactionRecord(),
        TopicRecord(name="half", topic_id=TOPIC_ID),
    ]

    def check(node: MetadataNode) -> None:
        assert not node.image.topics
        disk = node.world.host(HOST).disk
        logs = [name for name in disk.list_dir(LOG_DIR) if name.endswith(".log")]
        data = b"".join(disk.read_file(f"{LOG_DIR}/{name}") for name in logs)
        written = [
            decode_record(record.value or b"")
            for at, header in iter_headers(data)
            if not header.is_control
            for record in iter_records(data[at : at + header.size])
        ]
        assert [type(record) for record in written[3:5]] == [AbortTransactionRecord, RegisterBrokerRecord]

    started_on([(encoded(records), False)], check)


def test_an_aborted_transaction_never_was() -> None:
    records: list[MetadataRecord] = [
        VERSION,
        BeginTransactionRecord(),
        TopicRecord(name="half", topic_id=TOPIC_ID),
        AbortTransactionRecord(),
    ]

    def check(node: MetadataNode) -> None:
        assert not node.loaded.topics

    started_on([(encoded(records), False)], check)


@pytest.mark.parametrize("voter_ids", [(2,), (1, 2, 3)])
def test_other_voters_are_refused(voter_ids: tuple[int, ...]) -> None:
    with pytest.raises(QuorumError, match=r"voters are \[.*\], but node 1 is configured as the only voter"):
        started_on([([voters(*voter_ids)], True), (encoded(LEFT_BY_KAFKA), False)])


@pytest.mark.parametrize("level", [22, 31])
def test_a_metadata_version_that_is_too_old_or_too_new_is_refused(level: int) -> None:
    version = FeatureLevelRecord(name="metadata.version", feature_level=level)
    with pytest.raises(MetadataRecordError, match=f"metadata.version is {level}; .* supports 23 to 30"):
        started_on([(encoded([version]), False)])


def test_an_older_metadata_version_that_was_upgraded_since_is_history() -> None:
    old = FeatureLevelRecord(name="metadata.version", feature_level=20)
    started_on([(encoded([old, VERSION]), False)])


RULE = AccessControlEntryRecord(
    id=UUID(int=5),
    resource_type=2,
    resource_name="orders",
    pattern_type=3,
    principal="User:ann",
    host="*",
    operation=3,
    permission_type=2,
)
SALTED = UserScramCredentialRecord(
    name="ann", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
)
TOKEN = DelegationTokenRecord(
    owner="User:ann",
    requester="User:ann",
    renewers=("User:ben",),
    issue_timestamp=1,
    max_timestamp=2,
    expiration_timestamp=3,
    token_id="token",
)
ANYBODY = (
    QuotaEntity(entity_type="client-id", entity_name="c"),
    QuotaEntity(entity_type="user", entity_name=None),
)


def quota(key: str, value: float, entity: tuple[QuotaEntity, ...] = ANYBODY, *, remove: bool = False) -> Any:
    return ClientQuotaRecord(entity=entity, key=key, value=value, remove=remove)


def test_rules_quotas_and_credentials_come_through_restarts_and_snapshots() -> None:
    kept: list[MetadataRecord] = [
        VERSION_OF_4_3,
        RULE,
        SALTED,
        TOKEN,
        quota("producer_byte_rate", 5.5),
        quota("request_percentage", 7.0),
    ]
    gone: list[MetadataRecord] = [
        replace(RULE, id=UUID(int=6)),
        RemoveAccessControlEntryRecord(id=UUID(int=6)),
        replace(SALTED, name="ben"),
        RemoveUserScramCredentialRecord(name="ben", mechanism=1),
        replace(TOKEN, token_id="other"),
        RemoveDelegationTokenRecord(token_id="other"),
        quota("consumer_byte_rate", 1.0),
        quota("consumer_byte_rate", 0.0, ANYBODY[::-1], remove=True),
        RemoveAccessControlEntryRecord(id=UUID(int=77)),
    ]
    expected = {encode_record(record) for record in kept[1:]}

    def carried(node: MetadataNode) -> set[bytes]:
        image = node.loaded
        kept = (*image.carried.values(), *image.acls.records(), *quota_records(image.quotas))
        return {encode_record(record) for record in kept}

    with SimWorld(1) as world:
        node = MetadataNode(world, metadata_log_max_record_bytes_between_snapshots="2000")
        runtime = world.runtime(HOST)
        prepare(runtime.disk, runtime.random, node.config.log_dirs, node.config.node_id)
        log = open_metadata_log(runtime, node.config)
        agreed = [Record(b"\0\0\0" + bytes([ControlType.KRAFT_VERSION]), b"\0\0\0\1\0", 1), voters(1)]
        log.append_as_follower(encode_batch(agreed, base_offset=0, leader_epoch=8, control=True))
        for records in (kept, gone):
            log.append_as_follower(
                encode_batch(encoded(records), base_offset=log.next_offset, leader_epoch=8)
            )
        log.close()

        async def scenario() -> None:
            await node.start()
            assert carried(node) == expected
            for number in range(30):
                await node.controller.create_topics([NewTopic(f"t{number}")])
            await node.stop()
            await node.restart()
            disk = world.host(HOST).disk
            newest = list_snapshots(disk, LOG_DIR)[-1]
            found = read_snapshot(disk, LOG_DIR, newest).quorum
            assert [(record.key, record.value) for record in found] == [
                (record.key, record.value) for record in agreed
            ]
            assert carried(node) == expected
            assert node.loaded.features["metadata.version"] == 30
            assert len(node.image.topics) == 30

        world.run(scenario())
