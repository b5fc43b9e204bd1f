"""Whether a producer may end its transaction: the rules of the old protocol and of the new (KIP-890).

Under the old one a producer keeps its epoch, so an EndTxn that arrives late can end the wrong transaction.
Under the new one every end bumps the epoch: a request with the epoch before the current one repeats the last
end, one with the current epoch is about the transaction after it.
"""

from __future__ import annotations

from ottla.coordinator.transactions.states import State
from ottla.coordinator.transactions.transaction import BUMPS_EPOCH, Transaction
from ottla.records.producer import EPOCH_MAX
from ottla.wire.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidTxnState,
    KafkaError,
    ProducerFenced,
)


def check_end(
    transaction: Transaction, producer_id: int, epoch: int, client_version: int, *, committed: bool
) -> bool:
    """Whether there is something to end; False for a repetition of what has been done. Raises otherwise."""
    if client_version >= BUMPS_EPOCH:
        return _check_new(transaction, producer_id, epoch, committed=committed)
    return _check_old(transaction, producer_id, epoch, committed=committed)


def _check_old(transaction: Transaction, producer_id: int, epoch: int, *, committed: bool) -> bool:
    check_producer(transaction, producer_id, epoch)
    if transaction.state.is_decided:
        raise being_ended(transaction)
    if transaction.state is State.ONGOING:
        return True
    if transaction.state is _complete(committed):
        return False
    raise _refused(transaction, committed=committed)


def _check_new(transaction: Transaction, producer_id: int, epoch: int, *, committed: bool) -> bool:
    # Before the id and the epoch: the client may already have those that are to follow.
    if transaction.state.is_decided:
        raise being_ended(transaction)
    is_complete = transaction.state in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
    is_before_rotation = (
        producer_id == transaction.previous_producer_id
        and producer_id != transaction.producer_id
        and epoch == EPOCH_MAX - 1
        and transaction.epoch == 0
    )
    is_repeated = is_complete and (
        is_before_rotation or (producer_id == transaction.producer_id and epoch == transaction.epoch - 1)
    )
    if not is_repeated:
        check_producer(transaction, producer_id, epoch)
        if transaction.state is State.ONGOING or not committed:
            # A client that does not know whether its transaction began aborts it to be sure.
            return True
    elif transaction.state is _complete(committed):
        return False
    raise _refused(transaction, committed=committed)


def check_producer(transaction: Transaction, producer_id: int, epoch: int) -> None:
    if producer_id != transaction.producer_id:
        raise InvalidProducerIdMapping(
            f"the transactional id belongs to producer {transaction.producer_id}, not {producer_id}; "
            "initialize the producer again"
        )
    if epoch != transaction.epoch:
        raise ProducerFenced(
            f"producer {producer_id} has epoch {transaction.epoch}, not {epoch}; another instance has taken "
            "over, or the transaction timed out"
        )


def being_ended(transaction: Transaction) -> KafkaError:
    return ConcurrentTransactions(
        f"the last transaction of producer {transaction.producer_id} is still being ended; retry"
    )


def _complete(committed: bool) -> State:
    return State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT


def _refused(transaction: Transaction, *, committed: bool) -> KafkaError:
    wish = "commit" if committed else "abort"
    return InvalidTxnState(
        f"there is nothing to {wish}: producer {transaction.producer_id} is in state "
        f"{transaction.state.label}"
    )
