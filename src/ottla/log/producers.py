"""What a partition knows of each idempotent producer: enough to spot a retry, a gap, a zombie, and an open
transaction.

The state is what replaying the log gives; snapshots only shorten the replay. Questions to the coordinator
that are under way (`verifying`) are the exception: they die with the process, and the producer asks again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from ottla.log.aborted import AbortedTransaction
from ottla.log.pending_verification import EXEMPT, Verification
from ottla.log.types import TopicPartition
from ottla.records.batch import CONTROL, NO_TIMESTAMP, TRANSACTIONAL, BatchHeader
from ottla.records.markers import Marker, read_marker
from ottla.records.producer import EPOCH_MAX, NO_EPOCH
from ottla.runtime.disk import ReadableBuffer
from ottla.wire.errors import (
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTxnState,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)

# As many as a producer may have in flight; a retry of anything older cannot come.
BATCHES_REMEMBERED = 5
SEQUENCE_MASK = 2**31 - 1
NO_SEQUENCE = -1
NO_OFFSET = -1

FIRST_WITH_OWN_EPOCHS = 2
"""The version of transactions since which each has its own producer epoch (KIP-890)."""


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
    marker: Marker | None = None
    """Of a control batch; None where compaction has emptied it, which was about a transaction long over."""


class ProducerState:
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
    __slots__ = ("_open", "_partition", "active", "first_unstable_offset", "verifying")

    def __init__(self, partition: TopicPartition, producers: Iterable[ProducerState] = ()) -> None:
        self._partition = partition
        self.active = {producer.producer_id: producer for producer in producers}
        self.verifying: dict[int, Verification] = {}
        found = (producer for producer in self.active.values() if producer.transaction_first_offset >= 0)
        # Transactions begin in the order of their offsets, so that the first is always the earliest.
        self._open: dict[int, int] = {
            producer.transaction_first_offset: producer.producer_id
            for producer in sorted(found, key=lambda producer: producer.transaction_first_offset)
        }
        self.first_unstable_offset: int | None = next(iter(self._open), None)
        """Where the earliest transaction still open begins."""

    # Before a batch is written.

    def admit(
        self,
        batch: ProducerBatch,
        earlier: list[ProducerBatch],
        trusted: bool,
        transaction: Verification | None,
        transaction_version: int,
    ) -> ProducerBatch | None:
        """The batch in the log that this one repeats, or None if it may be written. Raises if it must not.

        `earlier` batches are of the same request. What is `trusted`, the broker writes on behalf of a
        producer, without sequence numbers. `transaction_version` is that of a marker.
        """
        producer = self.active.get(batch.producer_id)
        if (
            producer is not None
            and producer.next_sequence == batch.first_sequence
            and producer.epoch == batch.epoch
            and (producer.transaction_first_offset >= 0) == (batch.attributes & TRANSACTIONAL != 0)
            and not earlier
            and not self.verifying
        ):
            return None
        if batch.attributes & CONTROL:
            if batch.marker is not None and producer is not None:
                self._check_marker(batch, batch.marker, producer, transaction_version)
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
            if batch.attributes & TRANSACTIONAL:
                self._check_verified(batch, producer, transaction)
        self._check(batch, producer, earlier, trusted=trusted)
        return None

    def _check_verified(
        self, batch: ProducerBatch, producer: ProducerState | None, transaction: Verification | None
    ) -> None:
        if self.has_open_transaction(batch.producer_id, batch.epoch):
            return
        if producer is not None:
            self._check_epoch(batch.producer_id, batch.epoch, producer.epoch)
        if transaction is not EXEMPT and (
            transaction is None or transaction is not self.verifying.get(batch.producer_id)
        ):
            raise InvalidTxnState(
                f"{self._partition}: producer {batch.producer_id} has no transaction here that its "
                "coordinator knows of; abort it and begin anew"
            )

    def _check(
        self,
        batch: ProducerBatch,
        producer: ProducerState | None,
        earlier: list[ProducerBatch],
        *,
        trusted: bool,
    ) -> None:
        epoch = NO_EPOCH if producer is None else producer.epoch
        next_sequence = 0 if producer is None else producer.next_sequence
        in_transaction = producer is not None and producer.transaction_first_offset >= 0
        for before in earlier:
            if before.producer_id == batch.producer_id:
                epoch, next_sequence = before.epoch, (before.last_sequence + 1) & SEQUENCE_MASK
                in_transaction = in_transaction or bool(before.attributes & TRANSACTIONAL)
        self._check_epoch(batch.producer_id, batch.epoch, epoch)
        if not trusted:
            self._check_order(batch, producer)
            # One not known, perhaps because its records were all deleted, may begin with any number.
            expected = next_sequence if batch.epoch == epoch else 0
            if epoch != NO_EPOCH and batch.first_sequence != expected:
                raise OutOfOrderSequence(
                    f"{self._partition}: producer {batch.producer_id} epoch {batch.epoch} sent sequence "
                    f"{batch.first_sequence} for offset {batch.first_offset}, expected {expected}"
                )
        if in_transaction and not batch.attributes & TRANSACTIONAL:
            raise InvalidTxnState(
                f"{self._partition}: producer {batch.producer_id} has a transaction open and must write "
                "inside it"
            )

    def _check_epoch(self, producer_id: int, epoch: int, current: int) -> None:
        if epoch < current:
            raise InvalidProducerEpoch(
                f"{self._partition}: producer {producer_id} writes with epoch {epoch}, which was replaced by "
                f"{current}; another instance has taken over"
            )

    def _check_order(self, batch: ProducerBatch, producer: ProducerState | None) -> None:
        """A batch whose verification failed for now will come again: none may pass it meanwhile."""
        verification = self.verifying.get(batch.producer_id)
        if verification is None:
            return
        sequence = batch.first_sequence
        is_new = producer is None or not producer.batches
        if sequence > verification.lowest_sequence or (verification.implicit_add and is_new and sequence):
            expected = 0 if verification.implicit_add and is_new else verification.lowest_sequence
            raise OutOfOrderSequence(
                f"{self._partition}: producer {batch.producer_id} epoch {batch.epoch} sent sequence "
                f"{sequence} for offset {batch.first_offset}; {expected} has to come first"
            )

    def _check_marker(
        self, batch: ProducerBatch, marker: Marker, producer: ProducerState, transaction_version: int
    ) -> None:
        is_open = producer.transaction_first_offset >= 0
        if transaction_version >= FIRST_WITH_OWN_EPOCHS and batch.epoch == producer.epoch:
            # Without a transaction open, it is written again by a coordinator that missed the answer.
            if is_open and batch.epoch != EPOCH_MAX:
                raise InvalidProducerEpoch(
                    f"{self._partition}: the marker of producer {batch.producer_id} has epoch {batch.epoch}, "
                    "as the open transaction has; it ends an earlier one"
                )
        else:
            self._check_epoch(batch.producer_id, batch.epoch, producer.epoch)
        if marker.coordinator_epoch < producer.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"{self._partition}: a coordinator with epoch {marker.coordinator_epoch} ends a transaction "
                f"of producer {batch.producer_id}, but one with epoch {producer.coordinator_epoch} has "
                "taken over"
            )

    # Verification.

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Of this epoch: a newer one means that the old transaction may be over."""
        producer = self.active.get(producer_id)
        return producer is not None and producer.transaction_first_offset >= 0 and producer.epoch == epoch

    def begin_verification(
        self, producer_id: int, sequence: int, epoch: int, now_ms: int, *, implicit_add: bool
    ) -> Verification | None:
        """What to pass with the records once the coordinator has agreed; None if it need not be asked."""
        producer = self.active.get(producer_id)
        if producer is not None:
            self._check_epoch(producer_id, epoch, producer.epoch)
        if self.has_open_transaction(producer_id, epoch):
            return None
        if producer is not None and producer.epoch == epoch and _is_before(sequence, producer.next_sequence):
            # It is in the log already, through another leader perhaps while this request was on its way: what
            # comes next must not wait for it.
            return None
        verification = self.verifying.get(producer_id)
        if verification is None:
            verification = Verification(now_ms, sequence, epoch, implicit_add=implicit_add)
            self.verifying[producer_id] = verification
        verification.note(sequence, epoch)
        return verification

    # Once a batch is written.

    def aborted_by(self, batch: ProducerBatch) -> AbortedTransaction | None:
        """What a marker will have aborted once it is applied."""
        producer = self.active.get(batch.producer_id)
        first = NO_OFFSET if producer is None else producer.transaction_first_offset
        if batch.marker is None or batch.marker.committed or first < 0:
            return None
        others = (offset for offset in self._open if offset != first)
        return AbortedTransaction(
            first, batch.first_offset, batch.producer_id, next(others, batch.first_offset + 1)
        )

    def apply(self, batch: ProducerBatch) -> None:
        """The batch is in the log."""
        in_transaction = batch.attributes & (TRANSACTIONAL | CONTROL)
        if in_transaction and batch.attributes & CONTROL and batch.marker is None:
            return
        producer = self.active.get(batch.producer_id)
        if producer is None:
            producer = self.active[batch.producer_id] = ProducerState(batch.producer_id)
        if producer.epoch != batch.epoch:
            producer.batches.clear()
            producer.epoch = batch.epoch
            producer.next_sequence = 0
        producer.last_timestamp = batch.timestamp
        if in_transaction:
            self._apply_transactional(batch, producer)
        if batch.marker is None:
            producer.batches.append(batch)
            producer.next_sequence = (batch.last_sequence + 1) & SEQUENCE_MASK

    def _apply_transactional(self, batch: ProducerBatch, producer: ProducerState) -> None:
        if self.verifying:
            self._end_verification(batch)
        if batch.marker is not None:
            producer.coordinator_epoch = batch.marker.coordinator_epoch
            if producer.transaction_first_offset >= 0:
                del self._open[producer.transaction_first_offset]
                producer.transaction_first_offset = NO_OFFSET
                self.first_unstable_offset = next(iter(self._open), None)
        elif producer.transaction_first_offset < 0:
            producer.transaction_first_offset = batch.first_offset
            self._open[batch.first_offset] = batch.producer_id
            if self.first_unstable_offset is None:
                self.first_unstable_offset = batch.first_offset

    def _end_verification(self, batch: ProducerBatch) -> None:
        verification = self.verifying.get(batch.producer_id)
        # The marker may be of the transaction before: it has the epoch that the next begins with.
        is_of_next = (
            verification is not None
            and verification.implicit_add
            and batch.marker is not None
            and batch.epoch == verification.epoch
        )
        if not is_of_next:
            self.verifying.pop(batch.producer_id, None)

    def expire(self, idle_since_ms: int) -> None:
        """Forget producers not heard of since then, unless they have a transaction open."""
        for producer in list(self.active.values()):
            if producer.transaction_first_offset < 0 and producer.last_timestamp <= idle_since_ms:
                del self.active[producer.producer_id]
        for producer_id, verification in list(self.verifying.items()):
            if verification.asked_ms <= idle_since_ms:
                del self.verifying[producer_id]


def _is_before(sequence: int, other: int) -> bool:
    """By less than half of all numbers, which begin anew after the largest."""
    return 0 < (other - sequence) & SEQUENCE_MASK <= SEQUENCE_MASK >> 1


def last_sequence(base_sequence: int, delta: int) -> int:
    """Numbers start again from 0 after the largest."""
    return (base_sequence + delta) & SEQUENCE_MASK if base_sequence >= 0 else NO_SEQUENCE


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
        read_marker(batch) if batch is not None else None,
    )
