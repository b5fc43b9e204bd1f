from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from cluster_images import broker_image, broker_with, context, image_of, partition_image
from kio.schema.metadata.v13.request import MetadataRequest, MetadataRequestTopic

from ottla.controller.topics import NewTopic
from ottla.handlers.authorized import NOT_ASKED
from ottla.handlers.context import Broker
from ottla.handlers.metadata import metadata
from ottla.metadata.image import MetadataImage
from ottla.wire.acls import OPERATIONS, AclResource
from ottla.wire.errors import ErrorCode, InvalidReplicationFactor
from ottla.wire.upgrades.metadata import ClusterOperationsMetadataRequest

TOPIC_OPERATIONS = sum(1 << operation for operation in OPERATIONS[AclResource.TOPIC])
CLUSTER_OPERATIONS = sum(1 << operation for operation in OPERATIONS[AclResource.CLUSTER])


def ask(
    broker: Broker,
    *topics: str | UUID | None,
    version: int = 13,
    all_topics: bool = False,
    listener: str = "PLAINTEXT",
    **options: Any,
) -> Any:
    asked = tuple(
        MetadataRequestTopic(
            topic_id=topic if isinstance(topic, UUID) else None,
            name=topic if isinstance(topic, str) else None,
        )
        for topic in topics
    )
    fields = {
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": False,
        "topics": None if all_topics else asked,
    } | options
    request_type = (
        ClusterOperationsMetadataRequest
        if "include_cluster_authorized_operations" in options
        else MetadataRequest
    )
    return asyncio.run(metadata(broker, context(version, listener), request_type(**fields)))


def test_brokers_and_cluster() -> None:
    image = image_of(brokers=[broker_image(2), broker_image(1), broker_image(3, fenced=True)])
    response = ask(broker_with(image))
    assert [(b.node_id, b.host, b.port, b.rack) for b in response.brokers] == [
        (1, "host1", 9091, "rack1"),
        (2, "host2", 9092, "rack2"),
    ]
    assert response.cluster_id == "cluster"
    assert response.controller_id == 1
    assert response.topics == ()


@pytest.mark.parametrize(("fenced", "told"), [((), 1), ((1,), 2), ((1, 2), 3), ((1, 2, 3), -1)], ids=str)
def test_clients_are_sent_to_somebody_who_is_alive(fenced: tuple[int, ...], told: int) -> None:
    image = image_of(brokers=[broker_image(number, fenced=number in fenced) for number in (1, 2, 3)])
    response = ask(broker_with(image))
    assert response.controller_id == told
    assert told in {broker.node_id for broker in response.brokers} or not response.brokers


def test_all_topics() -> None:
    image = image_of({"a": [partition_image()], "b": [partition_image()] * 2})
    response = ask(broker_with(image), all_topics=True)
    assert [(t.name, t.topic_id, len(t.partitions)) for t in response.topics] == [
        ("a", UUID(int=1000), 1),
        ("b", UUID(int=1001), 2),
    ]


def test_no_topics() -> None:
    assert ask(broker_with(image_of({"a": [partition_image()]}))).topics == ()


def test_by_name_by_id_and_twice() -> None:
    image = image_of({"a": [partition_image()], "b": [partition_image()]})
    response = ask(broker_with(image), "b", UUID(int=1000), "b")
    assert [(t.name, t.error_code) for t in response.topics] == [
        ("b", ErrorCode.none),
        ("a", ErrorCode.none),
    ]


def test_what_does_not_exist() -> None:
    response = ask(broker_with(image_of()), "absent", "not a name", UUID(int=77))
    assert [(t.name, t.topic_id, t.error_code) for t in response.topics] == [
        ("absent", None, ErrorCode.unknown_topic_or_partition),
        ("not a name", None, ErrorCode.invalid_topic_exception),
        (None, UUID(int=77), ErrorCode.unknown_topic_id),
    ]


@pytest.mark.parametrize("version", [10, 11])
def test_ids_are_refused_before_version_12(version: int) -> None:
    image = image_of({"a": [partition_image()]})
    response = ask(broker_with(image), UUID(int=1000), "a", version=version)
    assert [(t.name, t.error_code) for t in response.topics] == [
        ("", ErrorCode.invalid_request),
        ("a", ErrorCode.invalid_request),
    ]


def test_a_partition() -> None:
    state = partition_image(leader=2, replicas=(2, 1, 9), isr=(2, 1))
    image = image_of({"a": [state]}, [broker_image(1, fenced=True), broker_image(2)])
    [partition] = ask(broker_with(image), "a").topics[0].partitions
    assert partition.error_code is ErrorCode.none
    assert (partition.partition_index, partition.leader_id, partition.leader_epoch) == (0, 2, 5)
    assert partition.replica_nodes == (2, 1, 9)
    assert partition.isr_nodes == (2, 1)
    assert partition.offline_replicas == (1, 9)


