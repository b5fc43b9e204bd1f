"""What a node remembers in each of the roles, and forgets with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from ottla.metadata.snapshot import SnapshotId
from ottla.raft.progress import Followers
from ottla.raft.roles import Role
from ottla.raft.voters import ReplicaKey, Voter, VoterSet


class Ballot:
    """The votes of one election, by the voters there were when it began."""

    def __init__(self, voters: VoterSet, nominee: ReplicaKey) -> None:
        self.voters = voters
        # One that is being removed may still have to stand, but has no vote.
        self.granting = {nominee.id} if voters.includes(nominee) else set()
        self._rejecting: set[int] = set()

    def record(self, voter_id: int, granted: bool) -> None:
        if voter_id in self.voters.ids:
            (self.granting if granted else self._rejecting).add(voter_id)

    @property
    def is_won(self) -> bool:
        return len(self.granting) >= self.voters.majority

    @property
    def is_lost(self) -> bool:
        return len(self.voters) - len(self._rejecting) < self.voters.majority

    @property
    def silent(self) -> list[ReplicaKey]:
        """Voters that have not answered."""
        return [
            voter.key
            for voter in self.voters.voters
            if voter.key.id not in self.granting and voter.key.id not in self._rejecting
        ]


@dataclass(slots=True)
class Unattached:
    role: ClassVar = Role.UNATTACHED
    election_due_ms: int


@dataclass(slots=True)
class Follower:
    role: ClassVar = Role.FOLLOWER
    fetch_due_ms: int
    has_fetched: bool = False
    """From the leader of this epoch. Until then it may be gone, and others be as good."""
    leader_high_watermark: int | None = None
    is_writing: bool = False
    """What came is being written; the next request waits for it."""
    written_from: int = 0
    """Where the log ended before."""
    snapshot: SnapshotId | None = None
    """Being fetched, instead of records."""
    snapshot_position: int = 0
    is_installing: bool = False


@dataclass(slots=True)
class Prospective:
    role: ClassVar = Role.PROSPECTIVE
    election_due_ms: int
    ballot: Ballot


@dataclass(slots=True)
class Candidate:
    role: ClassVar = Role.CANDIDATE
    election_due_ms: int
    ballot: Ballot


@dataclass(slots=True)
class Leader:
    role: ClassVar = Role.LEADER
    epoch_start_offset: int
    followers: Followers
    check_quorum_due_ms: int
    begin_epoch_due_ms: int
    high_watermark: int | None = None
    """None until the first record of this epoch is committed: until then nobody can be sure that it does not
    go back."""
    fetched: set[int] = field(default_factory=set)
    """Voters that have fetched since a majority last had."""
    reported: dict[int, Voter] = field(default_factory=dict)
    """What voters have said of themselves, as long as the log does not have it."""


@dataclass(slots=True)
class Resigned:
    role: ClassVar = Role.RESIGNED
    election_due_ms: int
    successors: tuple[ReplicaKey, ...]
    untold: set[int]


State: TypeAlias = Unattached | Follower | Prospective | Candidate | Leader | Resigned
