"""Where the state of share groups is kept: with share coordinators, on this broker or on others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from ottla.replication.share.in_flight import StateBatch

UNINITIALIZED = -1


class ShareKey(NamedTuple):
    """A partition as one group reads it."""

    group_id: str
    topic_id: UUID
    partition: int


class StoredState(NamedTuple):
    state_epoch: int
    start_offset: int
    """UNINITIALIZED: where the group begins is still to be decided."""
    batches: Sequence[StateBatch]


class StateChange(NamedTuple):
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: Sequence[StateBatch]


class Persister(Protocol):
    """Both ask again while a coordinator moves. They raise KafkaError when that takes long, or is no use."""

    async def read(self, key: ShareKey, leader_epoch: int) -> StoredState: ...

    async def write(self, key: ShareKey, change: StateChange) -> None: ...
