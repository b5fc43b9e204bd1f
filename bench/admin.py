"""The few administrative calls a load needs around it: topics and their end offsets."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from bench import encoding
from bench.connection import AnswerReader, Connection

READY_TIMEOUT_S = 30


class BrokerRefused(Exception):
    """A broker answered with an error code."""


def create_topic(port: int, topic: str, partitions: int) -> None:
    """Returns once every partition is served."""
    connection = Connection(port)
    answer = connection.call(encoding.create_topic_frame(topic, partitions))
    connection.close()
    answer.int32()
    for name, error, text in answer.array(lambda item: (item.string(), item.int16(), item.string())):
        if error:
            raise BrokerRefused(f"creating topic {name} failed with error code {error}: {text}")
    deadline = time.monotonic() + READY_TIMEOUT_S
    while True:
        try:
            end_offsets(port, topic, partitions)
            return
        except BrokerRefused:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.01)


def delete_topic(port: int, topic: str) -> None:
    connection = Connection(port)
    connection.call(encoding.delete_topic_frame(topic))
    connection.close()


@contextmanager
def throw_away_topic(port: int, topic: str, partitions: int) -> Iterator[str]:
    create_topic(port, topic, partitions)
    try:
        yield topic
    finally:
        with suppress(OSError):
            delete_topic(port, topic)


def end_offsets(port: int, topic: str, partitions: int) -> list[int]:
    connection = Connection(port)
    answer = connection.call(encoding.list_offsets_frame(topic, range(partitions), encoding.LATEST))
    connection.close()
    answer.int32()

    def partition(item: AnswerReader) -> tuple[int, int]:
        index, error, _, offset, _ = item.int32(), item.int16(), item.int64(), item.int64(), item.int32()
        if error:
            raise BrokerRefused(f"the end of {topic}-{index} is unknown: error code {error}")
        return index, offset

    (offsets,) = answer.array(lambda item: (item.string(), item.array(partition))[1])
    return [offset for _, offset in sorted(offsets)]


def advertised_apis(port: int) -> set[int]:
    connection = Connection(port)
    answer = connection.call(encoding.api_versions_frame())
    connection.close()
    answer.int16()
    return {key for key, _, _ in answer.array(lambda item: (item.int16(), item.int16(), item.int16()))}
