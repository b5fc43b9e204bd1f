"""A flipped byte in a segment: found, reported with topic, partition and offset, and nothing else is lost."""

from __future__ import annotations

import logging
import os
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

import ottla.testing
from ottla.config import BrokerConfig, resolve_topic
from ottla.log import types
from ottla.log.names import CLEAN_SHUTDOWN_FILE, RECOVERY_POINTS_FILE
from ottla.log.recovery import open_log
from ottla.log.scrub import verify
from ottla.runtime import real_runtime

TOPIC = "rotting"
RECORDS = 3000
RECORDS_PER_BATCH = 10
DAMAGED = 1500
"""Base offset of the damaged batch: in the middle one of three segments."""
SEGMENT_BYTES = 1024 * 1024
BATCH_LENGTH_AT = 8
MAGIC_AT = 16
ATTRIBUTES_AT = 21
RECORDS_AT = 61


@dataclass(frozen=True, slots=True)
class Damage:
    name: str
    at: int
    """Byte within the batch."""


IN_A_VALUE = Damage("value", RECORDS_AT + 500)
DAMAGES = (
    IN_A_VALUE,
    Damage("record count", RECORDS_AT - 1),
    Damage("attributes", ATTRIBUTES_AT + 1),
    Damage("magic", MAGIC_AT),
    Damage("length", BATCH_LENGTH_AT + 1),
    Damage("base offset", 7),
)


def value(partition: int, offset: int) -> bytes:
    return b"partition %d, record %d " % (partition, offset) + bytes(1000)


@pytest.fixture
def data_dir(tmp_path: Path) -> str:
    """Of a broker that has stopped in good order: two partitions of three segments each."""
    directory = str(tmp_path / "data")
    with ottla.testing.broker(data_dir=directory) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        topic = NewTopic(TOPIC, 2, 1, config={"segment.bytes": str(SEGMENT_BYTES)})
        admin.create_topics([topic])[TOPIC].result(20)
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "batch.num.messages": RECORDS_PER_BATCH,
                "linger.ms": 1000,
                "enable.idempotence": True,
            }
        )
        for offset in range(RECORDS):
            for partition in range(2):
                producer.produce(TOPIC, value(partition, offset), partition=partition)
            if offset % RECORDS_PER_BATCH == RECORDS_PER_BATCH - 1:
                assert producer.flush(20) == 0
    segments = sorted(Path(directory, f"{TOPIC}-0").glob("*.log"))
    assert len(segments) == 3
    assert int(segments[1].stem) < DAMAGED < int(segments[2].stem)
    return directory


def flip_a_byte(data_dir: str, damage: Damage) -> None:
    segment = sorted(Path(data_dir, f"{TOPIC}-0").glob("*.log"))[1]
    content = bytearray(segment.read_bytes())
    at = 0
    while (base_offset := struct.unpack_from(">q", content, at)[0]) != DAMAGED:
        assert base_offset < DAMAGED
        at += 12 + struct.unpack_from(">i", content, at + BATCH_LENGTH_AT)[0]
    content[at + damage.at] ^= 0x10
    segment.write_bytes(content)


def read(bootstrap_servers: str, partition: int, offset: int, count: int) -> list[bytes]:
    """Values from an offset on, at most up to the first error a consumer meets.

    Not with confluent-kafka: librdkafka 2.16 aborts the process at a batch whose CRC is wrong.
    """
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap_servers, group_id=None, auto_offset_reset="none", check_crcs=True
    )
    at = TopicPartition(TOPIC, partition)
    consumer.assign([at])
    consumer.seek(at, offset)
    values: list[bytes] = []
    deadline = time.monotonic() + 5
    try:
        while len(values) < count and time.monotonic() < deadline:
            for record in consumer.poll(timeout_ms=500, max_records=count - len(values)).get(at, ()):
                assert record.offset == offset + len(values)
                values.append(record.value)
    except KafkaError:
        return values
    finally:
        consumer.close()
    return values


def expected(partition: int, begin: int, end: int) -> list[bytes]:
    return [value(partition, offset) for offset in range(begin, end)]


def assert_the_rest_is_readable(
    bootstrap_servers: str, *, first_after: int = DAMAGED + RECORDS_PER_BATCH
) -> None:
    assert read(bootstrap_servers, 1, 0, RECORDS) == expected(1, 0, RECORDS)
    assert read(bootstrap_servers, 0, 0, DAMAGED) == expected(0, 0, DAMAGED)
    assert read(bootstrap_servers, 0, first_after, RECORDS - first_after) == expected(0, first_after, RECORDS)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name)
