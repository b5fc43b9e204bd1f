"""Which changes of voters a leader makes, which it refuses, and with which of Apache Kafka's errors."""

from __future__ import annotations

from random import Random
from uuid import UUID

import pytest
from memory_log import MemoryLog

from ottla.raft.core import RaftCore, Timeouts
from ottla.raft.events import (
    AppendLeaderChange,
    AppendQuorumChange,
    Effect,
    Election,
    LeaderChanged,
    QuorumChange,
    Reply,
    Requested,
    Send,
    Started,
    Synced,
    Tick,
)
from ottla.raft.formatting import parse_initial_voters
from ottla.raft.messages import (
    AddVoterRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    Position,
    RemoveVoterRequest,
    UpdateVoterRequest,
    UpgradeRequest,
    VoterChange,
    VoterChangeResponse,
    VoteRequest,
    VoteResponse,
)
from ottla.raft.own_place import OwnPlace
from ottla.raft.roles import Role
from ottla.raft.states import Follower
from ottla.raft.voters import (
    SUPPORTED,
    KRaftVersions,
    Listener,
    ReplicaKey,
    Voter,
    VoterSet,
    record_of,
    voters_in,
)
from ottla.wire.errors import ErrorCode

ONE, TWO, THREE = (ReplicaKey(number, UUID(int=1000 + number)) for number in (1, 2, 3))
HERE = (Listener("CONTROLLER", "here", 9093),)


def voter(key: ReplicaKey, versions: KRaftVersions = SUPPORTED, port: int = 9093) -> Voter:
    return Voter(key, (Listener("CONTROLLER", f"n{key.id}", port),), versions)


class Leading:
    """Node 1 alone, from a quorum state on; records are appended and synced by hand."""

    def __init__(self, *, kraft_version: int = 1, voters: VoterSet | None = None) -> None:
        own = Voter(ONE, HERE, SUPPORTED)
        self.log = MemoryLog(voters or VoterSet([own]), kraft_version=kraft_version)
        self.core = RaftCore(ONE, self.log, Election(), Random(1), Timeouts(), (), HERE)
        self.now_ms = 1
        self.effects: list[Effect] = self.core.step(Started(), self.now_ms)

    def begin(self) -> Leading:
        """Its first record is committed."""
        self.appended()
        return self

    def appended(self, voters: VoterSet | None = None) -> None:
        """And synced."""
        if not self.log.epochs or self.log.epochs[-1][0] != self.core.epoch:
            self.log.epochs.append((self.core.epoch, self.log.end_offset))
        if voters is not None:
            self.log.former_voters, self.log.voters = self.log.voters, voters
            self.log.voters_offset = self.log.end_offset
        self.log.end_offset += 1
        self.effects = self.core.step(Synced(self.log.end_offset), self.now_ms)

    def fetched(self, key: ReplicaKey, offset: int | None = None) -> None:
        """By one that has everything before the offset."""
        at = self.log.end_offset if offset is None else offset
        last_epoch = self.core.epoch if at else 0
        request = FetchRequest(self.core.epoch, key, at, last_epoch)
        self.effects = self.core.step(Requested(request), self.now_ms)

    def ask(self, request: VoterChange) -> tuple[VoterChangeResponse, QuorumChange | None]:
        effects = self.core.step(Requested(request), self.now_ms)
        (response,) = [each.response for each in effects if isinstance(each, Reply)]
        assert isinstance(response, VoterChangeResponse)
        changes = [each.change for each in effects if isinstance(each, AppendQuorumChange)]
        assert response.is_appended == bool(changes)
        return response, changes[0] if changes else None

    def error(self, request: VoterChange) -> ErrorCode:
        response, change = self.ask(request)
        assert change is None
        return response.error

    def two(self) -> Leading:
        """Both of them voters."""
        self.fetched(TWO)
        _, change = self.ask(AddVoterRequest(voter(TWO)))
        assert change is not None
        self.appended(change.voters)
        self.fetched(TWO)
        assert self.core.high_watermark == self.log.end_offset
        return self


