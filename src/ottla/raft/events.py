"""What the core is told, and what it wants done."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from ottla.metadata.snapshot import SnapshotId
from ottla.raft.messages import Request, Response
from ottla.raft.voters import ReplicaKey, VoterSet


class Election(NamedTuple):
    """What must survive a restart, or a voter could vote twice in one epoch."""

    epoch: int = 0
    leader_id: int | None = None
    voted: ReplicaKey | None = None


# Events.


class Started(NamedTuple):
    """The first event. A sole voter leads from here on."""


class Tick(NamedTuple):
    """Time has passed, at least until `RaftCore.due_ms`."""


class Requested(NamedTuple):
    """By another node. Exactly one Reply is among the effects."""

    request: Request


class Answered(NamedTuple):
    node_id: int
    request_id: int
    response: Response


class Unanswered(NamedTuple):
    """The request did not reach the node, or the answer is no use."""

    node_id: int
    request_id: int
    is_gone: bool = False
    """Nobody listens there any more: its process has ended."""


class Synced(NamedTuple):
    """Everything before this offset of the node's own log is on its disk.

    Always the next event after AppendFetched, Truncate and InstallSnapshot.
    """

    end_offset: int


class SnapshotUnusable(NamedTuple):
    """What was fetched is no snapshot: instead of Synced after InstallSnapshot."""


class Resign(NamedTuple):
    """The node is about to stop, or should not lead any more."""

    stopping: bool = True


Event: TypeAlias = Started | Tick | Requested | Answered | Unanswered | Synced | SnapshotUnusable | Resign


# Effects, to be carried out in their order, and before the next event.


class PersistElection(NamedTuple):
    """To be on disk before any effect after it. Always the first."""

    election: Election


class QuorumChange(NamedTuple):
    """What the log says of the quorum itself from here on."""

    voters: VoterSet
    kraft_version: int | None = None
    """None where it stays as it is."""


class AppendLeaderChange(NamedTuple):
    """The first record of an epoch; nothing of the epoch is committed before it is."""

    epoch: int
    leader_id: int
    voters: VoterSet
    granting_voters: tuple[int, ...]
    written: QuorumChange | None = None
    """To be in the same batch."""


class AppendQuorumChange(NamedTuple):
    """The Reply after it depends on it: without room, nothing has changed."""

    change: QuorumChange


class AppendFetched(NamedTuple):
    """Records of the leader, to be synced before the next event: the next fetch vouches for them."""

    records: Any


class SyncLog(NamedTuple):
    """Whoever has led has records that are not on its disk yet. As a follower it vouches for all of its log:
    what cannot be synced is cut off, before anything is sent."""


class Truncate(NamedTuple):
    end_offset: int


class StoreSnapshotPart(NamedTuple):
    snapshot: SnapshotId
    position: int
    data: Any


class InstallSnapshot(NamedTuple):
    """All parts are there. It takes the place of the log."""

    snapshot: SnapshotId


class Commit(NamedTuple):
    """Everything before this offset is committed."""

    high_watermark: int


class LeaderChanged(NamedTuple):
    """Who leads which epoch, as far as this node knows. It leads itself only once the first record of its
    epoch is committed, and with it everything before."""

    leader_id: int | None
    epoch: int


class Send(NamedTuple):
    node_id: int
    """A voter, or negative for a bootstrap server."""
    request_id: int
    """To be given back with the answer."""
    request: Request


class Reply(NamedTuple):
    response: Response


class Warn(NamedTuple):
    text: str


Effect: TypeAlias = (
    PersistElection
    | AppendLeaderChange
    | AppendQuorumChange
    | AppendFetched
    | SyncLog
    | Truncate
    | StoreSnapshotPart
    | InstallSnapshot
    | Commit
    | LeaderChanged
    | Send
    | Reply
    | Warn
)
