"""Idempotent producers through a network that loses, repeats and reorders: each record once, in order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from faulty_proxy import HOST, FaultyProxy
from kafka import KafkaProducer
from transforming.outcome import read_topic

import ottla.testing
from ottla.runtime.net import free_ports

PARTITIONS = 2
RECORDS = 400
PACE_S = 0.001
"""Between records, so that there are many requests to do something to."""


@pytest.fixture
def proxy(request: pytest.FixtureRequest) -> Iterator[FaultyProxy]:
    with FaultyProxy(request.param) as running:
        running.target_port = free_ports(HOST, 1)[0]
        settings = {
            "listeners": f"PLAINTEXT://{HOST}:{running.target_port}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{running.port}",
        }
        with ottla.testing.broker(set=settings):
            admin = AdminClient({"bootstrap.servers": f"{HOST}:{running.port}"})
            admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result(20)
            yield running


def values() -> Iterator[tuple[int, bytes]]:
    for number in range(RECORDS):
        yield number % PARTITIONS, b"%d" % number


def send_with_confluent(servers: str, *, idempotent: bool = True) -> None:
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "enable.idempotence": idempotent,
            "batch.num.messages": 4,
            "linger.ms": 1,
            "retry.backoff.ms": 5,
            "retry.backoff.max.ms": 20,
            "reconnect.backoff.ms": 5,
            "reconnect.backoff.max.ms": 20,
            "log_level": 0,
        }
    )
    failed: list[str] = []
    for partition, value in values():
        producer.produce(
            "t",
            value,
            partition=partition,
            on_delivery=lambda error, _: failed.append(str(error)) if error else None,
        )
        producer.poll(PACE_S)
    assert producer.flush(30) == 0
    assert not failed


def send_with_aiokafka(servers: str) -> None:
    async def send() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=servers,
            enable_idempotence=True,
            max_batch_size=256,
            linger_ms=1,
            retry_backoff_ms=10,
            request_timeout_ms=20_000,
        )
        await producer.start()
        sent = []
        for partition, value in values():
            sent.append(await producer.send("t", value, partition=partition))
            await asyncio.sleep(PACE_S)
        await asyncio.wait_for(asyncio.gather(*sent), 60)
        await producer.stop()

    asyncio.run(send())


def send_with_kafka_python(servers: str) -> None:
    producer = KafkaProducer(
        bootstrap_servers=servers,
        enable_idempotence=True,
        batch_size=256,
        linger_ms=1,
        retry_backoff_ms=10,
        reconnect_backoff_ms=5,
        reconnect_backoff_max_ms=20,
    )
    sent = []
    for partition, value in values():
        sent.append(producer.send("t", value, partition=partition))
        time.sleep(PACE_S)
    for future in sent:
        future.get(60)
    producer.close(10)


CLIENTS = {
    "confluent": send_with_confluent,
    "aiokafka": send_with_aiokafka,
    "kafka-python": send_with_kafka_python,
}


@pytest.mark.parametrize("proxy", range(2), indirect=True)
@pytest.mark.parametrize("client", CLIENTS)
def test_every_record_is_there_once_and_in_order(client: str, proxy: FaultyProxy) -> None:
    CLIENTS[client](f"{HOST}:{proxy.port}")
    proxy.is_faulty = False
    read = read_topic(f"{HOST}:{proxy.port}", "t", PARTITIONS, isolation="read_uncommitted")
    for partition in range(PARTITIONS):
        assert read[partition] == [value for index, value in values() if index == partition]
    assert sum(proxy.counts.values()) > 10, f"hardly anything went wrong: {proxy.counts}"


@pytest.mark.parametrize("proxy", [0], indirect=True)
def test_the_same_network_repeats_the_records_of_other_producers(proxy: FaultyProxy) -> None:
    send_with_confluent(f"{HOST}:{proxy.port}", idempotent=False)
    proxy.is_faulty = False
    read = read_topic(f"{HOST}:{proxy.port}", "t", PARTITIONS, isolation="read_uncommitted")
    assert sum(map(len, read)) > RECORDS
