"""The first program of each client's manual, unchanged apart from the address. Topics appear on first use."""

from __future__ import annotations

import asyncio
import subprocess

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from kafka import KafkaConsumer, KafkaProducer
from kafka_clients.client import Message
from kafka_clients.every import Clients
from kafka_clients.kcat import KcatClient


def test_kafka_python(bootstrap_servers: str) -> None:
    producer = KafkaProducer(bootstrap_servers=[bootstrap_servers])
    metadata = producer.send("myTopic", b"Hello").get()
    producer.close()
    assert (metadata.topic, metadata.partition, metadata.offset) == ("myTopic", 0, 0)

    consumer = KafkaConsumer(
        "myTopic", bootstrap_servers=[bootstrap_servers], group_id=None, auto_offset_reset="earliest"
    )
    message = next(consumer)
    consumer.close()
    assert (message.topic, message.offset, message.value) == ("myTopic", 0, b"Hello")


def test_confluent_kafka(bootstrap_servers: str) -> None:
    delivered = []
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap_servers})
    producer.produce(
        "confluent-topic", b"Hello", callback=lambda error, message: delivered.append((error, message))
    )
    producer.flush()
    ((error, message),) = delivered
    assert (error, message.offset()) == (None, 0)

    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": "unused", "enable.auto.commit": False}
    )
    consumer.assign([confluent_kafka.TopicPartition("confluent-topic", 0, confluent_kafka.OFFSET_BEGINNING)])
    message = consumer.poll(20)
    consumer.close()
    assert (message.error(), message.offset(), message.value()) == (None, 0, b"Hello")


def test_aiokafka(bootstrap_servers: str) -> None:
    async def program() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap_servers) as producer:
            metadata = await producer.send_and_wait("aiokafka-topic", b"Hello")
            assert (metadata.partition, metadata.offset) == (0, 0)
        consumer = AIOKafkaConsumer(
            "aiokafka-topic",
            bootstrap_servers=bootstrap_servers,
            group_id=None,
            auto_offset_reset="earliest",
        )
        async with consumer:
            async for message in consumer:
                assert (message.offset, message.value) == (0, b"Hello")
                break

    asyncio.run(asyncio.wait_for(program(), 30))


def test_kcat(bootstrap_servers: str, clients: Clients) -> None:
    assert isinstance(clients["kcat"], KcatClient)

    def kcat(arguments: str, text: str = "") -> str:
        command = [clients["kcat"].program, "-b", bootstrap_servers, *arguments.split()]
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=30, check=True)
        return done.stdout

    kcat("-P -t kcat-topic", "Hello\nagain\n")
    assert kcat("-C -t kcat-topic -o beginning -e -q") == "Hello\nagain\n"
    assert 'topic "kcat-topic" with 1 partitions' in kcat("-L -t kcat-topic")


@pytest.mark.parametrize("name", ["kafkajs", "platformatic"])
def test_node(name: str, clients: Clients) -> None:
    topic = f"{name}-topic"
    clients[name].produce(topic, [Message(b"Hello")])
    (message,) = clients[name].read(topic, offset=0, count=1)
    assert (message.offset, message.value) == (0, b"Hello")
