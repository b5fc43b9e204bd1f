"""Leaders and replicas of a running cluster: moved, elected, and replaced when a broker dies or stops."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.client.admin.replicas import elect_leaders, list_reassignments, reassign
from ottla.client.admin.topics import Partition
from ottla.client.cluster import ClusterClient
from ottla.controller.elections import ElectionType
from ottla.runtime.net import AsyncioNetwork
from ottla.testing import BrokerCluster

T = TypeVar("T")

DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[BrokerCluster]:
    with BrokerCluster() as running:
        yield running


def create(cluster: BrokerCluster, name: str, *replicas: list[int]) -> None:
    client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    topic = NewTopic(name, num_partitions=len(replicas), replica_assignment=list(replicas))
    client.create_topics([topic], operation_timeout=30, request_timeout=30)[name].result()


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


def test_replicas_move_and_the_preferred_one_leads(cluster: BrokerCluster) -> None:
    create(cluster, "moves", [1, 2])
    assert produce(cluster, "moves", 0, 500) == 500
    moved = Partition("moves", 0)
    assert ask(cluster, lambda client: reassign(client, {moved: [3, 2]})) == {}
    wait(lambda: partitions(cluster, "moves")[0] == (3, [3, 2], [2, 3]))
    assert ask(cluster, list_reassignments) == {}
    assert produce(cluster, "moves", 0, 500) == 500
    # Another order of the same: nothing moves until the preferred leader is asked for.
    assert ask(cluster, lambda client: reassign(client, {moved: [2, 3]})) == {}
    wait(lambda: partitions(cluster, "moves")[0] == (3, [2, 3], [2, 3]))
    elected = ask(cluster, lambda client: elect_leaders(client, ElectionType.PREFERRED, [moved]))
    assert elected == {moved: None}
    wait(lambda: partitions(cluster, "moves")[0] == (2, [2, 3], [2, 3]))


def test_a_leader_that_dies_is_replaced_and_comes_back_into_the_isr(cluster: BrokerCluster) -> None:
    create(cluster, "survives", [1, 2, 3], [2, 3, 1], [3, 1, 2])
    assert produce(cluster, "survives", 1, 300) == 300
    cluster[2].kill9()
    wait(
        lambda: all(
            leader != 2 and isr == [1, 3] for leader, _, isr in partitions(cluster, "survives").values()
        )
    )
    assert produce(cluster, "survives", 1, 300) == 300
    cluster.start()
    wait(lambda: all(isr == [1, 2, 3] for _, _, isr in partitions(cluster, "survives").values()))


def test_a_broker_that_stops_hands_its_leaderships_over_first(cluster: BrokerCluster) -> None:
    create(cluster, "handed-over", [3, 1, 2], [3, 2, 1])
    assert produce(cluster, "handed-over", 0, 100) == 100
    assert cluster[3].stop() == 0
    # It waited for that, so there is nothing to wait for.
    assert [leader for leader, _, _ in partitions(cluster, "handed-over").values()] == [1, 2]
    assert produce(cluster, "handed-over", 0, 100) == 100
    cluster.start()
    wait(lambda: all(isr == [1, 2, 3] for _, _, isr in partitions(cluster, "handed-over").values()))
