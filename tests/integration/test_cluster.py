"""Three nodes in processes of their own are one cluster, with and without the one that is its controller."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import BrokerCluster
from ottla.testing.cluster import ClusterBroker

TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[BrokerCluster]:
    with BrokerCluster() as running:
        yield running


def wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.05)


def admin(broker: ClusterBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers})


def create(broker: ClusterBroker, name: str, replicas: int) -> None:
    """By way of this broker. Who asks while a leader is elected is told to ask again."""
    topic = NewTopic(name, num_partitions=3, replication_factor=replicas)
    client = admin(broker)
    client.create_topics([topic], operation_timeout=TIMEOUT_S, request_timeout=TIMEOUT_S)[name].result()


def sees(broker: ClusterBroker, brokers: set[int], topics: set[str]) -> bool:
    found = admin(broker).list_topics(timeout=TIMEOUT_S)
    return set(found.brokers) == brokers and topics <= set(found.topics)


def test_topics_are_created_by_way_of_any_broker_and_seen_by_all(cluster: BrokerCluster) -> None:
    for broker in cluster.brokers.values():
        create(broker, f"by-{broker.id}", replicas=3)
    for broker in cluster.brokers.values():
        wait(lambda broker=broker: sees(broker, {1, 2, 3}, {"by-1", "by-2", "by-3"}))  # type: ignore[misc]
    replicas = admin(cluster[1]).list_topics("by-2", timeout=TIMEOUT_S).topics["by-2"].partitions
    assert [sorted(partition.replicas) for partition in replicas.values()] == [[1, 2, 3]] * 3


def test_the_cluster_goes_on_without_its_controller_and_takes_it_back(cluster: BrokerCluster) -> None:
    controller = cluster.controller()
    controller.kill9()
    others = [broker for broker in cluster.brokers.values() if broker is not controller]
    for broker in others:
        create(broker, f"without-{broker.id}", replicas=2)
    assert cluster.controller() in others
    created = {f"without-{broker.id}" for broker in others}
    left = {broker.id for broker in others}
    for broker in others:
        wait(lambda broker=broker: sees(broker, left, created))  # type: ignore[misc]
    cluster.start()
    wait(lambda: sees(controller, {1, 2, 3}, created))


def test_a_broker_that_is_stopped_hands_over_first(cluster: BrokerCluster) -> None:
    create(cluster[1], "handed-over", replicas=3)
    stopped = cluster.controller()
    others = [broker for broker in cluster.brokers.values() if broker is not stopped]
    assert stopped.stop() == 0
    for broker in others:
        # Nobody had to notice its silence: the session of a broker lasts nine seconds.
        wait(lambda broker=broker: sees(broker, {b.id for b in others}, {"handed-over"}))  # type: ignore[misc]
        topic = admin(broker).list_topics("handed-over", timeout=TIMEOUT_S).topics["handed-over"]
        assert stopped.id not in {partition.leader for partition in topic.partitions.values()}
    cluster.start()
    wait(lambda: sees(stopped, {1, 2, 3}, {"handed-over"}))
