"""What members of a quorum say to each other, without the layout it has on the wire."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from ottla.metadata.snapshot import SnapshotId
from ottla.raft.voters import ReplicaKey, Voter
from ottla.wire.errors import ErrorCode


class Position(NamedTuple):
    """Where records of an epoch end."""

    epoch: int
    offset: int


class VoteRequest(NamedTuple):
    epoch: int
    candidate: ReplicaKey
    log_end: Position
    pre_vote: bool = False
    """Only a question; nobody is bound by the answer."""
    voter: ReplicaKey | None = None
    """Who is asked."""


class VoteResponse(NamedTuple):
    error: ErrorCode
    epoch: int
    leader_id: int | None
    granted: bool = False


class BeginQuorumEpochRequest(NamedTuple):
    epoch: int
    leader_id: int
    voter: ReplicaKey | None = None


class EndQuorumEpochRequest(NamedTuple):
    epoch: int
    leader_id: int
    successors: tuple[ReplicaKey, ...] = ()
    """Those whose logs are longest first."""


class QuorumEpochResponse(NamedTuple):
    """To BeginQuorumEpoch and EndQuorumEpoch."""

    error: ErrorCode
    epoch: int
    leader_id: int | None


class FetchRequest(NamedTuple):
    epoch: int
    replica: ReplicaKey
    offset: int
    last_epoch: int
    """Of the record before the offset."""
    high_watermark: int | None = None
    """What the follower knows of."""
    has_waited: bool = False
    """The request was seen before and has waited since: it says nothing new of who sent it."""


class FetchResponse(NamedTuple):
    error: ErrorCode
    epoch: int
    leader_id: int | None
    high_watermark: int | None = None
    diverging: Position | None = None
    """The follower has other records than the leader after this."""
    snapshot: SnapshotId | None = None
    """The follower has to begin with this: the log begins later than it asks for."""
    records: Any = None
    """The core does not look into them. None where there are none, also on the leader's side, whose driver
    adds them to what the core says."""
    is_valid: bool = False
    """On the leader's side: records from the offset asked for may be added."""


class FetchSnapshotRequest(NamedTuple):
    epoch: int
    replica: ReplicaKey
    snapshot: SnapshotId
    position: int


class FetchSnapshotResponse(NamedTuple):
    error: ErrorCode
    epoch: int
    leader_id: int | None
    snapshot: SnapshotId | None = None
    size: int = 0
    position: int = 0
    data: Any = None
    is_valid: bool = False
    """On the leader's side: bytes from the position asked for may be added."""


class AddVoterRequest(NamedTuple):
    voter: Voter
    is_known: bool = True
    """What the voter supports has been asked of it. Without that, only whether it might be added is said."""


class RemoveVoterRequest(NamedTuple):
    voter: ReplicaKey


class UpdateVoterRequest(NamedTuple):
    """A voter says where it listens now, and what it supports."""

    epoch: int
    voter: Voter


class UpgradeRequest(NamedTuple):
    """Of a quorum whose voters come from the configuration: the log shall have them from now on."""

    kraft_version: int
    validate_only: bool = False


class VoterChangeResponse(NamedTuple):
    error: ErrorCode
    epoch: int
    leader_id: int | None
    message: str | None = None
    is_appended: bool = False
    """On the leader's side: the change is at the end of its log, and done once that is committed."""
    committed: Any = None
    """Added by the leader's driver: a future for that."""


VoterChange: TypeAlias = AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest | UpgradeRequest
Request: TypeAlias = (
    VoteRequest
    | BeginQuorumEpochRequest
    | EndQuorumEpochRequest
    | FetchRequest
    | FetchSnapshotRequest
    | VoterChange
)
Response: TypeAlias = (
    VoteResponse | QuorumEpochResponse | FetchResponse | FetchSnapshotResponse | VoterChangeResponse
)
