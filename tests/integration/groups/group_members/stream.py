"""Records into a topic, all at once or without pause in the background, and which offsets they got."""

from __future__ import annotations

import threading
from collections import Counter

from confluent_kafka import KafkaError, Message, Producer

from group_members.crew import Partition

PACE_S = 0.005


class Stream:
    def __init__(self, bootstrap_servers: str, topic: str, partitions: int) -> None:
        self.topic = topic
        self.partitions = partitions
        self._sent = 0
        self._acknowledged: Counter[Partition] = Counter()
        self._failures: list[KafkaError] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "linger.ms": 5,
                "enable.idempotence": True,
                "log_level": 0,
            }
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def produce(self, count: int) -> set[tuple[Partition, int]]:
        """Evenly over the partitions. Returns all records that are in the topic through this stream."""
        for _ in range(count):
            self._produce_one()
        return self.finish()

    def start(self) -> Stream:
        self._thread.start()
        return self

    def stop(self) -> set[tuple[Partition, int]]:
        self._stopping.set()
        self._thread.join()
        return self.finish()

    def finish(self) -> set[tuple[Partition, int]]:
        assert self._producer.flush(30) == 0, "the broker has not acknowledged all records"
        assert not self._failures, self._failures[0]
        return {(where, offset) for where, count in self._acknowledged.items() for offset in range(count)}

    def _run(self) -> None:
        while not self._stopping.wait(PACE_S):
            self._produce_one()
            self._producer.poll(0)

    def _produce_one(self) -> None:
        self._producer.produce(
            self.topic, b"%d" % self._sent, partition=self._sent % self.partitions, on_delivery=self._note
        )
        self._sent += 1

    def _note(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failures.append(error)
        else:
            self._acknowledged[message.topic(), message.partition()] += 1
