"""What the core decides, event by event; what comes of it under faults is in tests/sim/raft."""

from __future__ import annotations

from random import Random
from typing import TypeVar

import pytest
from memory_log import MemoryLog

from ottla.metadata.snapshot import SnapshotId
from ottla.raft.core import CommittedRecordsDiverge, RaftCore, Timeouts
from ottla.raft.events import (
    Answered,
    AppendFetched,
    AppendLeaderChange,
    Commit,
    Effect,
    Election,
    Event,
    InstallSnapshot,
    LeaderChanged,
    PersistElection,
    Reply,
    Requested,
    Resign,
    Send,
    Started,
    StoreSnapshotPart,
    Synced,
    Tick,
    Truncate,
    Unanswered,
)
from ottla.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Position,
    QuorumEpochResponse,
    Request,
    Response,
    VoteRequest,
    VoteResponse,
)
from ottla.raft.roles import TRANSITIONS, IllegalTransition, Role, transition
from ottla.raft.voters import ReplicaKey, VoterSet
from ottla.wire.errors import ErrorCode

OK = ErrorCode.none
FORMER = Election(4)
ONE, TWO, THREE = ReplicaKey(1), ReplicaKey(2), ReplicaKey(3)
E = TypeVar("E")


class Node:
    """Node 1, its log, and a hand on its clock."""

    def __init__(self, voters: tuple[int, ...] = (1, 2, 3), election: Election = FORMER, **log: int) -> None:
        end_offset = log.get("end_offset", 10)
        epochs = [(log.get("last_epoch", 4), 0)] if end_offset else []
        self.log = MemoryLog(VoterSet.of_ids(voters), epochs, end_offset)
        self.core = RaftCore(ONE, self.log, election, Random(1), Timeouts(), voters)
        self.now_ms = 0
        self.effects: list[Effect] = []

    def step(self, event: Event) -> list[Effect]:
        self.effects = self.core.step(event, self.now_ms)
        return self.effects

    def all(self, kind: type[E]) -> list[E]:
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def asked(self, request: Request) -> Response:
        self.step(Requested(request))
        (reply,) = self.all(Reply)
        return reply.response

    def sent(self, node_id: int) -> Send:
        (send,) = [send for send in self.all(Send) if send.node_id == node_id]
        return send

    def answer(self, send: Send, response: Response) -> list[Effect]:
        return self.step(Answered(send.node_id, send.request_id, response))

    def lose_patience(self) -> None:
        due_ms = self.core.due_ms()
        while self.core.role not in {Role.PROSPECTIVE, Role.LEADER}:
            due_ms = self.core.due_ms()
            assert due_ms is not None
            self.now_ms = max(self.now_ms, due_ms)
            self.step(Tick())

    def stand(self) -> None:
        """With the leave of node 2."""
        self.lose_patience()
        send = self.sent(2)
        self.answer(send, VoteResponse(OK, self.core.epoch, None, granted=True))
        assert self.core.role is Role.CANDIDATE

    def lead(self) -> None:
        self.stand()
        self.answer(self.sent(2), VoteResponse(OK, self.core.epoch, None, granted=True))
        assert self.core.role is Role.LEADER
        self.log.epochs.append((self.core.epoch, self.log.end_offset))
        self.log.end_offset += 1
        self.step(Synced(self.log.end_offset))


def follower(**log: int) -> Node:
    node = Node(election=Election(4, leader_id=2), **log)
    node.step(Started())
    assert node.core.role is Role.FOLLOWER
    return node


def test_a_sole_voter_leads_a_new_epoch_at_once_with_one_write() -> None:
    node = Node((1,), Election(4, leader_id=1, voted=ONE))
    assert node.step(Started()) == [
        PersistElection(Election(5, leader_id=1, voted=ONE)),
        AppendLeaderChange(5, 1, VoterSet.of_ids([1]), (1,)),
        LeaderChanged(None, 5),
    ]
    assert (node.core.role, node.core.high_watermark, node.core.due_ms()) == (Role.LEADER, None, None)
    assert node.step(Synced(12)) == [Commit(12), LeaderChanged(1, 5)]
    assert node.step(Synced(12)) == []
    assert node.step(Synced(15)) == [Commit(15)]


