"""Commands of the transaction coordinator, one by one: answers, errors, what is stored, what follows."""

from __future__ import annotations

import pytest
from transaction_shard_driver import EPOCH_MS, TIMEOUT_MS, TX, A, B, C, Driver

from ottla.coordinator.transactions.commands import InitRequest
from ottla.coordinator.transactions.settings import TransactionSettings
from ottla.coordinator.transactions.states import FROM, State, check_transition
from ottla.coordinator.transactions.transaction import NEVER_TIMES_OUT_MS
from ottla.records.producer import EPOCH_MAX
from ottla.wire.errors import (
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    ErrorCode,
    InvalidProducerIdMapping,
    InvalidTxnState,
    KafkaError,
    ProducerFenced,
    TransactionalIdNotFound,
)

OLD, NEW = 0, 2
LAST_EPOCH = EPOCH_MAX - 1
"""The last that a client is given."""

both = pytest.mark.parametrize("version", [OLD, 1, NEW])


def state(driver: Driver) -> State:
    return driver.shard.by_id[TX].state


def ongoing(version: int) -> tuple[Driver, tuple[int, int]]:
    driver = Driver(version)
    identity = driver.init()
    driver.add(identity, A, B)
    return driver, identity


# --- initializing


@both
def test_a_new_id_gets_a_producer_id_with_epoch_0(version: int) -> None:
    driver = Driver(version)
    assert driver.init() == (1001, 0)
    (stored,) = driver.stored()
    assert stored is not None
    assert (stored.producer_id, stored.epoch, stored.state) == (1001, 0, State.EMPTY)
    assert (stored.timeout_ms, stored.started_ms, stored.updated_ms) == (TIMEOUT_MS, -1, EPOCH_MS)


@both
def test_initializing_again_bumps_the_epoch_and_fences(version: int) -> None:
    driver = Driver(version)
    first = driver.init()
    assert driver.init(timeout_ms=5) == (1001, 1)
    assert driver.shard.by_id[TX].timeout_ms == 5
    with pytest.raises(ProducerFenced):
        driver.add(first, A)


def test_a_producer_may_go_on_after_an_error() -> None:
    driver = Driver()
    assert driver.init((77, 3)) == (1001, 0), "an id that was forgotten is like a new one"
    assert driver.init((1001, 0)) == (1001, 1)
    assert driver.init((1001, 0)) == (1001, 1), "sent again"
    assert driver.init((1001, 1)) == (1001, 2)
    with pytest.raises(ProducerFenced):
        driver.init((1001, 0))
    with pytest.raises(ProducerFenced):
        driver.init((1002, 2))


def test_a_producer_cannot_go_on_after_another_was_initialized() -> None:
    driver = Driver()
    driver.init()
    driver.init((1001, 0))
    driver.init()
    with pytest.raises(ProducerFenced):
        driver.init((1001, 1))


@both
def test_an_open_transaction_is_aborted_first(version: int) -> None:
    driver, identity = ongoing(version)
    with pytest.raises(ConcurrentTransactions):
        driver.init()
    assert state(driver) is State.PREPARE_ABORT
    with pytest.raises(ConcurrentTransactions):
        driver.init()
    (decided,) = driver.tell_all()
    assert decided[1:] == (1001, 1, False, NEW if version == NEW else 0, (A, B))
    assert state(driver) is State.COMPLETE_ABORT
    with pytest.raises(ProducerFenced):
        driver.add(identity, A)
    assert driver.init() == (1001, 2), "the epoch that fenced is handed out to nobody"


@both
def test_a_zombie_cannot_abort_the_transaction_of_its_successor(version: int) -> None:
    driver = Driver(version)
    zombie = driver.init()
    driver.add(driver.init(), A)
    with pytest.raises(ProducerFenced):
        driver.end(zombie, committed=False)
    assert state(driver) is State.ONGOING


def test_exhausted_epochs_bring_a_new_producer_id() -> None:
    driver = Driver()
    driver.init()
    driver.put(epoch=LAST_EPOCH)
    assert driver.init() == (1002, 0)
    driver.put(epoch=LAST_EPOCH)
    assert driver.init((1002, LAST_EPOCH)) == (1003, 0)
    assert driver.init((1002, LAST_EPOCH)) == (1003, 0), "sent again"
    with pytest.raises(ProducerFenced):
        driver.init((1002, 5))


def test_exhausted_epochs_do_not_help_a_fenced_producer() -> None:
    driver = Driver()
    driver.init()
    driver.put(epoch=LAST_EPOCH)
    with pytest.raises(ProducerFenced):
        driver.init((1001, 7))