def test_the_scrub_reports_it(damage: Damage, data_dir: str) -> None:
    flip_a_byte(data_dir, damage)
    found = []
    config = resolve_topic(BrokerConfig.from_properties({}), {"segment.bytes": str(SEGMENT_BYTES)})
    for index in range(2):
        at = types.TopicPartition(TOPIC, index)
        log = open_log(real_runtime(), f"{data_dir}/{at}", at, config, clean=True)
        found += [(batch.topic, batch.partition, batch.offset) for batch in verify(log)]
        log.close()
    assert found[0] == (TOPIC, 0, DAMAGED)
    assert len(found) == 1


@pytest.mark.parametrize("damage", DAMAGES[:3], ids=lambda damage: damage.name)
def test_after_a_clean_shutdown(damage: Damage, data_dir: str) -> None:
    flip_a_byte(data_dir, damage)
    with ottla.testing.broker(data_dir=data_dir) as broker:
        assert_the_rest_is_readable(broker.bootstrap_servers)
        # A consumer stumbles there and never gets the damaged batch.
        assert read(broker.bootstrap_servers, 0, 0, RECORDS) == expected(0, 0, DAMAGED)


@pytest.mark.parametrize("damage", DAMAGES[3:], ids=lambda damage: damage.name)
def test_a_header_that_cannot_be_one_costs_at_most_its_segment(damage: Damage, data_dir: str) -> None:
    """These fields are not in the CRC, so that clients cannot tell; a wrong length hides where to go on."""
    flip_a_byte(data_dir, damage)
    next_segment = int(sorted(Path(data_dir, f"{TOPIC}-0").glob("*.log"))[2].stem)
    with ottla.testing.broker(data_dir=data_dir) as broker:
        assert_the_rest_is_readable(broker.bootstrap_servers, first_after=next_segment)


def test_recovery_keeps_what_was_on_disk_before(data_dir: str, caplog: pytest.LogCaptureFixture) -> None:
    """The kill came after the sync: a bad batch below the recovery point has rotted, the rest is good."""
    flip_a_byte(data_dir, IN_A_VALUE)
    os.remove(f"{data_dir}/{CLEAN_SHUTDOWN_FILE}")
    set_recovery_point(data_dir, lambda end: end - 1)
    with caplog.at_level(logging.INFO), ottla.testing.broker(data_dir=data_dir) as broker:
        assert_the_rest_is_readable(broker.bootstrap_servers)


def test_recovery_reports_rot_in_what_it_scans(data_dir: str, caplog: pytest.LogCaptureFixture) -> None:
    flip_a_byte(data_dir, IN_A_VALUE)
    os.remove(f"{data_dir}/{CLEAN_SHUTDOWN_FILE}")
    set_recovery_point(data_dir, lambda end: DAMAGED + RECORDS_PER_BATCH)
    with caplog.at_level(logging.INFO), ottla.testing.broker(data_dir=data_dir) as broker:
        (line,) = [record.getMessage() for record in caplog.records if "CRC" in record.getMessage()]
        assert f"{TOPIC}-0" in line
        assert f"offset {DAMAGED} " in line
        assert_the_rest_is_readable(broker.bootstrap_servers)


def test_recovery_cuts_at_a_bad_batch_that_was_never_synced(
    data_dir: str, caplog: pytest.LogCaptureFixture
) -> None:
    flip_a_byte(data_dir, IN_A_VALUE)
    os.remove(f"{data_dir}/{CLEAN_SHUTDOWN_FILE}")
    os.remove(f"{data_dir}/{RECOVERY_POINTS_FILE}")
    with caplog.at_level(logging.INFO), ottla.testing.broker(data_dir=data_dir) as broker:
        assert f"cut off at offset {DAMAGED}" in caplog.text
        assert read(broker.bootstrap_servers, 1, 0, RECORDS) == expected(1, 0, RECORDS)
        assert read(broker.bootstrap_servers, 0, 0, DAMAGED) == expected(0, 0, DAMAGED)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce(TOPIC, b"goes on", partition=0)
        assert producer.flush(20) == 0
        assert read(broker.bootstrap_servers, 0, DAMAGED, 1) == [b"goes on"]


def set_recovery_point(data_dir: str, change: Callable[[int], int]) -> None:
    """The file has a version, a count, and a line `topic partition offset` each."""
    path = Path(data_dir, RECOVERY_POINTS_FILE)
    lines = path.read_text().splitlines()
    for number, line in enumerate(lines):
        if line.startswith(f"{TOPIC} 0 "):
            lines[number] = f"{TOPIC} 0 {change(int(line.split()[2]))}"
            break
    else:
        raise AssertionError(f"no recovery point of {TOPIC}-0 in {lines}")
    path.write_text("\n".join(lines) + "\n")