def test_one_of_three_asks_before_it_stands_and_persists_its_vote_first() -> None:
    node = Node()
    node.step(Started())
    assert node.core.role is Role.UNATTACHED
    node.lose_patience()
    assert not node.all(PersistElection)
    asked = [send.request for send in node.all(Send)]
    assert asked == [VoteRequest(4, ONE, Position(4, 10), True, voter) for voter in (TWO, THREE)]
    node.answer(node.sent(3), VoteResponse(OK, 4, None, granted=True))
    assert node.effects[0] == PersistElection(Election(5, voted=ONE))
    assert node.sent(2).request == VoteRequest(5, ONE, Position(4, 10), False, TWO)
    node.answer(node.sent(2), VoteResponse(OK, 5, None, granted=True))
    assert node.effects[:2] == [
        PersistElection(Election(5, leader_id=1, voted=ONE)),
        AppendLeaderChange(5, 1, VoterSet.of_ids([1, 2, 3]), (1, 2)),
    ]
    assert node.sent(3).request == BeginQuorumEpochRequest(5, 1, THREE)


def test_who_would_lose_an_election_goes_back_to_where_it_was() -> None:
    node = follower()
    node.lose_patience()
    sends = node.all(Send)
    for send in sends:
        node.answer(send, VoteResponse(OK, 4, None, granted=False))
    assert (node.core.role, node.core.epoch, node.core.leader_id) == (Role.FOLLOWER, 4, 2)


def test_a_candidate_without_enough_votes_asks_again_in_a_higher_epoch() -> None:
    node = Node()
    node.step(Started())
    node.stand()
    node.now_ms += 2000
    node.step(Tick())
    assert (node.core.role, node.core.epoch) == (Role.PROSPECTIVE, 5)
    node.answer(node.sent(2), VoteResponse(OK, 5, None, granted=True))
    assert (node.core.role, node.core.epoch) == (Role.CANDIDATE, 6)


def test_half_of_four_is_no_majority() -> None:
    node = Node((1, 2, 3, 4))
    node.step(Started())
    node.lose_patience()
    second, third = node.sent(2), node.sent(3)
    node.answer(second, VoteResponse(OK, 4, None, granted=True))
    assert node.core.role is Role.PROSPECTIVE
    node.answer(third, VoteResponse(OK, 4, None, granted=True))
    assert node.core.role is Role.CANDIDATE


def test_a_vote_is_given_once_in_an_epoch_and_to_the_same_again() -> None:
    node = Node()
    node.step(Started())
    assert node.asked(VoteRequest(5, TWO, Position(4, 10))) == VoteResponse(OK, 5, None, True)
    assert node.effects[0] == PersistElection(Election(5, voted=TWO))
    assert node.asked(VoteRequest(5, THREE, Position(4, 99))) == VoteResponse(OK, 5, None, False)
    assert node.asked(VoteRequest(5, TWO, Position(4, 10))) == VoteResponse(OK, 5, None, True)
    assert node.asked(VoteRequest(6, THREE, Position(4, 10))) == VoteResponse(OK, 6, None, True)


@pytest.mark.parametrize(
    ("log_end", "granted"),
    [
        (Position(4, 10), True),
        (Position(4, 11), True),
        (Position(4, 9), False),
        (Position(3, 99), False),
        (Position(5, 1), True),
    ],
)
def test_a_vote_goes_to_logs_that_are_up_to_date(log_end: Position, granted: bool) -> None:
    for pre_vote in (True, False):
        node = Node()
        node.step(Started())
        response = node.asked(VoteRequest(7, TWO, log_end, pre_vote))
        assert response == VoteResponse(OK, 7, None, granted)
        assert (node.core.voted is not None) is (granted and not pre_vote)


def test_votes_that_make_no_sense_are_refused() -> None:
    node = Node()
    node.step(Started())
    for request, error in (
        (VoteRequest(3, TWO, Position(2, 10)), ErrorCode.fenced_leader_epoch),
        (VoteRequest(5, TWO, Position(5, 10)), ErrorCode.invalid_request),
        (VoteRequest(5, TWO, Position(4, -1)), ErrorCode.invalid_request),
        (VoteRequest(5, ReplicaKey(-1), Position(4, 10)), ErrorCode.invalid_request),
        (VoteRequest(5, TWO, Position(4, 10), voter=THREE), ErrorCode.invalid_voter_key),
    ):
        response = node.asked(request)
        assert isinstance(response, VoteResponse)
        assert (response.error, response.granted) == (error, False)


