"""The roles of a voter and every transition between them, in one place.

    UNATTACHED ── no leader in time ──▶ CANDIDATE ── votes of a majority ──▶ LEADER

A node starts UNATTACHED whatever it was before: a leader that restarts must win a new epoch. A sole voter is
its own majority and passes through CANDIDATE within one step.
"""

from __future__ import annotations

from enum import Enum


class Role(Enum):
    UNATTACHED = "unattached"
    CANDIDATE = "candidate"
    LEADER = "leader"


TRANSITIONS: dict[Role, frozenset[Role]] = {
    Role.UNATTACHED: frozenset({Role.CANDIDATE}),
    # A candidate that wins too few votes in time tries again in a higher epoch.
    Role.CANDIDATE: frozenset({Role.CANDIDATE, Role.LEADER}),
    Role.LEADER: frozenset(),
}


class IllegalTransition(Exception):
    """A bug: the table above has no such arrow."""


def transition(source: Role, target: Role) -> Role:
    if target not in TRANSITIONS[source]:
        raise IllegalTransition(f"a {source.value} voter cannot become {target.value}")
    return target
