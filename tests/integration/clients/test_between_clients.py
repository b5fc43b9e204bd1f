"""Written by one client, read by every other: contents with each codec, and keys in the same partitions."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
from kafka_clients.client import KafkaClient, Message, Where
from kafka_clients.every import CLIENTS, Clients, NewTopicFixture

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = 7
KEYS = [b"key-%d" % number for number in range(30)]


def messages(partition: int) -> list[Message]:
    headers = (("one", b"1"), ("two", b"zwei"))
    return [
        Message(b"%d " % number * 200, b"key %d" % number, headers, partition=partition)
        for number in range(2)
    ]


@pytest.fixture(scope="module")
def written_by(new_topic: NewTopicFixture, clients: Clients) -> Callable[[str], str]:
    """A topic whose partition n holds what the client wrote with codec n."""

    @functools.cache
    def write(name: str) -> str:
        writer = clients[name]
        topic = new_topic(partitions=len(CODECS))
        for partition, codec in enumerate(CODECS):
            if codec == "none" or codec in writer.codecs:
                writer.produce(topic, messages(partition), compression=codec)
        return topic

    return write


@pytest.mark.parametrize("writer_name", CLIENTS)
def test_contents(
    writer_name: str, client: KafkaClient, written_by: Callable[[str], str], clients: Clients
) -> None:
    topic = written_by(writer_name)
    for partition, codec in enumerate(CODECS):
        if codec != "none" and not (codec in client.codecs and codec in clients[writer_name].codecs):
            continue
        expected = messages(partition)
        received = client.read(topic, offset=0, count=len(expected), partition=partition)
        assert [(r.key, r.value, r.headers) for r in received] == [
            (m.key, m.value, m.headers) for m in expected
        ], codec


def placement(client: KafkaClient, topic: str, reader: KafkaClient) -> dict[bytes, int]:
    client.produce(topic, [Message(b"value", key) for key in KEYS])
    placed = {}
    for partition in range(PARTITIONS):
        count = reader.offset_at(topic, Where.END, partition=partition)
        for record in reader.read(topic, offset=0, count=count, partition=partition) if count else ():
            placed[record.key or b""] = partition
    return placed


def test_same_key_same_partition(client: KafkaClient, new_topic: NewTopicFixture, clients: Clients) -> None:
    reader = clients["confluent-kafka"]
    mine = placement(client, new_topic(partitions=PARTITIONS), reader)
    reference = placement(reader, new_topic(partitions=PARTITIONS), reader)
    assert mine == reference
    assert set(mine) == set(KEYS)
    assert len(set(mine.values())) > 1