def test_the_first_leader_writes_what_the_cluster_began_with() -> None:
    node = Leading()
    (first,) = [effect for effect in node.effects if isinstance(effect, AppendLeaderChange)]
    assert first.written == QuorumChange(VoterSet([Voter(ONE, HERE, SUPPORTED)]), 1)
    static = Leading(kraft_version=0, voters=VoterSet.of_ids([1]))
    (first,) = [effect for effect in static.effects if isinstance(effect, AppendLeaderChange)]
    assert first.written is None


def test_a_leader_that_has_moved_says_so_with_the_first_record_of_its_epoch() -> None:
    log = MemoryLog(VoterSet([voter(ONE)]), [(3, 0)], 5, voters_offset=1, kraft_version=1)
    core = RaftCore(ONE, log, Election(3), Random(1), Timeouts(), (), HERE)
    (first,) = [each for each in core.step(Started(), 1) if isinstance(each, AppendLeaderChange)]
    assert first.written == QuorumChange(VoterSet([Voter(ONE, HERE, SUPPORTED)]), 1)
    log.voters = VoterSet([Voter(ONE, HERE, SUPPORTED)])
    core = RaftCore(ONE, log, Election(3), Random(1), Timeouts(), (), HERE)
    (first,) = [each for each in core.step(Started(), 1) if isinstance(each, AppendLeaderChange)]
    assert first.written is None


def test_one_that_is_caught_up_is_added() -> None:
    node = Leading().begin()
    adding = AddVoterRequest(voter(TWO))
    assert node.error(adding) is ErrorCode.request_timed_out
    node.fetched(TWO, 0)
    assert node.error(adding) is ErrorCode.request_timed_out
    node.fetched(TWO)
    response, change = node.ask(AddVoterRequest(voter(TWO), is_known=False))
    assert (response.error, change) == (ErrorCode.none, None)
    response, change = node.ask(adding)
    assert response.error is ErrorCode.none
    assert change == QuorumChange(VoterSet([Voter(ONE, HERE, SUPPORTED), voter(TWO)]))


def test_changes_that_are_refused() -> None:
    node = Leading()
    # Nothing of its epoch is committed.
    assert node.error(RemoveVoterRequest(ONE)) is ErrorCode.request_timed_out
    node.begin()
    node.fetched(TWO)
    assert node.error(AddVoterRequest(voter(TWO, KRaftVersions(0, 0)))) is ErrorCode.invalid_request
    assert node.error(AddVoterRequest(voter(ONE))) is ErrorCode.duplicate_voter
    other_disk = ReplicaKey(1, UUID(int=7))
    assert node.error(AddVoterRequest(voter(other_disk))) is ErrorCode.duplicate_voter
    # The last one stays.
    assert node.error(RemoveVoterRequest(ONE)) is ErrorCode.voter_not_found
    node.two()
    assert node.error(RemoveVoterRequest(ReplicaKey(2, UUID(int=7)))) is ErrorCode.voter_not_found
    assert node.error(RemoveVoterRequest(THREE)) is ErrorCode.voter_not_found
    # One after the other.
    _, change = node.ask(RemoveVoterRequest(TWO))
    assert change is not None
    node.log.voters, node.log.voters_offset = change.voters, node.log.end_offset
    assert node.error(AddVoterRequest(voter(THREE), is_known=False)) is ErrorCode.request_timed_out


def test_fixed_voters_cannot_be_changed() -> None:
    node = Leading(kraft_version=0, voters=VoterSet.of_ids([1])).begin()
    assert node.error(AddVoterRequest(voter(TWO), is_known=False)) is ErrorCode.unsupported_version
    assert node.error(RemoveVoterRequest(ONE)) is ErrorCode.unsupported_version


def test_only_the_leader_changes_voters() -> None:
    log = MemoryLog(VoterSet([voter(ONE), voter(TWO)]), kraft_version=1)
    core = RaftCore(ONE, log, Election(3, leader_id=2), Random(1), Timeouts())
    core.step(Started(), 1)
    (reply,) = [each for each in core.step(Requested(RemoveVoterRequest(TWO)), 1) if isinstance(each, Reply)]
    assert isinstance(reply.response, VoterChangeResponse)
    assert (reply.response.error, reply.response.leader_id) == (ErrorCode.not_leader_or_follower, 2)


