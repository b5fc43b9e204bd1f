"""How long a cluster takes no writes when it loses a node, and how long one takes to leave in order.

A producer per partition writes small records at a steady rate, idempotent and acknowledged by all in sync.
What is measured is the longest time between two acknowledgements of any partition: what users notice.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from bench.cluster_loads import IN_SYNC_TIMEOUT_S, QUIET, REPLICAS, throw_away_topic
from ottla.testing.cluster import BrokerCluster, ClusterBroker

PARTITIONS = 3
RATE = 100
SETTLE_S = 2.0
RECOVERED_S = 1.0
GIVE_UP_S = 60.0
# Clients are to find out quickly, so that it is the cluster that is seen.
PRODUCER = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 0,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 50,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "topic.metadata.refresh.fast.interval.ms": 20,
    "message.timeout.ms": int(GIVE_UP_S * 1000),
    **QUIET,
}


class _Writer(threading.Thread):
    """Of one partition."""

    def __init__(self, servers: str, topic: str, partition: int) -> None:
        super().__init__(daemon=True)
        self._producer = Producer({"bootstrap.servers": servers, **PRODUCER})
        self._topic = topic
        self._partition = partition
        self._stopping = threading.Event()
        self.failure: Any = None
        self.acknowledged_at = time.monotonic()
        self.longest_gap_s = 0.0

    def run(self) -> None:
        due = time.monotonic()
        while not self._stopping.is_set():
            self._producer.produce(
                self._topic, b"x" * 100, partition=self._partition, on_delivery=self._delivered
            )
            due += 1 / RATE
            while (left := due - time.monotonic()) > 0:
                self._producer.poll(left)
            self._producer.poll(0)
        self._producer.flush(GIVE_UP_S)

    def _delivered(self, error: Any, _: Any) -> None:
        if error is not None:
            self.failure = error
            return
        now = time.monotonic()
        self.longest_gap_s = max(self.longest_gap_s, now - self.acknowledged_at)
        self.acknowledged_at = now

    def forget_gaps(self) -> None:
        self.longest_gap_s = 0.0

    def stop(self) -> None:
        self._stopping.set()
        self.join(GIVE_UP_S + 10)


class Shutdown(NamedTuple):
    led: int
    """Partitions that the node led."""
    exit_s: float
    """From the signal to the end of the process."""
    gap_s: float


def unavailability(cluster: BrokerCluster, topic: str, choose: Callable[[], ClusterBroker]) -> float:
    """Seconds without an acknowledgement after kill -9. The node is up and in sync again afterwards."""
    with throw_away_topic(cluster, topic, PARTITIONS):
        victim = choose()
        gap_s = _gap_of(cluster, topic, victim.kill9)
        _bring_back(cluster, victim, topic)
    return gap_s


def leader_that_does_not_control(cluster: BrokerCluster) -> ClusterBroker:
    controller = cluster.controller()
    return next(broker for broker in cluster.brokers.values() if broker is not controller)


def controlled_shutdown(cluster: BrokerCluster, topic: str, partitions: int) -> Shutdown:
    with throw_away_topic(cluster, topic, partitions):
        victim = leader_that_does_not_control(cluster)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, **QUIET})
        found = admin.list_topics(timeout=IN_SYNC_TIMEOUT_S).topics.values()
        led = sum(each.leader == victim.id for one in found for each in one.partitions.values())
        took: list[float] = []

        def stop() -> None:
            begin = time.monotonic()
            victim.stop(GIVE_UP_S)
            took.append(time.monotonic() - begin)

        gap_s = _gap_of(cluster, topic, stop)
        _bring_back(cluster, victim, topic)
    return Shutdown(led, took[0], gap_s)


def _gap_of(cluster: BrokerCluster, topic: str, fault: Callable[[], None]) -> float:
    writers = [_Writer(cluster.bootstrap_servers, topic, partition) for partition in range(PARTITIONS)]
    for writer in writers:
        writer.start()
    try:
        time.sleep(SETTLE_S)
        for writer in writers:
            writer.forget_gaps()
        fault()
        _wait_recovered(writers, time.monotonic())
    finally:
        for writer in writers:
            writer.stop()
    failures = [writer.failure for writer in writers if writer.failure is not None]
    if failures:
        raise RuntimeError(f"a write to {topic} failed: {failures[0]}")
    return max(writer.longest_gap_s for writer in writers)


def _wait_recovered(writers: list[_Writer], lost_at: float) -> None:
    """All have been acknowledged again, some time after the fault: a leader may be noticed missing late."""
    while True:
        oldest = min(writer.acknowledged_at for writer in writers)
        now = time.monotonic()
        if oldest > lost_at + RECOVERED_S and now - oldest < RECOVERED_S / 2:
            return
        if now - lost_at > GIVE_UP_S:
            raise TimeoutError(f"no writes for {GIVE_UP_S:g} s")
        time.sleep(0.02)


def _bring_back(cluster: BrokerCluster, victim: ClusterBroker, topic: str) -> None:
    victim.start()
    for partition in range(PARTITIONS):
        cluster.wait_in_sync(topic, REPLICAS, partition, IN_SYNC_TIMEOUT_S)
