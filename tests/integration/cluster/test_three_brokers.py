"""Three brokers in processes: records survive who holds them, replicas move, leaders are elected."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import BrokerCluster

WAIT_S = 60
pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def cluster() -> Iterator[BrokerCluster]:
    with BrokerCluster() as running:
        yield running


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"not {what} in {WAIT_S} s"
        time.sleep(0.1)


def create(servers: str, topic: str, partitions: int = 1, replicas: int = 3) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    config = {"min.insync.replicas": str(min(replicas, 2))}
    admin.create_topics([NewTopic(topic, partitions, replicas, config=config)])[topic].result(30)


def produce(servers: str, topic: str, values: list[str]) -> list[str]:
    """Those that were acknowledged by all in sync."""
    acknowledged: list[str] = []

    def delivered(error: Any, message: Any) -> None:
        if error is None:
            acknowledged.append(message.value().decode())

    producer = Producer(
        {"bootstrap.servers": servers, "acks": "all", "enable.idempotence": True, "socket.timeout.ms": 5000}
    )
    for value in values:
        producer.produce(topic, value, on_delivery=delivered)
    assert producer.flush(WAIT_S) == 0
    return acknowledged


def consume(servers: str, topic: str, count: int, partition: int = 0) -> list[str]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "readers", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[str] = []
    deadline = time.monotonic() + WAIT_S
    try:
        while len(found) < count and time.monotonic() < deadline:
            for message in consumer.consume(100, 0.5):
                if message.error() is None:
                    value = message.value()
                    assert value is not None
                    found.append(value.decode())
    finally:
        consumer.close()
    return found


def tool(cluster: BrokerCluster, *arguments: str) -> str:
    command = [sys.executable, "-m", "ottla.cli.main", *arguments]
    command += ["--bootstrap-server", cluster.bootstrap_servers]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_records_survive_the_leader(cluster: BrokerCluster) -> None:
    create(cluster.bootstrap_servers, "survives")
    first = [f"first-{number}" for number in range(50)]
    assert produce(cluster.bootstrap_servers, "survives", first) == first
    leader = cluster.leader("survives")
    leader.kill9()
    second = [f"second-{number}" for number in range(50)]
    assert produce(cluster.bootstrap_servers, "survives", second) == second
    assert cluster.leader("survives") is not leader
    assert consume(cluster.bootstrap_servers, "survives", 100) == first + second
    leader.start()
    cluster.wait_in_sync("survives", 3, timeout_seconds=WAIT_S)


def test_records_survive_the_controller(cluster: BrokerCluster) -> None:
    create(cluster.bootstrap_servers, "before")
    controller = cluster.controller()
    controller.kill9()
    wait_until(lambda: cluster.controller() is not controller, "led by another controller")
    create(cluster.bootstrap_servers, "after")
    assert produce(cluster.bootstrap_servers, "after", ["a"]) == ["a"]
    controller.start()
    cluster.wait_in_sync("before", 3, timeout_seconds=WAIT_S)


def test_who_is_paused_is_not_missed_for_long(cluster: BrokerCluster) -> None:
    create(cluster.bootstrap_servers, "paused")
    leader = cluster.leader("paused")
    leader.pause()
    try:
        assert produce(cluster.bootstrap_servers, "paused", ["a", "b"]) == ["a", "b"]
    finally:
        leader.resume()
    cluster.wait_in_sync("paused", 3, timeout_seconds=WAIT_S)
    assert consume(cluster.bootstrap_servers, "paused", 2) == ["a", "b"]


def test_replicas_move_and_leaders_are_elected(cluster: BrokerCluster, tmp_path: Path) -> None:
    create(cluster.bootstrap_servers, "moves", replicas=1)
    values = [f"value-{number}" for number in range(200)]
    assert produce(cluster.bootstrap_servers, "moves", values) == values
    home = cluster.leader("moves").id
    away = next(broker for broker in cluster.brokers if broker != home)
    path = tmp_path / "plan.json"
    path.write_text(
        json.dumps({"partitions": [{"topic": "moves", "partition": 0, "replicas": [away, home]}]})
    )
    chosen = ("--reassignment-json-file", str(path))
    tool(cluster, "reassign-partitions", "--execute", *chosen)
    done = "Reassignment of partition moves-0 is completed."
    wait_until(lambda: done in tool(cluster, "reassign-partitions", "--verify", *chosen), "moved")
    assert cluster.in_sync("moves") == {home, away}
    tool(cluster, "leader-election", "--election-type", "preferred", "--topic", "moves", "--partition", "0")
    assert cluster.leader("moves").id == away
    assert consume(cluster.bootstrap_servers, "moves", 200) == values