def test_a_leader_that_is_removed_does_not_count_itself_and_resigns() -> None:
    node = Leading().begin().two()
    _, change = node.ask(RemoveVoterRequest(ONE))
    assert change is not None
    assert change.voters.ids == (2,)
    committed = node.core.high_watermark
    node.appended(change.voters)
    assert node.core.high_watermark == committed
    assert node.core.role is Role.LEADER
    node.fetched(TWO)
    assert node.core.committed == node.log.end_offset
    assert node.core.role is Role.RESIGNED
    assert LeaderChanged(None, node.core.epoch) in node.effects
    (send,) = [effect for effect in node.effects if isinstance(effect, Send)]
    assert send.node_id == 2
    assert isinstance(send.request, EndQuorumEpochRequest)
    # From here on it is an observer.
    node.now_ms += 10_000
    node.core.step(Tick(), node.now_ms)
    assert node.core.role is Role.UNATTACHED
    node.now_ms += 10_000
    node.core.step(Tick(), node.now_ms)
    assert node.core.role is Role.UNATTACHED


def test_new_voters_have_time_before_a_leader_misses_them() -> None:
    node = Leading().begin()
    # Alone it never did.
    node.now_ms = 1_000_000
    node.two()
    node.core.step(Tick(), node.now_ms + 1000)
    assert node.core.role is Role.LEADER


def test_voters_say_where_they_are() -> None:
    node = Leading().begin().two()
    moved = UpdateVoterRequest(node.core.epoch, voter(TWO, port=9999))
    _, change = node.ask(moved)
    assert change is not None
    assert change.voters.get(2) == moved.voter
    stranger = UpdateVoterRequest(node.core.epoch, voter(ReplicaKey(2, UUID(int=7))))
    assert node.error(stranger) is ErrorCode.voter_not_found
    assert node.error(moved._replace(epoch=node.core.epoch + 1)) is ErrorCode.unknown_leader_epoch
    assert node.error(moved._replace(epoch=node.core.epoch - 1)) is ErrorCode.fenced_leader_epoch


def test_fixed_voters_move_into_the_log_once_all_have_said_who_they_are() -> None:
    node = Leading(kraft_version=0, voters=VoterSet.of_ids([1])).begin()
    node.log.voters = VoterSet.of_ids([1, 2])
    upgrading = UpgradeRequest(1)
    assert node.error(upgrading) is ErrorCode.invalid_update_version
    old = UpdateVoterRequest(node.core.epoch, voter(TWO, KRaftVersions(0, 0)))
    assert node.error(old) is ErrorCode.none
    assert node.error(upgrading) is ErrorCode.invalid_update_version
    assert node.error(UpdateVoterRequest(node.core.epoch, voter(TWO))) is ErrorCode.none
    assert node.error(upgrading._replace(validate_only=True)) is ErrorCode.none
    assert node.error(UpgradeRequest(2)) is ErrorCode.invalid_update_version
    _, change = node.ask(upgrading)
    assert change == QuorumChange(VoterSet([Voter(ONE, HERE, SUPPORTED), voter(TWO)]), 1)
    node.log.kraft_version = 1
    assert node.error(upgrading) is ErrorCode.none
    assert node.error(UpgradeRequest(0)) is ErrorCode.invalid_update_version


def test_a_vote_for_another_disk_is_not_given() -> None:
    log = MemoryLog(VoterSet([voter(ONE), voter(TWO)]), kraft_version=1)
    core = RaftCore(ONE, log, Election(3), Random(1), Timeouts())
    core.step(Started(), 1)
    lost = ReplicaKey(1, UUID(int=7))
    request = VoteRequest(4, TWO, Position(0, 0), voter=lost)
    (reply,) = [each for each in core.step(Requested(request), 1) if isinstance(each, Reply)]
    assert isinstance(reply.response, VoteResponse)
    assert (reply.response.error, reply.response.granted) == (ErrorCode.invalid_voter_key, False)


