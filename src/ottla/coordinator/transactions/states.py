"""The states of a transactional id, and every way from one to another.

    Empty, Complete*  --add partitions-->  Ongoing  --end-->  Prepare*  --markers are written-->  Complete*
    Empty, Complete*  --init producer id-->  Empty
    Empty, Complete*  --abort, new protocol-->  PrepareAbort
    Empty, Complete*  --unused for long-->  Dead, which is stored as a tombstone

What is in Prepare* has been decided: all that is left is to tell the partitions, however often it takes.
Apache Kafka also names the moment in which it fences a producer whose transaction is open; here that is one
step with the abort, and the name only serves those who list transactions by state.
"""

from __future__ import annotations

import enum


class State(enum.IntEnum):
    """Values are those of the stored records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """As DescribeTransactions has it."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def is_decided(self) -> bool:
        return self in (State.PREPARE_COMMIT, State.PREPARE_ABORT)

    @property
    def is_idle(self) -> bool:
        return self in (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)


BY_LABEL = {state.label: state for state in State}

_IDLE = frozenset((State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT))

FROM: dict[State, frozenset[State]] = {
    State.EMPTY: _IDLE,
    State.ONGOING: _IDLE | {State.ONGOING},
    State.PREPARE_COMMIT: frozenset((State.ONGOING,)),
    State.PREPARE_ABORT: _IDLE | {State.ONGOING},
    State.COMPLETE_COMMIT: frozenset((State.PREPARE_COMMIT,)),
    State.COMPLETE_ABORT: frozenset((State.PREPARE_ABORT,)),
    State.DEAD: _IDLE,
}
"""Where each state is entered from."""


def check_transition(before: State, after: State) -> None:
    if before not in FROM[after]:
        raise AssertionError(f"a transaction cannot go from {before.label} to {after.label}")
