"""`__consumer_offsets`: which of its partitions a group belongs to, how coordinators read and write it."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from functools import lru_cache
from typing import Protocol

from ottla.records.batch import iter_headers
from ottla.records.records import Record, iter_records
from ottla.replication.manager import ReplicaManager
from ottla.replication.partition import ACKS_ALL
from ottla.runtime.disk import ReadableBuffer

TOPIC = "__consumer_offsets"
_INT_MIN = 1 << 31


@lru_cache(maxsize=10_000)
def java_hash(text: str) -> int:
    """Java's String.hashCode as a number without sign, so that every broker of a mixed past agrees."""
    result = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(data[::2], data[1::2], strict=True):
        result = (31 * result + (high << 8 | low)) & 0xFFFF_FFFF
    return result


def partition_for(group_id: str, partition_count: int) -> int:
    number = java_hash(group_id)
    # Kafka takes the absolute value, and 0 for the one number that has none.
    magnitude = number if number < _INT_MIN else (2 * _INT_MIN - number) % _INT_MIN
    return magnitude % partition_count


class OffsetsLog(Protocol):
    """The partitions of the topic that this broker leads."""

    def append(self, partition: int, batches: bytes) -> Awaitable[None] | None:
        """All of them or an error. None: committed already; else they are once the awaitable is done."""
        ...

    def read(self, partition: int, offset: int, size_bytes: int) -> ReadableBuffer:
        """Whole batches from `offset` on; empty at the end of what is committed."""
        ...

    def start_offset(self, partition: int) -> int: ...

    def batch_bytes_max(self, partition: int) -> int: ...


class ReplicatedOffsetsLog:
    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    def append(self, partition: int, batches: bytes) -> Awaitable[None] | None:
        found = self._replicas.partition(TOPIC, partition)
        found.append(memoryview(batches), ACKS_ALL, trusted=True)
        return found.log.flush() if found.log.reached_flush_messages else None

    def read(self, partition: int, offset: int, size_bytes: int) -> ReadableBuffer:
        found = self._replicas.partition(TOPIC, partition)
        return found.log.read(offset, size_bytes, upto=found.high_watermark)

    def start_offset(self, partition: int) -> int:
        return self._replicas.partition(TOPIC, partition).log_start_offset

    def batch_bytes_max(self, partition: int) -> int:
        return self._replicas.partition(TOPIC, partition).log.config.max_message_bytes


def read_batches(data: ReadableBuffer) -> Iterator[tuple[int, list[Record]]]:
    """The offset after each batch, and its records. Control batches have none that matter here."""
    view = memoryview(data)
    for at, header in iter_headers(view):
        records = [] if header.is_control else list(iter_records(view[at : at + header.size]))
        yield header.last_offset + 1, records
