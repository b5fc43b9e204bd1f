"""Where to read from: beginning, end, an offset, a timestamp; and waiting there for what comes."""

from __future__ import annotations

import asyncio
import time

import confluent_kafka
import kafka
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from kafka_clients.client import KafkaClient, Message, Where
from kafka_clients.every import Clients, NewTopicFixture

NOW_MS = int(time.time() * 1000)
COUNT = 20
STEP_MS = 1000
# A broker that only looks again when this is over would be far too late for the tests below.
LONG_POLL_MS = 4000
PROMPT_S = 2.0


@pytest.fixture(scope="module")
def ladder(new_topic: NewTopicFixture, clients: Clients) -> str:
    """Partition 1: record n has value n and a timestamp n seconds in, several batches. Partition 0: empty."""
    topic = new_topic(partitions=2)
    for first in range(0, COUNT, 5):
        rungs = [
            Message(b"%d" % n, timestamp_ms=NOW_MS - COUNT * STEP_MS + n * STEP_MS, partition=1)
            for n in range(first, first + 5)
        ]
        clients["confluent-kafka"].produce(topic, rungs)
    return topic


def test_beginning_and_end(client: KafkaClient, ladder: str) -> None:
    assert client.offset_at(ladder, Where.BEGINNING, partition=1) == 0
    assert client.offset_at(ladder, Where.END, partition=1) == COUNT
    assert client.offset_at(ladder, Where.BEGINNING, partition=0) == 0
    assert client.offset_at(ladder, Where.END, partition=0) == 0


@pytest.mark.parametrize("offset", [0, 1, 7, COUNT - 1])
def test_offset(offset: int, client: KafkaClient, ladder: str) -> None:
    records = client.read(ladder, offset=offset, count=min(3, COUNT - offset), partition=1)
    assert [(r.offset, r.value) for r in records] == [
        (n, b"%d" % n) for n in range(offset, offset + len(records))
    ]


@pytest.mark.parametrize("rung", [0, 3, 12, COUNT - 1])
def test_timestamp(rung: int, client: KafkaClient, ladder: str) -> None:
    first_ms = NOW_MS - COUNT * STEP_MS
    exactly = first_ms + rung * STEP_MS
    assert client.offset_at(ladder, exactly, partition=1) == rung
    assert client.offset_at(ladder, exactly - STEP_MS // 2, partition=1) == rung


def test_beginning_moves_when_records_are_deleted(
    client: KafkaClient, new_topic: NewTopicFixture, admin: confluent_kafka.admin.AdminClient
) -> None:
    topic = new_topic()
    client.produce(topic, [Message(b"%d" % n) for n in range(6)])
    at = confluent_kafka.TopicPartition(topic, 0, 4)
    assert admin.delete_records([at])[at].result(20).low_watermark == 4
    assert client.offset_at(topic, Where.BEGINNING) == 4
    assert [record.value for record in client.read(topic, offset=4, count=2)] == [b"4", b"5"]


def test_kafka_python_waits_at_the_end(
    bootstrap_servers: str, new_topic: NewTopicFixture, clients: Clients
) -> None:
    topic = new_topic()
    clients["confluent-kafka"].produce(topic, [Message(b"before")])
    at = kafka.TopicPartition(topic, 0)
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap_servers, group_id=None, fetch_max_wait_ms=LONG_POLL_MS
    )
    consumer.assign([at])
    consumer.seek_to_end(at)
    assert consumer.position(at) == 1
    assert not consumer.poll(timeout_ms=50)
    start = time.monotonic()
    clients["confluent-kafka"].produce(topic, [Message(b"after")])
    ((message,),) = consumer.poll(timeout_ms=2 * LONG_POLL_MS).values()
    elapsed = time.monotonic() - start
    consumer.close()
    assert (message.offset, message.value) == (1, b"after")
    assert elapsed < PROMPT_S


def test_confluent_kafka_waits_at_the_end(
    bootstrap_servers: str, new_topic: NewTopicFixture, clients: Clients
) -> None:
    topic = new_topic()
    clients["confluent-kafka"].produce(topic, [Message(b"before")])
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": LONG_POLL_MS,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_END)])
    # The end of the partition is reported once the position is known.
    reached = consumer.poll(30)
    assert reached.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
    start = time.monotonic()
    clients["confluent-kafka"].produce(topic, [Message(b"after")])
    message = consumer.poll(2 * LONG_POLL_MS / 1000)
    elapsed = time.monotonic() - start
    consumer.close()
    assert (message.error(), message.offset(), message.value()) == (None, 1, b"after")
    assert elapsed < PROMPT_S


def test_aiokafka_waits_at_the_end(
    bootstrap_servers: str, new_topic: NewTopicFixture, clients: Clients
) -> None:
    topic = new_topic()
    clients["confluent-kafka"].produce(topic, [Message(b"before")])

    async def wait_for_next() -> float:
        at = TopicPartition(topic, 0)
        async with AIOKafkaConsumer(
            bootstrap_servers=bootstrap_servers, group_id=None, fetch_max_wait_ms=LONG_POLL_MS
        ) as consumer:
            consumer.assign([at])
            await consumer.seek_to_end(at)
            assert await consumer.position(at) == 1
            start = time.monotonic()
            waiting = asyncio.ensure_future(consumer.getone(at))
            await asyncio.to_thread(clients["confluent-kafka"].produce, topic, [Message(b"after")])
            message = await waiting
            assert (message.offset, message.value) == (1, b"after")
            return time.monotonic() - start

    assert asyncio.run(asyncio.wait_for(wait_for_next(), 30)) < PROMPT_S
