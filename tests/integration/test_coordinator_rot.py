"""One flipped bit in a coordinator's topic costs the batch it is in: not the broker, not the other shards."""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import ottla.testing
from ottla.testing import BrokerProcess

TOPIC = "orders"
GROUPS = 12
SHARDS = 2
LENGTH_AT = 8
RECORDS_AT = 61
SETTINGS = {
    "offsets.topic.num.partitions": SHARDS,
    # Behind the last index entry a starting broker cuts off what is no batch.
    "log.index.interval.bytes": 1,
}


@dataclass(frozen=True, slots=True)
class Damage:
    name: str
    at: int
    """Byte within the batch."""


DAMAGES = (
    Damage("value", RECORDS_AT + 20),
    Damage("record count", RECORDS_AT - 1),
    Damage("magic", 16),
    Damage("length", LENGTH_AT + 3),
    Damage("large length", LENGTH_AT + 1),
)


def batches(segment: Path) -> list[tuple[int, int]]:
    """(position, base offset) of each."""
    content, at, found = segment.read_bytes(), 0, []
    while at < len(content):
        found.append((at, struct.unpack_from(">q", content, at)[0]))
        at += 12 + struct.unpack_from(">i", content, at + LENGTH_AT)[0]
    return found


def flip(segment: Path, position: int) -> None:
    content = bytearray(segment.read_bytes())
    content[position] ^= 0x10
    segment.write_bytes(content)


def newest(data_dir: str, partition: str) -> Path:
    return max(Path(data_dir, partition).glob("*.log"))


def committed(bootstrap_servers: str, group: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group})
    try:
        return consumer.committed([TopicPartition(TOPIC, 0)], timeout=10)[0].offset
    finally:
        consumer.close()


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name)
def test_in_the_offsets_topic(damage: Damage, tmp_path: Path) -> None:
    data_dir = str(tmp_path / "data")
    with BrokerProcess(SETTINGS, data_dir) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(20)
        for offset in (10, 20):
            for number in range(GROUPS):
                wanted = ConsumerGroupTopicPartitions(f"g{number}", [TopicPartition(TOPIC, 0, offset)])
                for future in admin.alter_consumer_group_offsets([wanted]).values():
                    future.result(10)
        assert broker.stop() == 0
        segment = newest(data_dir, "__consumer_offsets-0")
        # What comes behind it must be found again.
        position, offset = batches(segment)[-3]
        flip(segment, position + damage.at)

        broker.start()
        offsets = [committed(broker.bootstrap_servers, f"g{number}") for number in range(GROUPS)]
        assert sorted(set(offsets)) == [10, 20]
        assert offsets.count(10) == 1, "of one group an earlier commit counts, the others are whole"
        (line,) = [line for line in broker.log.splitlines() if "damaged" in line]
        assert f"__consumer_offsets-0: offsets {offset} to {offset} are damaged" in line
        assert "--reset-offsets" in line
        # Groups of the shard go on.
        wanted = ConsumerGroupTopicPartitions(f"g{offsets.index(10)}", [TopicPartition(TOPIC, 0, 30)])
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        for future in admin.alter_consumer_group_offsets([wanted]).values():
            future.result(10)
        assert broker.stop() == 0


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name)
def test_in_the_transaction_topic(damage: Damage, tmp_path: Path) -> None:
    data_dir = str(tmp_path / "data")
    with BrokerProcess(SETTINGS, data_dir) as broker:
        for name in ("first", "second"):
            transact(broker.bootstrap_servers, name)
        assert broker.stop() == 0
        segment = newest(data_dir, "__transaction_state-0")
        flip(segment, batches(segment)[-3][0] + damage.at)
        broker.start()
        for name in ("first", "second", "third"):
            transact(broker.bootstrap_servers, name)
        assert "__transaction_state-0: offsets" in broker.log
        assert broker.stop() == 0


def transact(bootstrap_servers: str, transactional_id: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": transactional_id})
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce("results", b"x")
    producer.commit_transaction(10)


def test_a_shard_that_is_all_garbage_is_empty(tmp_path: Path) -> None:
    data_dir = str(tmp_path / "data")
    with ottla.testing.broker(data_dir=data_dir) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(20)
        wanted = ConsumerGroupTopicPartitions("g", [TopicPartition(TOPIC, 0, 10)])
        for future in admin.alter_consumer_group_offsets([wanted]).values():
            future.result(10)
    segment = newest(data_dir, "__consumer_offsets-0")
    segment.write_bytes(bytes(byte ^ 0xA5 for byte in segment.read_bytes()))
    with ottla.testing.broker(data_dir=data_dir) as broker:
        deadline = time.monotonic() + 10
        while committed(broker.bootstrap_servers, "g") != -1001:
            assert time.monotonic() < deadline
