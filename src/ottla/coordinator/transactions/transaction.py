"""What is kept of one transactional id, and the steps it takes. A step gives the next value, or raises.

Epochs end at 32767. No client is given that one, so that there is always one left to fence it with; when it
is reached, a new producer id starts from 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ottla.coordinator.transactions.states import State, check_transition
from ottla.log.types import TopicPartition
from ottla.records.batch import NO_PRODUCER_ID
from ottla.records.producer import EPOCH_MAX, NO_EPOCH
from ottla.wire.errors import ProducerFenced

NEVER_TIMES_OUT_MS = 2**31 - 1
"""The time-out of transactions whose outcome is decided elsewhere (two-phase commit, KIP-939)."""
NOT_STARTED_MS = -1

BUMPS_EPOCH = 2
"""The transaction.version from which ending a transaction bumps the epoch (KIP-890)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    producer_id: int
    epoch: int
    timeout_ms: int
    state: State
    updated_ms: int
    started_ms: int = NOT_STARTED_MS
    partitions: frozenset[TopicPartition] = frozenset()
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    """Already given to the client; in use once the transaction of the old one is complete."""
    last_epoch: int = NO_EPOCH
    """That InitProducerId last replaced at the client's own request. Not stored: only a retry asks for it."""
    client_version: int = 0
    """The transaction.version that the client spoke."""

    @property
    def is_exhausted(self) -> bool:
        return is_exhausted(self.epoch)

    def is_timed_out(self, now_ms: int) -> bool:
        return (
            self.state is State.ONGOING
            and self.timeout_ms != NEVER_TIMES_OUT_MS
            and self.started_ms + self.timeout_ms < now_ms
        )

    # --- steps

    def initialized(self, timeout_ms: int, expected_epoch: int | None, now_ms: int) -> Transaction:
        """The next epoch. `expected_epoch` is that of a producer which goes on after an error."""
        bumped, last = self.epoch + 1, NO_EPOCH
        if expected_epoch is not None:
            if self.epoch not in (NO_EPOCH, expected_epoch):
                if expected_epoch != self.last_epoch:
                    raise ProducerFenced(
                        f"producer {self.producer_id} has epoch {self.epoch}, not {expected_epoch}; another "
                        "instance has taken over"
                    )
                # Sent again: nobody else was initialized since, or the last epoch would be forgotten.
                bumped, last = self.epoch, self.last_epoch
            else:
                last = self.epoch
        if bumped >= EPOCH_MAX:
            raise ProducerFenced(
                f"producer {self.producer_id} has used up its epochs and was replaced; restart it"
            )
        return self._step(
            State.EMPTY,
            now_ms,
            epoch=bumped,
            last_epoch=last,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            started_ms=NOT_STARTED_MS,
        )

    def rotated(self, producer_id: int, timeout_ms: int, now_ms: int, *, at_own_request: bool) -> Transaction:
        """A new producer id: the epochs of the old one are used up."""
        return self._step(
            State.EMPTY,
            now_ms,
            producer_id=producer_id,
            epoch=0,
            last_epoch=self.epoch if at_own_request else NO_EPOCH,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            started_ms=NOT_STARTED_MS,
        )

    def with_partitions(
        self, partitions: frozenset[TopicPartition], client_version: int, now_ms: int
    ) -> Transaction:
        return self._step(
            State.ONGOING,
            now_ms,
            partitions=self.partitions | partitions,
            started_ms=self.started_ms if self.state is State.ONGOING else now_ms,
            client_version=client_version,
        )

    def prepared(
        self, client_version: int, now_ms: int, *, committed: bool, next_producer_id: int = NO_PRODUCER_ID
    ) -> Transaction:
        """The outcome is decided. With the new protocol nobody can write with the old epoch any more."""
        bumps = client_version >= BUMPS_EPOCH
        return self._step(
            State.PREPARE_COMMIT if committed else State.PREPARE_ABORT,
            now_ms,
            epoch=min(self.epoch + 1, EPOCH_MAX) if bumps else self.epoch,
            last_epoch=self.epoch if bumps else self.last_epoch,
            next_producer_id=next_producer_id,
            # An abort may end a transaction that never had a partition, and so never began.
            started_ms=self.started_ms if self.state is State.ONGOING else now_ms,
            client_version=client_version,
        )

    def fenced(self) -> Transaction:
        """The old protocol's abort of somebody else's transaction: under an epoch that nobody was given."""
        return replace(self, epoch=min(self.epoch + 1, EPOCH_MAX), last_epoch=NO_EPOCH)

    def completed(self, now_ms: int) -> Transaction:
        """All partitions know the outcome."""
        rotates = self.client_version >= BUMPS_EPOCH and self.next_producer_id != NO_PRODUCER_ID
        return self._step(
            State.COMPLETE_COMMIT if self.state is State.PREPARE_COMMIT else State.COMPLETE_ABORT,
            now_ms,
            producer_id=self.next_producer_id if rotates else self.producer_id,
            epoch=0 if rotates else self.epoch,
            next_producer_id=NO_PRODUCER_ID,
            partitions=frozenset(),
        )

    def _step(self, state: State, now_ms: int, **changes: object) -> Transaction:
        check_transition(self.state, state)
        return replace(
            self,
            state=state,
            updated_ms=max(now_ms, self.updated_ms),
            previous_producer_id=self.producer_id,
            **changes,  # type: ignore[arg-type]
        )


def is_exhausted(epoch: int) -> bool:
    return epoch >= EPOCH_MAX - 1
