"""Orders of events that are rare, and that each rule of raft is there for."""

from __future__ import annotations

import pytest
from raft_bugs import (
    ChangesVotersBeforeItsEpochIsCommitted,
    CommitsOldEpochsByCount,
    ForgetsItsVote,
    KeepsVotersThatWereCutOff,
    NeverStandsOnceRemoved,
    StandsBeforeItsLogIsCut,
)
from raft_checkers import Violation
from raft_quorum import Quorum, SimLog, SimNode

from ottla.raft.core import RaftCore
from ottla.raft.events import Tick
from ottla.raft.messages import AddVoterRequest, RemoveVoterRequest
from ottla.raft.roles import Role
from ottla.raft.states import Follower, Leader, Prospective
from ottla.raft.voters import SUPPORTED, Voter


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
    for voter_id in state.ballot.voters.ids:
        state.ballot.record(voter_id, granted=True)
    quorum.step(node, Tick())
    assert node.core.role is Role.CANDIDATE


def led(core: type[RaftCore]) -> tuple[Quorum, SimNode, SimNode, SimNode]:
    """Three voters that agree, the leader first."""
    quorum = Quorum(1, core)
    leader, one, other = agreed(quorum)
    return quorum, leader, one, other


def agreed(quorum: Quorum) -> list[SimNode]:
    """All nodes, once they agree; the leader first, observers last."""
    for node in quorum.nodes.values():
        quorum.start(node)
    assert quorum.run(5000, quorum.has_converged)
    leader = quorum.leader()
    assert leader is not None
    return [leader, *(node for node in quorum.nodes.values() if node is not leader)]


def divide(quorum: Quorum, *sides: tuple[SimNode, ...]) -> None:
    quorum.cut = {
        (one.id, other.id)
        for side in sides
        for other_side in sides
        if side is not other_side
        for one in side
        for other in other_side
    }


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


def two_leaders_change_the_voters(core: type[RaftCore]) -> None:
    """The first adds one that only it and the new one know of; the next, elected without them, removes the
    first. Had it not to commit a record of its own epoch before, their majorities would be strangers."""
    quorum = Quorum(1, core, voters=4, observers=1, changes=True)
    quorum.sync_ms = 0.2
    first, second, third, fourth, new = agreed(quorum)
    divide(quorum, (first, new), (second, third, fourth))
    quorum.change(first, AddVoterRequest(Voter(new.key, (), SUPPORTED)))
    assert quorum.run(100, lambda: len(new.log.voters) == 5)
    becomes_leader(quorum, second)
    divide(quorum, (first, new, fourth), (second, third))
    quorum.change(second, RemoveVoterRequest(first.key))
    quorum.run(60)
    quorum.crash(first, power_loss=False)
    quorum.start(first)
    becomes_leader(quorum, first)
    quorum.cut.clear()
    assert quorum.run(5000, quorum.has_converged)


def a_removal_is_cut_off_again(log: type[SimLog]) -> None:
    """Whoever still went by it would soon need nobody else."""
    quorum = Quorum(1, voters=3, changes=True, log=log)
    quorum.sync_ms = 0.2
    first, second, third = agreed(quorum)
    isolate(quorum, first)
    quorum.change(first, RemoveVoterRequest(third.key))
    assert len(first.log.voters) == 2
    becomes_leader(quorum, second)
    quorum.cut.clear()
    assert quorum.run(5000, quorum.has_converged)
    assert quorum.leader() is second
    becomes_leader(quorum, first)
    assert quorum.run(5000, quorum.has_converged)
    isolate(quorum, first)
    quorum.change(first, RemoveVoterRequest(second.key))
    quorum.run(60)
    becomes_leader(quorum, second)
    quorum.cut.clear()
    assert quorum.run(5000, quorum.has_converged)


def the_leader_of_two_removes_itself_unheard(core: type[RaftCore]) -> None:
    """The other cannot be elected against its longer log."""
    quorum = Quorum(1, core, voters=2, changes=True)
    first, second = agreed(quorum)
    isolate(quorum, first)
    quorum.change(first, RemoveVoterRequest(first.key))
    quorum.run(60)
    assert first.log.voters.ids == (second.id,)
    assert len(second.log.voters) == 2
    quorum.crash(first, power_loss=False)
    quorum.cut.clear()
    quorum.start(first)
    if not quorum.run(5000, lambda: quorum.leader() is second):
        raise Violation("NoLeaderThoughAMajorityLives", f"{first.core.role}, {second.core.role}")
    assert second.log.voters.ids == (second.id,)


def a_sole_voter_cannot_keep_what_it_wrote(core: type[RaftCore]) -> None:
    """It gives up leading, and is elected again by nobody but itself."""
    quorum = Quorum(1, core, voters=1, observers=1, changes=True)
    sole, _ = agreed(quorum)
    quorum.sync_ms, quorum.full_disks = 1000, 1.0
    for _ in range(3):
        quorum.propose(sole)
    quorum.resign(sole)
    quorum.sync_ms, quorum.full_disks = 1, 0
    if not quorum.run(5000, quorum.has_converged):
        raise Violation("NoLeaderThoughAMajorityLives", f"{sole.core.role}, {sole.core.state}")


def test_who_has_led_decides_nothing_before_its_log_is_cut() -> None:
    a_sole_voter_cannot_keep_what_it_wrote(RaftCore)
    with pytest.raises(Violation, match="NoLeaderThoughAMajorityLives"):
        a_sole_voter_cannot_keep_what_it_wrote(StandsBeforeItsLogIsCut)


def test_a_leader_changes_voters_only_once_its_epoch_is_committed() -> None:
    two_leaders_change_the_voters(RaftCore)
    with pytest.raises(Violation, match="CommittedEntryLost"):
        two_leaders_change_the_voters(ChangesVotersBeforeItsEpochIsCommitted)


def test_voters_go_back_with_the_records_that_named_them() -> None:
    a_removal_is_cut_off_again(SimLog)
    with pytest.raises(Violation, match="CommittedEntryLost"):
        a_removal_is_cut_off_again(KeepsVotersThatWereCutOff)


def test_who_is_removed_still_stands_where_nobody_else_can() -> None:
    the_leader_of_two_removes_itself_unheard(RaftCore)
    with pytest.raises(Violation, match="NoLeaderThoughAMajorityLives"):
        the_leader_of_two_removes_itself_unheard(NeverStandsOnceRemoved)


def test_records_of_an_old_epoch_are_committed_by_a_record_of_the_new_one() -> None:
    commit_of_an_old_epoch(RaftCore)
    with pytest.raises(Violation, match="CommittedEntryLost"):
        commit_of_an_old_epoch(CommitsOldEpochsByCount)


def test_a_voter_that_restarts_keeps_its_vote() -> None:
    a_voter_restarts_between_two_candidates(RaftCore)
    with pytest.raises(Violation, match="TwoLeadersInAnEpoch"):
        a_voter_restarts_between_two_candidates(ForgetsItsVote)
