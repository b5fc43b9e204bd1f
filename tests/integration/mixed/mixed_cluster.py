"""Nodes of Ottla and of Apache Kafka in one cluster, and what clients do with it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.clusters import NodeCluster
from bench.kafka_peer import KafkaDistribution
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.client.cluster import ClusterClient
from ottla.testing.settings import cluster_properties

WAIT_S = 60.0
# Started for seconds, beside other tests: little memory, and no time for the compiler that optimises.
SMALL_HEAP = ("-Xmx384M", "-XX:TieredStopAtLevel=1")
QUIET = {"log_level": 0}


def mixed_cluster(
    distribution: KafkaDistribution, kafka: Sequence[int], voters: Sequence[int] = (1, 2, 3)
) -> NodeCluster:
    settings = cluster_properties({"group.min.session.timeout.ms": 1000})
    return NodeCluster(distribution, kafka, voters=voters, settings=settings, heap=SMALL_HEAP)


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"not {what} in {WAIT_S} s"
        time.sleep(0.05)


def create(servers: str, topic: str, partitions: int = 3) -> None:
    admin = AdminClient({"bootstrap.servers": servers, **QUIET})
    admin.create_topics([NewTopic(topic, partitions, 3)])[topic].result(30)


def produce(servers: str, topic: str, values: Sequence[str], partitions: int = 3) -> None:
    """All of them, acknowledged by all in sync; value number n is in partition n % `partitions`."""
    settings = {"acks": "all", "enable.idempotence": True, "message.timeout.ms": int(WAIT_S * 1000)}
    producer = Producer(
        {"bootstrap.servers": servers, "topic.metadata.refresh.interval.ms": 1000, **settings, **QUIET}
    )
    errors: list[Any] = []
    for number, value in enumerate(values):
        producer.produce(
            topic, value, partition=number % partitions, on_delivery=lambda error, _: errors.append(error)
        )
    assert producer.flush(WAIT_S) == 0
    assert errors == [None] * len(values)


def read(servers: str, topic: str, count: int, partitions: int = 3) -> list[list[str]]:
    """Per partition what is committed, `count` values in all, or what was found of them in time."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "reader", "isolation.level": "read_committed", **QUIET}
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    found: list[list[str]] = [[] for _ in range(partitions)]
    deadline = time.monotonic() + WAIT_S
    while sum(map(len, found)) < count and time.monotonic() < deadline:
        for message in consumer.consume(1000, 0.2):
            if message.error() is None:
                found[message.partition()].append(message.value().decode())
    consumer.close()
    return found


def key_on(cluster: NodeCluster, kind: int, node_id: int, name: str) -> str:
    """A group or transactional id, beginning with a name, that a node coordinates."""

    async def ask(client: ClusterClient) -> str:
        for number in range(100):
            key = f"{name}-{number}"
            found = await client.retried(lambda key=key: client.coordinating_broker(kind, key))  # type: ignore[misc]
            if found.id == node_id:
                return key
        raise AssertionError(f"node {node_id} coordinates nothing")

    return cluster.ask(ask)


def segments(cluster: NodeCluster, node_id: int, topic: str, partition: int) -> dict[str, bytes]:
    (directory,) = Path(cluster[node_id].data_dir).glob(f"{topic}-{partition}")
    return {path.name: path.read_bytes() for path in sorted(directory.glob("*.log"))}


def wait_same_bytes(cluster: NodeCluster, topic: str, partitions: int = 3) -> None:
    """Every replica of every partition, once followers have what they still lack."""
    for partition in range(partitions):
        wait_until(
            lambda partition=partition: _are_same(cluster, topic, partition),  # type: ignore[misc]
            f"{topic}-{partition} the same on all nodes",
        )


def _are_same(cluster: NodeCluster, topic: str, partition: int) -> bool:
    first, *others = (segments(cluster, node_id, topic, partition) for node_id in cluster.brokers)
    return any(first.values()) and all(other == first for other in others)
