"""Consumers with a client.rack read from the replica in it, and from another when that dies (KIP-392)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.integration.cluster.steps import create, produce, wait

from ottla.testing import BrokerCluster

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
RACKS = {1: {"broker.rack": "north"}, 2: {"broker.rack": "south"}, 3: {"broker.rack": "east"}}
pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def cluster() -> Iterator[BrokerCluster]:
    settings = {"replica.selector.class": RACK_AWARE}
    with BrokerCluster(settings, own_settings=RACKS) as running:
        yield running


class Reader:
    """Reads a partition from its beginning, and knows how many bytes each broker sent it."""

    def __init__(self, cluster: BrokerCluster, topic: str, rack: str) -> None:
        self.found = 0
        self.bytes_from: dict[int, int] = {}
        self._statistics = 0
        self.consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": topic,
                "client.rack": rack,
                "enable.auto.commit": False,
                "statistics.interval.ms": 100,
                "stats_cb": self._take,
                "reconnect.backoff.max.ms": 500,
            }
        )
        self.consumer.assign([TopicPartition(topic, 0, 0)])

    def _take(self, text: str) -> None:
        self._statistics += 1
        brokers = json.loads(text)["brokers"].values()
        self.bytes_from = {broker["nodeid"]: broker["rxbytes"] for broker in brokers}

    def read(self, count: int) -> None:
        """Until so many have been read in all."""

        def is_read() -> bool:
            self.found += sum(message.error() is None for message in self.consumer.consume(500, 0.2))
            return self.found >= count

        wait(is_read)
        assert self.found == count

    def sent(self) -> dict[int, int]:
        """As of now."""
        seen = self._statistics
        wait(lambda: self.consumer.poll(0.1) is None and self._statistics > seen + 1)
        return self.bytes_from


@pytest.fixture
def reader(cluster: BrokerCluster) -> Iterator[Callable[[str, str], Reader]]:
    opened: list[Reader] = []

    def open_one(topic: str, rack: str) -> Reader:
        opened.append(Reader(cluster, topic, rack))
        return opened[-1]

    yield open_one
    for each in opened:
        each.consumer.close()


def test_the_bytes_come_from_the_replica_in_the_rack(
    cluster: BrokerCluster, reader: Callable[[str, str], Reader]
) -> None:
    create(cluster, "near", [1, 2, 3])
    assert produce(cluster, "near", 0, 20_000) == 20_000
    southern = reader("near", "south")
    southern.read(20_000)
    sent = southern.sent()
    assert sent[2] > 20_000 * 5
    assert sent[1] < 20_000
    # What comes later is sent from there, too, once it is known there that it is committed.
    assert produce(cluster, "near", 0, 100) == 100
    southern.read(20_100)
    northern = reader("near", "north")
    northern.read(20_100)
    sent = northern.sent()
    assert sent[1] > 20_000 * 5
    assert sent[2] < 20_000


def test_when_the_nearest_replica_dies_another_one_serves(
    cluster: BrokerCluster, reader: Callable[[str, str], Reader]
) -> None:
    create(cluster, "left", [1, 2, 3])
    assert produce(cluster, "left", 0, 1000) == 1000
    southern = reader("left", "south")
    southern.read(1000)
    cluster[2].kill9()
    try:
        assert produce(cluster, "left", 0, 1000) == 1000
        southern.read(2000)
    finally:
        cluster.start()
    cluster.wait_in_sync("left", 3)
    assert produce(cluster, "left", 0, 1000) == 1000
    southern.read(3000)
