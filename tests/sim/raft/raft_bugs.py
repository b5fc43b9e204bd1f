"""Mistakes one could make in the core or its driver. Each must be found by a checker."""

from __future__ import annotations

from raft_quorum import SimLog

from ottla.raft.core import RaftCore
from ottla.raft.events import (
    Commit,
    Effect,
    Election,
    Event,
    PersistElection,
    Started,
    Truncate,
)
from ottla.raft.messages import Position, VoteRequest
from ottla.raft.progress import Progress
from ottla.raft.states import Candidate, Follower, Leader, Unattached
from ottla.raft.voter_changes import Standing
from ottla.raft.voters import VoterSet
from ottla.wire.errors import ErrorCode


class ForgetsItsVote(RaftCore):
    """After a restart it votes again in the same epoch."""

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        if isinstance(event, Started):
            self.voted = None
        return super().step(event, now_ms)


class VotesTwice(RaftCore):
    def _grants(self, request: VoteRequest) -> bool:
        if not request.pre_vote and isinstance(self.state, Unattached):
            self.voted = None
        return super()._grants(request)


class PersistsTooLate(RaftCore):
    """The answer is out before the vote is on disk."""

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        effects = super().step(event, now_ms)
        if effects and isinstance(effects[0], PersistElection):
            effects.append(effects.pop(0))
        return effects


class VotesForShorterLogs(RaftCore):
    def _vote(self, request: VoteRequest) -> tuple[ErrorCode, bool]:
        longest = Position(request.epoch - (0 if request.pre_vote else 1), 1_000_000)
        return super()._vote(request._replace(log_end=longest))


class ComparesOffsetsBeforeEpochs(RaftCore):
    """The longer log wins, whoever wrote it."""

    def _grants(self, request: VoteRequest) -> bool:
        longer = request.log_end.offset >= self._log.end_offset
        epoch = self._log.last_epoch if longer else -1
        return super()._grants(request._replace(log_end=Position(epoch, request.log_end.offset)))


class CommitsOldEpochsByCount(RaftCore):
    """What a majority has is taken for committed, though another leader may still replace it."""

    def _lead(self, candidate: Candidate) -> None:
        super()._lead(candidate)
        assert isinstance(self.state, Leader)
        self.state.epoch_start_offset = -1


class CommitsWhatOneHas(RaftCore):
    def _advance(self, state: Leader) -> None:
        offset = max(
            (known.acknowledged_offset for known in state.followers.voters.values() if known), default=0
        )
        if offset > state.epoch_start_offset and offset > (state.high_watermark or 0):
            state.high_watermark = offset
            self._commit(offset)


class CountsRecordsThatAreNotSynced(RaftCore):
    """The leader takes what is in its memory for written."""

    def _advance(self, state: Leader) -> None:
        state.followers.synced(self.me, self._log.end_offset, self._now_ms)
        super()._advance(state)


class TruncatesTooFar(RaftCore):
    def step(self, event: Event, now_ms: int) -> list[Effect]:
        effects = super().step(event, now_ms)
        return [
            Truncate(max(effect.end_offset - 3, 0)) if isinstance(effect, Truncate) else effect
            for effect in effects
        ]


class DoesNotTruncate(RaftCore):
    """Goes on after records that its leader does not have."""

    def _cut_back(self, state: Follower, diverging: Position) -> bool:
        return False


class IgnoresDivergence(RaftCore):
    """As a leader it takes every follower's log for a part of its own."""

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        from ottla.raft.events import Requested
        from ottla.raft.messages import FetchRequest

        if isinstance(event, Requested) and isinstance(event.request, FetchRequest):
            offset = min(event.request.offset, self._log.end_offset)
            epoch = self._log.entries[offset - 1][0] if offset else 0  # type: ignore[attr-defined]
            event = Requested(
                event.request._replace(last_epoch=min(epoch, event.request.epoch), offset=offset)
            )
        return super().step(event, now_ms)


class LeadsTheSameEpochAgain(RaftCore):
    """After a restart a leader goes on as if nothing had happened to what it had not synced."""

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        if isinstance(event, Started) and self.leader_id == self.me.id and self.epoch > 0:
            self.epoch -= 1
            self._persisted = Election(self.epoch)
        return super().step(event, now_ms)


class TrustsTheLeadersHighWatermark(RaftCore):
    """Also where its own log does not reach that far."""

    def _follow_high_watermark(self, state: Follower) -> None:
        if state.leader_high_watermark is not None:
            self._commit(state.leader_high_watermark)


class TakesTheHighWatermarkBack(RaftCore):
    """A new leader tells what it knew before, and its followers believe it."""

    def _lead(self, candidate: Candidate) -> None:
        super()._lead(candidate)
        assert isinstance(self.state, Leader)
        self.state.high_watermark = self.committed

    def _commit(self, high_watermark: int) -> None:
        if high_watermark != self.committed:
            self.committed = high_watermark
            self._effects.append(Commit(high_watermark))


class NeverStands(RaftCore):
    """A follower waits for its leader for ever."""

    def _act_following(self, state: Follower) -> None:
        state.fetch_due_ms = 1 << 60
        super()._act_following(state)