def test_without_a_producer_id_at_hand_the_client_comes_again() -> None:
    driver = Driver(producer_ids=[])
    with pytest.raises(CoordinatorNotAvailable):
        driver.init()
    assert driver.log == []


@both
def test_the_last_epoch_of_an_open_transaction(version: int) -> None:
    driver = Driver(version)
    driver.init()
    driver.put(epoch=LAST_EPOCH)
    driver.add((1001, LAST_EPOCH), A)
    with pytest.raises(ConcurrentTransactions):
        driver.init()
    (decided,) = driver.tell_all()
    assert decided[1:3] == (1001, EPOCH_MAX), "there is one left to fence with"
    assert driver.init() == ((1002, 1) if version == NEW else (1002, 0))


# --- adding


@both
def test_a_transaction_begins_with_its_first_partition(version: int) -> None:
    driver = Driver(version)
    identity = driver.init()
    driver.now_ms = 5
    driver.add(identity, A)
    driver.now_ms = 10
    driver.add(identity, B)
    driver.add(identity, A, B)
    stored = driver.stored()
    assert [entry and sorted(entry.partitions) for entry in stored] == [[], [A], [A, B]], (
        "no change, no record"
    )
    assert [entry and entry.started_ms for entry in stored] == [-1, EPOCH_MS + 5, EPOCH_MS + 5]


@both
def test_who_may_add(version: int) -> None:
    driver = Driver(version)
    with pytest.raises(InvalidProducerIdMapping):
        driver.add((1001, 0), A)
    driver.init()
    with pytest.raises(InvalidProducerIdMapping):
        driver.add((5, 0), A)
    for epoch in (-1, 1):
        with pytest.raises(ProducerFenced):
            driver.add((1001, epoch), A)
    driver.add((1001, 0), A)
    driver.end((1001, 0))
    with pytest.raises(ConcurrentTransactions):
        driver.add((1001, 0), A)


# --- verifying


def test_verification_tells_of_each_partition() -> None:
    driver, identity = ongoing(OLD)
    assert driver.verify(identity, B, C) == {B: ErrorCode.none, C: ErrorCode.transaction_abortable}
    with pytest.raises(InvalidProducerIdMapping):
        driver.verify((5, 0), A)
    with pytest.raises(ProducerFenced):
        driver.verify((1001, 1), A)
    driver.end(identity)
    with pytest.raises(ConcurrentTransactions):
        driver.verify(identity, A)
    driver.tell_all()
    assert driver.verify(identity, A) == {A: ErrorCode.transaction_abortable}


def test_verification_of_nobody() -> None:
    with pytest.raises(InvalidProducerIdMapping):
        Driver().verify((1001, 0), A)


# --- ending


@both
@pytest.mark.parametrize("committed", [True, False])
def test_the_end_is_decided_told_and_completed(version: int, committed: bool) -> None:
    driver, identity = ongoing(version)
    driver.commits_at_once = False
    ended = driver.submit("end", _end(identity, committed, version))
    assert not driver.answered(ended)
    assert driver.decided == []
    driver.commit()
    epoch = 1 if version == NEW else 0
    assert driver.reply(ended) == (1001, epoch)
    assert driver.decided[0][1:] == (1001, epoch, committed, version, (A, B))
    driver.commits_at_once = True
    driver.tell_all()
    prepared, completed = driver.stored()[-2:]
    assert prepared is not None
    assert completed is not None
    assert prepared.state is (State.PREPARE_COMMIT if committed else State.PREPARE_ABORT)
    assert completed.state is (State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT)
    assert sorted(prepared.partitions) == [A, B]
    assert completed.partitions == frozenset()
    assert completed.epoch == epoch


def _end(identity: tuple[int, int], committed: bool, version: int) -> object:
    from ottla.coordinator.transactions.commands import EndRequest

    return EndRequest(TX, *identity, committed, version)


def test_completion_is_noted_once_and_for_its_own_transaction() -> None:
    driver, identity = ongoing(NEW)
    following = driver.end(identity)
    (decided,) = driver.tell_all()
    count = len(driver.log)
    driver.reply(driver.submit("complete", decided))
    driver.add(following, A)
    driver.end(following)
    driver.reply(driver.submit("complete", decided))
    assert state(driver) is State.PREPARE_COMMIT
    assert len(driver.log) == count + 2


OUTCOMES = {
    # Of the table in KIP-890: state reached by, whether the epoch is the one before, commit wanted.
    ("empty", "before", True): ProducerFenced,
    ("empty", "before", False): ProducerFenced,
    ("empty", "current", True): InvalidTxnState,
    ("empty", "current", False): "bump",
    ("abort", "before", True): InvalidTxnState,
    ("abort", "before", False): "again",
    ("abort", "current", True): InvalidTxnState,
    ("abort", "current", False): "bump",
    ("commit", "before", True): "again",
    ("commit", "before", False): InvalidTxnState,
    ("commit", "current", True): InvalidTxnState,
    ("commit", "current", False): "bump",
}


