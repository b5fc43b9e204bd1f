"""A stream over several topics that waits for the one that has nothing, asked as Spark asks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

pytest.importorskip("pyspark", reason="needs the extra ottla[spark]")

from pyspark.sql.streaming.datasource import ReadAllAvailable

from ottla.spark.source import OttlaStreamReader
from ottla.spark.source_options import source_options
from ottla.testing import InProcessBroker


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with InProcessBroker() as broker:
        yield broker.bootstrap_servers


class Hands:
    """A clock that somebody else moves."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000


def offsets(found: dict[str, object]) -> dict[str, object]:
    return {topic: found[topic] for topic in ("orders", "prices")}


def test_what_one_topic_has_waits_for_the_other(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(name, 1, 1) for name in ("orders", "prices")]).values():
        made.result(30)
    producer = Producer({"bootstrap.servers": bootstrap})

    def send(topic: str) -> None:
        producer.produce(topic, b"x")
        assert producer.flush(30) == 0

    given = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": "orders, prices",
        "startingOffsets": "earliest",
    }
    clock = Hands()
    reader = OttlaStreamReader(source_options({**given, "maxTaskIdleMs": "300"}, streaming=True), clock=clock)
    at = reader.initialOffset()
    send("orders")
    assert reader.latestOffset(at, ReadAllAvailable()) is at
    send("prices")
    at = reader.latestOffset(at, ReadAllAvailable())
    assert offsets(at) == {"orders": {"0": 1}, "prices": {"0": 1}}
    assert reader.latestOffset(at, ReadAllAvailable()) is at
    send("orders")
    assert reader.latestOffset(at, ReadAllAvailable()) is at
    told = reader.reportLatestOffset()
    assert told is not None and offsets(told) == {"orders": {"0": 2}, "prices": {"0": 1}}
    clock.ms += 300
    at = reader.latestOffset(at, ReadAllAvailable())
    assert offsets(at) == {"orders": {"0": 2}, "prices": {"0": 1}}

    # A run over what there is takes all of it.
    send("orders")
    send("prices")
    send("prices")
    once = OttlaStreamReader(source_options({**given, "maxTaskIdleMs": "300"}, streaming=True), clock=clock)
    once.prepareForTriggerAvailableNow()
    assert offsets(once.latestOffset(at, ReadAllAvailable())) == {"orders": {"0": 3}, "prices": {"0": 3}}
