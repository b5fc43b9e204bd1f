"""One partition of `__transaction_state`: all transactional ids that hash to it, as one state machine.

A command takes a ticket and gives an outcome: records to append and replies to release once those are
committed. State is what replaying the records gives. What follows from a committed decision, telling the
partitions, is an effect beside the replies; a fresh shard asks for it again, since nothing is kept of how far
it got. No command leaves half a change behind: it raises before its first record or not at all.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.coordinator.host.journal import Instant, Journal, Outcome, Ticket
from ottla.coordinator.host.timers import Timer, Timers
from ottla.coordinator.transactions.commands import (
    AddRequest,
    Decided,
    EndRequest,
    InitRequest,
    Listed,
    ListRequest,
    NoProducerId,
)
from ottla.coordinator.transactions.ending import being_ended, check_end, check_producer
from ottla.coordinator.transactions.settings import TransactionSettings
from ottla.coordinator.transactions.states import State, check_transition
from ottla.coordinator.transactions.transaction import (
    BUMPS_EPOCH,
    Transaction,
    is_exhausted,
)
from ottla.log.types import TopicPartition
from ottla.records.batch import NO_PRODUCER_ID
from ottla.records.producer import NO_EPOCH, ProducerIdentity
from ottla.wire.errors import (
    CoordinatorNotAvailable,
    ErrorCode,
    InvalidProducerIdMapping,
    KafkaError,
    ProducerFenced,
    TransactionalIdNotFound,
)

ABORT_CHECK = "abort-timed-out"
EXPIRY_CHECK = "expire-ids"


class TransactionShard:
    def __init__(
        self,
        settings: TransactionSettings,
        new_producer_id: Callable[[], int | None],
        transaction_version: Callable[[], int],
    ) -> None:
        """`new_producer_id` gives None when none is at hand; `transaction_version` is the cluster's."""
        self.by_id: dict[str, Transaction] = {}
        self._settings = settings
        self._new_producer_id = new_producer_id
        self._transaction_version = transaction_version
        self._timers = Timers()
        self._journal: Journal[str, Transaction] = Journal(self.replay)

    # --- life

    def replay(
        self, transactional_id: str, transaction: Transaction | None, producer_id: int = NO_PRODUCER_ID
    ) -> None:
        if transaction is None:
            self.by_id.pop(transactional_id, None)
        else:
            self.by_id[transactional_id] = transaction

    def replay_marker(self, producer_id: int, *, committed: bool) -> None:
        """Nobody writes to this topic in transactions, so there are none to end."""

    def loaded(self, now: Instant) -> Outcome:
        """All records are in: go on telling partitions of what was decided before."""
        self._journal.now = now
        for transactional_id, transaction in sorted(self.by_id.items()):
            if transaction.state.is_decided:
                self._announce(transactional_id, transaction)
        self._watch_open()
        self._schedule(EXPIRY_CHECK, self._settings.id_expiration_check_interval_ms)
        return self._journal.take()

    def next_deadline_ms(self) -> int | None:
        return self._timers.next_deadline_ms()

    def tick(self, now: Instant) -> Outcome:
        self._journal.now = now
        while (due := self._timers.pop_due(now.monotonic_ms)) is not None:
            if due[0].kind == ABORT_CHECK:
                self._abort_timed_out()
                self._watch_open()
            else:
                self._expire_ids()
                self._schedule(EXPIRY_CHECK, self._settings.id_expiration_check_interval_ms)
        return self._journal.take()

    def _schedule(self, kind: str, interval_ms: int) -> None:
        self._timers.schedule_if_absent(Timer(kind), self._journal.now.monotonic_ms + interval_ms)

    def _watch_open(self) -> None:
        """Where no transaction is open, nobody need wake up to look for those that take too long."""
        if any(transaction.state is State.ONGOING for transaction in self.by_id.values()):
            self._schedule(ABORT_CHECK, self._settings.abort_check_interval_ms)

    # --- commands

    def init_producer_id(self, request: InitRequest, ticket: Ticket, now: Instant) -> Outcome:
        return self._journal.run(lambda: self._journal.reply(ticket, self._init(request)), ticket, now)

    def _init(self, request: InitRequest) -> ProducerIdentity | KafkaError:
        now_ms, expected = self._journal.now.wall_ms, request.expected
        transaction = self.by_id.get(request.transactional_id)
        if transaction is None:
            transaction = Transaction(
                producer_id=self._fresh_producer_id(),
                epoch=NO_EPOCH,
                timeout_ms=request.timeout_ms,
                state=State.EMPTY,
                updated_ms=now_ms,
            )
        elif transaction.state.is_decided:
            raise being_ended(transaction)
        elif expected is not None and not _may_continue(transaction, expected):
            raise ProducerFenced(
                f"{request.transactional_id} belongs to producer {transaction.producer_id}, not "
                f"{expected.id}; another instance has taken over"
            )
        if transaction.state is State.ONGOING:
            # Its epoch is bumped once more when the client comes again, so this one is never handed out.
            self._fence(request.transactional_id, transaction)
            return being_ended(transaction)
        if transaction.is_exhausted and (expected is None or expected.epoch == transaction.epoch):
            following = transaction.rotated(
                self._fresh_producer_id(), request.timeout_ms, now_ms, at_own_request=expected is not None
            )
        else:
            epoch = None if expected is None else expected.epoch
            following = transaction.initialized(request.timeout_ms, epoch, now_ms)
        self._journal.write(request.transactional_id, following)
        return ProducerIdentity(following.producer_id, following.epoch)

    def add_partitions(self, request: AddRequest, ticket: Ticket, now: Instant) -> Outcome:
        """Answers with None."""

        def add() -> None:
            transaction = self._known(request.transactional_id)
            # Before the id and the epoch: the client may already have those that are to follow.
            if transaction.state.is_decided:
                raise being_ended(transaction)
            check_producer(transaction, request.producer_id, request.epoch)
            if transaction.state is not State.ONGOING or not request.partitions <= transaction.partitions:
                self._journal.write(
                    request.transactional_id,
                    transaction.with_partitions(request.partitions, request.client_version, now.wall_ms),
                )
                self._schedule(ABORT_CHECK, self._settings.abort_check_interval_ms)
            self._journal.reply(ticket, None)

        return self._journal.run(add, ticket, now)

    def verify(self, request: AddRequest, ticket: Ticket, now: Instant) -> Outcome:
        """Answers with a code for each partition: whether it is part of the producer's transaction."""

        def verify() -> dict[TopicPartition, ErrorCode]:
            transaction = self._known(request.transactional_id)
            check_producer(transaction, request.producer_id, request.epoch)
            if transaction.state.is_decided:
                raise being_ended(transaction)
            return {
                tp: ErrorCode.none if tp in transaction.partitions else ErrorCode.transaction_abortable
                for tp in sorted(request.partitions)
            }

        return self._journal.run(lambda: self._journal.reply(ticket, verify()), ticket, now)

    def end(self, request: EndRequest, ticket: Ticket, now: Instant) -> Outcome:
        """Answers with the id and epoch that the producer goes on with."""

        def end() -> None:
            transaction = self._known(request.transactional_id)
            if check_end(
                transaction,
                request.producer_id,
                request.epoch,
                request.client_version,
                committed=request.committed,
            ):
                transaction = self._prepare(
                    request.transactional_id,
                    transaction,
                    request.client_version,
                    committed=request.committed,
                ).completed(now.wall_ms)
            self._journal.reply(ticket, ProducerIdentity(transaction.producer_id, transaction.epoch))

        return self._journal.run(end, ticket, now)

    def complete(self, decided: Decided, ticket: Ticket, now: Instant) -> Outcome:
        """All partitions have been told. Answers with None, also if that is known already."""

        def complete() -> None:
            transaction = self.by_id.get(decided.transactional_id)
            if (
                transaction is not None
                and transaction.state.is_decided
                and (transaction.producer_id, transaction.epoch) == (decided.producer_id, decided.epoch)
            ):
                self._journal.write(decided.transactional_id, transaction.completed(now.wall_ms))
            self._journal.reply(ticket, None)

        return self._journal.run(complete, ticket, now)

    def describe(self, transactional_id: str, ticket: Ticket, now: Instant) -> Outcome:
        """Answers with the Transaction."""

        def describe() -> Transaction:
            transaction = self.by_id.get(transactional_id)
            if transaction is None:
                raise TransactionalIdNotFound(f"there is no transactional id {transactional_id}")
            return transaction

        return self._journal.run(lambda: self._journal.reply(ticket, describe()), ticket, now)

    def list_transactions(self, request: ListRequest, ticket: Ticket, now: Instant) -> Outcome:
        listed = [
            Listed(transactional_id, transaction)
            for transactional_id, transaction in sorted(self.by_id.items())
            if (request.states is None or transaction.state in request.states)
            and (not request.producer_ids or transaction.producer_id in request.producer_ids)
            and (request.duration_ms < 0 or now.wall_ms - transaction.started_ms > request.duration_ms)
        ]
        return Outcome([], [(ticket, listed)])

    # --- steps

    def _known(self, transactional_id: str) -> Transaction:
        transaction = self.by_id.get(transactional_id)
        if transaction is None:
            raise InvalidProducerIdMapping(
                f"there is no transactional id {transactional_id}; initialize the producer first"
            )
        return transaction

    def _fresh_producer_id(self) -> int:
        producer_id = self._new_producer_id()
        if producer_id is None:
            raise NoProducerId("no producer id is at hand; retry")
        return producer_id

    def _fence(self, transactional_id: str, transaction: Transaction) -> None:
        """Abort a transaction over its producer's head, so that it cannot go on."""
        version = self._transaction_version()
        if version < BUMPS_EPOCH:
            transaction, version = transaction.fenced(), 0
        self._prepare(transactional_id, transaction, version, committed=False)

    def _prepare(
        self, transactional_id: str, transaction: Transaction, client_version: int, *, committed: bool
    ) -> Transaction:
        rotates = client_version >= BUMPS_EPOCH and transaction.is_exhausted
        following = transaction.prepared(
            client_version,
            self._journal.now.wall_ms,
            committed=committed,
            next_producer_id=self._fresh_producer_id() if rotates else NO_PRODUCER_ID,
        )
        self._journal.write(transactional_id, following)
        self._announce(transactional_id, following)
        return following

    def _announce(self, transactional_id: str, transaction: Transaction) -> None:
        self._journal.effect(
            Decided(
                transactional_id,
                transaction.producer_id,
                transaction.epoch,
                transaction.state is State.PREPARE_COMMIT,
                transaction.client_version,
                tuple(sorted(transaction.partitions)),
            )
        )

    def _abort_timed_out(self) -> None:
        now_ms = self._journal.now.wall_ms
        for transactional_id, transaction in sorted(self.by_id.items()):
            if transaction.is_timed_out(now_ms):
                try:
                    self._fence(transactional_id, transaction)
                except CoordinatorNotAvailable:
                    # Its last epoch, and no new producer id: the next check finds one.
                    continue

    def _expire_ids(self) -> None:
        oldest_ms = self._journal.now.wall_ms - self._settings.id_expiration_ms
        for transactional_id, transaction in sorted(self.by_id.items()):
            if transaction.state.is_idle and transaction.updated_ms <= oldest_ms:
                check_transition(transaction.state, State.DEAD)
                self._journal.write(transactional_id, None)


def _may_continue(transaction: Transaction, expected: ProducerIdentity) -> bool:
    """The epoch is looked at later, except that of an id just replaced: it must have been the last."""
    return expected.id == transaction.producer_id or (
        expected.id == transaction.previous_producer_id and is_exhausted(expected.epoch)
    )