def test_a_follower_that_hears_its_leader_does_not_help_others_to_depose_it() -> None:
    node = follower()
    assert node.asked(VoteRequest(4, THREE, Position(4, 10), pre_vote=True)) == VoteResponse(OK, 4, 2, True)
    node = follower()
    node.answer(node.sent(2) if node.all(Send) else first_fetch(node), FetchResponse(OK, 4, 2, 10))
    assert node.asked(VoteRequest(4, THREE, Position(4, 10), pre_vote=True)) == VoteResponse(OK, 4, 2, False)


def first_fetch(node: Node) -> Send:
    node.step(Tick())
    return node.sent(2)


def test_a_follower_fetches_from_where_its_log_ends_and_writes_before_it_fetches_on() -> None:
    node = Node(election=Election(4, leader_id=2))
    node.step(Started())
    send = node.sent(2)
    assert send.request == FetchRequest(4, ONE, 10, 4, None)
    assert node.answer(send, FetchResponse(OK, 4, 2, 11, records="two records")) == [
        AppendFetched("two records")
    ]
    assert node.step(Tick()) == []
    node.log.end_offset = 12
    node.step(Synced(12))
    assert node.effects[0] == Commit(11)
    assert node.sent(2).request == FetchRequest(4, ONE, 12, 4, 11)


def test_a_follower_cuts_off_what_its_leader_does_not_have() -> None:
    node = Node(election=Election(6, leader_id=2))
    node.log.epochs = [(2, 0), (3, 5), (4, 8)]
    node.step(Started())
    node.answer(node.sent(2), FetchResponse(OK, 6, 2, None, diverging=Position(3, 7)))
    assert node.effects == [Truncate(7)]
    node.log.epochs, node.log.end_offset = [(2, 0), (3, 5)], 7
    node.step(Synced(7))
    assert node.sent(2).request == FetchRequest(6, ONE, 7, 3, None)
    node.answer(node.sent(2), FetchResponse(OK, 6, 2, None, diverging=Position(2, 6)))
    # What is left of epoch 2 is known here.
    assert node.effects == [Truncate(5)]


def test_what_is_committed_is_never_cut_off() -> None:
    node = Node(election=Election(4, leader_id=2))
    node.step(Started())
    node.answer(node.sent(2), FetchResponse(OK, 4, 2, 9))
    send = node.sent(2)
    with pytest.raises(CommittedRecordsDiverge, match="from offset 8 on, but all before 9 was committed"):
        node.answer(send, FetchResponse(OK, 4, 2, 9, diverging=Position(4, 8)))


def test_a_follower_begins_with_a_snapshot_where_the_log_is_gone() -> None:
    snapshot = SnapshotId(50, 3)
    node = Node(election=Election(4, leader_id=2), end_offset=0)
    node.step(Started())
    node.answer(node.sent(2), FetchResponse(OK, 4, 2, 60, snapshot=snapshot))
    assert node.sent(2).request == FetchSnapshotRequest(4, ONE, snapshot, 0)
    node.answer(node.sent(2), FetchSnapshotResponse(OK, 4, 2, snapshot, size=5, position=0, data=b"abc"))
    assert node.effects[0] == StoreSnapshotPart(snapshot, 0, b"abc")
    send = node.sent(2)
    assert send.request == FetchSnapshotRequest(4, ONE, snapshot, 3)
    node.answer(send, FetchSnapshotResponse(OK, 4, 2, snapshot, size=5, position=3, data=b"de"))
    assert node.effects == [StoreSnapshotPart(snapshot, 3, b"de"), InstallSnapshot(snapshot)]
    node.log.start_offset = node.log.end_offset = 50
    node.log.epochs, node.log.snapshot = [(3, 50)], snapshot
    node.step(Synced(50))
    assert node.effects[0] == Commit(50)
    assert node.sent(2).request == FetchRequest(4, ONE, 50, 3, 50)


