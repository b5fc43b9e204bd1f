"""Producers that send bombs, garbage and claims, beside one that does what it should."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from crc32c import crc32c
from kio.index import load_entity_module
from kio.static.constants import EntityType
from raw_client import RawConnection, api_versions, private_memory_bytes

from ottla.records.batch import HEADER, read_header
from ottla.records.records import Record, encode_batch
from ottla.testing import BrokerProcess

PRODUCE = 0
LIST_OFFSETS = 2
MAX_TIMESTAMP = -3
GZIP = 1
VERSION = 9
MIB = 1 << 20
# What a well-behaved client may have to wait for on a busy machine. On one that has nothing else to do it is
# answered in milliseconds; were bombs looked at on the event loop, it would wait for as long as all take.
WAIT_SECONDS_MAX = 3.0
# Two examinations in broker threads, each of a few megabytes, what waits, and room for the request itself.
MEMORY_BYTES_MAX = 160 * MIB


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def produce(connection: RawConnection, topic: str, batches: list[bytes]) -> Any:
    """The answers for partition 0, one for each entry of it that the request has."""
    module: Any = load_entity_module("produce", VERSION, EntityType.request)
    request = module.ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout=timedelta(seconds=30),
        topic_data=(
            module.TopicProduceData(
                name=topic,
                partition_data=tuple(
                    module.PartitionProduceData(index=0, records=records) for records in batches
                ),
            ),
        ),
    )
    return connection.call(PRODUCE, VERSION, request).responses[0].partition_responses


def with_header(batch: bytes, **changes: int) -> bytes:
    """With a CRC that is right."""
    header = read_header(batch)._replace(**changes)
    checked = HEADER.pack(*header)[21:] + batch[61:]
    return HEADER.pack(*header._replace(crc=crc32c(checked)))[:21] + checked


def garbage() -> bytes:
    batch = encode_batch([Record(b"k", b"v" * 100, now_ms())])
    return with_header(
        batch[:61] + b"\xde\xad\xbe\xef" * ((len(batch) - 61) // 4) + b"\0" * ((len(batch) - 61) % 4)
    )


def create(broker: BrokerProcess, *topics: NewTopic) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for future in admin.create_topics([*topics]).values():
        future.result(30)


class Neighbour:
    """Asks the broker something all the time, and remembers how long it waited at most."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._connection = RawConnection(broker.bootstrap_servers, timeout_s=120)
        self._ended = threading.Event()
        self.answers = 0
        self.waited_seconds_max = 0.0

    def run(self) -> None:
        while not self._ended.is_set():
            asked = time.monotonic()
            api_versions(self._connection)
            self.waited_seconds_max = max(self.waited_seconds_max, time.monotonic() - asked)
            self.answers += 1
            self._ended.wait(0.01)

    def end(self) -> None:
        self._ended.set()


@contextmanager
def neighbour(broker: BrokerProcess) -> Iterator[Neighbour]:
    beside = Neighbour(broker)
    thread = threading.Thread(target=beside.run)
    thread.start()
    try:
        yield beside
    finally:
        beside.end()
        thread.join()


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess({"log.cleaner.backoff.ms": "100"}) as running:
        create(
            running,
            NewTopic("plain", 1, 1),
            NewTopic("compacted", 1, 1, config={"cleanup.policy": "compact"}),
        )
        yield running