@pytest.mark.parametrize(("reached", "which", "committed"), OUTCOMES)
def test_ending_without_a_transaction_with_the_new_protocol(
    reached: str, which: str, committed: bool
) -> None:
    driver = Driver(NEW)
    current = driver.init()
    if reached != "empty":
        driver.add(current, A)
        current = driver.end(current, committed=reached == "commit")
        driver.tell_all()
    else:
        current = driver.init()
    identity = (1001, current.epoch - (which == "before"))
    expected = OUTCOMES[reached, which, committed]
    count = len(driver.log)
    if isinstance(expected, type):
        with pytest.raises(expected):
            driver.end(identity, committed=committed)
        assert len(driver.log) == count
        return
    following = driver.end(identity, committed=committed)
    if expected == "again":
        assert following == current
        assert len(driver.log) == count
    else:
        assert following == (1001, current.epoch + 1)
        driver.tell_all()
        assert state(driver) is State.COMPLETE_ABORT
        assert driver.shard.by_id[TX].started_ms >= EPOCH_MS


@pytest.mark.parametrize(
    ("reached", "committed", "expected"),
    [
        ("empty", True, InvalidTxnState),
        ("empty", False, InvalidTxnState),
        ("abort", False, None),
        ("abort", True, InvalidTxnState),
        ("commit", True, None),
        ("commit", False, InvalidTxnState),
    ],
)
def test_ending_without_a_transaction_with_the_old_protocol(
    reached: str, committed: bool, expected: type[KafkaError] | None
) -> None:
    driver = Driver(OLD)
    identity = driver.init()
    if reached != "empty":
        driver.add(identity, A)
        driver.end(identity, committed=reached == "commit")
        driver.tell_all()
    count = len(driver.log)
    if expected is None:
        assert driver.end(identity, committed=committed) == identity
    else:
        with pytest.raises(expected):
            driver.end(identity, committed=committed)
    assert len(driver.log) == count


@both
def test_ending_twice_at_once(version: int) -> None:
    driver, identity = ongoing(version)
    driver.end(identity)
    for committed in (True, False):
        with pytest.raises(ConcurrentTransactions):
            driver.end(identity, committed=committed)
    assert len(driver.decided) == 1


@both
def test_who_may_end(version: int) -> None:
    driver = Driver(version)
    with pytest.raises(InvalidProducerIdMapping):
        driver.end((1001, 0))
    driver.init()
    driver.add((1001, 0), A)
    with pytest.raises(InvalidProducerIdMapping):
        driver.end((5, 0))
    for epoch in (1, -1):
        with pytest.raises(ProducerFenced):
            driver.end((1001, epoch))


def test_ending_with_the_last_epoch_brings_a_new_producer_id() -> None:
    driver = Driver(NEW)
    driver.init()
    driver.put(epoch=LAST_EPOCH)
    last = (1001, LAST_EPOCH)
    driver.add(last, A)
    assert driver.end(last) == (1002, 0)
    with pytest.raises(ConcurrentTransactions):
        driver.add((1002, 0), A)
    (decided,) = driver.tell_all()
    assert decided[1:3] == (1001, EPOCH_MAX), "the markers are still those of the old one"
    assert driver.end(last) == (1002, 0), "sent again"
    with pytest.raises(InvalidTxnState):
        driver.end(last, committed=False)
    driver.add((1002, 0), A)
    assert driver.end((1002, 0)) == (1002, 1)


def test_an_old_client_keeps_its_epoch_in_a_new_cluster() -> None:
    driver = Driver(NEW)
    identity = driver.init()
    driver.add(identity, A, client=OLD)
    assert driver.end(identity, client=OLD) == identity
    driver.tell_all()
    driver.add(identity, A, client=OLD)
    assert driver.end(identity, committed=False, client=OLD) == identity


# --- time


@both
def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(version: int) -> None:
    driver, identity = ongoing(version)
    driver.advance(TIMEOUT_MS)
    assert state(driver) is State.ONGOING
    driver.advance(10_000)
    assert state(driver) is State.PREPARE_ABORT
    driver.tell_all()
    with pytest.raises(InvalidTxnState if version == NEW else ProducerFenced):
        driver.end(identity)
    assert driver.init() == (1001, 2)


