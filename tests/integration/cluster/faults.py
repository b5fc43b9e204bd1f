"""Brokers are killed, paused and started again while producers write; what was acknowledged must be there."""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from ottla.testing import BrokerCluster, ClusterBroker

TOPIC = "faults"
PARTITIONS = 3
PAUSE_S = 4.0
"""Longer than the session of a broker."""
BETWEEN_S = 1.0
WAIT_S = 60.0


class Writer(threading.Thread):
    """Numbered records to one partition, idempotent, acknowledged by all in sync, a few at a time."""

    def __init__(self, servers: str, partition: int) -> None:
        super().__init__(name=f"writer-{partition}", daemon=True)
        self.partition = partition
        self.acknowledged: list[int] = []
        self.slowest_s = 0.0
        self.failure: Any = None
        self._stopping = threading.Event()
        self._number = 0
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 1,
                "message.timeout.ms": int(WAIT_S * 1000),
                "log_level": 0,
            }
        )

    def run(self) -> None:
        while not self._stopping.is_set() and self.failure is None:
            began = time.monotonic()
            for _ in range(5):
                self._producer.produce(
                    TOPIC, str(self._number), partition=self.partition, on_delivery=self._delivered
                )
                self._number += 1
            self._producer.flush(WAIT_S + 10)
            self.slowest_s = max(self.slowest_s, time.monotonic() - began)
            self._stopping.wait(0.005)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged.append(int(message.value()))
        else:
            self.failure = error

    def stop(self) -> None:
        self._stopping.set()
        self.join(WAIT_S + 20)


class Faults:
    """One after the other, with all brokers up again and in sync before the next."""

    def __init__(self, cluster: BrokerCluster, seed: str) -> None:
        self._cluster = cluster
        self._random = random.Random(seed)
        self.done: dict[str, int] = defaultdict(int)
        self.kinds: dict[str, Callable[[], ClusterBroker]] = {
            "kill_leader": self._leader,
            "kill_controller": cluster.controller,
            "kill_any": self._any,
            "pause_leader": self._leader,
            "pause_controller": cluster.controller,
            "stop_any": self._any,
        }

    def _leader(self) -> ClusterBroker:
        return self._cluster.leader(TOPIC, self._random.randrange(PARTITIONS))

    def _any(self) -> ClusterBroker:
        return self._random.choice(list(self._cluster.brokers.values()))

    def inject(self, kind: str | None = None) -> None:
        kind = kind or self._random.choice(sorted(self.kinds))
        broker = self.kinds[kind]()
        if kind.startswith("pause"):
            broker.pause()
            time.sleep(PAUSE_S)
            broker.resume()
        else:
            if kind.startswith("stop"):
                assert broker.stop(60) == 0
            else:
                broker.kill9()
            time.sleep(self._random.uniform(0, 3))
            broker.start()
        self.done[kind] += 1
        for partition in range(PARTITIONS):
            self._cluster.wait_in_sync(TOPIC, 3, partition, timeout_seconds=WAIT_S)
        time.sleep(BETWEEN_S)


def create_topic(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(30)


def run_faults(cluster: BrokerCluster, kinds: list[str | None], seed: str = "1") -> str:
    """What was seen, in a line. AssertionError for what must not be."""
    create_topic(cluster.bootstrap_servers)
    writers = [Writer(cluster.bootstrap_servers, partition) for partition in range(PARTITIONS)]
    faults = Faults(cluster, seed)
    for writer in writers:
        writer.start()
    try:
        for kind in kinds:
            faults.inject(kind)
            for writer in writers:
                assert writer.failure is None, f"{writer.name} after {kind}: {writer.failure}"
    finally:
        for writer in writers:
            writer.stop()
    for writer in writers:
        assert not writer.is_alive(), f"{writer.name} came to no end"
        assert writer.failure is None, f"{writer.name}: {writer.failure}"
        check(cluster.bootstrap_servers, writer)
    written = sum(len(writer.acknowledged) for writer in writers)
    slowest = statistics.median(writer.slowest_s for writer in writers)
    return f"{dict(faults.done)}: {written} records acknowledged, the slowest write took {slowest:.1f} s"


def check(servers: str, writer: Writer) -> None:
    """All that was acknowledged, in order, once."""
    place = TopicPartition(TOPIC, writer.partition)
    admin = AdminClient({"bootstrap.servers": servers})
    end = admin.list_offsets({place: OffsetSpec.latest()})[place].result(WAIT_S).offset
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "checker", "enable.auto.commit": False, "log_level": 0}
    )
    consumer.assign([TopicPartition(TOPIC, writer.partition, 0)])
    found: list[int] = []
    deadline = time.monotonic() + WAIT_S
    try:
        position = 0
        while position < end:
            assert time.monotonic() < deadline, f"read {position} of {end}"
            for message in consumer.consume(1000, 0.5):
                if message.error() is None:
                    value, offset = message.value(), message.offset()
                    assert value is not None and offset is not None
                    found.append(int(value))
                    position = offset + 1
    finally:
        consumer.close()
    lost = sorted(set(writer.acknowledged) - set(found))
    assert not lost, f"{len(lost)} acknowledged records of partition {writer.partition} are lost: {lost[:10]}"
    assert len(set(found)) == len(found), f"partition {writer.partition} has records twice"
    assert found == sorted(found), f"records of partition {writer.partition} are out of order"