@pytest.mark.parametrize("codec", [1, 4])
def test_bombs_hold_up_nobody(broker: BrokerProcess, codec: int) -> None:
    # Each is within what a topic takes, and small records are what takes longest to look at.
    bomb = encode_batch([Record(b"", b"", now_ms())] * 400_000, codec=codec)
    bombs = [bomb * max(1, MIB // 2 // len(bomb))] * 8
    with neighbour(broker) as beside, RawConnection(broker.bootstrap_servers, timeout_s=120) as connection:
        rows = produce(connection, "compacted", bombs)
    assert len(rows) == len(bombs)
    assert beside.waited_seconds_max < WAIT_SECONDS_MAX
    assert beside.answers > 2
    assert private_memory_bytes(broker.pid) < MEMORY_BYTES_MAX


def test_claims_that_cannot_be_are_refused_and_burn_no_offsets(broker: BrokerProcess) -> None:
    with RawConnection(broker.bootstrap_servers) as connection:
        before = produce(connection, "plain", [encode_batch([Record(None, b"first", now_ms())])])[0]
        for codec in range(5):
            claim = with_header(
                encode_batch([Record(None, b"v", now_ms())]),
                attributes=codec,
                record_count=2_000_000_000,
                last_offset_delta=1_999_999_999,
            )
            (row,) = produce(connection, "plain", [claim])
            assert row.error_code.value == 87
            assert "2000000000 records" in row.error_message
            assert row.log_start_offset == 0
        after = produce(connection, "plain", [encode_batch([Record(None, b"second", now_ms())])])[0]
    assert after.base_offset == before.base_offset + 1


def test_every_bad_record_is_named(broker: BrokerProcess) -> None:
    create(
        broker,
        NewTopic(
            "strict", 1, 1, config={"cleanup.policy": "compact", "message.timestamp.before.max.ms": "60000"}
        ),
    )
    now = now_ms()
    keyless = [Record(None, b"", now), Record(b"k", b"", now), Record(None, b"", now)]
    with RawConnection(broker.bootstrap_servers) as connection:
        for codec in (0, 3):
            (row,) = produce(connection, "strict", [encode_batch(keyless, codec=codec)])
            assert row.error_code.value == 87
            assert [error.batch_index for error in row.record_errors] == [0, 2]
            assert "without key" in row.record_errors[0].batch_index_error_message
            assert "2 records of the batch were refused" in row.error_message
            assert (row.base_offset, row.log_start_offset) == (-1, 0)
            mixed = [*keyless, Record(b"k", b"", now - 120_000)]
            (row,) = produce(connection, "strict", [encode_batch(mixed, codec=codec)])
            assert row.error_code.value == 32
            assert [error.batch_index for error in row.record_errors] == [0, 2, 3]
            assert str(now - 120_000) in row.record_errors[2].batch_index_error_message


def test_garbage_is_refused_where_records_are_validated() -> None:
    settings = {
        "ottla.records.validate": "header",
        "listeners": "PLAINTEXT://127.0.0.1:0,TRUSTED://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,TRUSTED:PLAINTEXT",
        "listener.name.plaintext.ottla.records.validate": "records",
    }
    with BrokerProcess(settings) as broker:
        create(broker, NewTopic("orders", 1, 1))
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "compression.type": "zstd"})
        with RawConnection(broker.bootstrap_servers) as connection:
            for number in range(50):
                producer.produce("orders", b"%d" % number)
            producer.flush()
            (row,) = produce(connection, "orders", [garbage()])
            assert row.error_code.value == 87
        producer.produce("orders", b"last")
        assert producer.flush(30) == 0
        consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["orders"])
        values: list[bytes] = []
        deadline = time.monotonic() + 30
        while len(values) < 51 and time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                values.append(message.value())
        consumer.close()
        assert values == [*(b"%d" % number for number in range(50)), b"last"]


def test_looking_for_a_time_among_bombs_holds_up_nobody() -> None:
    """The wanted time is that of the last of many small records, and of zeros that compress very well."""
    count = 500_000
    start_ms = now_ms() - count
    bomb = encode_batch([Record(None, b"", start_ms + number) for number in range(count)], codec=GZIP)
    zeros = encode_batch([Record(None, bytes(150 * MIB), start_ms + count)], codec=GZIP)
    module: Any = load_entity_module("list_offsets", 7, EntityType.request)

    def found(connection: RawConnection, timestamp_ms: int) -> int:
        partition = module.ListOffsetsPartition(
            partition_index=0, current_leader_epoch=-1, timestamp=timestamp_ms
        )
        topic = module.ListOffsetsTopic(name="t", partitions=(partition,))
        request = module.ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=(topic,))
        answer = connection.call(LIST_OFFSETS, 7, request).topics[0].partitions[0]
        assert answer.error_code == 0
        return int(answer.offset)

    with BrokerProcess({"message.max.bytes": str(8 * MIB)}) as running:
        create(running, NewTopic("t", 1, 1))
        with RawConnection(running.bootstrap_servers, timeout_s=60) as attacker:
            for batch in (bomb, zeros):
                assert produce(attacker, "t", [batch])[0].error_code == 0
            with neighbour(running) as beside:
                began = time.monotonic()
                for _ in range(3):
                    assert found(attacker, start_ms + count - 1) == count - 1
                took_s = time.monotonic() - began
                # What is larger than any batch should be is found by its header.
                assert found(attacker, start_ms + count) == count
                assert found(attacker, MAX_TIMESTAMP) == count
        assert beside.waited_seconds_max < max(0.5, took_s / 4)
        assert running.stop() == 0