def test_looking_for_them_is_repeated() -> None:
    driver = Driver()
    identity = driver.init(timeout_ms=1)
    for _ in range(3):
        driver.add(identity, A)
        driver.advance(20_000)
        driver.tell_all()
        assert state(driver) is State.COMPLETE_ABORT
        identity = driver.init(timeout_ms=1)


def test_nobody_wakes_up_for_nothing() -> None:
    settings = TransactionSettings(abort_check_interval_ms=100, id_expiration_check_interval_ms=10**6)
    driver = Driver(settings=settings)
    assert driver.shard.next_deadline_ms() == 10**6
    identity = driver.init()
    assert driver.shard.next_deadline_ms() == 10**6
    driver.add(identity, A)
    assert driver.shard.next_deadline_ms() == 100
    driver.advance(100)
    assert driver.shard.next_deadline_ms() == 200
    driver.restart()
    assert driver.shard.next_deadline_ms() == 200
    driver.end(identity)
    driver.advance(100)
    assert driver.shard.next_deadline_ms() == 10**6 + 100


def test_two_phase_transactions_never_time_out() -> None:
    driver = Driver()
    driver.add(driver.init(timeout_ms=NEVER_TIMES_OUT_MS), A)
    driver.advance(10**12)
    assert state(driver) is State.ONGOING


def test_an_idle_id_is_forgotten_but_not_one_with_a_transaction() -> None:
    settings = TransactionSettings(
        id_expiration_ms=100_000, id_expiration_check_interval_ms=1_000, abort_check_interval_ms=10**9
    )
    driver = Driver(settings=settings)
    driver.init(name="idle")
    identity = driver.init()
    driver.advance(50_000)
    driver.add(identity, A)
    driver.advance(60_000)
    assert list(driver.shard.by_id) == [TX]
    assert driver.stored("idle")[-1] is None
    driver.advance(500_000)
    assert list(driver.shard.by_id) == [TX]
    driver.restart()
    assert list(driver.shard.by_id) == [TX]


# --- restarts


@both
@pytest.mark.parametrize("committed", [True, False])
def test_a_decision_is_carried_out_after_a_restart(version: int, committed: bool) -> None:
    driver, identity = ongoing(version)
    driver.end(identity, committed=committed)
    driver.restart()
    assert [decided.committed for decided in driver.decided] == [committed]
    driver.tell_all()
    assert state(driver) is (State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT)
    driver.restart()
    assert driver.decided == []


def test_nothing_is_decided_by_what_was_not_committed() -> None:
    driver, identity = ongoing(NEW)
    driver.commits_at_once = False
    driver.submit("end", _end(identity, True, NEW))
    driver.restart()
    driver.commits_at_once = True
    assert state(driver) is State.ONGOING
    assert driver.decided == []
    driver.end(identity, committed=False)


def test_replies_wait_for_the_commit() -> None:
    driver = Driver(commits_at_once=False)
    ticket = driver.submit("init_producer_id", InitRequest(TX, TIMEOUT_MS))
    assert not driver.answered(ticket)
    driver.commit()
    assert driver.reply(ticket) == (1001, 0)


# --- looking


def test_describing() -> None:
    driver, _ = ongoing(NEW)
    found = driver.reply(driver.submit("describe", TX))
    assert (found.state.label, sorted(found.partitions)) == ("Ongoing", [A, B])
    with pytest.raises(TransactionalIdNotFound):
        driver.reply(driver.submit("describe", "nobody"))


def test_listing() -> None:
    driver, _ = ongoing(NEW)
    driver.init(name="other")
    driver.now_ms = 1_000
    assert driver.listed() == ["other", TX]
    assert driver.listed(states=frozenset((State.ONGOING,))) == [TX]
    assert driver.listed(states=frozenset()) == []
    assert driver.listed(producer_ids=frozenset((1002,))) == ["other"]
    assert driver.listed(states=frozenset((State.ONGOING,)), duration_ms=999) == [TX]
    assert driver.listed(states=frozenset((State.ONGOING,)), duration_ms=1_000) == []


# --- the table


def test_states_have_the_names_that_tools_print() -> None:
    assert [state.label for state in State] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]


def test_a_decision_has_one_way_on() -> None:
    ways = {
        before: [after for after in FROM if before in FROM[after]]
        for before in (State.PREPARE_COMMIT, State.PREPARE_ABORT)
    }
    assert ways == {
        State.PREPARE_COMMIT: [State.COMPLETE_COMMIT],
        State.PREPARE_ABORT: [State.COMPLETE_ABORT],
    }
    with pytest.raises(AssertionError, match="PrepareCommit to CompleteAbort"):
        check_transition(State.PREPARE_COMMIT, State.COMPLETE_ABORT)
