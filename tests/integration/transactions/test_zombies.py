"""Zombies are fenced, and the dead hold readers up only until their time-out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from transforming.outcome import read_topic
from transforming.processes import Transformers

CLIENTS = ["confluent", "aio", pytest.param("java", marks=pytest.mark.maven)]
TIMEOUT_MS = 2_000
SLACK_S = 5.0

FENCED = {
    "confluent": ("_FENCED", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED"),
    "aio": ("ProducerFenced", "InvalidProducerEpoch"),
    "java": ("ProducerFencedException", "InvalidProducerEpochException"),
}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_zombie_is_fenced_by_its_successor(
    client: str,
    bootstrap_servers: str,
    names: Iterator[str],
    new_topic: Callable[[int], str],
    transformers: Callable[[str], Transformers],
) -> None:
    topic = new_topic(1)
    told = transformers(client).misbehave("zombie", bootstrap_servers, topic, next(names), "30000")
    verdict, _, reason = told.partition(" ")
    assert verdict == "refused", told
    assert reason in FENCED[client]
    assert read_topic(bootstrap_servers, topic, 1, isolation="read_committed") == [[b"successor"]]
    (everything,) = read_topic(bootstrap_servers, topic, 1, isolation="read_uncommitted")
    assert everything == [b"zombie", b"successor"], "what the zombie wrote in time is there, but aborted"


@pytest.mark.parametrize("client", CLIENTS)
def test_a_dead_producer_blocks_readers_until_its_time_out(
    client: str,
    bootstrap_servers: str,
    names: Iterator[str],
    new_topic: Callable[[int], str],
    transformers: Callable[[str], Transformers],
) -> None:
    topic = new_topic(1)
    before = time.monotonic()
    transformers(client).misbehave("die", bootstrap_servers, topic, next(names), str(TIMEOUT_MS))
    after = time.monotonic()
    plain = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 0})
    plain.produce(topic, b"behind")
    assert plain.flush(20) == 0
    assert read_topic(bootstrap_servers, topic, 1, isolation="read_uncommitted") == [[b"never", b"behind"]]
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "blocked",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    reader.assign([TopicPartition(topic, 0, 0)])
    message = reader.poll(TIMEOUT_MS / 1000 + SLACK_S)
    seen = time.monotonic()
    reader.close()
    assert message is not None and message.error() is None
    assert message.value() == b"behind", "the dead producer's record is aborted"
    assert seen - before >= TIMEOUT_MS / 1000, "its transaction had all the time it asked for"
    assert seen - after <= TIMEOUT_MS / 1000 + SLACK_S
