"""From Apache Kafka to Ottla and back, node by node, on the same directories, while producers write."""

from __future__ import annotations

import threading

import pytest
from bench.kafka_peer import KafkaDistribution
from confluent_kafka import Consumer, Producer, TopicPartition
from mixed_cluster import (
    QUIET,
    WAIT_S,
    create,
    key_on,
    mixed_cluster,
    produce,
    read,
    wait_same_bytes,
    wait_until,
)

from ottla.client.cluster import GROUP

pytestmark = [pytest.mark.maven, pytest.mark.soak, pytest.mark.timeout(900)]

NODES = (1, 2, 3)


class Writer(threading.Thread):
    """Numbered records to one partition, one after the other, until told to stop."""

    def __init__(self, servers: str, topic: str, partition: int) -> None:
        super().__init__(daemon=True)
        self._topic = topic
        self._partition = partition
        self._stopping = threading.Event()
        settings = {"acks": "all", "enable.idempotence": True, "message.timeout.ms": int(WAIT_S * 2000)}
        self._producer = Producer({"bootstrap.servers": servers, **settings, **QUIET})
        self.acknowledged: list[str] = []
        self.failure: object = None

    def run(self) -> None:
        number = 0
        while not self._stopping.is_set() and self.failure is None:
            self._producer.produce(
                self._topic, str(number), partition=self._partition, on_delivery=self._delivered
            )
            self._producer.flush(WAIT_S * 2)
            number += 1
            self._stopping.wait(0.01)

    def _delivered(self, error: object, message: object) -> None:
        if error is None:
            self.acknowledged.append(message.value().decode())  # type: ignore[attr-defined]
        else:
            self.failure = error

    def stop(self) -> None:
        self._stopping.set()
        self.join(WAIT_S * 2)


def test_a_cluster_moves_to_ottla_and_back_node_by_node(distribution: KafkaDistribution) -> None:
    with mixed_cluster(distribution, NODES) as cluster:
        servers = cluster.bootstrap_servers
        create(servers, "moving")
        create(servers, "quiet")
        produce(servers, "quiet", [str(number) for number in range(300)])
        group = key_on(cluster, GROUP, 1, "moving")
        committed = Consumer({"bootstrap.servers": servers, "group.id": group, **QUIET})
        committed.commit(offsets=[TopicPartition("quiet", 0, 42)], asynchronous=False)
        writers = [Writer(servers, "moving", partition) for partition in range(3)]
        for writer in writers:
            writer.start()
        for _ in ("to Ottla", "back"):
            for node_id in NODES:
                cluster[node_id].stop(WAIT_S)
                cluster.exchange(node_id).start()
                for topic in ("moving", "quiet"):
                    for partition in range(3):
                        cluster.wait_in_sync(topic, 3, partition, WAIT_S)
                seen = [len(writer.acknowledged) for writer in writers]
                wait_until(
                    lambda seen=seen: all(  # type: ignore[misc]
                        len(writer.acknowledged) > before + 5
                        for writer, before in zip(writers, seen, strict=True)
                    ),
                    f"written to with node {node_id} exchanged",
                )
                (found,) = committed.committed([TopicPartition("quiet", 0)], WAIT_S)
                assert found.offset == 42
        for writer in writers:
            writer.stop()
            assert writer.failure is None
        committed.close()
        assert all(cluster.is_kafka(node_id) for node_id in NODES)
        wanted = [writer.acknowledged for writer in writers]
        assert read(servers, "moving", sum(map(len, wanted))) == wanted
        assert read(servers, "quiet", 300) == [[str(n) for n in range(300)][at::3] for at in range(3)]
        wait_same_bytes(cluster, "moving")
        wait_same_bytes(cluster, "quiet")
