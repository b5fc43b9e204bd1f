"""Orders of events that are rare, and that each rule of raft is there for."""

from __future__ import annotations

import pytest
from raft_bugs import CommitsOldEpochsByCount, ForgetsItsVote
from raft_checkers import Violation
from raft_quorum import Quorum, SimNode

from ottla.raft.core import RaftCore
from ottla.raft.events import Tick
from ottla.raft.roles import Role
from ottla.raft.states import Follower, Leader, Prospective


def isolate(quorum: Quorum, node: SimNode) -> None:
    for other in quorum.nodes.values():
        if other is not node:
            quorum.cut |= {(node.id, other.id), (other.id, node.id)}


def stands(quorum: Quorum, node: SimNode) -> None:
    """As if enough others had said that they would vote for it."""
    state = node.core.state
    assert not isinstance(state, Leader)
    if isinstance(state, Follower):
        state.fetch_due_ms = quorum.clock(node)
    else:
        state.election_due_ms = quorum.clock(node)
    while not isinstance(state := node.core.state, Prospective):
        quorum.step(node, Tick())
    for voter_id in quorum.voters.ids:
        state.ballot.record(voter_id, granted=True)
    quorum.step(node, Tick())
    assert node.core.role is Role.CANDIDATE


def led(core: type[RaftCore]) -> tuple[Quorum, SimNode, SimNode, SimNode]:
    """Three voters that agree, the leader first."""
    quorum = Quorum(1, core)
    for node in quorum.nodes.values():
        quorum.start(node)
    assert quorum.run(5000, quorum.has_converged)
    leader = quorum.leader()
    assert leader is not None
    others = [node for node in quorum.nodes.values() if node is not leader]
    return quorum, leader, others[0], others[1]


def becomes_leader(quorum: Quorum, node: SimNode) -> None:
    for _ in range(10):
        stands(quorum, node)
        if quorum.run(30, lambda: node.core.role is Role.LEADER):
            return
    raise AssertionError(f"node {node.id} is not elected: {node.core.role}")


def commit_of_an_old_epoch(core: type[RaftCore]) -> None:
    """Figure 8 of the raft paper."""
    quorum, first, second, third = led(core)
    quorum.records_per_fetch, quorum.sync_ms = 1, 0.2
    isolate(quorum, first)
    quorum.propose(first)
    quorum.propose(first)
    quorum.run(15)
    end_offset = first.log.end_offset
    quorum.crash(first, power_loss=False)
    quorum.cut.clear()

    becomes_leader(quorum, second)
    isolate(quorum, second)
    quorum.run(15)
    assert third.log.end_offset < second.log.end_offset
    quorum.crash(second, power_loss=False)
    quorum.cut.clear()

    quorum.start(first)
    becomes_leader(quorum, first)

    def third_has_what_first_wrote_long_ago() -> bool:
        state = first.core.state
        assert isinstance(state, Leader)
        progress = state.followers.voters[third.id]
        return progress is not None and progress.acknowledged_offset == end_offset

    assert quorum.run(100, third_has_what_first_wrote_long_ago)
    quorum.crash(first, power_loss=False)
    # What is on its way to the third is lost.
    quorum.crash(third, power_loss=False)
    quorum.start(third)

    quorum.start(second)
    becomes_leader(quorum, second)
    quorum.start(first)
    assert quorum.run(5000, quorum.has_converged)


def a_voter_restarts_between_two_candidates(core: type[RaftCore]) -> None:
    quorum, voter, one, other = led(core)
    quorum.crash(voter, power_loss=False)
    quorum.start(voter)
    quorum.cut = {(one.id, other.id), (other.id, one.id)}
    stands(quorum, one)
    stands(quorum, other)
    epoch = voter.core.epoch
    assert quorum.run(100, lambda: voter.election.epoch > epoch and voter.election.voted is not None)
    quorum.crash(voter, power_loss=True)
    quorum.start(voter)
    quorum.run(60)
    quorum.cut.clear()
    assert quorum.run(5000, quorum.has_converged)


def test_records_of_an_old_epoch_are_committed_by_a_record_of_the_new_one() -> None:
    commit_of_an_old_epoch(RaftCore)
    with pytest.raises(Violation, match="CommittedEntryLost"):
        commit_of_an_old_epoch(CommitsOldEpochsByCount)


def test_a_voter_that_restarts_keeps_its_vote() -> None:
    a_voter_restarts_between_two_candidates(RaftCore)
    with pytest.raises(Violation, match="TwoLeadersInAnEpoch"):
        a_voter_restarts_between_two_candidates(ForgetsItsVote)
