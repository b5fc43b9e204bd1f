"""The topic a kind of coordinator keeps its state in: which partition a key belongs to, reading, writing."""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Iterator
from functools import lru_cache
from operator import mul
from typing import NamedTuple, Protocol

from ottla.coordinator.host.committed import wait_committed
from ottla.log.salvage import find_whole_batch
from ottla.records.batch import HEADER_BYTES, MAGIC, crc_matches, read_header
from ottla.records.compression import CorruptRecords
from ottla.records.markers import Marker, read_marker
from ottla.records.producer import ProducerIdentity
from ottla.records.records import Record, iter_records
from ottla.replication.manager import ReplicaManager
from ottla.replication.partition import ACKS_ALL
from ottla.runtime.disk import ReadableBuffer
from ottla.wire.errors import InvalidProducerEpoch

_INT_MIN = 1 << 31
# Names of usual length: what is remembered is what clients have sent.
_REMEMBERED_CHARACTERS_MAX = 250
_POWERS = tuple(31**power & 0xFFFF_FFFF for power in reversed(range(256)))
_NEVER = 2**63 - 1


def java_hash(text: str) -> int:
    """Java's String.hashCode as a number without sign, so that every broker of a mixed past agrees."""
    return _remembered_hash(text) if len(text) <= _REMEMBERED_CHARACTERS_MAX else _hash(text)


def _hash(text: str) -> int:
    data = text.encode("utf-16-be", "surrogatepass")
    units = struct.unpack(f">{len(data) // 2}H", data)
    result = 0
    for start in range(0, len(units), len(_POWERS)):
        part = units[start : start + len(_POWERS)]
        # In one go of compiled code each: anybody may send a name of thirty thousand characters.
        result = result * 31 ** len(part) + sum(map(mul, part, _POWERS[-len(part) :]))
        result &= 0xFFFF_FFFF
    return result


_remembered_hash = lru_cache(maxsize=10_000)(_hash)


def partition_for(key: str, partition_count: int) -> int:
    number = java_hash(key)
    # Kafka takes the absolute value, and 0 for the one number that has none.
    magnitude = number if number < _INT_MIN else (2 * _INT_MIN - number) % _INT_MIN
    return magnitude % partition_count


class StoredBatch(NamedTuple):
    next_offset: int
    """The one after the batch."""
    records: list[Record]
    producer: ProducerIdentity | None
    """Of records inside a transaction: they count once that is committed."""
    marker: Marker | None
    """How a transaction ended; there are no records then."""


class ShardLog(Protocol):
    """The partitions of the topic that this broker leads."""

    def append(self, partition: int, batches: bytes) -> Awaitable[None] | None:
        """All of them or an error. None: committed already; else they are once the awaitable is done."""
        ...

    def append_marker(
        self, partition: int, marker: Marker, transaction_version: int
    ) -> Awaitable[None] | None:
        """As `append`. Refuses a marker of a producer or a coordinator that has been replaced."""
        ...

    def check_producer(self, partition: int, producer: ProducerIdentity) -> None:
        """Raises InvalidProducerEpoch if the log would refuse its records."""
        ...

    def has_transaction(self, partition: int, producer: ProducerIdentity) -> bool:
        """Whether the producer has written here since its last transaction ended."""
        ...

    def read(self, partition: int, offset: int, size_bytes: int) -> ReadableBuffer:
        """Whole batches from `offset` on; empty at the end of the log."""
        ...

    def find_whole_batch(self, partition: int, offset: int) -> Iterator[int | None]:
        """Behind damage: where the first whole batch at or after `offset` begins, else the end.

        None comes before that, as often as somebody else may have a turn.
        """
        ...

    async def wait_made(self) -> None:
        """Until the logs of the topic are there, or could not be made."""
        ...

    def start_offset(self, partition: int) -> int: ...

    def end_offset(self, partition: int) -> int:
        """The one after the last, whether that is committed already or not."""
        ...

    def wait_committed(self, partition: int) -> Awaitable[None] | None:
        """All that is in the log; None: it is. What a leader before us has left may not be yet."""
        ...

    def batch_bytes_max(self, partition: int) -> int: ...


