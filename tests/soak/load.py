"""The clients that mean well: producers of every kind, and a group that reads what they write.

Errors are part of the night: a record that fails is not in the ledger, and the client goes on.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from tests.soak.ledger import Ledger, Place

PARTITIONS = 3
PLAIN, IDEMPOTENT, COMMITTED, COMPACTED, TRIMMED = "plain", "idempotent", "committed", "compacted", "trimmed"
TOPICS = (PLAIN, IDEMPOTENT, COMMITTED, COMPACTED, TRIMMED)
KEYS = 50
RECORDS_PER_SECOND = 100
TRANSACTION_RECORDS = 20
CLIENT = {
    "socket.timeout.ms": 10_000,
    "message.timeout.ms": 20_000,
    "reconnect.backoff.max.ms": 500,
    "log_level": 0,
}


class Worker(threading.Thread):
    """Does one thing again and again until told to stop, whatever the broker answers."""

    def __init__(self, name: str, stopping: threading.Event) -> None:
        super().__init__(name=name, daemon=True)
        self.stopping = stopping
        self.failure: BaseException | None = None
        self.slowest_s = 0.0

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                self.step()
            self.finish()
        except BaseException as error:
            self.failure = error

    def step(self) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        """Before the thread ends."""


class SingleRecords(Worker):
    """One record after the other, some dozens in flight: plain, idempotent, or with keys to compact."""

    def __init__(
        self, servers: str, ledger: Ledger, stopping: threading.Event, topic: str, *, idempotent: bool
    ) -> None:
        super().__init__(f"{topic}-producer", stopping)
        self._settings: dict[str, Any] = {
            **CLIENT,
            "bootstrap.servers": servers,
            "enable.idempotence": idempotent,
            "acks": "all",
            "linger.ms": 5,
            # Repetitions of what was lost on the way may make duplicates, but keep the order.
            **({} if idempotent else {"max.in.flight": 1}),
        }
        self._ledger = ledger
        self._topic = topic
        self._numbers = itertools.count()
        self._producer = Producer(self._settings)

    def step(self) -> None:
        number = next(self._numbers)
        key = b"%d" % (number % KEYS)
        value = b"%s:%d" % (self._topic.encode(), number)
        begin = time.monotonic()
        try:
            self._producer.produce(
                self._topic, value, key, partition=number % PARTITIONS, on_delivery=self._told(number, begin)
            )
        except BufferError:
            self._producer.poll(1)
        except KafkaException as error:
            if not error.args[0].fatal():
                raise
            # Of an idempotent producer whose records could not be kept in order: it has to be made anew.
            self._producer.flush(30)
            self._producer = Producer(self._settings)
        self._producer.poll(1 / RECORDS_PER_SECOND)

    def _told(self, number: int, begin: float) -> Callable[[KafkaError | None, Message], None]:
        def told(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                return
            topic, partition, offset, key = self._topic, message.partition(), message.offset(), message.key()
            value = message.value()
            assert partition is not None and offset is not None and isinstance(value, bytes)
            self.slowest_s = max(self.slowest_s, time.monotonic() - begin)
            if topic == COMPACTED:
                assert isinstance(key, bytes)
                place = (topic, key)
                with self._ledger.lock:
                    self._ledger.latest[place] = max(self._ledger.latest.get(place, -1), number)
            else:
                self._ledger.acknowledge((topic, partition), offset, value)

        return told

    def finish(self) -> None:
        self._producer.flush(60)


class Transactions(Worker):
    """Some records each, half of them committed, a quarter aborted, a quarter left for the next to abort."""

    def __init__(self, servers: str, ledger: Ledger, stopping: threading.Event, seed: str) -> None:
        super().__init__("transactional-producer", stopping)
        self._settings = {
            **CLIENT,
            "bootstrap.servers": servers,
            "transactional.id": "night",
            "transaction.timeout.ms": 15_000,
            "message.timeout.ms": 15_000,
        }
        self._ledger = ledger
        self._random = random.Random(seed)
        self._numbers = itertools.count()
        self._producer: Producer | None = None

    def step(self) -> None:
        try:
            if self._producer is None:
                self._producer = Producer(self._settings)
                self._producer.init_transactions(30)
            self._one(self._producer)
        except (KafkaException, BufferError):
            # Whether it is in is not known. A new producer aborts it if it is not.
            self._producer = None
            self.stopping.wait(0.5)

    def _one(self, producer: Producer) -> None:
        begin = time.monotonic()
        producer.begin_transaction()
        delivered: list[tuple[Place, int, bytes]] = []

        def told(error: KafkaError | None, message: Message) -> None:
            if error is None:
                partition, offset, value = message.partition(), message.offset(), message.value()
                assert partition is not None and offset is not None and isinstance(value, bytes)
                delivered.append(((COMMITTED, partition), offset, value))

        values = [b"%s:%d" % (COMMITTED.encode(), next(self._numbers)) for _ in range(TRANSACTION_RECORDS)]
        for at, value in enumerate(values):
            producer.produce(COMMITTED, value, partition=at % PARTITIONS, on_delivery=told)
        fate = self._random.random()
        if fate < 0.25:
            producer.flush(5)
            self._producer = None
            return
        if fate < 0.5:
            producer.abort_transaction(30)
            with self._ledger.lock:
                self._ledger.aborted.update(values)
            return
        producer.commit_transaction(30)
        self.slowest_s = max(self.slowest_s, time.monotonic() - begin)
        assert len(delivered) == len(values), "committed, but not all records of it were acknowledged"
        for place, offset, value in delivered:
            self._ledger.acknowledge(place, offset, value)


class GroupMember(Worker):
    """Reads with the others of the group, in either protocol, and now and then leaves and comes back."""

    def __init__(
        self, servers: str, ledger: Ledger, stopping: threading.Event, number: int, protocol: str
    ) -> None:
        super().__init__(f"{protocol}-member-{number}", stopping)
        self._settings: dict[str, Any] = {
            "bootstrap.servers": servers,
            "group.id": f"night-{protocol}",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.offset.store": False,
            "auto.commit.interval.ms": 500,
            "isolation.level": "read_committed",
            "log_level": 0,
            **({"session.timeout.ms": 10_000} if protocol == "classic" else {}),
        }
        self._ledger = ledger
        self._notes = protocol == "classic"
        self._random = random.Random(self.name)
        self._consumer: Consumer | None = None
        self._leaves_at = 0.0

    def step(self) -> None:
        if self._consumer is None:
            self._consumer = Consumer(self._settings)
            self._consumer.subscribe([PLAIN, IDEMPOTENT, COMMITTED])
            self._leaves_at = time.monotonic() + self._random.uniform(20, 90)
        try:
            for message in self._consumer.consume(500, timeout=0.5):
                self._take(self._consumer, message)
        except KafkaException:
            self._leaves_at = 0.0
        if time.monotonic() > self._leaves_at:
            self._consumer.close()
            self._consumer = None

    def _take(self, consumer: Consumer, message: Message) -> None:
        if message.error() is not None:
            return
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None and partition is not None and offset is not None
        if self._notes:
            self._ledger.consume((topic, partition), offset)
        try:
            consumer.store_offsets(message=message)
        except KafkaException:
            return

    def finish(self) -> None:
        if self._consumer is not None:
            self._consumer.close()


def workers(
    servers: str, ledger: Ledger, producing: threading.Event, consuming: threading.Event
) -> list[Worker]:
    """The events stop producers and consumers."""
    return [
        SingleRecords(servers, ledger, producing, PLAIN, idempotent=False),
        SingleRecords(servers, ledger, producing, IDEMPOTENT, idempotent=True),
        SingleRecords(servers, ledger, producing, COMPACTED, idempotent=True),
        SingleRecords(servers, ledger, producing, TRIMMED, idempotent=True),
        Transactions(servers, ledger, producing, "transactions"),
        *(GroupMember(servers, ledger, consuming, number, "classic") for number in range(2)),
        *(GroupMember(servers, ledger, consuming, number, "consumer") for number in range(2)),
    ]
