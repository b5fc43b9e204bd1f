"""FindCoordinator in a cluster: it is who leads, and internal topics have the replicas asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from cluster_images import NoReplicas, broker_image, broker_with, context, image_of, partition_image

from ottla.controller.topics import NewTopic, TopicOutcome
from ottla.coordinator.host.shard_log import partition_for
from ottla.handlers.coordinators import Coordinator, find_coordinator
from ottla.metadata.image import MetadataImage
from ottla.metadata.internal_topics import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC
from ottla.wire.errors import ErrorCode, InvalidReplicationFactor, NotController

GROUP, TRANSACTION, SHARE_PARTITION = 0, 1, 2
THREE = [broker_image(1), broker_image(2), broker_image(3)]


class Creates:
    """A controller that notes what it is to create."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.topics: list[NewTopic] = []

    async def create_topics(self, topics: list[NewTopic]) -> list[TopicOutcome]:
        self.topics += topics
        if isinstance(self.error, NotController):
            raise self.error
        return [TopicOutcome(topic.name, error=self.error) for topic in topics]


class Ids:
    """A coordinator, as far as it knows where ids belong."""

    def __init__(self, count: int) -> None:
        self._count = count

    def partition_for(self, key: object) -> int:
        return partition_for(str(key), self._count)

    async def wait_loaded(self) -> None: ...


def find(
    image: MetadataImage,
    controller: Any,
    key_type: int,
    key: str,
    properties: Mapping[str, str] | None = None,
) -> Coordinator:
    broker = broker_with(
        image,
        properties,
        controller=controller,
        replicas=NoReplicas(),
        metadata=SimpleNamespace(image=image),
        groups=Ids(3),
        transactions=Ids(3),
        share=lambda: SimpleNamespace(states=Ids(3)),
    )
    request: Any = SimpleNamespace(key_type=key_type, coordinator_keys=[key])
    answer: Any = asyncio.run(find_coordinator(broker, context(6), request))
    (found,) = answer.coordinators
    return found


def topics(leaders: tuple[int, ...] = (1, 2, 3)) -> dict[str, list[Any]]:
    partitions = [partition_image(leader, (1, 2, 3), (1, 2, 3)) for leader in leaders]
    return {OFFSETS_TOPIC: partitions, TRANSACTION_TOPIC: partitions, SHARE_STATE_TOPIC: partitions}


@pytest.mark.parametrize("key_type", [GROUP, TRANSACTION])
@pytest.mark.parametrize("key", ["a", "b", "c", "group"])
def test_whoever_leads_the_partition_coordinates(key_type: int, key: str) -> None:
    found = find(image_of(topics(), THREE), Creates(), key_type, key)
    leader = 1 + partition_for(key, 3)
    assert (found.error_code, found.node_id) == (ErrorCode.none, leader)
    assert (found.host, found.port) == (f"host{leader}", 9090 + leader)


def test_who_keeps_what_a_share_group_has_read() -> None:
    key = "g:AAAAAAAAAAAAAAAAAAAD6A:7"
    found = find(image_of(topics(), THREE), Creates(), SHARE_PARTITION, key)
    assert (found.error_code, found.node_id) == (ErrorCode.none, 1 + partition_for(key, 3))
    wrong = find(image_of(topics(), THREE), Creates(), SHARE_PARTITION, "g")
    assert wrong.error_code is ErrorCode.invalid_request


def test_states_of_share_groups_are_never_compacted() -> None:
    controller = Creates()
    find(image_of({}, THREE), controller, SHARE_PARTITION, "g:AAAAAAAAAAAAAAAAAAAD6A:7")
    (topic,) = controller.topics
    assert (topic.name, topic.partition_count, topic.replication_factor) == (SHARE_STATE_TOPIC, 50, 3)
    assert dict(topic.configs)["cleanup.policy"] == "delete"
    assert dict(topic.configs)["retention.ms"] == "-1"
    assert dict(topic.configs)["min.insync.replicas"] == "2"


@pytest.mark.parametrize("leader", [-1, 4])
def test_nobody_coordinates_while_nobody_leads(leader: int) -> None:
    found = find(image_of(topics((leader,) * 3), THREE), Creates(), GROUP, "g")
    assert found.error_code is ErrorCode.coordinator_not_available


def test_in_a_cluster_internal_topics_have_the_replicas_that_are_set() -> None:
    controller = Creates(InvalidReplicationFactor("3 replicas, 2 brokers"))
    found = find(image_of({}, [broker_image(1), broker_image(2, fenced=True)]), controller, GROUP, "g")
    assert found.error_code is ErrorCode.coordinator_not_available
    assert "3 replicas, 2 brokers" in (found.error_message or "")
    (topic,) = controller.topics
    assert (topic.name, topic.replication_factor) == (OFFSETS_TOPIC, 3)


def test_state_of_transactions_asks_for_as_many_in_sync_as_are_set() -> None:
    controller = Creates()
    find(image_of({}, THREE), controller, TRANSACTION, "tx")
    (topic,) = controller.topics
    assert topic.replication_factor == 3
    assert dict(topic.configs)["min.insync.replicas"] == "2"


def test_a_node_that_is_the_whole_cluster_needs_no_settings() -> None:
    controller = Creates()
    find(image_of({}, [broker_image(1)]), controller, TRANSACTION, "tx", {"node.id": "1"})
    (topic,) = controller.topics
    assert topic.replication_factor == 1
    assert dict(topic.configs)["min.insync.replicas"] == "1"


def test_without_a_controller_the_client_is_to_ask_again() -> None:
    found = find(image_of({}, THREE), Creates(NotController("an election is under way")), GROUP, "g")
    assert found.error_code is ErrorCode.coordinator_not_available
