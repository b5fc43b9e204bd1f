"""What a share group has in flight: acquired, acknowledged, released, expired, and what is stored of it."""

import pytest

from ottla.replication.share.in_flight import (
    Acknowledgement,
    AckType,
    Acquired,
    InFlight,
    LogBatch,
    State,
    StateBatch,
    Wanted,
)
from ottla.replication.share.settings import ShareSettings
from ottla.wire.errors import InvalidRecordState, InvalidRequest

SETTINGS = ShareSettings()
WANTED = Wanted(500, 500)
UNTIL = 30.0


def batches(*bases: int, upto: int) -> list[LogBatch]:
    ends = [*bases[1:], upto]
    return [LogBatch(base, end - 1) for base, end in zip(bases, ends, strict=True)]


def acquire(
    flight: InFlight,
    member: str,
    log: list[LogBatch],
    wanted: Wanted = WANTED,
    settings: ShareSettings = SETTINGS,
    until: float = UNTIL,
) -> list[Acquired]:
    return flight.acquire(member, log, wanted, settings, until)


def decide(flight: InFlight, member: str, first: int, last: int, *types: int) -> list[StateBatch]:
    transition = flight.acknowledge(member, [Acknowledgement(first, last, types)], SETTINGS, UNTIL)
    stored = transition.batches
    flight.commit(transition)
    return stored


def states(flight: InFlight) -> list[tuple[int, int, State, int]]:
    return [(run.first, run.last, run.state, run.deliveries) for run in flight]


def test_what_is_acquired_as_a_whole_is_one_run() -> None:
    flight = InFlight(0)
    assert acquire(flight, "a", batches(0, 10, 20, upto=30)) == [Acquired(0, 29, 1)]
    assert len(flight.runs) == 1
    assert flight.next_offset == 30


def test_no_more_is_taken_than_to_the_end_of_a_batch() -> None:
    flight = InFlight(0)
    assert acquire(flight, "a", batches(0, 10, 20, upto=30), Wanted(5, 500)) == [Acquired(0, 9, 1)]
    assert acquire(flight, "b", batches(10, 20, upto=30), Wanted(11, 500)) == [Acquired(10, 29, 1)]


def test_record_limit_is_exact() -> None:
    flight = InFlight(0)
    log = batches(0, 10, upto=20)
    assert acquire(flight, "a", log, Wanted(4, 500, is_exact=True)) == [Acquired(0, 3, 1)]
    assert acquire(flight, "b", log, Wanted(10, 500, is_exact=True)) == [Acquired(4, 13, 1)]
    assert acquire(flight, "a", log, Wanted(10, 500, is_exact=True)) == [Acquired(14, 19, 1)]


def test_long_acquisitions_are_divided_by_batch_size() -> None:
    flight = InFlight(0)
    acquired = acquire(flight, "a", batches(0, 10, 20, 30, upto=40), Wanted(500, 20))
    assert acquired == [Acquired(0, 19, 1), Acquired(20, 39, 1)]


def test_all_acknowledged_moves_the_start() -> None:
    flight = InFlight(5)
    acquire(flight, "a", batches(5, upto=15))
    assert decide(flight, "a", 5, 14, AckType.ACCEPT) == [StateBatch(5, 14, State.ACKNOWLEDGED, 1)]
    assert (flight.start, flight.end, flight.runs) == (15, 15, [])


def test_types_for_each_offset_split_only_where_they_differ() -> None:
    flight = InFlight(0)
    acquire(flight, "a", batches(0, upto=6))
    assert decide(flight, "a", 0, 5, 1, 1, 2, 2, 3, 0) == [
        StateBatch(0, 1, State.ACKNOWLEDGED, 1),
        StateBatch(2, 3, State.AVAILABLE, 1),
        StateBatch(4, 5, State.ARCHIVED, 1),
    ]
    assert flight.start == flight.next_offset == 2
    assert acquire(flight, "b", batches(0, upto=6)) == [Acquired(2, 3, 2)]


def test_nothing_of_a_refused_acknowledgement_stays() -> None:
    flight = InFlight(0)
    acquire(flight, "a", batches(0, 5, upto=10), Wanted(1, 500))
    acquire(flight, "b", batches(5, upto=10), Wanted(1, 500))
    with pytest.raises(InvalidRecordState):
        decide(flight, "a", 0, 9, AckType.ACCEPT)
    assert decide(flight, "a", 0, 4, AckType.ACCEPT)
    with pytest.raises(InvalidRequest):
        decide(flight, "b", 5, 10, AckType.ACCEPT)
    assert decide(flight, "b", 5, 9, AckType.ACCEPT)


def test_nobody_touches_what_is_being_stored() -> None:
    flight = InFlight(0)
    acquire(flight, "a", batches(0, upto=10))
    transition = flight.acknowledge("a", [Acknowledgement(0, 9, [AckType.RELEASE])], SETTINGS, UNTIL)
    assert flight.next_offset == 10
    assert flight.expire(SETTINGS, 100.0) == []
    with pytest.raises(InvalidRecordState):
        decide(flight, "a", 0, 9, AckType.ACCEPT)
    assert not flight.release("a", SETTINGS).runs
    flight.commit(transition)
    assert flight.next_offset == 0