class ReplicatedShardLog:
    def __init__(self, replicas: ReplicaManager, topic: str) -> None:
        self._replicas = replicas
        self._topic = topic

    def append(self, partition: int, batches: bytes) -> Awaitable[None] | None:
        found = self._replicas.partition(self._topic, partition)
        found.append(memoryview(batches), ACKS_ALL, trusted=True)
        return wait_committed(found)

    def append_marker(
        self, partition: int, marker: Marker, transaction_version: int
    ) -> Awaitable[None] | None:
        found = self._replicas.partition(self._topic, partition)
        found.append_marker(
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            marker.committed,
            transaction_version,
        )
        return wait_committed(found)

    def wait_committed(self, partition: int) -> Awaitable[None] | None:
        return wait_committed(self._replicas.partition(self._topic, partition))

    def check_producer(self, partition: int, producer: ProducerIdentity) -> None:
        states = self._replicas.partition(self._topic, partition).log.producers
        known = states.active.get(producer.id)
        if known is not None and producer.epoch < known.epoch:
            raise InvalidProducerEpoch(
                f"{self._topic}-{partition}: producer {producer.id} writes with epoch "
                f"{producer.epoch}, which was replaced by {known.epoch}; another instance has taken "
                "over"
            )

    def has_transaction(self, partition: int, producer: ProducerIdentity) -> bool:
        states = self._replicas.partition(self._topic, partition).log.producers
        return states.has_open_transaction(producer.id, producer.epoch)

    def read(self, partition: int, offset: int, size_bytes: int) -> ReadableBuffer:
        found = self._replicas.partition(self._topic, partition)
        return found.log.read(offset, size_bytes, upto=found.log.next_offset)

    def find_whole_batch(self, partition: int, offset: int) -> Iterator[int | None]:
        return find_whole_batch(self._replicas.partition(self._topic, partition).log, offset)

    async def wait_made(self) -> None:
        await self._replicas.wait_made([self._topic])

    def start_offset(self, partition: int) -> int:
        return self._replicas.partition(self._topic, partition).log_start_offset

    def end_offset(self, partition: int) -> int:
        # Not the high watermark: what an earlier leader wrote and nobody has seen committed yet will be.
        return self._replicas.partition(self._topic, partition).log.next_offset

    def delete_before(self, partition: int, offset: int) -> None:
        """Forget all records before an offset that is committed."""
        self._replicas.partition(self._topic, partition).log.delete_records_before(offset)

    def batch_bytes_max(self, partition: int) -> int:
        return self._replicas.partition(self._topic, partition).log.config.max_message_bytes


class DamagedBatch(Exception):
    """The bytes at an offset are not the batch that was written there, or never were one."""

    def __init__(self, reason: str, resume_offset: int) -> None:
        super().__init__(reason)
        self.resume_offset = resume_offset
        """Where to look for the next whole batch."""


def read_batches(data: ReadableBuffer, offset: int = 0, end_offset: int = _NEVER) -> Iterator[StoredBatch]:
    """All batches of what was read from `offset` on, of a log that ends at `end_offset`.

    Raises DamagedBatch at the first that cannot be trusted.
    """
    view = memoryview(data)
    at = 0
    while at < len(view):
        header = read_header(view, at) if at + HEADER_BYTES <= len(view) else None
        if header is None or header.magic != MAGIC or not HEADER_BYTES <= header.size <= len(view) - at:
            raise DamagedBatch("no batch begins where one should", offset)
        batch = view[at : at + header.size]
        if not crc_matches(batch, header.crc):
            raise DamagedBatch("the CRC of the batch does not match its bytes", offset)
        at += header.size
        next_offset = header.last_offset + 1
        # The CRC does not cover the base offset; if that has rotted, the records are good all the same.
        following = _base_offset(view, at)
        if not offset < next_offset <= following:
            next_offset = following if offset < following else next_offset
        if not offset < next_offset <= end_offset:
            raise DamagedBatch(f"the batch claims to end at offset {next_offset - 1}", offset)
        offset = next_offset
        try:
            if header.is_control:
                yield StoredBatch(offset, [], None, read_marker(batch))
            else:
                producer = None
                if header.is_transactional:
                    producer = ProducerIdentity(header.producer_id, header.producer_epoch)
                yield StoredBatch(offset, list(iter_records(batch)), producer, None)
        except CorruptRecords as error:
            raise DamagedBatch(str(error), offset) from error


def _base_offset(view: memoryview, at: int) -> int:
    """Of the batch at a position; a very large one where there is none."""
    return read_header(view, at).base_offset if at + HEADER_BYTES <= len(view) else _NEVER