def test_an_observer_that_others_take_for_a_voter_helps_against_a_leader_that_is_gone() -> None:
    """It does not know of its own addition yet."""
    log = MemoryLog(VoterSet([voter(TWO)]), kraft_version=1)
    core = RaftCore(ONE, log, Election(3, leader_id=2), Random(1), Timeouts())
    core.step(Started(), 1)
    assert isinstance(core.state, Follower)
    core.state.has_fetched = True
    request = VoteRequest(3, THREE, Position(0, 0), pre_vote=True, voter=ONE)

    def would_vote(now_ms: int) -> bool:
        (reply,) = [each for each in core.step(Requested(request), now_ms) if isinstance(each, Reply)]
        assert isinstance(reply.response, VoteResponse)
        return reply.response.granted

    assert not would_vote(1000)
    assert would_vote(5000)


def own_place(voters: VoterSet, *, kraft_version: int = 1, joins: bool = False) -> OwnPlace:
    log = MemoryLog(voters, kraft_version=kraft_version)
    core = RaftCore(ONE, log, Election(3, leader_id=2), Random(1), Timeouts(), (2,), HERE)
    core.step(Started(), 1)
    assert core.role is Role.FOLLOWER
    return OwnPlace(core, log, joins=joins)


def test_what_a_follower_asks_about_its_own_place() -> None:
    own = Voter(ONE, HERE, SUPPORTED)
    assert own_place(VoterSet([own, voter(TWO)])).request() is None
    assert own_place(VoterSet([voter(ONE), voter(TWO)])).request() == UpdateVoterRequest(3, own)
    assert own_place(VoterSet([voter(TWO)])).request() is None
    assert own_place(VoterSet([voter(TWO)]), joins=True).request() == AddVoterRequest(own)
    before = ReplicaKey(1, UUID(int=7))
    lost = VoterSet([voter(before), voter(TWO)])
    assert own_place(lost, joins=True).request() == RemoveVoterRequest(before)
    assert own_place(VoterSet.of_ids([2]), kraft_version=0, joins=True).request() is None


def test_a_fixed_voter_says_once_to_each_leader_who_it_is() -> None:
    place = own_place(VoterSet.of_ids([1, 2]), kraft_version=0)
    request = place.request()
    assert request == UpdateVoterRequest(3, Voter(ONE, HERE, SUPPORTED))
    place.answered(request, VoterChangeResponse(ErrorCode.request_timed_out, 3, 2))
    assert place.request() == request
    place.answered(request, VoterChangeResponse(ErrorCode.none, 3, 2))
    assert place.request() is None


def test_voters_survive_their_record() -> None:
    voters = VoterSet([voter(ONE), voter(TWO, KRaftVersions(0, 0)), Voter(THREE)])
    assert voters_in(record_of(voters)) == voters


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1@h:1",
        "x@h:1:AAAAAAAAAAAAAAAAAAAAAg",
        "1@h:1:AAAAAAAAAAAAAAAAAAAAAA",
        "1@h:99999:J8aAPcfLQt2bqs1JT_rMgQ",
    ],
)
def test_initial_voters_that_cannot_be_read(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_initial_voters(text, "CONTROLLER")


def test_initial_voters() -> None:
    text = "1@h:9093:J8aAPcfLQt2bqs1JT_rMgQ, 2@[::1]:9094:K8aAPcfLQt2bqs1JT_rMgQ"
    voters = parse_initial_voters(text, "CONTROLLER")
    assert [each.listeners for each in voters.voters] == [
        (Listener("CONTROLLER", "h", 9093),),
        (Listener("CONTROLLER", "::1", 9094),),
    ]
    with pytest.raises(ValueError, match="more than once"):
        parse_initial_voters(f"{text},1@h:1:J8aAPcfLQt2bqs1JT_rMgQ", "CONTROLLER")
