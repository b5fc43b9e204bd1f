"""Replicas that move to other brokers do so no faster than they may, and producers do not notice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource
from tests.integration.cluster.steps import DEADLINE_S, create, partitions, wait

from ottla.testing import BrokerCluster

pytestmark = pytest.mark.timeout(300)
MIB = 1024 * 1024
MOVED_MIB = 16
RATES = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[BrokerCluster]:
    with BrokerCluster() as running:
        yield running


def fill(cluster: BrokerCluster, topic: str) -> None:
    create(cluster, topic, [1, 2])
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "linger.ms": 5})
    for _ in range(MOVED_MIB * 16):
        producer.produce(topic, os.urandom(MIB // 16), partition=0)
    assert producer.flush(DEADLINE_S) == 0


class Writing(threading.Thread):
    """Small records all the time, and how long the slowest took to be acknowledged by all in sync."""

    def __init__(self, cluster: BrokerCluster, topic: str) -> None:
        super().__init__(daemon=True)
        self._producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
        self._topic = topic
        self._ended = threading.Event()
        self.slowest_s = 0.0
        self.errors: list[object] = []

    def run(self) -> None:
        while not self._ended.is_set():
            began = time.monotonic()
            self._producer.produce(self._topic, b"x", partition=0, on_delivery=self._delivered)
            self._producer.flush(DEADLINE_S)
            self.slowest_s = max(self.slowest_s, time.monotonic() - began)
            self._ended.wait(0.02)

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self.errors.append(error)

    def end(self) -> None:
        self._ended.set()
        self.join(DEADLINE_S)


class Move:
    def __init__(self, cluster: BrokerCluster, directory: Path, topic: str, replicas: list[int]) -> None:
        self._cluster = cluster
        self._plan = directory / "plan.json"
        partition = {"topic": topic, "partition": 0, "replicas": replicas}
        self._plan.write_text(json.dumps({"partitions": [partition]}))

    def tool(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "ottla.cli.main", "reassign-partitions", *arguments]
        command += ["--bootstrap-server", self._cluster.bootstrap_servers]
        command += ["--reassignment-json-file", str(self._plan)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


def topics(cluster: BrokerCluster, *arguments: str) -> str:
    command = [sys.executable, "-m", "ottla.cli.main", "topics", *arguments]
    command += ["--bootstrap-server", cluster.bootstrap_servers]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=True).stdout


def throttles(cluster: BrokerCluster, topic: str) -> dict[str, str]:
    """Those that are set, of the topic and of all brokers."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    found = {}
    for kind, name in (("topic", topic), *(("broker", str(each)) for each in cluster.brokers)):
        resource = ConfigResource(kind, name)
        settings = admin.describe_configs([resource])[resource].result(DEADLINE_S)
        found |= {
            f"{kind} {name} {key}": settings[key].value
            for key in RATES
            if key in settings and not settings[key].is_default
        }
    return found


def test_a_move_takes_as_long_as_its_throttle_says(cluster: BrokerCluster, tmp_path: Path) -> None:
    fill(cluster, "throttled")
    rate = 2 * MIB
    move = Move(cluster, tmp_path, "throttled", [1, 3])
    writing = Writing(cluster, "throttled")
    writing.start()
    began = time.monotonic()
    said = move.tool("--execute", "--throttle", str(rate))
    assert f"The inter-broker throttle limit was set to {rate} B/s" in said
    assert "still in progress" in move.tool("--verify")
    limits = throttles(cluster, "throttled")
    assert limits["topic throttled leader.replication.throttled.replicas"] == "0:1,0:2"
    assert limits["topic throttled follower.replication.throttled.replicas"] == "0:3"
    assert limits["broker 3 follower.replication.throttled.rate"] == str(rate)
    wait(lambda: sorted(partitions(cluster, "throttled")[0][1]) == [1, 3])
    took_s = time.monotonic() - began
    writing.end()
    expected_s = MOVED_MIB * MIB / rate
    # The first and the last megabyte go at once; a busy machine makes it longer.
    assert 0.75 * expected_s <= took_s <= 3 * expected_s
    assert writing.errors == []
    assert writing.slowest_s < 0.5 * expected_s
    said = move.tool("--verify")
    assert "Reassignment of partition throttled-0 is completed." in said
    assert "Clearing broker-level throttles on brokers 1,2,3" in said
    assert "Clearing topic-level throttles on topic throttled" in said
    assert throttles(cluster, "throttled") == {}


def test_a_throttle_is_raised_while_replicas_move(cluster: BrokerCluster, tmp_path: Path) -> None:
    fill(cluster, "raised")
    move = Move(cluster, tmp_path, "raised", [1, 3])
    # A megabyte in eleven seconds, as long as rates are averaged: three minutes in all.
    move.tool("--execute", "--throttle", "1000")
    described = topics(cluster, "--describe", "--topic", "raised")
    assert "\tReplicationFactor: 2\t" in described
    assert "\tAdding Replicas: 3\tRemoving Replicas: 2\t" in described
    assert "raised" not in topics(cluster, "--describe", "--under-replicated-partitions")
    began = time.monotonic()
    move.tool("--execute", "--additional", "--throttle", str(1000 * MIB))
    wait(lambda: sorted(partitions(cluster, "raised")[0][1]) == [1, 3])
    assert time.monotonic() - began < DEADLINE_S
    move.tool("--verify")
    assert throttles(cluster, "raised") == {}