def test_a_snapshot_that_the_leader_no_longer_has_is_forgotten() -> None:
    node = Node(election=Election(4, leader_id=2), end_offset=0)
    node.step(Started())
    node.answer(node.sent(2), FetchResponse(OK, 4, 2, 60, snapshot=SnapshotId(50, 3)))
    node.answer(node.sent(2), FetchSnapshotResponse(ErrorCode.snapshot_not_found, 4, 2))
    assert isinstance(node.sent(2).request, FetchRequest)


def test_a_leader_says_where_a_follower_diverges_or_which_snapshot_it_needs() -> None:
    node = Node()
    node.step(Started())
    node.lead()
    assert node.log.epochs == [(4, 0), (5, 10)]
    answer = node.asked(FetchRequest(5, TWO, 20, 4))
    assert answer == FetchResponse(OK, 5, 1, None, diverging=Position(4, 10))
    assert node.asked(FetchRequest(5, TWO, 3, 4)) == FetchResponse(OK, 5, 1, None, is_valid=True)
    node.log.start_offset, node.log.snapshot = 8, SnapshotId(8, 4)
    assert node.asked(FetchRequest(5, TWO, 0, 0)) == FetchResponse(OK, 5, 1, None, snapshot=SnapshotId(8, 4))
    assert node.asked(FetchRequest(5, TWO, 7, 4)) == FetchResponse(OK, 5, 1, None, snapshot=SnapshotId(8, 4))


def test_fetches_that_cannot_be_served_say_why() -> None:
    node = follower()
    for request, error in (
        (FetchRequest(4, THREE, 5, 4), ErrorCode.not_leader_or_follower),
        (FetchRequest(3, THREE, 5, 3), ErrorCode.fenced_leader_epoch),
        (FetchRequest(9, THREE, 5, 3), ErrorCode.unknown_leader_epoch),
        (FetchRequest(4, THREE, -1, 3), ErrorCode.invalid_request),
        (FetchRequest(4, THREE, 5, 5), ErrorCode.invalid_request),
    ):
        assert node.asked(request) == FetchResponse(error, 4, 2)


def test_nothing_is_committed_before_a_record_of_the_new_epoch_is() -> None:
    node = Node()
    node.step(Started())
    node.lead()
    node.asked(FetchRequest(5, TWO, 10, 4))
    assert not node.all(Commit) and node.core.high_watermark is None
    answer = node.asked(FetchRequest(5, TWO, 11, 5))
    assert node.all(Commit) == [Commit(11)] and node.all(LeaderChanged) == [LeaderChanged(1, 5)]
    assert answer == FetchResponse(OK, 5, 1, 11, is_valid=True)


def test_three_voters_commit_what_two_have_and_observers_do_not_count() -> None:
    node = Node()
    node.step(Started())
    node.lead()
    node.log.end_offset = 20
    node.step(Synced(20))
    committed: list[Commit] = []
    for replica, offset in ((7, 20), (3, 14), (2, 12), (2, 18), (3, 13), (3, 20)):
        node.asked(FetchRequest(5, ReplicaKey(replica), offset, 5 if offset > 10 else 4))
        committed += node.all(Commit)
    assert committed == [Commit(14), Commit(18), Commit(20)]


def test_a_leader_that_a_majority_no_longer_fetches_from_resigns_and_tells_everybody() -> None:
    node = Node()
    node.step(Started())
    node.lead()
    node.now_ms += 2900
    node.asked(FetchRequest(5, TWO, 11, 5))
    node.now_ms += 2900
    node.step(Tick())
    assert node.core.role is Role.LEADER
    node.now_ms += 200
    node.step(Tick())
    assert node.core.role is Role.RESIGNED
    assert node.all(LeaderChanged) == [LeaderChanged(None, 5)]
    assert node.sent(3).request == EndQuorumEpochRequest(5, 1, (TWO, THREE))
    node.answer(node.sent(3), QuorumEpochResponse(OK, 5, 1))
    node.now_ms += 2000
    node.step(Tick())
    # It has waited long enough.
    assert (node.core.role, node.core.epoch) == (Role.PROSPECTIVE, 6)


