"""What groups are asked and what they answer, free of wire versions: handlers translate to and from these."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from ottla.coordinator.groups.offset_records import NO_LEADER_EPOCH, OffsetCommitValue
from ottla.records.producer import ProducerIdentity
from ottla.wire.errors import ErrorCode

UNKNOWN_MEMBER = ""
NO_GENERATION = -1
LEAVE_EPOCH = -1
"""A consumer heartbeats with this epoch to leave."""
LEAVE_STATIC_EPOCH = -2
"""A static consumer heartbeats with this epoch to be back within its session time-out."""

Protocols: TypeAlias = tuple[tuple[str, bytes], ...]
"""Assignment strategies in order of preference, each with what the member says to its leader."""
Partitions: TypeAlias = Mapping[uuid.UUID, frozenset[int]]


@dataclass(frozen=True, slots=True)
class JoinRequest:
    group_id: str
    member_id: str
    protocol_type: str
    protocols: Protocols
    session_timeout_ms: int
    rebalance_timeout_ms: int
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    reason: str | None = None
    requires_known_member_id: bool = True
    """Since version 4 a dynamic member first fetches its id, so that retries leave no ghosts behind."""
    can_skip_assignment: bool = True
    """Since version 9 a static leader can be told that it leads and yet need not assign."""


@dataclass(frozen=True, slots=True)
class JoinReply:
    error: ErrorCode = ErrorCode.none
    member_id: str = UNKNOWN_MEMBER
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = UNKNOWN_MEMBER
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    """Member id, instance id and metadata of everyone; to the leader only."""
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class SyncRequest:
    group_id: str
    member_id: str
    generation: int
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class SyncReply:
    error: ErrorCode = ErrorCode.none
    assignment: bytes = b""
    protocol_type: str | None = None
    protocol_name: str | None = None


@dataclass(frozen=True, slots=True)
class HeartbeatRequest:
    group_id: str
    member_id: str
    generation: int
    instance_id: str | None = None


class LeavingMember(NamedTuple):
    member_id: str
    instance_id: str | None = None
    reason: str | None = None


class LeftMember(NamedTuple):
    member_id: str
    instance_id: str | None
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeatRequest:
    """None, or -1 for the time-out, stands for no change since the last heartbeat."""

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Partitions | None = None
    client_id: str = ""
    client_host: str = ""
    requires_member_id: bool = True
    """Since version 1 the member makes up its own id."""


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeatReply:
    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int = 0
    assignment: Partitions | None = None


@dataclass(frozen=True, slots=True)
class ShareHeartbeatRequest:
    """None stands for no change since the last heartbeat."""

    group_id: str
    member_id: str
    member_epoch: int
    rack_id: str | None = None
    topics: tuple[str, ...] | None = None
    client_id: str = ""
    client_host: str = ""


class InitializeStates(NamedTuple):
    """What the share coordinator is to be asked for."""

    group_id: str
    state_epoch: int
    start_offsets: Mapping[uuid.UUID, Mapping[int, int]]
    """By topic and partition; -1 where the group's setting says where to begin."""


@dataclass(frozen=True, slots=True)
class ShareHeartbeatReply:
    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int = 0
    assignment: Partitions | None = None
    initialize: InitializeStates | None = None


class PartitionCommit(NamedTuple):
    partition: int
    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str | None = None


class TopicCommit(NamedTuple):
    name: str
    topic_id: uuid.UUID | None
    partitions: Sequence[PartitionCommit]


@dataclass(frozen=True, slots=True)
class CommitRequest:
    group_id: str
    topics: Sequence[TopicCommit]
    member_id: str = UNKNOWN_MEMBER
    generation: int = NO_GENERATION
    """Of a classic group; the member epoch in a consumer group."""
    instance_id: str | None = None
    retention_ms: int = -1
    """Asked for by clients of long ago; -1 leaves it to the broker."""
    version: int = 10
    producer: ProducerIdentity | None = None
    """Of the transaction these offsets are part of; the version is then that of TxnOffsetCommit."""


class TopicFetch(NamedTuple):
    name: str
    topic_id: uuid.UUID | None
    partitions: Sequence[int]


@dataclass(frozen=True, slots=True)
class FetchOffsetsRequest:
    group_id: str
    topics: Sequence[TopicFetch] | None
    """None: all that the group has committed."""
    member_id: str | None = None
    member_epoch: int = NO_GENERATION
    requires_stable: bool = False
    """Whoever asks would rather wait than read what an open transaction may be about to change."""


class FetchedTopic(NamedTuple):
    name: str
    partitions: Sequence[tuple[int, OffsetCommitValue | None]]
    unstable: Collection[int] = ()
    """Partitions with offsets in open transactions, if stable ones were asked for."""
