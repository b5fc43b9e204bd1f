"""Three nodes with very many partitions: how long they take to start and what they hold, and how long those
partitions are without a leader when a node is killed."""

from __future__ import annotations

import time
from collections import Counter
from typing import NamedTuple

from confluent_kafka import ElectionType, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from bench.cluster_loads import QUIET, REPLICAS
from bench.failover import leader_that_does_not_control
from bench.process import memory
from bench.replay import MB
from ottla.testing.cluster import BrokerCluster, ClusterBroker

PER_TOPIC = 1000
READY_TIMEOUT_S = 600.0
LOOK_S = 0.1


class ManyPartitions(NamedTuple):
    create_s: float
    start_s: float
    """Of all nodes at once, after they were stopped in order, until all replicas are in sync."""
    memory_mb: float
    """Of all nodes, without mapped files."""
    failover_ms: float
    """After kill -9 of a broker, until all it led have another leader."""
    controller_failover_ms: float


def measure(cluster: BrokerCluster, partitions: int) -> ManyPartitions:
    begin = time.monotonic()
    servers = cluster.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers, **QUIET})
    for first in range(0, partitions, PER_TOPIC):
        name = f"many-{first // PER_TOPIC}"
        count = min(PER_TOPIC, partitions - first)
        created = admin.create_topics([NewTopic(name, count, REPLICAS)], request_timeout=READY_TIMEOUT_S)
        created[name].result(READY_TIMEOUT_S)
    _wait_in_sync(servers, partitions)
    create_s = time.monotonic() - begin
    for broker in cluster.brokers.values():
        broker.stop(READY_TIMEOUT_S)
    begin = time.monotonic()
    for broker in cluster.brokers.values():
        broker.launch()
    for broker in cluster.brokers.values():
        broker.wait_ready(READY_TIMEOUT_S)
    _wait_in_sync(servers, partitions)
    start_s = time.monotonic() - begin
    memory_mb = cluster_memory_mb(cluster)
    failover_ms = _failover_ms(cluster, leader_that_does_not_control(cluster), partitions)
    controller_failover_ms = _failover_ms(cluster, cluster.controller(), partitions)
    return ManyPartitions(create_s, start_s, memory_mb, failover_ms, controller_failover_ms)


def cluster_memory_mb(cluster: BrokerCluster) -> float:
    """Of all nodes, without mapped files."""
    return sum(memory(broker.pid).private for broker in cluster.brokers.values()) / MB


def _failover_ms(cluster: BrokerCluster, victim: ClusterBroker, partitions: int) -> float:
    others = ",".join(broker.bootstrap_servers for broker in cluster.brokers.values() if broker is not victim)
    admin = AdminClient({"bootstrap.servers": others, **QUIET})
    _wait_balanced(cluster, partitions)
    victim.kill9()
    begin = time.monotonic()
    while victim.id in (leaders := _leaders(admin)) or -1 in leaders or len(leaders) < partitions:
        if time.monotonic() - begin > READY_TIMEOUT_S:
            raise TimeoutError(
                f"partitions without a leader {READY_TIMEOUT_S:g} s after {victim.id} was killed"
            )
        time.sleep(LOOK_S)
    took_ms = (time.monotonic() - begin) * 1000
    victim.launch()
    victim.wait_ready(READY_TIMEOUT_S)
    _wait_in_sync(cluster.bootstrap_servers, partitions)
    return took_ms


def _wait_balanced(cluster: BrokerCluster, partitions: int) -> None:
    """Whoever was away leads again what it is to lead, so that each node has its share to lose."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, **QUIET})
    deadline = time.monotonic() + READY_TIMEOUT_S
    while True:
        admin.elect_leaders(ElectionType.PREFERRED, None).result(READY_TIMEOUT_S)
        leaders = Counter(_leaders(admin))
        if min(leaders[node_id] for node_id in cluster.brokers) > partitions // (2 * len(cluster.brokers)):
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"leaders are not balanced: {dict(leaders)}")
        time.sleep(LOOK_S)


def _leaders(admin: AdminClient) -> list[int]:
    try:
        found = admin.list_topics(timeout=READY_TIMEOUT_S).topics
    except KafkaException:
        return []
    many = (topic for name, topic in found.items() if name.startswith("many-"))
    return [partition.leader for topic in many for partition in topic.partitions.values()]


def _wait_in_sync(servers: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers, **QUIET})
    deadline = time.monotonic() + READY_TIMEOUT_S
    while True:
        looked = time.monotonic()
        try:
            found = admin.list_topics(timeout=READY_TIMEOUT_S).topics
        except KafkaException:
            found = {}
        many = [
            partition
            for name, topic in found.items()
            if name.startswith("many-")
            for partition in topic.partitions.values()
        ]
        behind = partitions - sum(len(each.isrs) == REPLICAS for each in many)
        if not behind:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"{behind} partitions lack replicas in sync after {READY_TIMEOUT_S:g} s")
        # To look at ten thousand takes longer than the pause, of cores that the nodes need.
        time.sleep(max(LOOK_S, time.monotonic() - looked))
