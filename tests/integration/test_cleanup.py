"""Compaction in a real process, killed at random moments: nothing is lost and no segment is half swapped."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from ottla.testing import BrokerProcess

KILLS = 12
KEYS = 500
TOPIC = "table"
SETTINGS = {
    "log.cleaner.backoff.ms": "1",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.segment.delete.delay.ms": "0",
    # So slow that most kills meet a compaction under way.
    "log.cleaner.io.max.bytes.per.second": "3000000",
}


def create_topic(servers: str, policy: str = "compact", segment_bytes: int = 60_000) -> None:
    config = {"cleanup.policy": policy, "internal.segment.bytes": str(segment_bytes)}
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(TOPIC, 1, 1, config=config)])[TOPIC].result(20)


def set_topic(servers: str, name: str, value: str) -> None:
    resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC)
    resource.add_incremental_config(ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET))
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(20)


def new_producer(servers: str) -> Producer:
    # Batches must fit into the small segments.
    return Producer({"bootstrap.servers": servers, "batch.size": 5000, "log_level": 0})


def read_table(servers: str, offset: int = 0) -> dict[bytes, tuple[int, bytes | None]]:
    """The latest record of each key from an offset on."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "unused", "enable.auto.commit": False, "check.crcs": True}
    )
    try:
        _, high = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=20)
        consumer.assign([TopicPartition(TOPIC, 0, offset)])
        found: dict[bytes, tuple[int, bytes | None]] = {}
        last = offset - 1
        while consumer.position([TopicPartition(TOPIC, 0)])[0].offset < high:
            for message in consumer.consume(1000, timeout=1):
                assert message.error() is None
                key = message.key()
                at = message.offset()
                assert isinstance(key, bytes)
                assert at is not None
                assert at > last
                last = at
                found[key] = (at, message.value())
            if last + 1 >= high:
                break
        return found
    finally:
        consumer.close()


@pytest.mark.timeout(180)
def test_kills_during_compaction_lose_nothing() -> None:
    chance = random.Random(5)
    written: dict[bytes, tuple[int, bytes | None]] = {}
    with BrokerProcess(SETTINGS) as broker:
        create_topic(broker.bootstrap_servers)
        compactions = 0
        for _ in range(KILLS):
            producer = new_producer(broker.bootstrap_servers)

            def delivered(error: object, message: object) -> None:
                assert error is None
                written[message.key()] = (message.offset(), message.value())  # type: ignore[attr-defined]

            for _ in range(3000):
                key = b"key-%d" % chance.randrange(KEYS)
                producer.produce(TOPIC, b"%d" % chance.randrange(10**9) * 8, key, on_delivery=delivered)
            assert producer.flush(30) == 0
            time.sleep(chance.uniform(0, 0.4))
            broker.restart()
            compactions = broker.log.count("compacted table-0")
            assert read_table(broker.bootstrap_servers) == written
            names = os.listdir(f"{broker.data_dir}/{TOPIC}-0")
            logs = sorted(name for name in names if name.endswith(".log"))
            assert not [
                name for name in names if name.endswith(".swap") and name.removesuffix(".swap") in logs
            ]
            middle = chance.randrange(max(offset for offset, _ in written.values()))
            expected = {key: entry for key, entry in written.items() if entry[0] >= middle}
            assert read_table(broker.bootstrap_servers, middle) == expected
        assert compactions > 0
        assert "Traceback" not in broker.log
        assert "ERROR" not in broker.log.upper().replace("ERROR=NONE", "")


def workers_of(pid: int) -> list[int]:
    children = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/children") as file:
            children += [int(child) for child in file.read().split()]
    return children


@pytest.mark.timeout(180)
def test_kills_of_the_process_that_compacts_and_of_its_broker_lose_nothing() -> None:
    chance = random.Random(6)
    written: dict[bytes, bytes] = {}
    settings = {**SETTINGS, "log.cleaner.io.max.bytes.per.second": "20000000"}
    with BrokerProcess(settings) as broker:
        # Too large for a thread of the broker.
        create_topic(broker.bootstrap_servers, segment_bytes=1_000_000)
        for number in range(7):
            # Compacted in small steps, it would never be large.
            set_topic(broker.bootstrap_servers, "min.cleanable.dirty.ratio", "1.0")
            producer = new_producer(broker.bootstrap_servers)
            for _ in range(6000):
                key, value = b"key-%d" % chance.randrange(KEYS), chance.randbytes(1000)
                producer.produce(TOPIC, value, key)
                written[key] = value
            assert producer.flush(60) == 0
            set_topic(broker.bootstrap_servers, "min.cleanable.dirty.ratio", "0.01")
            if number == 6:
                break
            found = wait_worker(broker)
            time.sleep(chance.uniform(0, 0.2))
            if number % 2:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(found, signal.SIGKILL)
            else:
                broker.restart()
            table = read_table(broker.bootstrap_servers)
            assert {key: value for key, (_, value) in table.items()} == written
        # Left alone, compaction ends.
        deadline = time.monotonic() + 60
        while size_of(f"{broker.data_dir}/{TOPIC}-0") > 4_000_000:
            assert time.monotonic() < deadline, broker.log
            time.sleep(0.05)
        table = read_table(broker.bootstrap_servers)
        assert {key: value for key, (_, value) in table.items()} == written
        assert "Traceback" not in broker.log


def wait_worker(broker: BrokerProcess) -> int:
    """The process that compacts, once there is one."""
    deadline = time.monotonic() + 60
    while True:
        for child in workers_of(broker.pid):
            with contextlib.suppress(FileNotFoundError), open(f"/proc/{child}/cmdline", "rb") as file:
                if b"ottla.runtime.worker" in file.read():
                    return child
        assert time.monotonic() < deadline, broker.log
        time.sleep(0.001)


def test_a_topic_shrinks_once_it_is_told_to_compact() -> None:
    with BrokerProcess({**SETTINGS, "log.cleaner.io.max.bytes.per.second": "1e12"}) as broker:
        create_topic(broker.bootstrap_servers, policy="delete")
        producer = new_producer(broker.bootstrap_servers)
        for index in range(20_000):
            producer.produce(TOPIC, b"%d" % index * 10, b"key-%d" % (index % 100))
            producer.poll(0)
        producer.flush(30)
        directory = f"{broker.data_dir}/{TOPIC}-0"
        assert size_of(directory) > 800_000
        set_topic(broker.bootstrap_servers, "cleanup.policy", "compact")
        deadline = time.monotonic() + 30
        while size_of(directory) > 200_000:
            assert time.monotonic() < deadline, f"{size_of(directory)} bytes are left\n{broker.log}"
            time.sleep(0.05)
        table = read_table(broker.bootstrap_servers)
        assert {key: value for key, (_, value) in table.items()} == {
            b"key-%d" % (index % 100): b"%d" % index * 10 for index in range(19_900, 20_000)
        }


def size_of(directory: str) -> int:
    total = 0
    for name in os.listdir(directory):
        if name.endswith(".log"):
            try:
                total += os.path.getsize(f"{directory}/{name}")
            except FileNotFoundError:
                continue
    return total
