"""What tests of a cluster do again and again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar
from uuid import UUID

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.client.admin.replicas import elect_leaders, reassign
from ottla.client.admin.topics import Partition, find_topics
from ottla.client.cluster import ClusterClient
from ottla.controller.elections import ElectionType
from ottla.runtime.net import AsyncioNetwork
from ottla.testing import BrokerCluster

T = TypeVar("T")

DEADLINE_S = 60.0


def create(cluster: BrokerCluster, name: str, *replicas: list[int]) -> None:
    client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    # A client that is asked at once has been seen to wait in vain for who administers.
    client.list_topics(timeout=DEADLINE_S)
    topic = NewTopic(name, num_partitions=len(replicas), replica_assignment=list(replicas))
    client.create_topics([topic], operation_timeout=30, request_timeout=30)[name].result()
    for broker in cluster.brokers.values():
        if broker.is_running and not broker.is_paused and not broker.is_isolated:
            alone = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
            wait(lambda alone=alone: name in alone.list_topics(timeout=20).topics)  # type: ignore[misc]


def partitions(cluster: BrokerCluster, name: str) -> dict[int, tuple[int, list[int], list[int]]]:
    """Leader, replicas and ISR of each."""
    client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    found = client.list_topics(name, timeout=20).topics[name].partitions
    return {number: (each.leader, list(each.replicas), sorted(each.isrs)) for number, each in found.items()}


def wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.05)


def ask(cluster: BrokerCluster, question: Callable[[ClusterClient], Awaitable[T]]) -> T:
    async def run() -> T:
        async with ClusterClient(AsyncioNetwork(), cluster.bootstrap_servers) as client:
            return await question(client)

    return asyncio.run(run())


def produce(cluster: BrokerCluster, topic: str, partition: int, count: int) -> int:
    """How many are acknowledged by all in sync."""
    acknowledged = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "linger.ms": 5})
    for number in range(count):
        producer.produce(
            topic,
            str(number).encode(),
            partition=partition,
            on_delivery=lambda error, _: acknowledged.append(error),
        )
    producer.flush(DEADLINE_S)
    return acknowledged.count(None)


def lead(cluster: BrokerCluster, topic: str, broker: int, partition: int = 0) -> None:
    """Make the broker, which has a replica, the leader, as an operator would."""
    _, replicas, _ = partitions(cluster, topic)[partition]
    moved = Partition(topic, partition)
    order = [broker, *(replica for replica in replicas if replica != broker)]
    assert ask(cluster, lambda client: reassign(client, {moved: order})) == {}
    elected = ask(cluster, lambda client: elect_leaders(client, ElectionType.PREFERRED, [moved]))
    assert elected[moved] is None or "not needed" in str(elected[moved])
    wait(lambda: partitions(cluster, topic)[partition][0] == broker)


def topic_id(cluster: BrokerCluster, topic: str) -> UUID:
    async def find(client: ClusterClient) -> UUID:
        found = (await find_topics(client, [topic]))[topic].id
        assert found is not None
        return found

    return ask(cluster, find)
