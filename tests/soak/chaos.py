"""Administration at night: topics come, go, change and grow, records and groups are deleted."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)
from tests.soak.ledger import Ledger
from tests.soak.load import IDEMPOTENT, PARTITIONS, PLAIN, TOPICS, TRIMMED, Worker

TOPICS_AT_ONCE_MAX = 30
PARTITIONS_MAX = 12
# The client gives up before its caller does: one that is let go while it waits ends the process.
REQUEST_S = 10
ANSWER_S = 30
# Nothing here makes records of the ledger go away.
SETTINGS = {
    "segment.bytes": ("1048576", "2097152", "16777216"),
    "flush.messages": ("1", "100", "9223372036854775807"),
    "index.interval.bytes": ("4096", "512"),
    "max.message.bytes": ("1048588", "2000000"),
    "message.timestamp.type": ("CreateTime",),
}


class Administration(Worker):
    """Refusals are answers. A request that is lost with its connection has none, which is only counted."""

    def __init__(self, servers: str, ledger: Ledger, stopping: threading.Event, seed: str) -> None:
        super().__init__("administration", stopping)
        self._servers = servers
        self._ledger = ledger
        self._random = random.Random(seed)
        self._admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        self._producer = Producer({"bootstrap.servers": servers, "message.timeout.ms": 5000, "log_level": 0})
        self._names = (f"passing-{number}" for number in itertools.count())
        self._passing: list[str] = []
        self._grown = dict.fromkeys(TOPICS, PARTITIONS)
        self.done: dict[str, int] = {}
        self.refused: dict[str, int] = {}
        self.unanswered: dict[str, int] = {}

    def step(self) -> None:
        actions: list[Callable[[], None]] = [
            self.create,
            self.create,
            self.write_and_delete,
            self.delete,
            self.alter,
            self.alter_broker,
            self.grow,
            self.delete_records,
            self.delete_group,
        ]
        action = self._random.choice(actions)
        try:
            action()
            self.done[action.__name__] = self.done.get(action.__name__, 0) + 1
        except KafkaException:
            self.refused[action.__name__] = self.refused.get(action.__name__, 0) + 1
        except TimeoutError:
            self.unanswered[action.__name__] = self.unanswered.get(action.__name__, 0) + 1
        self.stopping.wait(self._random.uniform(0, 0.3))

    def create(self) -> None:
        if len(self._passing) >= TOPICS_AT_ONCE_MAX:
            self.delete()
        name = next(self._names)
        config = {"cleanup.policy": self._random.choice(("delete", "compact", "compact,delete"))}
        self._done(
            self._admin.create_topics(
                [NewTopic(name, self._random.randint(1, 20), 1, config=config)], request_timeout=REQUEST_S
            )
        )
        self._passing.append(name)

    def write_and_delete(self) -> None:
        """A topic goes while records for it are on their way and retention looks at it."""
        if self._passing:
            name = self._random.choice(self._passing)
            for _ in range(200):
                self._producer.produce(name, bytes(1000), b"k")
            self._producer.poll(0)
            self._passing.remove(name)
            self._done(
                self._admin.delete_topics([name], operation_timeout=REQUEST_S, request_timeout=REQUEST_S)
            )
            self._producer.purge()
            self._producer.poll(0)

    def delete(self) -> None:
        if self._passing:
            name = self._passing.pop(self._random.randrange(len(self._passing)))
            self._done(
                self._admin.delete_topics([name], operation_timeout=REQUEST_S, request_timeout=REQUEST_S)
            )

    def alter(self) -> None:
        topic = self._random.choice([*TOPICS, *self._passing])
        name = self._random.choice(sorted(SETTINGS))
        self._set(ConfigResource.Type.TOPIC, topic, name, self._random.choice(SETTINGS[name]))

    def alter_broker(self) -> None:
        interval = str(self._random.choice((1000, 5000, 300_000)))
        self._set(ConfigResource.Type.BROKER, "1", "log.cleaner.backoff.ms", interval)

    def _set(self, kind: Any, resource: str, name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        changed = ConfigResource(kind, resource, incremental_configs=[entry])
        self._done(self._admin.incremental_alter_configs([changed], request_timeout=REQUEST_S))

    def grow(self) -> None:
        topic = self._random.choice((PLAIN, IDEMPOTENT))
        if self._grown[topic] < PARTITIONS_MAX:
            self._done(
                self._admin.create_partitions(
                    [NewPartitions(topic, self._grown[topic] + 1)], request_timeout=REQUEST_S
                )
            )
            self._grown[topic] += 1

    def delete_records(self) -> None:
        place = (TRIMMED, self._random.randrange(PARTITIONS))
        partition = TopicPartition(*place)
        latest = (
            self._admin.list_offsets({partition: OffsetSpec.latest()}, request_timeout=REQUEST_S)[partition]
            .result(ANSWER_S)
            .offset
        )
        before = self._random.randint(0, latest)
        # Noted first: the request may be carried out and its answer lost.
        with self._ledger.lock:
            self._ledger.deleted_before[place] = max(before, self._ledger.deleted_before[place])
        self._done(self._admin.delete_records([TopicPartition(*place, before)], request_timeout=REQUEST_S))

    def delete_group(self) -> None:
        """One that committed something and has no members."""
        group = f"passing-{self._random.randrange(5)}"
        offsets = ConsumerGroupTopicPartitions(group, [TopicPartition(PLAIN, 0, 1)])
        # A client of its own: one that knew the coordinator before the broker was restarted asks nobody.
        admin = AdminClient({"bootstrap.servers": self._servers, "log_level": 0})
        self._done(admin.alter_consumer_group_offsets([offsets], request_timeout=REQUEST_S))
        self._done(admin.delete_consumer_groups([group], request_timeout=REQUEST_S))

    def _done(self, futures: dict[Any, Any]) -> None:
        for future in futures.values():
            future.result(ANSWER_S)
