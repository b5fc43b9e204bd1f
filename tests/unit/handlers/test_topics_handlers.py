from __future__ import annotations

import asyncio
import datetime
from typing import Any
from uuid import UUID

import pytest
from cluster_images import MemoryController, broker_with, context, image_of, partition_image
from kio.schema.create_partitions.v3.request import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from kio.schema.create_topics.v7.request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState

from ottla.config import ConfigSource
from ottla.handlers.context import Broker
from ottla.handlers.topics import create_partitions, create_topics, delete_topics
from ottla.metadata.image import ResourceType
from ottla.wire.errors import ErrorCode, NotController

MINUTE = datetime.timedelta(minutes=1)


def topic(name: str, partitions: int = -1, replicas: int = -1, **rest: Any) -> CreatableTopic:
    fields = {"assignments": (), "configs": ()} | rest
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, **fields)


def create(broker: Broker, *topics: CreatableTopic, validate_only: bool = False) -> Any:
    request = CreateTopicsRequest(topics=topics, timeout=MINUTE, validate_only=validate_only)
    return asyncio.run(create_topics(broker, context(7), request)).topics


def delete(broker: Broker, *states: tuple[str | None, UUID | None], version: int = 6) -> Any:
    request = DeleteTopicsRequest(
        topics=tuple(DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in states),
        timeout=MINUTE,
    )
    return asyncio.run(delete_topics(broker, context(version), request)).responses


def test_create() -> None:
    broker = broker_with(image_of())
    [result] = create(
        broker,
        topic("a", 3, 1, configs=(CreatableTopicConfig(name="retention.ms", value="1000"),)),
    )
    assert (result.name, result.error_code, result.error_message) == ("a", ErrorCode.none, None)
    assert (result.num_partitions, result.replication_factor) == (3, 1)
    image = broker.metadata.image
    assert image.topics["a"].id == result.topic_id
    assert len(image.topics["a"].partitions) == 3
    configs = {config.name: config for config in result.configs}
    assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == (
        "1000",
        ConfigSource.TOPIC,
    )
    assert (configs["cleanup.policy"].value, configs["cleanup.policy"].config_source) == (
        "delete",
        ConfigSource.DEFAULT,
    )
    assert not configs["retention.ms"].read_only


def test_create_with_assignments() -> None:
    broker = broker_with(image_of())
    places = tuple(CreatableReplicaAssignment(partition_index=i, broker_ids=(1,)) for i in range(2))
    [result] = create(broker, topic("a", assignments=places))
    assert (result.error_code, result.num_partitions, result.replication_factor) == (ErrorCode.none, 2, 1)


def test_create_judges_each_topic_alone() -> None:
    broker = broker_with(image_of({"old": [partition_image()]}))
    results = create(
        broker,
        topic("old"),
        topic("twice"),
        topic("twice"),
        topic("no good"),
        topic("few", 0),
        topic("many", 1, 2),
        topic("wrong", configs=(CreatableTopicConfig(name="retention.ms", value="soon"),)),
        topic("new"),
    )
    assert [(result.name, result.error_code) for result in results] == [
        ("old", ErrorCode.topic_already_exists),
        ("twice", ErrorCode.invalid_request),
        ("twice", ErrorCode.invalid_request),
        ("no good", ErrorCode.invalid_topic_exception),
        ("few", ErrorCode.invalid_partitions),
        ("many", ErrorCode.invalid_replication_factor),
        ("wrong", ErrorCode.invalid_config),
        ("new", ErrorCode.none),
    ]
    assert all(result.error_message for result in results[:-1])
    assert all(result.topic_id is None and result.num_partitions == -1 for result in results[:-1])
    assert set(broker.metadata.image.topics) == {"old", "new"}


def test_validation_creates_nothing() -> None:
    broker = broker_with(image_of())
    [result] = create(broker, topic("a", 2), validate_only=True)
    assert (result.error_code, result.num_partitions) == (ErrorCode.none, 2)
    assert not broker.metadata.image.topics


