"""Raft without I/O: `step(event, now_ms)` returns the effects its driver must carry out, in order.

The quorum has one voter today. Elections and commits already count majorities of the voter set, so that more
voters add events (what peers answer) and effects (what to ask them), not another way of counting.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias, assert_never

from ottla.raft.roles import Role, transition


class Election(NamedTuple):
    """What must survive a restart, or a voter could vote twice in one epoch."""

    epoch: int = 0
    leader_id: int | None = None
    voted_id: int | None = None


class ElectionDue(NamedTuple):
    """Time without a leader is up. For a sole voter that is at once."""

    log_end_offset: int


class VoteGranted(NamedTuple):
    voter_id: int
    epoch: int


class Acknowledged(NamedTuple):
    """The voter has everything before this offset on its disk."""

    voter_id: int
    offset: int


class PersistElection(NamedTuple):
    """To be on disk before any effect after it."""

    election: Election


class AppendLeaderChange(NamedTuple):
    """The first record of an epoch; nothing of the epoch is committed before it is."""

    epoch: int
    leader_id: int
    voters: tuple[int, ...]
    granting_voters: tuple[int, ...]


class Commit(NamedTuple):
    """Everything before this offset is committed."""

    high_watermark: int


class Progress(NamedTuple):
    acknowledged_offset: int
    acknowledged_at_ms: int


Event: TypeAlias = ElectionDue | VoteGranted | Acknowledged
Effect: TypeAlias = PersistElection | AppendLeaderChange | Commit


class RaftCore:
    def __init__(self, node_id: int, voters: tuple[int, ...], election: Election) -> None:
        if node_id not in voters:
            raise ValueError(f"node {node_id} is not one of the voters {voters}")
        self.node_id = node_id
        self.voters = tuple(sorted(voters))
        self.role = Role.UNATTACHED
        self.epoch = election.epoch
        self.leader_id: int | None = None
        self.high_watermark: int | None = None
        """None until the first record of this epoch is committed."""
        self.progress: dict[int, Progress] = {}
        self._votes: set[int] = set()
        self._epoch_start_offset = 0

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        match event:
            case ElectionDue():
                return self._stand(event.log_end_offset)
            case VoteGranted():
                return self._count_vote(event)
            case Acknowledged():
                return self._acknowledge(event, now_ms)
            case _:
                assert_never(event)

    def _stand(self, log_end_offset: int) -> list[Effect]:
        self.role = transition(self.role, Role.CANDIDATE)
        self.epoch += 1
        self._votes = {self.node_id}
        self._epoch_start_offset = log_end_offset
        if self._is_majority(len(self._votes)):
            return self._lead()
        return [PersistElection(Election(self.epoch, voted_id=self.node_id))]

    def _count_vote(self, event: VoteGranted) -> list[Effect]:
        if self.role is not Role.CANDIDATE or event.epoch != self.epoch or event.voter_id not in self.voters:
            return []
        self._votes.add(event.voter_id)
        return self._lead() if self._is_majority(len(self._votes)) else []

    def _lead(self) -> list[Effect]:
        self.role = transition(self.role, Role.LEADER)
        self.leader_id = self.node_id
        self.progress = {}
        return [
            PersistElection(Election(self.epoch, leader_id=self.node_id, voted_id=self.node_id)),
            AppendLeaderChange(self.epoch, self.node_id, self.voters, tuple(sorted(self._votes))),
        ]

    def _acknowledge(self, event: Acknowledged, now_ms: int) -> list[Effect]:
        if self.role is not Role.LEADER or event.voter_id not in self.voters:
            return []
        known = self.progress.get(event.voter_id)
        offset = event.offset if known is None else max(event.offset, known.acknowledged_offset)
        self.progress[event.voter_id] = Progress(offset, now_ms)
        offsets = sorted((entry.acknowledged_offset for entry in self.progress.values()), reverse=True)
        quorum = len(self.voters) // 2 + 1
        if len(offsets) < quorum:
            return []
        committed = offsets[quorum - 1]
        # Records of earlier epochs only count once one of this epoch is on a majority: until then another
        # leader could still replace them.
        if committed <= self._epoch_start_offset or committed <= (self.high_watermark or 0):
            return []
        self.high_watermark = committed
        return [Commit(committed)]

    def _is_majority(self, count: int) -> bool:
        return count > len(self.voters) // 2
