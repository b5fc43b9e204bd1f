"""Random producers, zombies, crashes and repeated requests against the invariants of `transaction_fleet`.

For every invariant there is a shard with a bug that breaks it, to show that the checks notice.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from transaction_fleet import PARTITIONS, Client, Fleet, Violation
from transaction_shard_driver import TX

from ottla.coordinator.host.journal import Instant, Outcome
from ottla.coordinator.transactions.commands import InitRequest
from ottla.coordinator.transactions.shard import TransactionShard
from ottla.coordinator.transactions.states import State
from ottla.coordinator.transactions.transaction import Transaction
from ottla.records.producer import EPOCH_MAX, ProducerIdentity
from ottla.wire.errors import KafkaError

CLIENTS = st.integers(0, 2)
WISHES = st.booleans()


class FleetMachine(RuleBasedStateMachine):
    versions: tuple[int, ...] = (2, 2, 2)
    shard_type: type[TransactionShard] = TransactionShard

    def __init__(self) -> None:
        super().__init__()
        self.fleet = Fleet(self.shard_type, self.versions)

    def _client(self, pick: int) -> Client:
        return self.fleet.clients[pick % len(self.fleet.clients)]

    @rule(pick=CLIENTS)
    def init(self, pick: int) -> None:
        self._client(pick).init()

    @rule(pick=CLIENTS, tp=st.sampled_from(PARTITIONS))
    def write(self, pick: int, tp: Any) -> None:
        self._client(pick).write(tp)

    @rule(pick=CLIENTS)
    def write_everywhere(self, pick: int) -> None:
        for tp in PARTITIONS:
            self._client(pick).write(tp)

    @rule(pick=CLIENTS, committed=WISHES)
    def end(self, pick: int, committed: bool) -> None:
        self._client(pick).end(committed=committed)

    @rule(pick=CLIENTS, committed=WISHES)
    def end_without_hearing_back(self, pick: int, committed: bool) -> None:
        self._client(pick).end_without_hearing_back(committed=committed)

    @rule(pick=CLIENTS)
    def send_last_end_again(self, pick: int) -> None:
        self._client(pick).send_last_end_again()

    @precondition(lambda self: self.fleet.driver.decided)
    @rule(partitions=st.integers(0, 3))
    def carry_out(self, partitions: int) -> None:
        self.fleet.carry_out(self.fleet.driver.decided[0], partitions)

    @rule()
    def crash(self) -> None:
        self.fleet.crash()

    @rule(pick=CLIENTS, committed=WISHES)
    def crash_before_commit(self, pick: int, committed: bool) -> None:
        self.fleet.crash_before_commit(self._client(pick), committed=committed)

    @rule()
    def wait_for_the_time_out(self) -> None:
        self.fleet.driver.advance(100_000)

    @precondition(lambda self: TX in self.fleet.driver.shard.by_id)
    @rule(left=st.integers(0, 3))
    def use_up_epochs(self, left: int) -> None:
        """As many producers would; those there are have an epoch of long ago."""
        known = self.fleet.driver.shard.by_id[TX]
        if known.state.is_idle and known.epoch < EPOCH_MAX - 10:
            self.fleet.driver.put(epoch=EPOCH_MAX - 1 - left, state=State.EMPTY, started_ms=-1)

    @invariant()
    def invariants_hold(self) -> None:
        self.fleet.check()

    def teardown(self) -> None:
        self.fleet.check_convergence()


def machine(**fields: Any) -> type[FleetMachine]:
    return type("FleetMachine", (FleetMachine,), fields)


MACHINES = {"new": (2, 2, 2), "old": (0, 0, 0), "mixed": (0, 2, 2)}


@pytest.mark.parametrize("name", MACHINES)
def test_invariants_hold(name: str) -> None:
    run_state_machine_as_test(
        machine(versions=MACHINES[name]),
        settings=settings(
            max_examples=60,
            report_multiple_bugs=False,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


# --- planted bugs


class TakesEndsThatContradict(TransactionShard):
    """A second EndTxn turns around what has been decided."""

    def end(self, request: Any, ticket: Any, now: Instant) -> Outcome:
        known = self.by_id.get(request.transactional_id)
        if known is not None and known.state.is_decided and known.epoch == request.epoch + 1:
            opposite = State.PREPARE_COMMIT if request.committed else State.PREPARE_ABORT
            self._journal.now = now
            self._journal.write(request.transactional_id, replace(known, state=opposite))
            self._announce(request.transactional_id, self.by_id[request.transactional_id])
            self._journal.reply(ticket, ProducerIdentity(known.producer_id, known.epoch))
            return self._journal.take()
        return super().end(request, ticket, now)


class CommitsWhatTimedOut(TransactionShard):
    def _fence(self, transactional_id: str, transaction: Transaction) -> None:
        self._prepare(transactional_id, transaction, 2, committed=True)


class TakesAnyEpoch(TransactionShard):
    """Whoever ends, ends the transaction that is open, as with the old protocol's late requests."""

    def end(self, request: Any, ticket: Any, now: Instant) -> Outcome:
        known = self.by_id.get(request.transactional_id)
        if known is not None and known.state is State.ONGOING:
            request = replace(request, epoch=known.epoch, producer_id=known.producer_id)
        return super().end(request, ticket, now)


