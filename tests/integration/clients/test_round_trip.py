"""What each client writes it reads back: keys, headers, timestamps, codecs, sizes, acknowledgements."""

from __future__ import annotations

import random
import time

import pytest
from kafka_clients.client import KafkaClient, Message, Where
from kafka_clients.every import NewTopicFixture

NOW_MS = int(time.time() * 1000)
HOUR_MS = 3_600_000


def contents(client: KafkaClient, topic: str, count: int, partition: int = 0) -> list[tuple[object, ...]]:
    received = client.read(topic, offset=0, count=count, partition=partition)
    assert [record.offset for record in received] == list(range(count))
    return [(record.key, record.value, record.headers) for record in received]


def test_keys_values_and_headers(client: KafkaClient, new_topic: NewTopicFixture) -> None:
    topic = new_topic()
    messages = [
        Message(b"value", b"key"),
        Message(b"no key"),
        Message(b"empty key", b""),
        Message(b"", b"empty value"),
        Message("Viðey — 島".encode(), "lykill — 鍵".encode()),
        Message(b"headers", b"key", (("name", b"value"), ("empty", b""), ("more", b"1"))),
    ]
    if client.sends_tombstones:
        messages.append(Message(None, b"tombstone"))
    if client.sends_null_headers:
        messages.append(Message(b"null header", None, (("nothing", None), ("something", b"x"))))
    client.produce(topic, messages)
    assert contents(client, topic, len(messages)) == [(m.key, m.value, m.headers) for m in messages]


def test_repeated_header(client: KafkaClient, new_topic: NewTopicFixture) -> None:
    if not client.repeats_headers:
        pytest.skip(f"{client.name} keeps headers in a map")
    topic = new_topic()
    headers = (("again", b"1"), ("again", b"2"), ("other", b"3"))
    client.produce(topic, [Message(b"value", headers=headers)])
    assert contents(client, topic, 1) == [(None, b"value", headers)]


def test_create_time(client: KafkaClient, new_topic: NewTopicFixture) -> None:
    if not client.sets_timestamps:
        pytest.skip(f"{client.name} cannot set timestamps")
    topic = new_topic()
    timestamps = [NOW_MS - HOUR_MS, NOW_MS - 24 * HOUR_MS, NOW_MS]
    client.produce(topic, [Message(b"value", timestamp_ms=timestamp) for timestamp in timestamps])
    received = client.read(topic, offset=0, count=len(timestamps))
    assert [record.timestamp_ms for record in received] == timestamps


def test_log_append_time(client: KafkaClient, new_topic: NewTopicFixture) -> None:
    topic = new_topic(config={"message.timestamp.type": "LogAppendTime"})
    asked_for = NOW_MS - HOUR_MS if client.sets_timestamps else None
    before_ms = int(time.time() * 1000)
    client.produce(topic, [Message(b"value", timestamp_ms=asked_for)])
    after_ms = int(time.time() * 1000)
    (record,) = client.read(topic, offset=0, count=1)
    assert before_ms <= record.timestamp_ms <= after_ms


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compression(codec: str, client: KafkaClient, new_topic: NewTopicFixture) -> None:
    if codec != "none" and codec not in client.codecs:
        pytest.skip(f"{client.name} has no {codec} here")
    topic = new_topic()
    messages = [Message(b"%d " % number * 1000, b"key", (("h", b"x"),)) for number in range(3)]
    client.produce(topic, messages, compression=codec)
    assert contents(client, topic, len(messages)) == [(m.key, m.value, m.headers) for m in messages]


@pytest.mark.parametrize("codec", ["gzip", "lz4", "snappy", "zstd", "uncompressed"])
def test_the_topic_decides_the_codec(codec: str, client: KafkaClient, new_topic: NewTopicFixture) -> None:
    if codec != "uncompressed" and codec not in client.codecs:
        pytest.skip(f"{client.name} has no {codec} here")
    topic = new_topic(config={"compression.type": codec})
    messages = [Message(b"%d " % number * 1000, b"key") for number in range(3)]
    client.produce(topic, messages, compression="gzip")
    assert contents(client, topic, len(messages)) == [(m.key, m.value, ()) for m in messages]


def test_one_byte_to_ten_megabytes(client: KafkaClient, new_topic: NewTopicFixture) -> None:
    topic = new_topic(config={"max.message.bytes": str(11 * 1024 * 1024)})
    values = [random.Random(size).randbytes(size) for size in (1, 100, 10_000, 1_000_000, 10_000_000)]
    client.produce(topic, [Message(value) for value in values])
    received = client.read(topic, offset=0, count=len(values))
    assert [len(record.value or b"") for record in received] == [len(value) for value in values]
    assert all(record.value == value for record, value in zip(received, values, strict=True))


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acknowledgements(acks: str, client: KafkaClient, new_topic: NewTopicFixture) -> None:
    topic = new_topic()
    messages = [Message(b"%d" % number, b"key") for number in range(5)]
    client.produce(topic, messages, acks=acks)
    assert contents(client, topic, len(messages)) == [(m.key, m.value, ()) for m in messages]


def test_idempotent_producer(client: KafkaClient, new_topic: NewTopicFixture) -> None:
    topic = new_topic(partitions=2)
    for turn in range(2):
        client.produce(
            topic,
            [Message(b"%d.%d" % (turn, n), partition=n % 2) for n in range(6)],
            idempotent=True,
        )
    for partition in range(2):
        expected = [b"%d.%d" % (turn, n) for turn in range(2) for n in range(partition, 6, 2)]
        assert [value for _, value, _ in contents(client, topic, len(expected), partition)] == expected
        assert client.offset_at(topic, Where.END, partition=partition) == len(expected)