def test_successors_stand_one_after_the_other() -> None:
    delays_ms = []
    for successors in ((ONE, TWO), (TWO, ONE), (TWO, THREE)):
        node = Node(election=Election(4, leader_id=3))
        node.step(Started())
        node.asked(EndQuorumEpochRequest(4, 3, successors))
        delays_ms.append(0 if node.core.role is Role.PROSPECTIVE else node.core.state.fetch_due_ms)  # type: ignore[union-attr]
    assert delays_ms == [0, 500, 1000]


def test_a_leader_that_restarts_has_resigned_and_wakes_the_others() -> None:
    node = Node(election=Election(4, leader_id=1, voted=ONE))
    node.step(Started())
    assert node.core.role is Role.RESIGNED
    assert [send.request for send in node.all(Send)] == [EndQuorumEpochRequest(4, 1)] * 2
    assert node.asked(VoteRequest(4, TWO, Position(3, 99))) == VoteResponse(OK, 4, 1, False)


def test_a_node_that_stops_does_not_stand_and_resigns_where_it_leads() -> None:
    node = Node()
    node.step(Started())
    node.lead()
    node.step(Resign())
    assert node.core.role is Role.RESIGNED
    node.now_ms += 100_000
    node.step(Tick())
    assert node.core.role is Role.RESIGNED


def test_a_higher_epoch_takes_everybody_along() -> None:
    node = Node()
    node.step(Started())
    node.lead()
    node.asked(BeginQuorumEpochRequest(8, 3))
    assert (node.core.role, node.core.epoch, node.core.leader_id) == (Role.FOLLOWER, 8, 3)
    assert node.effects[0] == PersistElection(Election(8, leader_id=3))
    node.answer(node.sent(3), FetchResponse(ErrorCode.fenced_leader_epoch, 9, None))
    assert (node.core.role, node.core.epoch, node.core.leader_id) == (Role.UNATTACHED, 9, None)


def test_a_second_leader_of_an_epoch_is_not_believed() -> None:
    node = follower()
    response = node.asked(BeginQuorumEpochRequest(4, 3))
    assert response == QuorumEpochResponse(ErrorCode.invalid_request, 4, 2)
    assert node.core.leader_id == 2


def test_an_observer_finds_the_leader_and_never_stands() -> None:
    node = Node((2, 3), Election())
    node.step(Started())
    (send,) = node.all(Send)
    node.answer(send, FetchResponse(ErrorCode.not_leader_or_follower, 4, 3))
    assert (node.core.role, node.core.leader_id) == (Role.FOLLOWER, 3)
    assert isinstance(node.sent(3).request, FetchRequest)
    for _ in range(50):
        due_ms = node.core.due_ms()
        if due_ms is None:
            break
        node.now_ms = max(node.now_ms, due_ms)
        node.step(Tick())
    assert node.core.role is Role.FOLLOWER


def test_a_leader_that_does_not_answer_is_looked_for_elsewhere() -> None:
    node = Node(election=Election(4, leader_id=2))
    node.step(Started())
    send = node.sent(2)
    node.step(Unanswered(2, send.request_id))
    assert isinstance(node.sent(3).request, FetchRequest)
    # An answer to what was given up counts no more.
    assert node.step(Answered(2, send.request_id, FetchResponse(OK, 9, 2, 99))) == []


def test_a_leader_whose_process_has_ended_is_not_waited_for() -> None:
    node = Node(election=Election(4, leader_id=2))
    node.step(Started())
    node.answer(node.sent(2), FetchResponse(OK, 4, 2, 10))
    node.step(Unanswered(2, node.sent(2).request_id, is_gone=True))
    assert node.core.state.fetch_due_ms <= 250  # type: ignore[union-attr]
    # Others may have come to the same conclusion.
    assert node.asked(VoteRequest(4, THREE, Position(4, 10), pre_vote=True)) == VoteResponse(OK, 4, 2, True)


def test_the_table_has_every_role_and_refuses_what_is_not_in_it() -> None:
    assert set(TRANSITIONS) == set(Role)
    with pytest.raises(IllegalTransition, match="that is leader cannot become candidate"):
        transition(Role.LEADER, Role.CANDIDATE)