class FailingController(MemoryController):
    async def create_topics(self, new: Any, *, validate_only: bool) -> Any:
        raise NotController("somebody else is")


class SlowController(MemoryController):
    async def create_topics(self, new: Any, *, validate_only: bool) -> Any:
        outcomes = await super().create_topics(new, validate_only=validate_only)
        await asyncio.Event().wait()
        return outcomes


def test_an_error_of_the_controller_is_every_topics_error() -> None:
    broker = broker_with(image_of(), controller=FailingController(image_of()))
    assert [r.error_code for r in create(broker, topic("a"), topic("b"))] == [ErrorCode.not_controller] * 2


def test_the_waiting_ends_with_the_timeout() -> None:
    broker = broker_with(image_of(), controller=SlowController(image_of()))
    request = CreateTopicsRequest(topics=(topic("a"),), timeout=datetime.timedelta(milliseconds=1))
    [result] = asyncio.run(create_topics(broker, context(7), request)).topics
    assert result.error_code is ErrorCode.request_timed_out
    assert "a" in broker.metadata.image.topics


def test_delete() -> None:
    image = image_of({name: [partition_image()] for name in ("by-name", "by-id", "stays")})
    broker = broker_with(image)
    responses = delete(
        broker,
        ("by-name", None),
        (None, image.topics["by-id"].id),
        ("absent", None),
        (None, UUID(int=5)),
        (None, None),
        ("stays", image.topics["stays"].id),
    )
    assert [(response.name, response.error_code) for response in responses] == [
        ("by-name", ErrorCode.none),
        ("by-id", ErrorCode.none),
        ("absent", ErrorCode.unknown_topic_or_partition),
        (None, ErrorCode.unknown_topic_id),
        (None, ErrorCode.invalid_request),
        ("stays", ErrorCode.invalid_request),
    ]
    assert responses[0].topic_id == image.topics["by-name"].id
    assert responses[1].error_message is None
    assert responses[2].error_message
    assert list(broker.metadata.image.topics) == ["stays"]


@pytest.mark.parametrize(
    "version, error", [(2, ErrorCode.invalid_request), (3, ErrorCode.topic_deletion_disabled)]
)
def test_deletion_can_be_disabled(version: int, error: ErrorCode) -> None:
    broker = broker_with(image_of({"a": [partition_image()]}), {"delete.topic.enable": "false"})
    [response] = delete(broker, ("a", None), version=version)
    assert response.error_code is error
    assert "a" in broker.metadata.image.topics


def test_add_partitions() -> None:
    broker = broker_with(image_of({name: [partition_image()] for name in ("a", "b", "c")}))
    request = CreatePartitionsRequest(
        topics=(
            CreatePartitionsTopic(name="a", count=3, assignments=None),
            CreatePartitionsTopic(
                name="b", count=2, assignments=(CreatePartitionsAssignment(broker_ids=(1,)),)
            ),
            CreatePartitionsTopic(name="c", count=1, assignments=None),
            CreatePartitionsTopic(name="absent", count=2, assignments=None),
        ),
        timeout=MINUTE,
        validate_only=False,
    )
    results = asyncio.run(create_partitions(broker, context(3), request)).results
    assert [(result.name, result.error_code) for result in results] == [
        ("a", ErrorCode.none),
        ("b", ErrorCode.none),
        ("c", ErrorCode.invalid_partitions),
        ("absent", ErrorCode.unknown_topic_or_partition),
    ]
    assert [bool(result.error_message) for result in results] == [False, False, True, True]
    image = broker.metadata.image
    assert [len(image.topics[name].partitions) for name in ("a", "b", "c")] == [3, 2, 1]


def test_created_configs_reach_the_image() -> None:
    broker = broker_with(image_of())
    create(broker, topic("a", configs=(CreatableTopicConfig(name="retention.ms", value="1000"),)))
    assert broker.metadata.image.config(ResourceType.TOPIC, "a") == {"retention.ms": "1000"}
