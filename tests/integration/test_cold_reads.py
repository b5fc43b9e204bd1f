"""Reading what is no longer in memory, from a broker on real files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import BrokerProcess

# Many files, each of them cold: of a large one the kernel reads on by itself after the first page.
PARTITIONS = 40
RECORD_BYTES = 200_000


def major_faults(pid: int) -> int:
    """How often the thread of the event loop had to wait for a page from the disk."""
    fields = Path(f"/proc/{pid}/task/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[9])


def drop_from_memory(directory: str) -> None:
    os.sync()
    for path in Path(directory).rglob("*"):
        if path.suffix in (".log", ".index", ".timeindex"):
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts page faults, as Linux shows them")
def test_the_event_loop_does_not_wait_for_the_disk() -> None:
    with BrokerProcess() as broker:
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        admin = AdminClient(servers)
        admin.create_topics([NewTopic("cold", PARTITIONS, 1)])["cold"].result(20)
        producer = Producer(servers)
        value = os.urandom(RECORD_BYTES)
        for partition in range(PARTITIONS):
            producer.produce("cold", value, partition=partition)
        assert producer.flush(30) == 0
        drop_from_memory(broker.data_dir)
        before = major_faults(broker.pid)
        consumer = Consumer({**servers, "group.id": "g", "enable.auto.commit": False})
        consumer.assign([TopicPartition("cold", partition, 0) for partition in range(PARTITIONS)])
        read: list[int | None] = []
        while len(read) < PARTITIONS:
            messages = consumer.consume(PARTITIONS, timeout=20)
            assert messages, f"{len(read)} of {PARTITIONS} records came"
            read += [message.partition() for message in messages]
            assert all(message.error() is None and message.value() == value for message in messages)
        consumer.close()
        assert sorted(read) == list(range(PARTITIONS))
        # Linux counts one per file where it begins to read ahead, for which nobody waits.
        assert major_faults(broker.pid) - before < 1.5 * PARTITIONS
