"""What a partition knows of each idempotent producer: enough to spot a retry, a gap and a zombie.

The state is what replaying the log gives; snapshots only shorten the replay.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import NamedTuple

from ottla.log.types import TopicPartition
from ottla.records.batch import CONTROL, NO_TIMESTAMP, TRANSACTIONAL, BatchHeader
from ottla.records.records import iter_records
from ottla.runtime.disk import ReadableBuffer
from ottla.wire.errors import InvalidProducerEpoch, InvalidRecord, InvalidTxnState, OutOfOrderSequence

# As many as a producer may have in flight; a retry of anything older cannot come.
BATCHES_REMEMBERED = 5
SEQUENCE_MASK = 2**31 - 1
NO_EPOCH = -1
NO_SEQUENCE = -1
NO_OFFSET = -1

_MARKER_VALUE = struct.Struct(">hi")  # version, coordinator epoch


class ProducerBatch(NamedTuple):
    """One batch as its producer is concerned."""

    producer_id: int
    epoch: int
    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int
    attributes: int
    coordinator_epoch: int = -1
    """Of a batch that ends a transaction."""


class Producer:
    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_timestamp",
        "next_sequence",
        "producer_id",
        "transaction_first_offset",
    )

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = NO_EPOCH
        self.coordinator_epoch = -1
        self.last_timestamp = NO_TIMESTAMP
        self.next_sequence = 0
        self.transaction_first_offset = NO_OFFSET
        """Of the transaction that is open here, -1 when none is."""
        self.batches: deque[ProducerBatch] = deque(maxlen=BATCHES_REMEMBERED)

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET


class ProducerStates:
    __slots__ = ("_partition", "active")

    def __init__(self, partition: TopicPartition) -> None:
        self._partition = partition
        self.active: dict[int, Producer] = {}

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the earliest transaction still open begins."""
        open_offsets = [producer.transaction_first_offset for producer in self.active.values()]
        return min((offset for offset in open_offsets if offset != NO_OFFSET), default=None)

    def admit(
        self, batch: ProducerBatch, earlier: list[ProducerBatch], *, trusted: bool
    ) -> ProducerBatch | None:
        """The batch in the log that this one repeats, or None if it may be written. Raises if it must not.

        `earlier` batches are of the same request. What is `trusted`, the broker writes on behalf of a
        producer, without sequence numbers.
        """
        producer = self.active.get(batch.producer_id)
        if (
            producer is not None
            and producer.next_sequence == batch.first_sequence
            and producer.epoch == batch.epoch
            and producer.transaction_first_offset == NO_OFFSET
            and not earlier
        ):
            return None
        if not trusted:
            if batch.epoch < 0 or batch.first_sequence < 0:
                raise InvalidRecord(
                    f"{self._partition}: producer {batch.producer_id} sent epoch {batch.epoch} and sequence "
                    f"{batch.first_sequence}; neither may be negative"
                )
            if producer is not None and producer.epoch == batch.epoch:
                for known in producer.batches:
                    if known[2:4] == batch[2:4]:
                        return known
        self._check(batch, producer, earlier, trusted=trusted)
        return None

    def _check(
        self, batch: ProducerBatch, producer: Producer | None, earlier: list[ProducerBatch], *, trusted: bool
    ) -> None:
        epoch = NO_EPOCH if producer is None else producer.epoch
        next_sequence = 0 if producer is None else producer.next_sequence
        in_transaction = producer is not None and producer.transaction_first_offset != NO_OFFSET
        for before in earlier:
            if before.producer_id == batch.producer_id:
                epoch, next_sequence = before.epoch, (before.last_sequence + 1) & SEQUENCE_MASK
                in_transaction = bool(before.attributes & TRANSACTIONAL)
        if batch.epoch < epoch:
            raise InvalidProducerEpoch(
                f"{self._partition}: producer {batch.producer_id} writes with epoch {batch.epoch}, which was "
                f"replaced by {epoch}; another instance has taken over"
            )
        if in_transaction and not batch.attributes & (TRANSACTIONAL | CONTROL):
            raise InvalidTxnState(
                f"{self._partition}: producer {batch.producer_id} has a transaction open and must write "
                "inside it"
            )
        # A producer not known, perhaps because its records were all deleted, may begin with any number.
        if trusted or epoch == NO_EPOCH:
            return
        expected = next_sequence if batch.epoch == epoch else 0
        if batch.first_sequence != expected:
            raise OutOfOrderSequence(
                f"{self._partition}: producer {batch.producer_id} epoch {batch.epoch} sent sequence "
                f"{batch.first_sequence} for offset {batch.first_offset}, expected {expected}"
            )

    def apply(self, batch: ProducerBatch) -> None:
        """The batch is in the log."""
        producer = self.active.get(batch.producer_id)
        if producer is None:
            producer = self.active[batch.producer_id] = Producer(batch.producer_id)
        if producer.epoch != batch.epoch:
            producer.batches.clear()
            producer.epoch = batch.epoch
            producer.next_sequence = 0
        producer.last_timestamp = batch.timestamp
        attributes = batch.attributes
        if attributes & CONTROL:
            producer.coordinator_epoch = batch.coordinator_epoch
            producer.transaction_first_offset = NO_OFFSET
            return
        producer.batches.append(batch)
        producer.next_sequence = (batch.last_sequence + 1) & SEQUENCE_MASK
        if attributes & TRANSACTIONAL and producer.transaction_first_offset == NO_OFFSET:
            producer.transaction_first_offset = batch.first_offset

    def expire(self, idle_since_ms: int) -> None:
        """Forget producers not heard of since then, unless they have a transaction open."""
        for producer in list(self.active.values()):
            if producer.transaction_first_offset == NO_OFFSET and producer.last_timestamp <= idle_since_ms:
                del self.active[producer.producer_id]


def last_sequence(base_sequence: int, delta: int) -> int:
    """Numbers start again from 0 after the largest."""
    return (base_sequence + delta) & SEQUENCE_MASK if base_sequence >= 0 else NO_SEQUENCE


def marker_coordinator_epoch(batch: ReadableBuffer) -> int:
    """The coordinator epoch in a batch that ends a transaction; -1 where compaction has emptied it."""
    for record in iter_records(batch):
        if record.value is not None and len(record.value) >= _MARKER_VALUE.size:
            return int(_MARKER_VALUE.unpack_from(record.value)[1])
    return -1


def batch_of(header: BatchHeader, batch: ReadableBuffer | None) -> ProducerBatch:
    """Of a batch that is numbered already. Its bytes are needed for control batches only."""
    return ProducerBatch(
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        last_sequence(header.base_sequence, header.last_offset_delta),
        header.base_offset,
        header.last_offset,
        header.max_timestamp,
        header.attributes,
        marker_coordinator_epoch(batch) if batch is not None else -1,
    )