class NeverRandom(RaftCore):
    """All stand at the same time, in every epoch anew."""

    def _election_due_ms(self) -> int:
        return (self._now_ms // 50 + 1) * 50

    def _grants(self, request: VoteRequest) -> bool:
        if isinstance(self.state, Unattached):
            self.voted = self.voted or self.me
        return super()._grants(request)


class AcknowledgesBeforeSyncing(SimLog):
    """A follower's records are gone after a power loss, though it has vouched for them."""

    @property
    def synced(self) -> int:
        return self._synced

    @synced.setter
    def synced(self, offset: int) -> None:
        self._synced = min(offset, max(len(self.entries) - 2, 0)) if offset else 0


# Mistakes about voters that change.


class CountsTheOldVoters(RaftCore):
    """A leader goes by the voters there were when it was elected."""

    def _adopt_voters(self) -> None:
        if not isinstance(self.state, Leader):
            super()._adopt_voters()


class MakesTwoChangesAtOnce(RaftCore):
    def _standing(self, state: Leader) -> Standing:
        return super()._standing(state)._replace(voters_offset=-1)


class ChangesVotersBeforeItsEpochIsCommitted(RaftCore):
    """A change of an earlier leader, which nobody here knows of, may be in force elsewhere."""

    def _standing(self, state: Leader) -> Standing:
        standing = super()._standing(state)
        if standing.high_watermark is None:
            return standing._replace(high_watermark=self._log.end_offset)
        return standing


class CountsItselfAfterItsRemoval(RaftCore):
    def _advance(self, state: Leader) -> None:
        followers = state.followers
        if not self.is_voter:
            known = followers.voters
            followers.voters = {**known, self.me.id: Progress(self._log.end_offset, self._now_ms)}
            super()._advance(state)
            followers.voters = known
        else:
            super()._advance(state)


class LeadsOnAfterItsRemoval(RaftCore):
    def _resign(self, leader: Leader) -> None:
        if self.is_voter:
            super()._resign(leader)


class NeverStandsOnceRemoved(RaftCore):
    """Also where nobody else has heard of the removal, and its log is longer than theirs."""

    @property
    def _may_stand(self) -> bool:
        return self.is_voter


class StandsBeforeItsLogIsCut(RaftCore):
    """And leads from an offset that its log has no more."""

    @property
    def _log_may_shrink(self) -> bool:
        return False

    @_log_may_shrink.setter
    def _log_may_shrink(self, value: bool) -> None: ...


class TakesAnEmptyDiskForTheOneBefore(RaftCore):
    """A voter that has lost its disk, and its vote with it, goes on as if nothing had happened."""

    def _adopt_voters(self) -> None:
        voters = VoterSet.of_ids(self._log.voters.ids)
        if voters != self.voters:
            self.voters = voters
            if isinstance(self.state, Leader):
                self.state.followers.adopt(voters)

    def _vote(self, request: VoteRequest) -> tuple[ErrorCode, bool]:
        return super()._vote(request._replace(voter=None))


class KeepsVotersThatWereCutOff(SimLog):
    def truncate(self, end_offset: int) -> None:
        voters = list(self._voters)
        super().truncate(end_offset)
        self._voters = voters


# Found by seeds; the others by the schedules they need.
BUGS: dict[type[RaftCore], set[str]] = {
    VotesTwice: {"TwoLeadersInAnEpoch"},
    PersistsTooLate: {"TwoLeadersInAnEpoch"},
    VotesForShorterLogs: {"CommittedEntryLost"},
    ComparesOffsetsBeforeEpochs: {"CommittedEntryLost"},
    CommitsWhatOneHas: {"CommittedEntryLost"},
    CountsRecordsThatAreNotSynced: {"CommittedEntryLost"},
    TruncatesTooFar: {"TruncatedBelowCommitted"},
    IgnoresDivergence: {"CommittedEntryLost"},
    LeadsTheSameEpochAgain: {"TwoLeadersInAnEpoch", "DivergentLogs"},
    TrustsTheLeadersHighWatermark: {"CommittedBeyondTheLog"},
    TakesTheHighWatermarkBack: {"HighWatermarkGoesBack"},
    DoesNotTruncate: {"NoLeaderThoughAMajorityLives"},
    NeverStands: {"NoLeaderThoughAMajorityLives"},
    NeverRandom: {"NoLeaderThoughAMajorityLives"},
}

BUGS_OF_CHANGES: dict[type[RaftCore], set[str]] = {
    CountsTheOldVoters: {"CommittedEntryLost", "TwoLeadersInAnEpoch"},
    MakesTwoChangesAtOnce: {"CommittedEntryLost", "TwoLeadersInAnEpoch"},
    CountsItselfAfterItsRemoval: {"CommittedEntryLost"},
    LeadsOnAfterItsRemoval: {"NoLeaderThoughAMajorityLives"},
    NeverStandsOnceRemoved: {"NoLeaderThoughAMajorityLives"},
    TakesAnEmptyDiskForTheOneBefore: {"CommittedEntryLost", "TwoLeadersInAnEpoch"},
}
