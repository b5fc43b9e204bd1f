"""Reads everything back and compares it with the ledger."""

from __future__ import annotations

import time
from collections.abc import Iterator

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from tests.soak.ledger import Ledger, Place
from tests.soak.load import COMPACTED, IDEMPOTENT, PARTITIONS, PLAIN, TOPICS, TRIMMED

PATIENCE_S = 120


def read_back(servers: str, place: Place) -> Iterator[tuple[int, bytes, bytes | None]]:
    """(offset, value, key) of all committed records of a partition, in order."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "checker",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(*place, OFFSET_BEGINNING)])
    deadline = time.monotonic() + PATIENCE_S
    try:
        while True:
            assert time.monotonic() < deadline, f"reading {place} came to no end in {PATIENCE_S} s"
            for message in consumer.consume(5000, timeout=1):
                error = message.error()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        return
                    assert error.retriable() or error.code() < 0, f"{place}: {error}"
                    continue
                offset, value, key = message.offset(), message.value(), message.key()
                assert offset is not None and isinstance(value, bytes) and not isinstance(key, str)
                yield offset, value, key
    finally:
        consumer.close()


def check(servers: str, ledger: Ledger) -> list[str]:
    """What is wrong, in words; nothing if all is well."""
    wrong: list[str] = []
    for topic in TOPICS:
        for partition in range(PARTITIONS):
            place = (topic, partition)
            records = list(read_back(servers, place))
            if topic == COMPACTED:
                continue
            wrong += check_partition(ledger, place, [(offset, value) for offset, value, _ in records])
    wrong += check_compacted(servers, ledger)
    return wrong


def check_partition(ledger: Ledger, place: Place, records: list[tuple[int, bytes]]) -> list[str]:
    wrong = []
    there = dict(records)
    kept_from = ledger.deleted_before[place] if place[0] == TRIMMED else 0
    expected = {at: value for at, value in ledger.acknowledged[place].items() if at >= kept_from}
    lost = sorted(at for at, value in expected.items() if there.get(at) != value)
    if lost:
        what = [(at, expected[at], there.get(at)) for at in lost[:3]]
        wrong.append(f"{place}: {len(lost)} of {len(expected)} acknowledged records are lost, such as {what}")
    values = [value for _, value in records]
    if place[0] != PLAIN and len(set(values)) != len(values):
        wrong.append(f"{place}: {len(values) - len(set(values))} records are there twice")
    if place[0] in (IDEMPOTENT, TRIMMED):
        numbers = [number_of(value) for value in values]
        if numbers != sorted(numbers):
            wrong.append(f"{place}: records are not in the order in which they were sent")
    if visible := ledger.aborted.intersection(values):
        wrong.append(f"{place}: {len(visible)} records of aborted transactions can be read")
    return wrong


def check_compacted(servers: str, ledger: Ledger) -> list[str]:
    latest: dict[bytes, int] = {}
    for partition in range(PARTITIONS):
        for _, value, key in read_back(servers, (COMPACTED, partition)):
            if key is not None and value.startswith(COMPACTED.encode()):
                latest[key] = max(latest.get(key, -1), number_of(value))
    return [
        f"{COMPACTED}: key {key!r} is at {latest.get(key)}, acknowledged was {number}"
        for (_, key), number in sorted(ledger.latest.items())
        if latest.get(key, -1) < number
    ]


def unconsumed(ledger: Ledger, topics: tuple[str, ...]) -> int:
    """How many acknowledged records no member of the group has seen."""
    with ledger.lock:
        return sum(
            len(offsets.keys() - ledger.consumed[place])
            for place, offsets in ledger.acknowledged.items()
            if place[0] in topics
        )


def number_of(value: bytes) -> int:
    return int(value.rpartition(b":")[2])