class StartsEpochsAgain(TransactionShard):
    """When an id is initialized after a commit."""

    def _init(self, request: InitRequest) -> ProducerIdentity | KafkaError:
        known = self.by_id.get(request.transactional_id)
        if known is not None and known.state is State.COMPLETE_COMMIT:
            self.by_id[request.transactional_id] = replace(known, epoch=-1)
        return super()._init(request)


class KeepsTheEpoch(TransactionShard):
    """Initializing an idle id fences nobody."""

    def _init(self, request: InitRequest) -> ProducerIdentity | KafkaError:
        known = self.by_id.get(request.transactional_id)
        if known is not None and known.state is State.EMPTY:
            return ProducerIdentity(known.producer_id, known.epoch)
        return super()._init(request)


class ForgetsDecisionsInARestart(TransactionShard):
    def loaded(self, now: Instant) -> Outcome:
        return Outcome(super().loaded(now).records, [])


class ForgetsToStoreFurtherPartitions(TransactionShard):
    def add_partitions(self, request: Any, ticket: Any, now: Instant) -> Outcome:
        known = self.by_id.get(request.transactional_id)
        outcome = super().add_partitions(request, ticket, now)
        if known is not None and known.state is State.ONGOING:
            return Outcome([], outcome.replies)
        return outcome


class NeverLooksForTimeOuts(TransactionShard):
    def _abort_timed_out(self) -> None:
        pass


class CompletesWithTheOtherOutcome(TransactionShard):
    def complete(self, decided: Any, ticket: Any, now: Instant) -> Outcome:
        known = self.by_id.get(decided.transactional_id)
        if known is not None and known.state is State.PREPARE_COMMIT:
            self.by_id[decided.transactional_id] = replace(known, state=State.PREPARE_ABORT)
        return super().complete(decided, ticket, now)


@pytest.mark.parametrize(
    ("invariant_name", "clients", "shard_type"),
    [
        ("TwoOutcomesOfATransaction|DecisionsAreFinal", 2, TakesEndsThatContradict),
        ("TwoOutcomesOfATransaction", 2, CommitsWhatTimedOut),
        ("TwoOutcomesOfATransaction", 1, TakesAnyEpoch),
        ("ProducerEpochNeverGoesBack|OneProducerPerEpoch", 2, StartsEpochsAgain),
        ("OneProducerPerEpoch", 2, KeepsTheEpoch),
        ("EveryTransactionEnds", 1, ForgetsDecisionsInARestart),
        ("EveryTransactionEnds", 1, ForgetsToStoreFurtherPartitions),
        ("EveryTransactionEnds", 1, NeverLooksForTimeOuts),
        ("DecisionsAreFinal", 1, CompletesWithTheOtherOutcome),
    ],
)
def test_a_planted_bug_is_caught(
    invariant_name: str, clients: int, shard_type: type[TransactionShard]
) -> None:
    with pytest.raises(Violation, match=invariant_name):
        run_state_machine_as_test(
            machine(shard_type=shard_type, versions=(2,) * clients),
            settings=settings(
                # What is tried also depends on the modules that are loaded: rarely more than a few hundred.
                max_examples=3000,
                stateful_step_count=40,
                deadline=None,
                derandomize=True,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            ),
        )
