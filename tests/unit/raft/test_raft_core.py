"""Elections and commits count majorities of the voters, one or many."""

from __future__ import annotations

import pytest

from ottla.raft.core import (
    Acknowledged,
    AppendLeaderChange,
    Commit,
    Effect,
    Election,
    ElectionDue,
    PersistElection,
    RaftCore,
    VoteGranted,
)
from ottla.raft.roles import TRANSITIONS, IllegalTransition, Role, transition


def elected(voters: tuple[int, ...], votes: tuple[int, ...] = (), log_end_offset: int = 10) -> RaftCore:
    core = RaftCore(1, voters, Election(4))
    core.step(ElectionDue(log_end_offset), 0)
    for voter in votes:
        core.step(VoteGranted(voter, 5), 0)
    assert core.role is Role.LEADER
    return core


def test_a_sole_voter_leads_a_new_epoch_at_once() -> None:
    core = RaftCore(1, (1,), Election(4, leader_id=1, voted_id=1))
    assert core.role is Role.UNATTACHED and core.leader_id is None
    assert core.step(ElectionDue(10), 0) == [
        PersistElection(Election(5, leader_id=1, voted_id=1)),
        AppendLeaderChange(5, 1, (1,), (1,)),
    ]
    assert (core.role, core.epoch, core.leader_id, core.high_watermark) == (Role.LEADER, 5, 1, None)


def test_one_of_three_needs_another_vote_and_persists_its_own_first() -> None:
    core = RaftCore(1, (3, 1, 2), Election(4))
    assert core.step(ElectionDue(10), 0) == [PersistElection(Election(5, voted_id=1))]
    assert core.role is Role.CANDIDATE
    assert core.step(VoteGranted(2, 4), 0) == []
    assert core.step(VoteGranted(9, 5), 0) == []
    assert core.role is Role.CANDIDATE
    assert core.step(VoteGranted(3, 5), 0) == [
        PersistElection(Election(5, leader_id=1, voted_id=1)),
        AppendLeaderChange(5, 1, (1, 2, 3), (1, 3)),
    ]
    assert core.step(VoteGranted(2, 5), 0) == []


def test_a_candidate_without_enough_votes_tries_a_higher_epoch() -> None:
    core = RaftCore(1, (1, 2, 3), Election(4))
    core.step(ElectionDue(10), 0)
    assert core.step(ElectionDue(10), 0) == [PersistElection(Election(6, voted_id=1))]
    assert core.step(VoteGranted(2, 5), 0) == []


def test_half_of_four_is_no_majority() -> None:
    core = RaftCore(1, (1, 2, 3, 4), Election(4))
    core.step(ElectionDue(0), 0)
    assert core.step(VoteGranted(2, 5), 0) == []
    assert core.step(VoteGranted(3, 5), 0) != []


def test_a_sole_voter_commits_what_it_has_synced() -> None:
    core = elected((1,))
    assert core.step(Acknowledged(1, 12), 100) == [Commit(12)]
    assert core.high_watermark == 12
    assert core.step(Acknowledged(1, 12), 200) == []
    assert core.step(Acknowledged(1, 15), 300) == [Commit(15)]
    assert core.progress[1].acknowledged_at_ms == 300


def test_nothing_is_committed_before_a_record_of_the_new_epoch_is() -> None:
    core = elected((1, 2, 3), votes=(2,), log_end_offset=10)
    assert core.step(Acknowledged(1, 11), 0) == []
    assert core.step(Acknowledged(2, 10), 0) == []
    assert core.step(Acknowledged(2, 11), 0) == [Commit(11)]


def test_three_voters_commit_what_two_have() -> None:
    core = elected((1, 2, 3), votes=(2,))
    effects: list[Effect] = []
    for voter, offset in ((1, 20), (3, 14), (2, 12), (2, 18), (3, 13), (3, 20)):
        effects += core.step(Acknowledged(voter, offset), 0)
    assert effects == [Commit(14), Commit(18), Commit(20)]


def test_only_voters_count() -> None:
    core = elected((1, 2, 3), votes=(2,))
    core.step(Acknowledged(1, 20), 0)
    assert core.step(Acknowledged(7, 20), 0) == []
    with pytest.raises(ValueError, match="node 4 is not one of the voters"):
        RaftCore(4, (1, 2, 3), Election(0))


def test_a_voter_that_does_not_lead_commits_nothing() -> None:
    assert RaftCore(1, (1,), Election(4)).step(Acknowledged(1, 5), 0) == []


def test_the_table_has_every_role_and_refuses_what_is_not_in_it() -> None:
    assert set(TRANSITIONS) == set(Role)
    with pytest.raises(IllegalTransition, match="a leader voter cannot become candidate"):
        transition(Role.LEADER, Role.CANDIDATE)
