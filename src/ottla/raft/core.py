"""Raft without I/O: `step(event, now_ms)` returns the effects its driver must carry out, in order.

The rules are those of Apache Kafka's KRaft: followers pull (KIP-595), ask before they stand for election
(KIP-996), begin with snapshots where the log no longer has what they need (KIP-630), and take their voters
from the log (KIP-853). The core reads the log through a `LogView` and changes it only through effects; time
and chance come from outside, so that the same events give the same effects.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple, assert_never

from ottla.raft.events import (
    Answered,
    AppendFetched,
    AppendLeaderChange,
    AppendQuorumChange,
    Commit,
    Effect,
    Election,
    Event,
    InstallSnapshot,
    LeaderChanged,
    PersistElection,
    QuorumChange,
    Reply,
    Requested,
    Resign,
    Send,
    SnapshotUnusable,
    Started,
    StoreSnapshotPart,
    Synced,
    SyncLog,
    Tick,
    Truncate,
    Unanswered,
    Warn,
)
from ottla.raft.in_flight import InFlight
from ottla.raft.log_view import BOOTSTRAP_SNAPSHOT, LogView, compare, log_end, truncation
from ottla.raft.messages import (
    AddVoterRequest,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Position,
    QuorumEpochResponse,
    RemoveVoterRequest,
    Request,
    Response,
    UpdateVoterRequest,
    UpgradeRequest,
    VoterChange,
    VoterChangeResponse,
    VoteRequest,
    VoteResponse,
)
from ottla.raft.progress import Followers
from ottla.raft.roles import Role, transition
from ottla.raft.states import Ballot, Candidate, Follower, Leader, Prospective, Resigned, State, Unattached
from ottla.raft.voter_changes import (
    FIRST_WITH_CHANGES,
    Standing,
    VoterChangeRefused,
    added,
    check_added,
    removed,
    updated,
    upgraded,
)
from ottla.raft.voters import SUPPORTED, Listener, ReplicaKey, Voter
from ottla.wire.errors import ErrorCode

# A leader allows a majority of its followers a little longer than they allow it.
CHECK_QUORUM_FACTOR = 1.5


class CommittedRecordsDiverge(Exception):
    """Voters have forgotten what they had promised to keep. Following would lose it here, too."""


class Timeouts(NamedTuple):
    """In milliseconds; the defaults are those of `controller.quorum.*`."""

    election: int = 1000
    fetch: int = 2000
    backoff_max: int = 1000
    request: int = 2000
    retry_backoff: int = 20


class RaftCore:
    def __init__(
        self,
        me: ReplicaKey,
        log: LogView,
        election: Election,
        random: Random,
        timeouts: Timeouts = Timeouts(),  # noqa: B008 - immutable
        bootstrap: tuple[int, ...] = (),
        listeners: tuple[Listener, ...] = (),
    ) -> None:
        """`bootstrap` are the nodes to ask who leads: voters, or negative for those known by address only.

        `listeners` is where others reach this node.
        """
        self.me = me
        self.own = Voter(me, listeners, SUPPORTED)
        """What other nodes are to know of this one."""
        self._log = log
        self._random = random
        self._timeouts = timeouts
        self._bootstrap = tuple(node_id for node_id in bootstrap if node_id != me.id)
        self.voters = log.voters
        self.epoch = election.epoch
        self.leader_id = election.leader_id
        """Whoever was elected in this epoch, as far as is known; also when it has resigned."""
        self.voted = election.voted
        self.committed: int | None = None
        """The highest offset known to be committed, whoever led."""
        self.state: State = Unattached(0)
        self._persisted = election
        self._told = LeaderChanged(None, election.epoch)
        self._in_flight = InFlight(timeouts.request, timeouts.retry_backoff)
        self._stopping = False
        self._log_may_shrink = False
        """This node has just led: what of its log cannot be synced is cut off before the next step. Nothing
        that depends on where it ends, or on the voters it names, is decided until then."""
        self._now_ms = 0
        self._effects: list[Effect] = []

    @property
    def role(self) -> Role:
        return self.state.role

    @property
    def is_voter(self) -> bool:
        return self.voters.includes(self.me)

    @property
    def _may_stand(self) -> bool:
        """A voter, or one whose removal may never have left this node: others cannot win against its log."""
        if self.is_voter:
            return True
        log = self._log
        is_open = self.committed is None or self.committed <= log.voters_offset
        return is_open and log.former_voters.includes(self.me)

    @property
    def high_watermark(self) -> int | None:
        return self.state.high_watermark if isinstance(self.state, Leader) else self.committed

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        self._now_ms = now_ms
        effects = self._effects = []
        self._log_may_shrink = False
        self._adopt_voters()
        match event:
            case Tick():
                pass
            case Requested():
                effects.append(Reply(self._reply(event.request)))
            case Answered():
                self._answered(event)
            case Unanswered():
                self._unanswered(event)
            case Synced():
                self._synced(event.end_offset)
            case SnapshotUnusable():
                self._forget_snapshot()
            case Started():
                self._start()
            case Resign():
                self._stopping = self._stopping or event.stopping
                if isinstance(self.state, Leader):
                    self._resign(self.state)
            case _:
                assert_never(event)
        self._act()
        self._tell_leader()
        election = Election(self.epoch, self.leader_id, self.voted)
        if election != self._persisted:
            self._persisted = election
            # Before anybody sees anything of it.
            effects.insert(0, PersistElection(election))
        return effects

    def due_ms(self) -> int | None:
        """When the next Tick is needed; None where only another event brings anything."""
        times = [self._in_flight.due_ms()]
        match self.state:
            case Leader() as leader:
                if not self.voters.is_only(self.me):
                    times += [leader.check_quorum_due_ms, leader.begin_epoch_due_ms]
            case Follower() as follower:
                if self._may_stand and not self._stopping:
                    times.append(follower.fetch_due_ms)
            case Unattached() | Prospective() | Candidate() | Resigned() as waiting:
                if (self._may_stand or isinstance(waiting, Resigned)) and not self._stopping:
                    times.append(waiting.election_due_ms)
        return min((time for time in times if time is not None), default=None)

    # Beginning.

    def _start(self) -> None:
        if self.voters.is_only(self.me):
            # There is nobody to wait for.
            self.leader_id = None
            self.state = Unattached(self._now_ms)
        elif self.leader_id == self.me.id:
            # Records of this epoch that were never synced may be gone, others in their place would have the
            # same offsets and the same epoch: it is not led a second time.
            self.state = Resigned(self._election_due_ms(), (), set(self.voters.ids) - {self.me.id})
        elif self.leader_id is not None:
            self.state = Follower(self._now_ms + self._timeouts.fetch)
        else:
            self.state = Unattached(self._election_due_ms())

    def _adopt_voters(self) -> None:
        voters = self._log.voters
        if voters is self.voters:
            return
        self.voters = voters
        if isinstance(self.state, Leader):
            self.state.followers.adopt(voters)
            # New ones have had no time to fetch as voters yet.
            self.state.fetched.clear()
            self.state.check_quorum_due_ms = self._now_ms + self._check_quorum_ms

    def _election_due_ms(self) -> int:
        timeout_ms = self._timeouts.election
        if timeout_ms == 0 or self.voters.is_only(self.me):
            return self._now_ms
        return self._now_ms + timeout_ms + self._random.randrange(timeout_ms)

    # Transitions.

    def _become(self, state: State) -> None:
        transition(self.state.role, state.role)
        if isinstance(self.state, Leader):
            self._effects.append(SyncLog())
            self._log_may_shrink = True
        self.state = state
        # Whatever was asked in the role before no longer matters.
        self._in_flight.reset()

    def _enter_epoch(self, epoch: int, leader_id: int | None) -> None:
        if epoch > self.epoch:
            self.voted = None
        self.epoch, self.leader_id = epoch, leader_id

    def _unattach(self, epoch: int) -> None:
        """Of a higher epoch nobody knows the leader."""
        match self.state:
            case Unattached() | Candidate() | Resigned() as waiting:
                # Whoever asks often must not keep others from ever standing themselves.
                due_ms = waiting.election_due_ms
            case Prospective() as waiting if not waiting.ballot.is_lost:
                due_ms = waiting.election_due_ms
            case _:
                due_ms = self._election_due_ms()
        self._become(Unattached(due_ms))
        self._enter_epoch(epoch, None)

    def _follow(self, epoch: int, leader_id: int) -> None:
        self._become(Follower(self._now_ms + self._timeouts.fetch))
        self._enter_epoch(epoch, leader_id)

    def _prospect(self) -> None:
        self._become(Prospective(self._election_due_ms(), Ballot(self.voters, self.me)))

    def _stand(self) -> None:
        self._become(Candidate(self._election_due_ms(), Ballot(self.voters, self.me)))
        self._enter_epoch(self.epoch + 1, None)
        self.voted = self.me

    def _lead(self, candidate: Candidate) -> None:
        leader = Leader(
            self._log.end_offset,
            Followers(self.voters),
            check_quorum_due_ms=self._now_ms + self._check_quorum_ms,
            begin_epoch_due_ms=self._now_ms,
            reported={self.me.id: self.own},
        )
        self._become(leader)
        self.leader_id = self.me.id
        granting = tuple(sorted(candidate.ballot.granting))
        written = self._voters_to_write()
        self._effects.append(AppendLeaderChange(self.epoch, self.me.id, self.voters, granting, written))

    def _voters_to_write(self) -> QuorumChange | None:
        """With the first record of an epoch: what the cluster began with, and where this node listens now."""
        log = self._log
        if log.kraft_version < FIRST_WITH_CHANGES:
            return None
        has_moved = self.is_voter and bool(self.own.listeners) and self.voters.get(self.me.id) != self.own
        if log.voters_offset >= 0 and not has_moved:
            return None
        return QuorumChange(self.voters.having(self.own) if has_moved else self.voters, log.kraft_version)

    def _resign(self, leader: Leader) -> None:
        successors = leader.followers.successors(self.me.id)
        untold = set(self.voters.ids) - {self.me.id}
        self._become(Resigned(self._election_due_ms(), successors, untold))

    @property
    def _check_quorum_ms(self) -> int:
        return int(self._timeouts.fetch * CHECK_QUORUM_FACTOR)

    # What time brings.

    def _act(self) -> None:
        """Whatever is due in the role; again in the next one, where that follows at once."""
        self._in_flight.give_up_late(self._now_ms)
        while True:
            state = self.state
            match state:
                case Unattached():
                    self._act_unattached(state)
                case Follower():
                    self._act_following(state)
                case Prospective() | Candidate():
                    self._act_nominated(state)
                case Leader():
                    self._act_leading(state)
                case Resigned():
                    self._act_resigned(state)
                case _:
                    assert_never(state)
            if self.state is state:
                return

    def _act_unattached(self, state: Unattached) -> None:
        if self._may_stand and not self._stopping and state.election_due_ms <= self._now_ms:
            if not self._log_may_shrink:
                self._prospect()
        elif not self._in_flight.any_asked:
            self._fetch_from_anybody()

    def _act_following(self, state: Follower) -> None:
        if state.is_writing or state.is_installing:
            return
        assert self.leader_id is not None
        if self._may_stand and not self._stopping and state.fetch_due_ms <= self._now_ms:
            self._prospect()
        elif self._in_flight.any_asked:
            return
        elif self._in_flight.is_resting(self.leader_id):
            # It does not answer: perhaps there is another one by now.
            self._fetch_from_anybody()
        elif state.snapshot is not None:
            request = FetchSnapshotRequest(self.epoch, self.me, state.snapshot, state.snapshot_position)
            self._send(self.leader_id, request)
        else:
            self._send(self.leader_id, self._fetch_request())

    def _fetch_from_anybody(self) -> None:
        known = {self.me.id, *self._bootstrap}
        others = [*self._bootstrap, *(voter_id for voter_id in self.voters.ids if voter_id not in known)]
        node_id = self._in_flight.pick(others, self._random)
        if node_id is not None:
            self._send(node_id, self._fetch_request())

    def _fetch_request(self) -> FetchRequest:
        log = self._log
        return FetchRequest(self.epoch, self.me, log.end_offset, log.last_epoch, self.committed)

    def _act_nominated(self, state: Prospective | Candidate) -> None:
        if state.ballot.is_won:
            if isinstance(state, Candidate):
                self._lead(state)
            else:
                self._stand()
        elif not self._may_stand:
            # Removed meanwhile.
            self._end_prospect(state) if isinstance(state, Prospective) else self._unattach(self.epoch + 1)
        elif isinstance(state, Prospective) and (
            state.ballot.is_lost or (state.election_due_ms <= self._now_ms and not self._stopping)
        ):
            self._end_prospect(state)
        elif state.election_due_ms <= self._now_ms and not self._stopping:
            self._prospect()
        elif not state.ballot.is_lost:
            for voter in state.ballot.silent:
                if self._in_flight.is_ready(voter.id):
                    pre_vote = isinstance(state, Prospective)
                    request = VoteRequest(self.epoch, self.me, log_end(self._log), pre_vote, voter)
                    self._send(voter.id, request)

    def _end_prospect(self, state: Prospective) -> None:
        """Nobody was bound by anything: back to where it began."""
        if self.leader_id is not None:
            self._follow(self.epoch, self.leader_id)
        else:
            due_ms = self._election_due_ms() if state.ballot.is_lost else state.election_due_ms
            self._become(Unattached(max(due_ms, self._now_ms + 1)))

    def _act_leading(self, state: Leader) -> None:
        if self.voters.is_only(self.me):
            return
        if state.check_quorum_due_ms <= self._now_ms:
            self._effects.append(
                Warn(
                    f"a majority of the voters {list(self.voters.ids)} has not fetched the metadata for "
                    f"{self._check_quorum_ms} ms; node {self.me.id} gives up leading epoch {self.epoch}"
                )
            )
            self._resign(state)
        elif state.begin_epoch_due_ms <= self._now_ms:
            period_ms = self._timeouts.fetch // 2
            for voter in state.followers.silent_since(self.me.id, self._now_ms - period_ms):
                if self._in_flight.is_ready(voter.id):
                    self._send(voter.id, BeginQuorumEpochRequest(self.epoch, self.me.id, voter))
            state.begin_epoch_due_ms = self._now_ms + max(period_ms, 1)

    def _act_resigned(self, state: Resigned) -> None:
        if state.election_due_ms <= self._now_ms and not self._stopping:
            if not self._log_may_shrink:
                # In its own epoch it could only follow itself.
                self._unattach(self.epoch + 1)
            return
        for node_id in sorted(state.untold):
            if self._in_flight.is_ready(node_id):
                self._send(node_id, EndQuorumEpochRequest(self.epoch, self.me.id, state.successors))

    def _send(self, node_id: int, request: Request) -> None:
        self._effects.append(Send(node_id, self._in_flight.send(node_id, self._now_ms), request))

    def _tell_leader(self) -> None:
        leader_id = self.leader_id
        match self.state:
            case Leader(high_watermark=None) | Resigned():
                leader_id = None
        news = LeaderChanged(leader_id, self.epoch)
        if news != self._told:
            self._told = news
            self._effects.append(news)

    # Requests of others.

    def _reply(self, request: Request) -> Response:
        match request:
            case VoteRequest():
                error, granted = self._vote(request)
                return VoteResponse(error, self.epoch, self.leader_id, granted)
            case BeginQuorumEpochRequest():
                error = self._begin_epoch(request)
                return QuorumEpochResponse(error, self.epoch, self.leader_id)
            case EndQuorumEpochRequest():
                error = self._end_epoch(request)
                return QuorumEpochResponse(error, self.epoch, self.leader_id)
            case FetchRequest():
                return self._serve_fetch(request)
            case FetchSnapshotRequest():
                return self._serve_snapshot(request)
            case AddVoterRequest() | RemoveVoterRequest() | UpdateVoterRequest() | UpgradeRequest():
                return self._change_voters(request)
            case _:
                assert_never(request)

    def _vote(self, request: VoteRequest) -> tuple[ErrorCode, bool]:
        last_epoch, last_offset = request.log_end
        # A candidate stands in an epoch that nobody has led; who only asks has not entered it yet.
        if last_epoch < 0 or last_offset < 0 or last_epoch > request.epoch - (0 if request.pre_vote else 1):
            return ErrorCode.invalid_request, False
        if request.epoch < self.epoch:
            return ErrorCode.fenced_leader_epoch, False
        if request.candidate.id < 0 or request.candidate.id == self.me.id:
            return ErrorCode.invalid_request, False
        if request.epoch > self.epoch:
            self._unattach(request.epoch)
        if request.voter is not None and not request.voter.is_same(self.me):
            return ErrorCode.invalid_voter_key, False
        granted = self._grants(request)
        if granted and not request.pre_vote and self.voted is None:
            self.voted = request.candidate
            if isinstance(self.state, Unattached | Prospective):
                # It has at least as good a chance as this node.
                self.state.election_due_ms = self._election_due_ms()
        return ErrorCode.none, granted

    def _grants(self, request: VoteRequest) -> bool:
        is_up_to_date = request.log_end >= log_end(self._log)
        match self.state:
            case Leader():
                return False
            case Follower() as follower:
                # Others may know it as a voter before it knows of that itself; it does not stand, but may be
                # needed against a leader that is gone.
                hears_leader = follower.has_fetched and follower.fetch_due_ms > self._now_ms
                return request.pre_vote and not hears_leader and is_up_to_date
            case Candidate() | Resigned():
                return request.pre_vote and is_up_to_date
        if request.pre_vote:
            return is_up_to_date
        if self.voted is not None:
            return self.voted.is_same(request.candidate)
        return self.leader_id is None and is_up_to_date

    def _begin_epoch(self, request: BeginQuorumEpochRequest) -> ErrorCode:
        error = self._hear_leader(request.epoch, request.leader_id)
        if error is ErrorCode.none and request.voter is not None and not request.voter.is_same(self.me):
            return ErrorCode.invalid_voter_key
        return error

    def _end_epoch(self, request: EndQuorumEpochRequest) -> ErrorCode:
        error = self._hear_leader(request.epoch, request.leader_id)
        if (
            error is ErrorCode.none
            and isinstance(self.state, Follower)
            and self.leader_id == request.leader_id
        ):
            self.state.fetch_due_ms = self._now_ms + self._succession_ms(request.successors)
        return error

    def _succession_ms(self, successors: tuple[ReplicaKey, ...]) -> int:
        """The one with the longest log stands at once, each further one waits twice as long."""
        backoff_max_ms = self._timeouts.backoff_max
        place = next((at for at, key in enumerate(successors) if key.is_same(self.me)), len(successors))
        if place == 0:
            return 0
        if place >= len(successors):
            return backoff_max_ms
        return min(backoff_max_ms, (backoff_max_ms >> (len(successors) - 1)) << (place - 1))

    def _hear_leader(self, epoch: int, leader_id: int) -> ErrorCode:
        if epoch < self.epoch:
            return ErrorCode.fenced_leader_epoch
        if leader_id < 0 or leader_id == self.me.id:
            return ErrorCode.invalid_request
        self._learn(epoch, leader_id)
        return ErrorCode.none if self.leader_id == leader_id else ErrorCode.invalid_request

    def _check_leading(self, epoch: int) -> ErrorCode:
        if epoch < self.epoch:
            return ErrorCode.fenced_leader_epoch
        if epoch > self.epoch:
            return ErrorCode.unknown_leader_epoch
        return ErrorCode.none if isinstance(self.state, Leader) else ErrorCode.not_leader_or_follower

    def _serve_fetch(self, request: FetchRequest) -> FetchResponse:
        if request.offset < 0 or request.last_epoch < 0 or request.last_epoch > request.epoch:
            return FetchResponse(ErrorCode.invalid_request, self.epoch, self.leader_id)
        error = self._check_leading(request.epoch)
        state = self.state
        if error is not ErrorCode.none or not isinstance(state, Leader):
            return FetchResponse(error, self.epoch, self.leader_id)
        response = FetchResponse(error, self.epoch, self.leader_id, state.high_watermark)
        difference = compare(self._log, request.offset, request.last_epoch)
        if isinstance(difference, Position):
            return response._replace(diverging=difference)
        if difference is not None:
            return response._replace(snapshot=difference)
        if request.replica.id >= 0 and request.replica.id != self.me.id and not request.has_waited:
            end_offset = self._log.end_offset
            state.followers.fetched(request.replica, request.offset, end_offset, self._now_ms)
            self._heard_from(state, request.replica)
            self._advance(state)
        return response._replace(high_watermark=state.high_watermark, is_valid=True)

    def _serve_snapshot(self, request: FetchSnapshotRequest) -> FetchSnapshotResponse:
        error = self._check_leading(request.epoch)
        state = self.state
        if error is not ErrorCode.none or not isinstance(state, Leader):
            return FetchSnapshotResponse(error, self.epoch, self.leader_id)
        if request.snapshot == BOOTSTRAP_SNAPSHOT:
            return FetchSnapshotResponse(ErrorCode.snapshot_not_found, self.epoch, self.leader_id)
        if request.position < 0:
            return FetchSnapshotResponse(ErrorCode.position_out_of_range, self.epoch, self.leader_id)
        self._heard_from(state, request.replica)
        return FetchSnapshotResponse(
            error, self.epoch, self.leader_id, request.snapshot, position=request.position, is_valid=True
        )

    def _change_voters(self, request: VoterChange) -> VoterChangeResponse:
        epoch = request.epoch if isinstance(request, UpdateVoterRequest) else self.epoch
        error = self._check_leading(epoch)
        state = self.state
        if error is not ErrorCode.none or not isinstance(state, Leader):
            return VoterChangeResponse(error, self.epoch, self.leader_id)
        try:
            change = self._decide_change(state, request)
        except VoterChangeRefused as refused:
            return VoterChangeResponse(refused.error, self.epoch, self.leader_id, str(refused))
        if change is not None:
            self._effects.append(AppendQuorumChange(change))
        return VoterChangeResponse(ErrorCode.none, self.epoch, self.leader_id, is_appended=change is not None)

    def _standing(self, state: Leader) -> Standing:
        log = self._log
        return Standing(log.kraft_version, self.voters, log.voters_offset, state.high_watermark)

    def _decide_change(self, state: Leader, request: VoterChange) -> QuorumChange | None:
        """None where nothing is to be written."""
        standing = self._standing(state)
        match request:
            case AddVoterRequest(is_known=False):
                check_added(standing, request.voter.key)
                return None
            case AddVoterRequest():
                is_caught_up = state.followers.is_caught_up(request.voter.key, self._now_ms)
                return QuorumChange(added(standing, request.voter, is_caught_up=is_caught_up))
            case RemoveVoterRequest():
                return QuorumChange(removed(standing, request.voter))
            case UpdateVoterRequest():
                voters = updated(standing, request.voter)
                self._heard_from(state, request.voter.key)
                if standing.kraft_version >= FIRST_WITH_CHANGES:
                    return QuorumChange(voters) if voters != self.voters else None
                state.reported[request.voter.key.id] = request.voter
                return None
            case UpgradeRequest():
                change = upgraded(standing, request.kraft_version, state.reported)
                return None if request.validate_only else change
            case _:
                assert_never(request)

    def _heard_from(self, state: Leader, replica: ReplicaKey) -> None:
        if replica.id == self.me.id or not self.voters.includes(replica):
            return
        state.fetched.add(replica.id)
        others = self.voters.majority - (1 if self.is_voter else 0)
        if len(state.fetched) >= others:
            state.fetched.clear()
            state.check_quorum_due_ms = self._now_ms + self._check_quorum_ms

    # Answers of others.

    def _answered(self, event: Answered) -> None:
        if not self._in_flight.accept(event.node_id, event.request_id):
            return
        response = event.response
        is_use = self._heed(response)
        if is_use is None:
            match response:
                case VoteResponse():
                    is_use = self._count_vote(event.node_id, response)
                case QuorumEpochResponse():
                    is_use = self._told_voter(event.node_id, response)
                case FetchResponse():
                    is_use = self._fetched(response)
                case FetchSnapshotResponse():
                    is_use = self._fetched_snapshot(response)
                case VoterChangeResponse():
                    # The core asks nobody for such changes.
                    is_use = False
                case _:
                    assert_never(response)
        if not is_use:
            self._in_flight.rest(event.node_id, self._now_ms)

    def _unanswered(self, event: Unanswered) -> None:
        if not self._in_flight.accept(event.node_id, event.request_id):
            return
        self._in_flight.rest(event.node_id, self._now_ms)
        if event.is_gone and isinstance(self.state, Follower) and event.node_id == self.leader_id:
            # There is no use in waiting for it. Whoever can still reach it will not agree to an election.
            due_ms = self._now_ms + self._random.randrange(self._timeouts.election // 4 + 1)
            self.state.fetch_due_ms = min(self.state.fetch_due_ms, due_ms)
            self.state.has_fetched = False

    def _heed(self, response: Response) -> bool | None:
        """What every answer says of epoch and leader. None where the rest of it counts, False where who sent
        it should not be asked again at once."""
        error, epoch, leader_id = response.error, response.epoch, response.leader_id
        if epoch < self.epoch:
            # Whoever is behind learns of the epoch from what it is asked.
            return error is not ErrorCode.unknown_leader_epoch
        refused = error in {ErrorCode.fenced_leader_epoch, ErrorCode.not_leader_or_follower}
        if epoch > self.epoch or refused:
            return self._learn(epoch, leader_id)
        if leader_id is not None and self.leader_id is None and self._learn(epoch, leader_id):
            return None if error is ErrorCode.none else True
        return None

    def _learn(self, epoch: int, leader_id: int | None) -> bool:
        """Whether this is news."""
        if epoch < self.epoch:
            return False
        if leader_id == self.me.id:
            if epoch == self.epoch:
                # True of a leader; one that no longer leads has said so already.
                return False
            # This node has forgotten that it led, but not that it must not vote again in that epoch.
            self._unattach(epoch)
            self.voted = self.me
            return True
        if epoch > self.epoch:
            if leader_id is None:
                self._unattach(epoch)
            else:
                self._follow(epoch, leader_id)
            return True
        if leader_id is None or leader_id == self.leader_id:
            return False
        if self.leader_id is not None:
            self._effects.append(
                Warn(
                    f"epoch {epoch} of the metadata quorum has the leader {self.leader_id}, but node "
                    f"{leader_id} is said to lead it, too; has a voter lost its quorum-state file?"
                )
            )
            return False
        self._follow(epoch, leader_id)
        return True

    def _count_vote(self, node_id: int, response: VoteResponse) -> bool:
        state = self.state
        if response.error is ErrorCode.unsupported_version and isinstance(state, Prospective):
            # A voter of an older version cannot be asked beforehand.
            self._stand()
            return True
        if response.error is not ErrorCode.none:
            return False
        if isinstance(state, Prospective | Candidate):
            state.ballot.record(node_id, response.granted)
        return True

    def _told_voter(self, node_id: int, response: QuorumEpochResponse) -> bool:
        if isinstance(self.state, Resigned) and response.error is ErrorCode.none:
            self.state.untold.discard(node_id)
        return response.error is ErrorCode.none

    def _fetched(self, response: FetchResponse) -> bool:
        state = self.state
        if not isinstance(state, Follower) or response.error is not ErrorCode.none:
            return False
        if response.diverging is not None:
            if not self._cut_back(state, response.diverging):
                return False
        elif response.snapshot is not None:
            state.snapshot, state.snapshot_position = response.snapshot, 0
        else:
            state.leader_high_watermark = response.high_watermark
            if response.records is not None:
                state.is_writing, state.written_from = True, self._log.end_offset
                self._effects.append(AppendFetched(response.records))
            else:
                self._follow_high_watermark(state)
        self._fetch_succeeded(state)
        return True

    def _fetch_succeeded(self, state: Follower) -> None:
        state.has_fetched = True
        state.fetch_due_ms = self._now_ms + self._timeouts.fetch

    def _cut_back(self, state: Follower, diverging: Position) -> bool:
        offset = truncation(self._log, diverging)
        if self.committed is not None and offset < self.committed:
            raise CommittedRecordsDiverge(
                f"the leader of the metadata quorum, node {self.leader_id} in epoch {self.epoch}, has other "
                f"records from offset {offset} on, but all before {self.committed} was committed. A majority "
                "of the voters has lost part of its log; compare their copies before any of them is removed"
            )
        if offset >= self._log.end_offset:
            return False
        state.is_writing, state.written_from = True, self._log.end_offset
        self._effects.append(Truncate(offset))
        return True

    def _fetched_snapshot(self, response: FetchSnapshotResponse) -> bool:
        state = self.state
        if not isinstance(state, Follower) or state.snapshot is None:
            return False
        if response.error is ErrorCode.snapshot_not_found or (
            response.error is ErrorCode.none
            and (response.snapshot != state.snapshot or response.position != state.snapshot_position)
        ):
            # The leader has removed it: there is a newer one.
            self._forget_snapshot()
            self._fetch_succeeded(state)
            return True
        if response.error is not ErrorCode.none:
            return False
        self._effects.append(StoreSnapshotPart(state.snapshot, state.snapshot_position, response.data))
        state.snapshot_position += len(response.data)
        if state.snapshot_position >= response.size:
            state.is_installing = True
            self._effects.append(InstallSnapshot(state.snapshot))
        self._fetch_succeeded(state)
        return bool(response.data)

    def _forget_snapshot(self) -> None:
        if isinstance(self.state, Follower):
            self.state.snapshot, self.state.snapshot_position, self.state.is_installing = None, 0, False

    # The log.

    def _synced(self, end_offset: int) -> None:
        match self.state:
            case Leader() as leader:
                leader.followers.synced(self.me, end_offset, self._now_ms)
                self._advance(leader)
            case Follower() as follower:
                if follower.is_installing and follower.snapshot is not None:
                    self._commit(follower.snapshot.offset)
                    self._forget_snapshot()
                if follower.is_writing and end_offset == follower.written_from and self.leader_id is not None:
                    # There was no room for it, or it was not whole.
                    self._in_flight.rest(self.leader_id, self._now_ms)
                follower.is_writing = False
                self._follow_high_watermark(follower)

    def _follow_high_watermark(self, state: Follower) -> None:
        if state.leader_high_watermark is not None:
            self._commit(min(state.leader_high_watermark, self._log.end_offset))

    def _advance(self, state: Leader) -> None:
        offset = state.followers.majority_offset()
        # Records of earlier epochs only count once one of this epoch is on a majority: until then another
        # leader could still replace them.
        if offset is None or offset <= state.epoch_start_offset or offset <= (state.high_watermark or 0):
            return
        state.high_watermark = offset
        self._commit(offset)
        if not self.is_voter and self._log.voters_offset < offset:
            # It has led until its own removal was agreed on, without counting itself.
            self._resign(state)

    def _commit(self, high_watermark: int) -> None:
        if self.committed is None or high_watermark > self.committed:
            self.committed = high_watermark
            self._effects.append(Commit(high_watermark))
