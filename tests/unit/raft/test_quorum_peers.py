"""Where other members of the quorum are asked: by the configuration, by the log, by what a leader says."""

from __future__ import annotations

import asyncio

from ottla.raft.peers import Peers
from ottla.raft.settings import QuorumSettings
from ottla.raft.voters import Listener, ReplicaKey, Voter, VoterSet
from ottla.runtime import real_runtime

LEADER = 1


def voters(port: int) -> VoterSet:
    return VoterSet([Voter(ReplicaKey(LEADER), (Listener("CONTROLLER", "one", port),))])


def peers(settings: QuorumSettings, in_log: list[VoterSet]) -> Peers:
    async def make() -> Peers:
        return Peers(real_runtime(), settings, lambda: in_log[-1])

    return asyncio.run(make())


def test_a_leader_that_has_moved_is_asked_where_it_is_until_the_log_tells() -> None:
    in_log = [voters(9093)]
    known = peers(QuorumSettings(ReplicaKey(2), VoterSet()), in_log)
    assert known.address(LEADER) == ("one", 9093)
    known.learn(LEADER, "one", 9193)
    # Only there it can fetch the record that says so.
    assert known.address(LEADER) == ("one", 9193)
    in_log.append(voters(9293))
    assert known.address(LEADER) == ("one", 9293)


def test_who_is_no_voter_is_asked_where_it_says() -> None:
    known = peers(QuorumSettings(ReplicaKey(2), VoterSet()), [VoterSet()])
    assert known.address(LEADER) is None
    known.learn(LEADER, "one", 9193)
    assert known.address(LEADER) == ("one", 9193)


def test_what_is_configured_is_believed_before_what_a_node_says_of_itself() -> None:
    known = peers(QuorumSettings(ReplicaKey(2), voters(9093)), [voters(9093)])
    known.learn(LEADER, "a-name-that-others-do-not-know", 9093)
    assert known.address(LEADER) == ("one", 9093)
