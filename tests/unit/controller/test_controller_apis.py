"""What brokers and administrators ask the active controller, in every version, from bytes to bytes."""

from __future__ import annotations

import asyncio
import datetime
import io
from collections.abc import Sequence
from dataclasses import fields
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer
from small_cluster import Cluster, directory, topic_id

from ottla.controller.alter_partition import IsrChange, IsrOutcome, alter_partitions
from ottla.controller.brokers import BrokerRegistration
from ottla.controller.directories import DirectoryAssignment, DirectoryOutcome, assign_directories
from ottla.controller.elections import ElectionOutcome, TopicPartitions, elect_leaders
from ottla.controller.heartbeats import BrokerHeartbeat, HeartbeatReply, process_heartbeat
from ottla.controller.producer_ids import ProducerIdBlock, allocate_producer_ids
from ottla.controller.reassignment import (
    OngoingReassignment,
    Reassignment,
    ReassignmentOutcome,
    alter_reassignments,
    list_reassignments,
)
from ottla.controller.registration import unregister_broker
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.registry import CONTROLLER_REGISTRY, REGISTRY
from ottla.handlers.session import Session
from ottla.metadata.cluster_records import RegisterControllerRecord
from ottla.metadata.features import supported_features
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import codec

MINUTE = datetime.timedelta(minutes=1)


