"""Topics and settings through the clients' own administration calls, and the errors they report."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import aiokafka.admin
import kafka.admin
import pytest
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from kafka_clients.client import Message
from kafka_clients.every import Clients, NewTopicFixture

TIMEOUT_S = 20


def topic_settings(admin: AdminClient, topic: str) -> dict[str, str]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    entries = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    return {name: entry.value for name, entry in entries.items()}


def error_code(error: pytest.ExceptionInfo[KafkaException]) -> int:
    return int(error.value.args[0].code())


def test_create_describe_delete(admin: AdminClient, topic_names: Iterator[str]) -> None:
    topic = next(topic_names)
    new = NewTopic(topic, num_partitions=3, replication_factor=1, config={"retention.ms": "123456"})
    admin.create_topics([new], validate_only=True)[topic].result(TIMEOUT_S)
    assert topic not in admin.list_topics(timeout=TIMEOUT_S).topics

    admin.create_topics([new])[topic].result(TIMEOUT_S)
    assert sorted(admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions) == [0, 1, 2]
    assert topic_settings(admin, topic)["retention.ms"] == "123456"
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([new])[topic].result(TIMEOUT_S)
    assert error_code(refused) == KafkaError.TOPIC_ALREADY_EXISTS

    admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    assert topic not in admin.list_topics(timeout=TIMEOUT_S).topics
    with pytest.raises(KafkaException) as refused:
        admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    assert error_code(refused) == KafkaError.UNKNOWN_TOPIC_OR_PART


@pytest.mark.parametrize(
    ("name", "config", "replicas", "code"),
    [
        ("no spaces", {}, 1, KafkaError.TOPIC_EXCEPTION),
        ("bad-value", {"retention.ms": "soon"}, 1, KafkaError.INVALID_CONFIG),
        ("bad-key", {"retention.eons": "1"}, 1, KafkaError.INVALID_CONFIG),
        ("too-many-replicas", {}, 5, KafkaError.INVALID_REPLICATION_FACTOR),
    ],
)
def test_refusals(name: str, config: dict[str, str], replicas: int, code: int, admin: AdminClient) -> None:
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([NewTopic(name, 1, replicas, config=config)])[name].result(TIMEOUT_S)
    assert error_code(refused) == code
    assert name not in admin.list_topics(timeout=TIMEOUT_S).topics


def test_add_partitions(admin: AdminClient, new_topic: NewTopicFixture, clients: Clients) -> None:
    topic = new_topic()
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(TIMEOUT_S)
    client = clients["confluent-kafka"]
    client.produce(topic, [Message(b"new", partition=3)])
    assert client.read(topic, offset=0, count=1, partition=3)[0].value == b"new"
    with pytest.raises(KafkaException) as refused:
        admin.create_partitions([NewPartitions(topic, 2)])[topic].result(TIMEOUT_S)
    assert error_code(refused) == KafkaError.INVALID_PARTITIONS


def test_change_settings(admin: AdminClient, new_topic: NewTopicFixture) -> None:
    topic = new_topic()
    before = topic_settings(admin, topic)["max.message.bytes"]

    def change(operation: AlterConfigOpType, value: str | None) -> None:
        entry = ConfigEntry("max.message.bytes", value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)

    change(AlterConfigOpType.SET, "2000")
    assert topic_settings(admin, topic)["max.message.bytes"] == "2000"
    change(AlterConfigOpType.DELETE, None)
    assert topic_settings(admin, topic)["max.message.bytes"] == before


def test_record_larger_than_the_topic_allows(bootstrap_servers: str, new_topic: NewTopicFixture) -> None:
    topic = new_topic(config={"max.message.bytes": "2000"})
    reports: list[int | None] = []
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for size in (3000, 1000):
        producer.produce(
            topic, bytes(size), on_delivery=lambda error, _: reports.append(error and error.code())
        )
        producer.flush(TIMEOUT_S)
    assert reports == [KafkaError.MSG_SIZE_TOO_LARGE, None]


def test_list_offsets(admin: AdminClient, new_topic: NewTopicFixture, clients: Clients) -> None:
    topic = new_topic()
    clients["confluent-kafka"].produce(topic, [Message(b"", timestamp_ms=ms) for ms in (1000, 3000, 2000)])
    at = TopicPartition(topic, 0)

    def offset(spec: OffsetSpec) -> int:
        asked = admin.list_offsets({at: spec}, isolation_level=IsolationLevel.READ_UNCOMMITTED)
        return int(asked[at].result(TIMEOUT_S).offset)

    assert offset(OffsetSpec.earliest()) == 0
    assert offset(OffsetSpec.latest()) == 3
    assert offset(OffsetSpec.max_timestamp()) == 1
    assert offset(OffsetSpec.for_timestamp(1500)) == 1


def test_describe_cluster(admin: AdminClient, bootstrap_servers: str) -> None:
    cluster = admin.describe_cluster().result(TIMEOUT_S)
    (node,) = cluster.nodes
    assert f"{node.host}:{node.port}" == bootstrap_servers
    assert cluster.controller.id == node.id
    assert len(cluster.cluster_id) == 22


def test_kafka_python_admin(bootstrap_servers: str, topic_names: Iterator[str]) -> None:
    topic = next(topic_names)
    admin = kafka.admin.KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    try:
        admin.create_topics([kafka.admin.NewTopic(topic, num_partitions=2, replication_factor=1)])
        assert topic in admin.list_topics()
        (described,) = admin.describe_topics([topic])
        assert len(described["partitions"]) == 2
        admin.delete_topics([topic])
        assert topic not in admin.list_topics()
    finally:
        admin.close()


def test_aiokafka_admin(bootstrap_servers: str, topic_names: Iterator[str]) -> None:
    async def program() -> None:
        topic = next(topic_names)
        admin = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
        await admin.start()
        try:
            new = aiokafka.admin.NewTopic(topic, num_partitions=2, replication_factor=1)
            await admin.create_topics([new])
            assert topic in await admin.list_topics()
            (described,) = await admin.describe_topics([topic])
            assert len(described["partitions"]) == 2
            await admin.delete_topics([topic])
            assert topic not in await admin.list_topics()
        finally:
            await admin.close()

    asyncio.run(asyncio.wait_for(program(), TIMEOUT_S))