def test_a_replica_in_a_directory_that_failed_is_offline() -> None:
    state = partition_image(leader=2, replicas=(2, 3), isr=(2,))
    state = replace(state, directories=(state.directories[0], UUID(int=101)))
    image = image_of({"a": [state]}, [broker_image(2), broker_image(3)])
    [partition] = ask(broker_with(image), "a").topics[0].partitions
    assert partition.offline_replicas == (3,)


def test_version_0_shows_only_replicas_that_are_alive() -> None:
    image = image_of({"a": [partition_image(leader=1, replicas=(1, 9), isr=(1, 9))]})
    [partition] = ask(broker_with(image), "a", version=0).topics[0].partitions
    assert partition.error_code is ErrorCode.replica_not_available
    assert partition.replica_nodes == (1,)
    assert partition.isr_nodes == (1,)


def test_no_leader() -> None:
    image = image_of({"a": [partition_image(leader=-1)]})
    [partition] = ask(broker_with(image), "a").topics[0].partitions
    assert partition.error_code is ErrorCode.leader_not_available
    assert partition.leader_id == -1


@pytest.mark.parametrize(
    "version, error", [(5, ErrorCode.leader_not_available), (6, ErrorCode.listener_not_found)]
)
def test_leader_without_the_clients_listener(version: int, error: ErrorCode) -> None:
    image = image_of({"a": [partition_image()]}, [broker_image(1, listener="INSIDE")])
    response = ask(broker_with(image), "a", version=version, listener="OUTSIDE")
    assert response.topics[0].partitions[0].error_code is error
    assert response.brokers == ()


def test_authorized_operations_only_for_those_who_ask() -> None:
    broker = broker_with(image_of({"a": [partition_image()]}))
    response = ask(broker, "a", "absent", include_topic_authorized_operations=True)
    assert {topic.topic_authorized_operations for topic in response.topics} == {TOPIC_OPERATIONS}
    assert response.cluster_authorized_operations == NOT_ASKED
    asked = ask(broker, "a", version=9, include_cluster_authorized_operations=True)
    assert asked.cluster_authorized_operations == CLUSTER_OPERATIONS
    assert asked.topics[0].topic_authorized_operations == NOT_ASKED


def test_operation_bits_are_those_of_apache_kafka() -> None:
    # READ 3, WRITE 4, CREATE 5, DELETE 6, ALTER 7, DESCRIBE 8, CLUSTER_ACTION 9, DESCRIBE_CONFIGS 10,
    # ALTER_CONFIGS 11, IDEMPOTENT_WRITE 12
    assert TOPIC_OPERATIONS == 0b0000_1101_1111_1000
    assert CLUSTER_OPERATIONS == 0b0001_1111_1010_0000


def test_internal_topics_are_marked() -> None:
    image = image_of({"__consumer_offsets": [partition_image()], "mine": [partition_image()]})
    assert [t.is_internal for t in ask(broker_with(image), all_topics=True).topics] == [True, False]


class CreatingController:
    """Creates what it is asked to, with one partition, except topics whose name starts with "bad"."""

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.created: list[str] = []

    async def create_topics(self, topics: Sequence[NewTopic], *, validate_only: bool) -> list[Any]:
        assert not validate_only
        outcomes = []
        for topic in topics:
            assert (topic.partition_count, topic.replication_factor) == (-1, -1)
            self.created.append(topic.name)
            outcomes.append(Outcome(topic.name))
        await asyncio.sleep(0)
        names = [name for name in [*sorted(self.image.topics), *self.created] if not name.startswith("bad")]
        self.image = image_of({name: [partition_image()] for name in names})
        return outcomes


class Outcome:
    def __init__(self, name: str) -> None:
        self.name = name
        self.error = InvalidReplicationFactor("too many") if name.startswith("bad") else None


def test_missing_topics_are_created_and_in_the_answer() -> None:
    controller = CreatingController(image_of({"old": [partition_image()]}))
    broker = broker_with(controller.image, controller=controller)
    response = ask(
        broker,
        "new",
        "old",
        "bad",
        "no good name",
        "__consumer_offsets",
        "new",
        UUID(int=9),
        allow_auto_topic_creation=True,
    )
    assert controller.created == ["new", "bad"]
    assert [(topic.name, topic.error_code) for topic in response.topics] == [
        ("new", ErrorCode.none),
        ("old", ErrorCode.none),
        ("bad", ErrorCode.invalid_replication_factor),
        ("no good name", ErrorCode.invalid_topic_exception),
        ("__consumer_offsets", ErrorCode.unknown_topic_or_partition),
        (None, ErrorCode.unknown_topic_id),
    ]
    assert len(response.topics[0].partitions) == 1


@pytest.mark.parametrize("allowed, enabled", [(False, "true"), (True, "false")])
def test_both_sides_must_allow_creation(allowed: bool, enabled: str) -> None:
    controller = CreatingController(image_of())
    broker = broker_with(controller.image, {"auto.create.topics.enable": enabled}, controller=controller)
    response = ask(broker, "new", allow_auto_topic_creation=allowed)
    assert controller.created == []
    assert response.topics[0].error_code is ErrorCode.unknown_topic_or_partition