class MemoryController:
    """The real commands on a cluster in memory: what they write is committed at once."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    async def register_broker(self, registration: BrokerRegistration) -> int:
        assert not registration.beside_controller
        return self.cluster.register(registration)

    async def register_controller(self, registration: RegisterControllerRecord) -> None:
        self.cluster.apply([registration])

    async def heartbeat(self, heartbeat: BrokerHeartbeat) -> HeartbeatReply:
        cluster = self.cluster
        return cluster.run(process_heartbeat(cluster.image, cluster.config, cluster.sessions, heartbeat))

    def cut_off_broker(self, broker_id: int, broker_epoch: int) -> None:
        raise AssertionError("nobody closes these connections")

    async def unregister_broker(self, broker_id: int) -> None:
        self.cluster.run(unregister_broker(self.cluster.image, self.cluster.config, broker_id))

    async def alter_partitions(
        self, broker_id: int, broker_epoch: int, changes: Sequence[IsrChange]
    ) -> list[IsrOutcome]:
        cluster = self.cluster
        return cluster.run(alter_partitions(cluster.image, cluster.config, broker_id, broker_epoch, changes))

    async def assign_directories(
        self, broker_id: int, broker_epoch: int, assignments: Sequence[DirectoryAssignment]
    ) -> list[DirectoryOutcome]:
        cluster = self.cluster
        return cluster.run(
            assign_directories(cluster.image, cluster.config, broker_id, broker_epoch, assignments)
        )

    async def elect_leaders(
        self, election_type: int, partitions: Sequence[TopicPartitions] | None
    ) -> list[ElectionOutcome]:
        return self.cluster.run(
            elect_leaders(self.cluster.image, self.cluster.config, election_type, partitions)
        )

    async def alter_reassignments(
        self, reassignments: Sequence[Reassignment], *, may_change_factor: bool = True
    ) -> list[ReassignmentOutcome]:
        cluster = self.cluster
        return cluster.run(
            alter_reassignments(
                cluster.image, cluster.config, reassignments, may_change_factor=may_change_factor
            )
        )

    async def list_reassignments(
        self, partitions: Sequence[TopicPartitions] | None
    ) -> list[OngoingReassignment]:
        return self.cluster.run(list_reassignments(self.cluster.image, partitions))

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> ProducerIdBlock:
        result = allocate_producer_ids(self.cluster.image, broker_id, broker_epoch)
        self.cluster.apply(result.records)
        return result.response


def made(entity_type: type[Any], values: Any) -> Any:
    """Of nested dictionaries, leaving out what this version does not have."""
    module = __import__(entity_type.__module__, fromlist=["*"])
    arguments = {}
    for field in fields(entity_type):
        if field.name in values:
            value = values[field.name]
            if isinstance(value, tuple) and value and isinstance(value[0], dict):
                name = str(field.type).removeprefix("tuple[").split(",")[0].split(".")[-1]
                value = tuple(made(getattr(module, name), item) for item in value)
            arguments[field.name] = value
    return entity_type(**arguments)


def ask(cluster: Cluster, key: ApiKey, version: int, **values: Any) -> Any:
    api = CONTROLLER_REGISTRY.get(key) or REGISTRY[key]
    assert api.min_version <= version <= api.max_version
    given = SimpleNamespace(controller=MemoryController(cluster), cluster_id="the-cluster")
    broker = Broker(**{field.name: getattr(given, field.name, None) for field in fields(Broker)})
    request = made(load_request_schema(key, version), values)
    sent = io.BytesIO()
    entity_writer(type(request))(sent, request)
    received = codec(key, version).read(memoryview(sent.getvalue()), 0)
    context = RequestContext(Session("CONTROLLER", "127.0.0.1", 40_000), version, 7, key)
    response = asyncio.run(api.load()(broker, context, received))
    answer, _ = entity_reader(load_response_schema(key, version))(codec(key, version).write(response), 0)
    return answer


def registration(broker_id: int) -> dict[str, Any]:
    listener = {"name": "PLAINTEXT", "host": "host", "port": 9092, "security_protocol": 0}
    return {
        "broker_id": broker_id,
        "cluster_id": "the-cluster",
        "incarnation_id": UUID(int=9000 + broker_id),
        "listeners": (listener,),
        "features": tuple(
            {
                "name": feature.name,
                "min_supported_version": feature.min_supported_version,
                "max_supported_version": feature.max_supported_version,
            }
            for feature in supported_features()
        ),
        "rack": "r",
        "is_migrating_zk_broker": False,
        "log_dirs": (directory(broker_id),),
        "previous_broker_epoch": -1,
    }


@pytest.mark.parametrize("version", [2, 3, 4])
def test_a_broker_registers(version: int) -> None:
    cluster = Cluster(1)
    answer = ask(cluster, ApiKey.BROKER_REGISTRATION, version, **registration(2))
    broker = cluster.image.brokers[2]
    assert (answer.error_code, answer.broker_epoch) == (ErrorCode.none, broker.epoch)
    assert (broker.rack, broker.directories, broker.endpoints[0].port) == ("r", (directory(2),), 9092)
    assert broker.features == supported_features()


@pytest.mark.parametrize(
    ("version", "change", "expected"),
    [
        (0, {}, ErrorCode.invalid_registration),  # It cannot name directories.
        (1, {"is_migrating_zk_broker": True}, ErrorCode.broker_id_not_registered),
        (4, {"cluster_id": "another"}, ErrorCode.inconsistent_cluster_id),
        (4, {"log_dirs": (None,)}, ErrorCode.invalid_registration),
        (4, {"broker_id": 1}, ErrorCode.duplicate_broker_registration),
    ],
)
def test_a_broker_that_does_not_fit_is_refused(
    version: int, change: dict[str, Any], expected: ErrorCode
) -> None:
    answer = ask(Cluster(1), ApiKey.BROKER_REGISTRATION, version, **{**registration(2), **change})
    assert (answer.error_code, answer.broker_epoch) == (expected, -1)


def test_a_controller_registers() -> None:
    cluster = Cluster(1)
    kept = {
        key: value
        for key, value in registration(3).items()
        if key in ("incarnation_id", "listeners", "features")
    }
    answer = ask(
        cluster, ApiKey.CONTROLLER_REGISTRATION, 0, controller_id=3, zk_migration_ready=False, **kept
    )
    assert answer.error_code is ErrorCode.none
    controller = cluster.image.controllers[3]
    assert (controller.incarnation_id, controller.features) == (UUID(int=9003), supported_features())
    assert [(each.name, each.host, each.port) for each in controller.end_points] == [
        ("PLAINTEXT", "host", 9092)
    ]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_heartbeats(version: int) -> None:
    cluster = Cluster(1)
    ask(cluster, ApiKey.BROKER_REGISTRATION, 4, **registration(2))
    epoch = cluster.image.brokers[2].epoch
    beat = {"broker_id": 2, "broker_epoch": epoch, "want_fence": False, "want_shut_down": False}
    answer = ask(cluster, ApiKey.BROKER_HEARTBEAT, version, **beat, current_metadata_offset=epoch - 1)
    assert (answer.error_code, answer.is_caught_up, answer.is_fenced) == (ErrorCode.none, False, True)
    answer = ask(cluster, ApiKey.BROKER_HEARTBEAT, version, **beat, current_metadata_offset=epoch)
    assert (answer.is_caught_up, answer.is_fenced, answer.should_shut_down) == (True, False, False)
    beat["want_shut_down"] = True
    answer = ask(cluster, ApiKey.BROKER_HEARTBEAT, version, **beat, current_metadata_offset=epoch)
    assert answer.should_shut_down
    beat["broker_epoch"] = 0
    answer = ask(cluster, ApiKey.BROKER_HEARTBEAT, version, **beat, current_metadata_offset=epoch)
    assert answer.error_code is ErrorCode.stale_broker_epoch


def test_directories_that_failed_come_with_a_heartbeat() -> None:
    cluster = Cluster(2)
    cluster.start(1, directories=2)
    cluster.topic("t", (1, 2))
    epoch = cluster.image.brokers[1].epoch
    ask(
        cluster,
        ApiKey.BROKER_HEARTBEAT,
        1,
        broker_id=1,
        broker_epoch=epoch,
        current_metadata_offset=epoch,
        want_fence=False,
        want_shut_down=False,
        offline_log_dirs=(directory(1),),
    )
    assert cluster.partition().leader == 2


def test_a_broker_is_unregistered() -> None:
    cluster = Cluster(1, 2)
    answer = ask(cluster, ApiKey.UNREGISTER_BROKER, 0, broker_id=2)
    assert (answer.error_code, answer.error_message) == (ErrorCode.none, None)
    answer = ask(cluster, ApiKey.UNREGISTER_BROKER, 0, broker_id=2)
    assert answer.error_code is ErrorCode.broker_id_not_registered
    assert "Broker ID 2" in answer.error_message


@pytest.mark.parametrize("version", [2, 3])
def test_the_isr_is_altered(version: int) -> None:
    cluster = Cluster(1, 2)
    cluster.topic("t", (1, 2))
    cluster.topic("u", (2, 1))
    epoch = cluster.image.brokers[1].epoch
    partition = {
        "partition_index": 0,
        "leader_epoch": 0,
        "partition_epoch": 0,
        "leader_recovery_state": 0,
        "new_isr": (1,),
        "new_isr_with_epochs": ({"broker_id": 1, "broker_epoch": epoch},),
    }
    topics = tuple(
        {"topic_id": wanted, "partitions": (partition,)} for wanted in (topic_id("t"), topic_id("u"), None)
    )
    answer = ask(cluster, ApiKey.ALTER_PARTITION, version, broker_id=1, broker_epoch=epoch, topics=topics)
    assert answer.error_code is ErrorCode.none
    altered, not_led, unknown = (topic.partitions[0] for topic in answer.topics)
    assert [topic.topic_id for topic in answer.topics] == [topic_id("t"), topic_id("u"), None]
    assert (altered.error_code, altered.isr, altered.partition_epoch) == (ErrorCode.none, (1,), 1)
    assert (altered.leader_id, altered.leader_epoch) == (1, 0)
    assert not_led.error_code is ErrorCode.invalid_request
    assert unknown.error_code is ErrorCode.unknown_topic_id
    assert cluster.partition().isr == (1,)
    answer = ask(cluster, ApiKey.ALTER_PARTITION, version, broker_id=1, broker_epoch=0, topics=topics)
    assert (answer.error_code, answer.topics) == (ErrorCode.stale_broker_epoch, ())


def test_producer_ids_are_allocated() -> None:
    cluster = Cluster(1)
    epoch = cluster.image.brokers[1].epoch
    answer = ask(cluster, ApiKey.ALLOCATE_PRODUCER_IDS, 0, broker_id=1, broker_epoch=epoch)
    assert (answer.error_code, answer.producer_id_start, answer.producer_id_len) == (ErrorCode.none, 0, 1000)
    answer = ask(cluster, ApiKey.ALLOCATE_PRODUCER_IDS, 0, broker_id=7, broker_epoch=epoch)
    assert answer.error_code is ErrorCode.stale_broker_epoch


@pytest.mark.parametrize("version", [0, 1, 2])
def test_leaders_are_elected(version: int) -> None:
    cluster = Cluster(1, 2)
    cluster.topic("t", (1, 2), (2, 1))
    cluster.heartbeat(1, fence=True)
    cluster.heartbeat(1)
    asked = ({"topic": "t", "partitions": (0, 1)},)
    answer = ask(
        cluster, ApiKey.ELECT_LEADERS, version, election_type=0, topic_partitions=asked, timeout=MINUTE
    )
    [topic] = answer.replica_election_results
    assert [(result.partition_id, result.error_code) for result in topic.partition_result] == [
        (0, ErrorCode.preferred_leader_not_available),
        (1, ErrorCode.election_not_needed),
    ]
    assert "Broker 1, the preferred leader of t-0" in topic.partition_result[0].error_message
    answer = ask(
        cluster, ApiKey.ELECT_LEADERS, version, election_type=0, topic_partitions=None, timeout=MINUTE
    )
    [topic] = answer.replica_election_results
    assert [result.partition_id for result in topic.partition_result] == [0]


@pytest.mark.parametrize("version", [0, 1])
def test_reassignments_are_begun_listed_and_cancelled(version: int) -> None:
    cluster = Cluster(1, 2, 3)
    cluster.topic("t", (1, 2), (2, 1))

    def alter(replicas: tuple[int, ...] | None, *, keep_factor: bool = False) -> Any:
        partitions = ({"partition_index": 0, "replicas": replicas},)
        answer = ask(
            cluster,
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            version,
            timeout=MINUTE,
            allow_replication_factor_change=not keep_factor,
            topics=({"name": "t", "partitions": partitions},),
        )
        assert answer.error_code is ErrorCode.none
        return answer.responses[0].partitions[0]

    def listed(topics: Any = None) -> list[tuple[Any, ...]]:
        answer = ask(cluster, ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, timeout=MINUTE, topics=topics)
        return [
            (topic.name, each.partition_index, each.replicas, each.adding_replicas, each.removing_replicas)
            for topic in answer.topics
            for each in topic.partitions
        ]

    assert listed() == []
    assert alter(None).error_code is ErrorCode.no_reassignment_in_progress
    if version == 1:
        assert alter((3,), keep_factor=True).error_code is ErrorCode.invalid_replication_factor
    assert alter((1, 3)).error_code is ErrorCode.none
    assert listed() == [("t", 0, (1, 3, 2), (3,), (2,))]
    assert listed(({"name": "t", "partition_indexes": (1,)},)) == []
    assert alter(None).error_code is ErrorCode.none
    assert listed() == []


def test_replicas_are_assigned_to_directories() -> None:
    cluster = Cluster(2)
    cluster.start(1, directories=2)
    cluster.topic("t", (1, 2), (2,))
    epoch = cluster.image.brokers[1].epoch
    topics = (
        {"topic_id": topic_id("t"), "partitions": ({"partition_index": 0}, {"partition_index": 1})},
        {"topic_id": None, "partitions": ({"partition_index": 0},)},
    )
    directories = ({"id_": directory(1, 1), "topics": topics},)
    answer = ask(
        cluster,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        0,
        broker_id=1,
        broker_epoch=epoch,
        directories=directories,
    )
    [assigned] = answer.directories
    known, unknown = assigned.topics
    assert [each.error_code for each in known.partitions] == [
        ErrorCode.none,
        ErrorCode.not_leader_or_follower,
    ]
    assert unknown.partitions[0].error_code is ErrorCode.unknown_topic_id
    assert cluster.partition().directories[0] == directory(1, 1)
