"""Three brokers, three replicas, acks=all: a leader is killed under load, nothing acknowledged is lost."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import BrokerCluster

TOPIC = "orders"
pytestmark = pytest.mark.timeout(240)


def segments(cluster: BrokerCluster, broker_id: int) -> dict[str, bytes]:
    """The log files of the partition on one broker, by name."""
    (directory,) = Path(cluster[broker_id].data_dir).rglob(f"{TOPIC}-0")
    return {path.name: path.read_bytes() for path in sorted(directory.glob("*.log"))}


def test_nothing_acknowledged_is_lost_when_a_leader_is_killed() -> None:
    settings = {"broker.session.timeout.ms": 2000, "broker.heartbeat.interval.ms": 200}
    with BrokerCluster(settings) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_topics([NewTopic(TOPIC, 1, 3)])[TOPIC].result(30)
        cluster.wait_in_sync(TOPIC, 3)
        acknowledged: list[bytes] = []

        def told(error: object, message: Message) -> None:
            if error is None:
                value = message.value()
                assert isinstance(value, bytes)
                acknowledged.append(value)

        producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 2,
                "delivery.timeout.ms": 60_000,
            }
        )

        def send(first: int, count: int) -> None:
            for number in range(first, first + count):
                producer.produce(TOPIC, b"%06d" % number, partition=0, on_delivery=told)
                producer.poll(0)

        send(0, 2000)
        assert producer.flush(60) == 0
        lost = cluster.leader(TOPIC)
        send(2000, 1000)
        producer.poll(0.01)
        lost.kill9()
        send(3000, 1000)
        assert producer.flush(60) == 0
        assert len(acknowledged) == 4000, "all are, in the end"
        assert cluster.leader(TOPIC) is not lost
        cluster.start()
        cluster.wait_in_sync(TOPIC, 3, timeout_seconds=60)
        send(4000, 10)
        assert producer.flush(60) == 0

        consumer = Consumer(
            {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
        )
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        read: list[bytes] = []
        deadline = time.monotonic() + 60
        while len(read) < len(acknowledged) and time.monotonic() < deadline:
            for message in consumer.consume(1000, 1.0):
                value = message.value()
                if message.error() is None and isinstance(value, bytes):
                    read.append(value)
        consumer.close()
        assert read == [b"%06d" % number for number in range(4010)], "each once, and in order"

        deadline = time.monotonic() + 30
        while True:
            copies = [segments(cluster, broker_id) for broker_id in (1, 2, 3)]
            if copies[0] == copies[1] == copies[2] or time.monotonic() > deadline:
                break
            time.sleep(0.1)
        assert copies[0] == copies[1] == copies[2]
        assert sum(map(len, copies[0].values())) > 4010 * 6
