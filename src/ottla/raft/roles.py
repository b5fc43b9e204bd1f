"""The roles in a quorum and every transition between them, in one place.

    UNATTACHED ── no leader in time ──▶ PROSPECTIVE ── a majority would vote ──▶ CANDIDATE ─ it does ─▶ LEADER
        ▲                                ▲   │                                   │                       │
        │ a higher epoch, from anywhere  │   └─ it would not ─▶ back             └─ not in time ─▶       │
        │                                │                                         PROSPECTIVE           │
    FOLLOWER ── no answer in time ───────┘                                                               │
        ▲                                                                                                │
        └── a leader is known, from anywhere but LEADER and RESIGNED in their own epoch       RESIGNED ◀─┘

A PROSPECTIVE node asks whether it would be elected before it disturbs anybody with a new epoch (KIP-996). A
leader that stops, that a majority no longer fetches from, or that has just restarted is RESIGNED: it tells
the others at once, and never leads the same epoch again. A sole voter is its own majority and passes from
UNATTACHED to LEADER within one step. Observers, which are no voters, are UNATTACHED or FOLLOWER only.
"""

from __future__ import annotations

from enum import Enum


class Role(Enum):
    UNATTACHED = "unattached"
    FOLLOWER = "follower"
    PROSPECTIVE = "prospective"
    CANDIDATE = "candidate"
    LEADER = "leader"
    RESIGNED = "resigned"


TRANSITIONS: dict[Role, frozenset[Role]] = {
    # To itself: in a higher epoch.
    Role.UNATTACHED: frozenset({Role.UNATTACHED, Role.FOLLOWER, Role.PROSPECTIVE}),
    Role.FOLLOWER: frozenset({Role.UNATTACHED, Role.FOLLOWER, Role.PROSPECTIVE}),
    Role.PROSPECTIVE: frozenset({Role.UNATTACHED, Role.FOLLOWER, Role.CANDIDATE}),
    Role.CANDIDATE: frozenset({Role.UNATTACHED, Role.FOLLOWER, Role.PROSPECTIVE, Role.LEADER}),
    Role.LEADER: frozenset({Role.UNATTACHED, Role.FOLLOWER, Role.RESIGNED}),
    Role.RESIGNED: frozenset({Role.UNATTACHED, Role.FOLLOWER}),
}


class IllegalTransition(Exception):
    """A bug: the table above has no such arrow."""


def transition(source: Role, target: Role) -> Role:
    if target not in TRANSITIONS[source]:
        raise IllegalTransition(f"a node that is {source.value} cannot become {target.value}")
    return target
