"""Each checker accepts a right history and finds the violation planted in a wrong one."""

from __future__ import annotations

import pytest

from ottla.sim.checkers import (
    Acked,
    Checker,
    CorruptRead,
    DuplicateFromIdempotentProducer,
    Event,
    History,
    InvariantViolation,
    LostAcknowledgedWrite,
    Read,
    ReadingStarts,
    Sent,
    SkippedOrNonMonotonicPoll,
)

P0 = ("topic", 0)
P1 = ("topic", 1)

RIGHT: list[Event] = [
    Sent(P0, b"a"),
    Acked(P0, 0, b"a"),
    Sent(P0, b"b"),
    Sent(P0, b"c"),
    Acked(P0, 2, b"b"),
    Sent(P1, b"a"),
    Acked(P1, 0, b"a"),
    # Stored but never acknowledged: allowed.
    ReadingStarts(P0, 0),
    Read(P0, 0, b"a"),
    Read(P0, 1, b"c"),
    ReadingStarts(P0, 1, "other"),
    Read(P0, 1, b"c", "other"),
    Read(P0, 2, b"b"),
    ReadingStarts(P0, 1),
    Read(P0, 1, b"c"),
    Read(P1, 0, b"a"),
]


def _violates(checker: Checker, events: list[Event]) -> bool:
    try:
        for event in events:
            checker.observe(event)
        checker.check()
    except InvariantViolation:
        return True
    return False


@pytest.mark.parametrize(
    "checker",
    [LostAcknowledgedWrite, SkippedOrNonMonotonicPoll, CorruptRead, DuplicateFromIdempotentProducer, History],
)
def test_a_right_history_passes(checker: type[Checker]) -> None:
    assert not _violates(checker(), RIGHT)


@pytest.mark.parametrize(
    ("checker", "events"),
    [
        pytest.param(LostAcknowledgedWrite, [Acked(P0, 0, b"a")], id="never read"),
        pytest.param(
            LostAcknowledgedWrite, [Acked(P0, 0, b"a"), Read(P1, 0, b"a")], id="in another partition"
        ),
        pytest.param(LostAcknowledgedWrite, [Acked(P0, 0, b"a"), Read(P0, 1, b"a")], id="at another offset"),
        pytest.param(
            LostAcknowledgedWrite, [Acked(P0, 0, b"a"), Read(P0, 0, b"b")], id="another value there"
        ),
        pytest.param(
            LostAcknowledgedWrite, [Acked(P0, 0, b"a"), Acked(P0, 0, b"b")], id="offset promised twice"
        ),
        pytest.param(SkippedOrNonMonotonicPoll, [Read(P0, 0, b"a"), Read(P0, 2, b"c")], id="gap"),
        pytest.param(SkippedOrNonMonotonicPoll, [Read(P0, 1, b"a"), Read(P0, 0, b"b")], id="backwards"),
        pytest.param(SkippedOrNonMonotonicPoll, [Read(P0, 1, b"a"), Read(P0, 1, b"a")], id="twice"),
        pytest.param(SkippedOrNonMonotonicPoll, [ReadingStarts(P0, 3), Read(P0, 4, b"a")], id="starts late"),
        pytest.param(
            SkippedOrNonMonotonicPoll,
            [Sent(P0, b"a"), Acked(P0, 5, b"a"), Sent(P0, b"b"), Acked(P0, 4, b"b")],
            id="later record before an acknowledged one",
        ),
        pytest.param(CorruptRead, [Sent(P0, b"a"), Read(P0, 0, b"b")], id="other bytes"),
        pytest.param(CorruptRead, [Sent(P0, b"a"), Read(P1, 0, b"a")], id="from another partition"),
        pytest.param(
            DuplicateFromIdempotentProducer,
            [Sent(P0, b"a"), Read(P0, 0, b"a"), Read(P0, 1, b"a")],
            id="doubled",
        ),
    ],
)
def test_a_planted_violation_is_found(checker: type[Checker], events: list[Event]) -> None:
    assert _violates(checker(), events)
    assert _violates(History(), events)


def test_values_must_be_unique() -> None:
    checker = CorruptRead()
    checker.observe(Sent(P0, b"a"))
    with pytest.raises(ValueError, match="unique"):
        checker.observe(Sent(P0, b"a"))
