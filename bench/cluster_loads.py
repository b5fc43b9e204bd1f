"""What a cluster is put under while all its nodes are well: batches as fast as it takes them, a steady rate.

As in `replay`, requests are encoded before the clock starts, and go over raw sockets, here to the leader of
each partition. How far followers lag is seen from outside, as the size of their files beside the leader's.
"""

from __future__ import annotations

import multiprocessing
import selectors
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic

from bench import encoding
from bench.admin import BrokerRefused
from bench.connection import ANSWER_TIMEOUT_S, Connection
from bench.latency import NS, percentile
from bench.process import cpu_seconds
from bench.replay import GB, MB, RECORDS_PER_BATCH, WINDOW
from ottla.testing.cluster import BrokerCluster

PARTITIONS = 6
REPLICAS = 3
IN_SYNC_TIMEOUT_S = 60.0
LAG_LOOK_S = 0.05
LATENCY_RECORD_BYTES = 100
LEAD_S = 0.2
QUIET = {"log_level": 0}


class Throughput(NamedTuple):
    mb_per_s: float
    cpu_s_per_gb: float
    lag_mb: float
    """The median of what the last follower of a partition lacked."""
    lag_mb_max: float


@contextmanager
def throw_away_topic(cluster: BrokerCluster, topic: str, partitions: int = PARTITIONS) -> Iterator[str]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, **QUIET})
    admin.create_topics([NewTopic(topic, partitions, REPLICAS)])[topic].result(IN_SYNC_TIMEOUT_S)
    for partition in range(partitions):
        cluster.wait_in_sync(topic, REPLICAS, partition, IN_SYNC_TIMEOUT_S)
    try:
        yield topic
    finally:
        admin.delete_topics([topic])[topic].result(IN_SYNC_TIMEOUT_S)


def leader_ports(cluster: BrokerCluster, topic: str, partitions: int = PARTITIONS) -> list[int]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, **QUIET})
    found = admin.list_topics(topic, IN_SYNC_TIMEOUT_S).topics[topic].partitions
    return [cluster[found[partition].leader].port for partition in range(partitions)]


def cluster_cpu_seconds(cluster: BrokerCluster) -> float:
    return sum(cpu_seconds(broker.pid) for broker in cluster.brokers.values())


def produce(cluster: BrokerCluster, topic: str, record_bytes: int, total_bytes: int) -> Throughput:
    """Batches of 1,000 records to all partitions, several in flight to each."""
    batch = encoding.record_batch([bytes(record_bytes)] * RECORDS_PER_BATCH, int(time.time() * 1000))
    frames = [encoding.produce_frame(topic, at, batch, encoding.ACKS_ALL) for at in range(PARTITIONS)]
    ports = leader_ports(cluster, topic)
    each = max(total_bytes // (record_bytes * RECORDS_PER_BATCH * PARTITIONS), WINDOW)
    sent_bytes = each * PARTITIONS * RECORDS_PER_BATCH * record_bytes
    with _FollowerLag(cluster, topic) as lag:
        cpu, begin = cluster_cpu_seconds(cluster), time.monotonic()
        _send(topic, ports, frames, each)
        seconds = time.monotonic() - begin
        cpu = cluster_cpu_seconds(cluster) - cpu
    return Throughput(sent_bytes / MB / seconds, cpu / (sent_bytes / GB), lag.median_mb, lag.max_mb)


def _send(topic: str, ports: Sequence[int], frames: Sequence[bytes], each: int) -> None:
    _, error_at = encoding.produce_answer_layout(topic)
    with selectors.DefaultSelector() as selector:
        left: dict[int, int] = {}
        unanswered: dict[int, int] = {}
        for partition, port in enumerate(ports):
            connection = Connection(port)
            selector.register(connection.socket, selectors.EVENT_READ, (partition, connection))
            for _ in range(WINDOW):
                connection.send(frames[partition])
            left[partition], unanswered[partition] = each - WINDOW, WINDOW
        while selector.get_map():
            ready = selector.select(ANSWER_TIMEOUT_S)
            if not ready:
                raise TimeoutError(f"no request for {topic} was answered for {ANSWER_TIMEOUT_S} s")
            for key, _ in ready:
                partition, connection = key.data
                while True:
                    _check(topic, connection.receive(), error_at - 4)
                    if left[partition]:
                        left[partition] -= 1
                        connection.send(frames[partition])
                    else:
                        unanswered[partition] -= 1
                    if not connection.has_answer:
                        break
                if not unanswered[partition]:
                    selector.unregister(connection.socket)
                    connection.close()


def _check(topic: str, answer: memoryview, error_at: int) -> None:
    (error,) = struct.unpack_from(">h", answer, error_at)
    if error:
        raise BrokerRefused(f"a produce request for {topic} failed with error code {error}")


class _FollowerLag:
    """Looked at several times a second, while the `with` lasts."""

    def __init__(self, cluster: BrokerCluster, topic: str) -> None:
        self._directories = [
            [Path(broker.data_dir, f"{topic}-{partition}") for broker in cluster.brokers.values()]
            for partition in range(PARTITIONS)
        ]
        self._found: list[int] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> _FollowerLag:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(LAG_LOOK_S):
            for replicas in self._directories:
                sizes = [sum(path.stat().st_size for path in each.glob("*.log")) for each in replicas]
                self._found.append(max(sizes) - min(sizes))

    @property
    def median_mb(self) -> float:
        return sorted(self._found)[len(self._found) // 2] / MB if self._found else 0.0

    @property
    def max_mb(self) -> float:
        return max(self._found, default=0) / MB


class Latency(NamedTuple):
    """Milliseconds from when a record was due to its acknowledgement."""

    p50: float
    p99: float


def acknowledgement(cluster: BrokerCluster, topic: str, rate: int, seconds: float, skip_s: float) -> Latency:
    """One record per request at a steady rate, to one partition, whatever was answered of those before."""
    port = leader_ports(cluster, topic)[0]
    forking = multiprocessing.get_context("fork")
    mine, theirs = forking.Pipe(duplex=False)
    sender = forking.Process(target=_send_at_rate, args=(port, topic, rate, seconds + skip_s, theirs))
    sender.start()
    theirs.close()
    try:
        waits_ns: list[int] = mine.recv()
    except EOFError:
        raise ConnectionError(f"writing {rate} records/s to {topic} broke off") from None
    finally:
        sender.join()
    counted = sorted(waits_ns[int(rate * skip_s) :])
    return Latency(percentile(counted, 0.5) / 1e6, percentile(counted, 0.99) / 1e6)


def _send_at_rate(port: int, topic: str, rate: int, seconds: float, results: Pipe) -> None:
    batch = encoding.record_batch([bytes(LATENCY_RECORD_BYTES)], int(time.time() * 1000))
    frame = encoding.produce_frame(topic, 0, batch, encoding.ACKS_ALL)
    _, error_at = encoding.produce_answer_layout(topic)
    connection = Connection(port)
    total = int(rate * seconds)
    begin_ns = time.monotonic_ns() + int(LEAD_S * NS)
    waits_ns: list[int] = []

    def receive() -> None:
        for number in range(total):
            _check(topic, connection.receive(), error_at - 4)
            waits_ns.append(time.monotonic_ns() - (begin_ns + number * NS // rate))

    receiving = threading.Thread(target=receive, daemon=True)
    receiving.start()
    for number in range(total):
        time.sleep(max(begin_ns + number * NS // rate - time.monotonic_ns(), 0) / NS)
        connection.send(frame)
    receiving.join(ANSWER_TIMEOUT_S)
    if len(waits_ns) == total:
        results.send(waits_ns)
    results.close()
