"""What the coordinator of a share group asks of share coordinators, which keep how far the group has read."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from ottla.coordinator.groups.commands import InitializeStates, Partitions
from ottla.wire.errors import KafkaError


class StateSummary(NamedTuple):
    state_epoch: int
    leader_epoch: int
    start_offset: int
    """-1: where the group begins has not been found out yet."""
    delivery_complete_count: int
    """Of records from the start offset on."""


class ShareStates(Protocol):
    async def initialize(self, wanted: InitializeStates) -> Partitions:
        """Those that were. Raises KafkaError if none could be."""
        ...

    async def delete(self, group_id: str, partitions: Partitions) -> dict[uuid.UUID, KafkaError | None]:
        """Why a topic could not be forgotten, for each of them."""
        ...

    async def summarize(
        self, group_id: str, partitions: Partitions
    ) -> Mapping[tuple[uuid.UUID, int], StateSummary | KafkaError]: ...

    async def end_offsets(
        self, partitions: Sequence[tuple[uuid.UUID, int]]
    ) -> Mapping[tuple[uuid.UUID, int], int]:
        """Where consumers can read to now, of partitions whose leaders say so."""
        ...
