"""kill -9 under full load, twenty times: what was acknowledged is there, in order, once, and intact."""

from __future__ import annotations

import itertools
import random
import statistics
import threading
import time
from collections import defaultdict

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import BrokerProcess

KILLS = 20
PARTITIONS = 3
TOPIC = "load"
FILLER = bytes(200)
LOAD_SECONDS = (0.2, 0.6)
UNACKNOWLEDGED_MAX = 20_000
# Far below the size of the load, so that kills also meet segments in the middle of a roll.
SEGMENT_BYTES = 4 * 1024 * 1024

RECONNECT_FAST = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 50, "retry.backoff.ms": 10}
# Values say who wrote them and how many that one had written to the partition before.
Value = tuple[str, int]


def encoded(writer: str, number: int) -> bytes:
    return b"%s %d " % (writer.encode(), number) + FILLER


def decoded(value: bytes) -> Value:
    writer, number, filler = value.split(b" ", 2)
    assert filler == FILLER
    return writer.decode(), int(number)


class Load(threading.Thread):
    """One producer at full speed, round robin over the partitions, that remembers what was acknowledged."""

    def __init__(self, name: str, bootstrap_servers: str, **settings: object) -> None:
        super().__init__(name=name)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "linger.ms": 1,
                "queue.buffering.max.messages": UNACKNOWLEDGED_MAX,
                "log_level": 0,
                **RECONNECT_FAST,
                **settings,
            }
        )
        self._asked_to_stop = threading.Event()
        self.acknowledged: dict[int, list[tuple[int, int]]] = defaultdict(list)
        """By partition: offset and number."""
        self.sent = [0] * PARTITIONS
        self.failed = 0
        self.fatal: list[KafkaError] = []

    def run(self) -> None:
        while not self._asked_to_stop.is_set():
            for partition in range(PARTITIONS):
                number = self.sent[partition]
                try:
                    self._producer.produce(
                        TOPIC, encoded(self.name, number), partition=partition, on_delivery=self._delivered
                    )
                    self.sent[partition] += 1
                except BufferError:
                    self._producer.poll(0.01)
            self._producer.poll(0)
        left = self._producer.flush(60)
        assert not left

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            number = decoded(message.value())[1]
            self.acknowledged[message.partition()].append((message.offset(), number))
        else:
            self.failed += 1
            if error.fatal():
                self.fatal.append(error)

    def finish(self) -> None:
        self._asked_to_stop.set()
        self.join()


class Reader(threading.Thread):
    """Follows all partitions through the kills; what it reads must be what stands there in the end."""

    def __init__(self, bootstrap_servers: str) -> None:
        super().__init__(name="reader")
        self._bootstrap_servers = bootstrap_servers
        self._until: list[int] | None = None
        self.values: dict[int, list[Value]] = {partition: [] for partition in range(PARTITIONS)}
        self.problems: list[str] = []

    def run(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap_servers,
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
                "log_level": 0,
                **RECONNECT_FAST,
            }
        )
        consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
        while not self._is_done() and not self.problems:
            for message in consumer.consume(10_000, timeout=0.1):
                self._take(message)
        consumer.close()

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            if error.code() not in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
                self.problems.append(str(error))
            return
        values = self.values[message.partition()]
        if message.offset() != len(values):
            self.problems.append(
                f"offset {message.offset()} of {message.partition()} after {len(values) - 1}"
            )
            return
        values.append(decoded(message.value()))

    def _is_done(self) -> bool:
        until = self._until
        return until is not None and all(len(self.values[p]) >= end for p, end in enumerate(until))

    def finish(self, end_offsets: list[int]) -> None:
        self._until = end_offsets
        self.join(60)
        assert not self.is_alive(), (
            f"read only up to {[len(v) for v in self.values.values()]} of {end_offsets}"
        )


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_kill_nine_under_full_load(capsys: pytest.CaptureFixture[str]) -> None:
    dice = random.Random(9)
    recoveries = []
    with BrokerProcess() as broker:
        servers = broker.bootstrap_servers
        create_topics(servers, TOPIC, partitions=PARTITIONS, **{"segment.bytes": str(SEGMENT_BYTES)})
        loads = [
            # Retries until acknowledged; the broker drops what it has already, also after a restart.
            Load("once", servers, **{"acks": "all", "enable.idempotence": True}),
            # Never sends anything twice, so that here, too, everything is there at most once, in order.
            Load("leader", servers, **{"acks": 1, "message.send.max.retries": 0}),
            Load("all", servers, **{"acks": "all", "message.send.max.retries": 0}),
        ]
        reader = Reader(servers)
        for thread in (*loads, reader):
            thread.start()
        try:
            for number in range(KILLS):
                time.sleep(dice.uniform(*LOAD_SECONDS))
                broker.restart()
                recoveries.append(broker.seconds_to_ready)
                create_topics(servers, f"after-kill-{number}")
        finally:
            for load in loads:
                load.finish()
        reader.finish(end_offsets(servers))
        topics = set(AdminClient({"bootstrap.servers": servers}).list_topics(timeout=20).topics)
    acknowledged = sum(len(records) for load in loads for records in load.acknowledged.values())
    with capsys.disabled():
        print(
            f"\n{KILLS} kills, {acknowledged} records acknowledged, "
            f"{sum(load.failed for load in loads)} not; "
            f"ready again after {statistics.median(recoveries):.3f} s (median) to {max(recoveries):.3f} s"
        )
    assert {f"after-kill-{number}" for number in range(KILLS)} <= topics
    assert not reader.problems
    for load in loads:
        check(load, reader.values)


def check(load: Load, values: dict[int, list[Value]]) -> None:
    assert not load.fatal
    for partition in range(PARTITIONS):
        acknowledged = load.acknowledged[partition]
        assert len(acknowledged) > KILLS, "this was no load"
        stored = values[partition]
        lost = [number for offset, number in acknowledged if stored[offset] != (load.name, number)]
        assert not lost, f"{load.name}: {len(lost)} of {len(acknowledged)} are not where they were"
        numbers = [number for writer, number in stored if writer == load.name]
        in_order = all(first < second for first, second in itertools.pairwise(numbers))
        assert in_order, f"{load.name}: repeated or out of order"
        if load.name == "once":
            assert numbers == list(range(load.sent[partition])), "an idempotent producer has lost something"


def create_topics(bootstrap_servers: str, *names: str, partitions: int = 1, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0, **RECONNECT_FAST})
    for future in admin.create_topics(
        [NewTopic(name, partitions, 1, config=config) for name in names]
    ).values():
        future.result(20)


def end_offsets(bootstrap_servers: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "unused"})
    try:
        return [
            consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=20)[1]
            for partition in range(PARTITIONS)
        ]
    finally:
        consumer.close()