def test_what_could_not_be_stored_is_still_acquired_while_its_lock_holds() -> None:
    flight = InFlight(0)
    acquire(flight, "a", batches(0, upto=10))
    acknowledgements = [Acknowledgement(0, 9, [AckType.ACCEPT])]
    flight.roll_back(flight.acknowledge("a", acknowledgements, SETTINGS, UNTIL), SETTINGS, UNTIL - 1)
    assert states(flight) == [(0, 9, State.ACQUIRED, 1)]
    flight.roll_back(flight.acknowledge("a", acknowledgements, SETTINGS, UNTIL), SETTINGS, UNTIL)
    assert states(flight) == [(0, 9, State.AVAILABLE, 1)]


def test_expired_locks_give_back_until_the_limit() -> None:
    flight, settings = InFlight(0), SETTINGS._replace(deliveries_max=2)
    acquire(flight, "a", batches(0, upto=10), settings=settings)
    assert flight.next_expiry == UNTIL
    assert flight.expire(settings, UNTIL - 0.1) == []
    assert flight.expire(settings, UNTIL) == [StateBatch(0, 9, State.AVAILABLE, 1)]
    assert flight.next_expiry is None
    while flight.next_offset < 10:
        acquire(flight, "b", batches(0, upto=10), settings=settings, until=60.0)
    assert flight.expire(settings, 60.0) == [StateBatch(0, 9, State.ARCHIVED, 2)]
    assert flight.start == 10


def test_renewed_locks_hold_longer_and_nothing_is_stored() -> None:
    flight = InFlight(0)
    acquire(flight, "a", batches(0, upto=10))
    transition = flight.acknowledge("a", [Acknowledgement(0, 4, [AckType.RENEW])], SETTINGS, 60.0)
    assert not transition.batches
    assert flight.expire(SETTINGS, UNTIL) == [StateBatch(5, 9, State.AVAILABLE, 1)]
    with pytest.raises(InvalidRecordState):
        flight.acknowledge("a", [Acknowledgement(0, 4, [4])], SETTINGS._replace(may_renew=False), 60.0)


def test_what_failed_often_is_divided_and_at_last_delivered_alone() -> None:
    settings = SETTINGS._replace(deliveries_max=5)
    flight = InFlight(0, [StateBatch(0, 7, State.AVAILABLE, 3)])
    log = batches(0, upto=20)
    assert acquire(flight, "a", log, settings=settings) == [Acquired(0, 3, 4)]
    flight.commit(flight.release("a", settings))
    assert acquire(flight, "a", log, settings=settings) == [Acquired(0, 0, 5)]
    assert acquire(flight, "b", log, settings=settings) == [Acquired(1, 1, 5)]


def test_a_group_gets_no_more_than_it_may_have_in_flight() -> None:
    settings = SETTINGS._replace(in_flight_max=10)
    flight = InFlight(0)
    assert acquire(flight, "a", batches(0, 5, 10, 15, upto=20), settings=settings) == [Acquired(0, 9, 1)]
    assert not flight.may_give(settings)
    decide(flight, "a", 5, 9, AckType.RELEASE)
    assert flight.may_give(settings)
    assert acquire(flight, "b", batches(5, 10, 15, upto=20), settings=settings) == [Acquired(5, 9, 2)]
    decide(flight, "a", 0, 4, AckType.ACCEPT)
    assert flight.may_give(settings)


def test_holes_and_aborted_batches_are_given_to_nobody() -> None:
    flight = InFlight(0)
    log = [LogBatch(3, 4), LogBatch(7, 9, is_aborted=True), LogBatch(10, 11)]
    assert acquire(flight, "a", log) == [Acquired(3, 4, 1), Acquired(10, 11, 1)]
    assert flight.start == 3
    decide(flight, "a", 3, 4, AckType.ACCEPT)
    assert flight.start == 10


def test_a_log_that_starts_later_takes_records_away() -> None:
    flight = InFlight(0)
    acquire(flight, "a", batches(0, upto=10))
    flight.log_starts_at(4)
    assert states(flight) == [(4, 9, State.ACQUIRED, 1)]
    assert decide(flight, "a", 0, 9, AckType.ACCEPT) == [StateBatch(4, 9, State.ACKNOWLEDGED, 1)]
    flight.log_starts_at(20)
    assert (flight.start, flight.end, flight.next_offset) == (20, 20, 20)
    assert decide(flight, "a", 0, 9, AckType.ACCEPT) == []


def test_from_stored_state_what_was_never_acknowledged_is_available() -> None:
    flight = InFlight(
        10,
        [
            StateBatch(10, 14, State.ACKNOWLEDGED, 1),
            StateBatch(20, 24, State.ARCHIVED, 5),
            StateBatch(25, 29, State.AVAILABLE, 2),
        ],
    )
    assert (flight.start, flight.end, flight.next_offset) == (15, 30, 15)
    assert flight.delivery_complete_count == 5
    assert acquire(flight, "a", batches(10, 20, upto=40)) == [
        Acquired(15, 19, 1),
        Acquired(25, 29, 3),
        Acquired(30, 39, 1),
    ]


def test_of_a_group_without_anything_in_flight_nothing_can_be_acknowledged() -> None:
    with pytest.raises(InvalidRecordState):
        decide(InFlight(5), "a", 5, 9, AckType.ACCEPT)
