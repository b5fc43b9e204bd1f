"""Clients that ask the wrong broker are told which is the right one, and where (KIP-951)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v17.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.produce.v12.request import PartitionProduceData, ProduceRequest, TopicProduceData
from raw_client import RawConnection
from tests.integration.cluster.steps import DEADLINE_S, create, lead, produce, topic_id, wait

from ottla.records.records import Record, encode_batch
from ottla.testing import BrokerCluster

PRODUCE, FETCH = 0, 1
MOVES = (2, 3, 1, 2, 3)
"""One without a question for metadata will do: a new leader that has not heard of it yet, and so refuses the
client once more, makes it ask."""
pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def cluster() -> Iterator[BrokerCluster]:
    with BrokerCluster() as running:
        yield running


def endpoints(answer: Any) -> list[tuple[int, str, int]]:
    return [(node.node_id, node.host, node.port) for node in answer.node_endpoints]


def place(cluster: BrokerCluster, broker: int) -> tuple[int, str, int]:
    host, port = cluster[broker].bootstrap_servers.rsplit(":", 1)
    return broker, host, int(port)


def test_who_produces_elsewhere_learns_of_the_leader(cluster: BrokerCluster) -> None:
    create(cluster, "misdirected", [2, 1])
    data = PartitionProduceData(index=0, records=bytes(encode_batch([Record(b"key", b"value")])))
    request = ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout=timedelta(seconds=5),
        topic_data=(TopicProduceData(name="misdirected", partition_data=(data,)),),
    )
    # One has a replica, the other has none.
    for other in 1, 3:
        with RawConnection(cluster[other].bootstrap_servers) as connection:
            answer = connection.call(PRODUCE, 12, request)
        (row,) = answer.responses[0].partition_responses
        assert row.error_code == ErrorCode.not_leader_or_follower
        assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == (2, 0)
        assert endpoints(answer) == [place(cluster, 2)]
    with RawConnection(cluster[2].bootstrap_servers) as connection:
        answer = connection.call(PRODUCE, 12, request)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.none
    assert endpoints(answer) == []


def test_who_fetches_elsewhere_or_in_an_old_epoch_learns_of_the_leader(cluster: BrokerCluster) -> None:
    create(cluster, "fetched", [1, 2])
    lead(cluster, "fetched", 2)
    fetched = topic_id(cluster, "fetched")

    def fetch(broker: int, leader_epoch: int) -> Any:
        partition = FetchPartition(
            partition=0, current_leader_epoch=leader_epoch, fetch_offset=0, partition_max_bytes=1000
        )
        request = FetchRequest(
            max_wait=timedelta(0),
            min_bytes=0,
            max_bytes=1000,
            topics=(FetchTopic(topic_id=fetched, partitions=(partition,)),),
            forgotten_topics_data=(),
        )
        with RawConnection(cluster[broker].bootstrap_servers) as connection:
            return connection.call(FETCH, 17, request)

    for broker, leader_epoch, error in (
        (3, -1, ErrorCode.not_leader_or_follower),
        (2, 0, ErrorCode.fenced_leader_epoch),
    ):
        answer = fetch(broker, leader_epoch)
        (row,) = answer.responses[0].partitions
        assert row.error_code == error
        assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == (2, 1)
        assert endpoints(answer) == [place(cluster, 2)]


class Statistics:
    """The newest that librdkafka gives."""

    def __init__(self) -> None:
        self._requests: dict[str, int] = {}

    def take(self, text: str) -> None:
        requests: dict[str, int] = {}
        for broker in json.loads(text)["brokers"].values():
            for api, count in broker["req"].items():
                requests[api] = requests.get(api, 0) + count
        self._requests = requests

    def settled(self, poll: Callable[[], object]) -> dict[str, int]:
        """Two in a row that are alike in what matters here."""
        seen: list[int] = []

        def is_settled() -> bool:
            self._requests = {}
            while not self._requests:
                poll()
            seen.append(self._requests.get("Metadata", 0))
            return len(seen) > 2 and len(set(seen[-3:])) == 1

        wait(is_settled)
        return self._requests


def test_a_producer_follows_the_leader_without_asking_for_metadata(cluster: BrokerCluster) -> None:
    create(cluster, "moving", [1, 2, 3])
    statistics = Statistics()
    errors: list[Any] = []
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "acks": "all",
            "topic.metadata.refresh.interval.ms": -1,
            "statistics.interval.ms": 200,
            "stats_cb": statistics.take,
        }
    )

    def write(value: str) -> None:
        producer.produce("moving", value, partition=0, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(DEADLINE_S) == 0

    def asks_when_led_by(broker: int) -> bool:
        before = statistics.settled(lambda: producer.poll(0.1))
        lead(cluster, "moving", broker)
        write("more")
        after = statistics.settled(lambda: producer.poll(0.1))
        # Refused once, then sent to the right one.
        assert after["Produce"] >= before["Produce"] + 2
        return after["Metadata"] != before["Metadata"]

    write("first")
    assert not all(asks_when_led_by(broker) for broker in MOVES)
    assert not any(errors)


def test_a_consumer_follows_the_leader_without_asking_for_metadata(cluster: BrokerCluster) -> None:
    create(cluster, "read-on", [1, 2, 3])
    assert produce(cluster, "read-on", 0, 10) == 10
    statistics = Statistics()
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "read-on",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": -1,
            "statistics.interval.ms": 200,
            "stats_cb": statistics.take,
        }
    )
    consumer.assign([TopicPartition("read-on", 0, 0)])
    found: list[bytes | None] = []

    def read() -> None:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            found.append(message.value())

    try:
        wait(lambda: (read(), len(found) == 10)[1])

        def asks_when_led_by(broker: int) -> bool:
            before = statistics.settled(read)
            lead(cluster, "read-on", broker)
            expected = len(found) + 10
            assert produce(cluster, "read-on", 0, 10) == 10
            wait(lambda: (read(), len(found) == expected)[1])
            return statistics.settled(read)["Metadata"] != before["Metadata"]

        assert not all(asks_when_led_by(broker) for broker in MOVES)
    finally:
        consumer.close()
