"""The first that ever happens on a broker is a transaction with offsets: there is no topic for them yet."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, Producer, TopicPartition

import ottla.testing

TIMEOUT_SECONDS = 10
NOWHERE = "127.0.0.1:1"


@pytest.fixture
def new_broker() -> Iterator[str]:
    with ottla.testing.broker(set={"offsets.topic.num.partitions": 5}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce("input", b"x")
        assert producer.flush(TIMEOUT_SECONDS) == 0
        yield broker.bootstrap_servers


def committed(bootstrap_servers: str, group: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group})
    try:
        return consumer.committed([TopicPartition("input", 0)], timeout=TIMEOUT_SECONDS)[0].offset
    finally:
        consumer.close()


def test_of_librdkafka(new_broker: str) -> None:
    producer = Producer({"bootstrap.servers": new_broker, "transactional.id": "first"})
    producer.init_transactions(TIMEOUT_SECONDS)
    # Asked of a consumer that can reach no broker: a real one would look for its coordinator first.
    idle = Consumer({"bootstrap.servers": NOWHERE, "group.id": "readers", "log_level": 0})
    metadata = idle.consumer_group_metadata()
    for offset in (5, 6):
        producer.begin_transaction()
        producer.produce("output", b"y")
        producer.send_offsets_to_transaction([TopicPartition("input", 0, offset)], metadata, TIMEOUT_SECONDS)
        producer.commit_transaction(TIMEOUT_SECONDS)
    idle.close()
    assert committed(new_broker, "readers") == 6


def test_of_aiokafka(new_broker: str) -> None:
    async def transform() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=new_broker, transactional_id="first")
        await producer.start()
        try:
            async with producer.transaction():
                await producer.send_and_wait("output", b"y")
                await producer.send_offsets_to_transaction({AioPartition("input", 0): 5}, "readers")
        finally:
            await producer.stop()

    asyncio.run(asyncio.wait_for(transform(), 3 * TIMEOUT_SECONDS))
    assert committed(new_broker, "readers") == 5
