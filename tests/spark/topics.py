"""Topics for Spark tests, filled with a C client so that the source is tested on foreign batches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

TIMEOUT_S = 30


class Cluster:
    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.admin = AdminClient({"bootstrap.servers": bootstrap_servers})

    def create(self, topic: str, partitions: int = 1, **config: str) -> None:
        # Some records are old on purpose; retention would delete them in the middle of a test.
        settings = {"retention.ms": "-1"} | {key.replace("_", "."): config[key] for key in config}
        new = NewTopic(topic, partitions, 1, config=settings)
        self.admin.create_topics([new])[topic].result(TIMEOUT_S)

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(TIMEOUT_S)

    def grow(self, topic: str, partitions: int) -> None:
        self.admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(TIMEOUT_S)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        asked = TopicPartition(topic, partition, before)
        for done in self.admin.delete_records([asked]).values():
            done.result(TIMEOUT_S)

    def produce(
        self,
        topic: str,
        values: Iterable[bytes | None],
        partition: int = 0,
        *,
        key: bytes | None = None,
        headers: Any = None,
        timestamp_ms: int = 1_700_000_000_000,
        **settings: str,
    ) -> None:
        """Timestamps rise by one per record."""
        config = {name.replace("_", "."): value for name, value in settings.items()}
        producer = Producer({"bootstrap.servers": self.bootstrap_servers, "linger.ms": 5, **config})
        for n, value in enumerate(values):
            stamp = timestamp_ms + n
            producer.produce(topic, value, key, partition, timestamp=stamp, headers=headers or [])
        assert producer.flush(TIMEOUT_S) == 0
