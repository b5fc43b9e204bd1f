"""What the share coordinator is asked, free of wire versions."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import NamedTuple

from ottla.coordinator.share.records import StateBatch
from ottla.metadata.uuids import parse_uuid, uuid_text
from ottla.wire.errors import InvalidRequest

NO_START_OFFSET = -1
"""Where to begin has not been found out yet."""
NO_DELIVERY_COMPLETE_COUNT = -1
_PARTITION_MAX = 2**31 - 1


class SharePartition(NamedTuple):
    """A partition as a share group reads it."""

    group_id: str
    topic_id: uuid.UUID
    partition: int

    def __str__(self) -> str:
        """What FindCoordinator calls it, and what decides where its state is kept."""
        return f"{self.group_id}:{uuid_text(self.topic_id)}:{self.partition}"

    @classmethod
    def parse(cls, text: str) -> SharePartition:
        """Raises InvalidRequest. A group's id may have colons of its own."""
        group_id, _, rest = text.rpartition(":")[0].rpartition(":")
        index = text.rpartition(":")[2]
        try:
            topic_id = parse_uuid(rest)
        except ValueError as error:
            raise _malformed(text) from error
        if not group_id or not (index.isascii() and index.isdigit()) or int(index) > _PARTITION_MAX:
            raise _malformed(text)
        return cls(group_id, topic_id, int(index))


def _malformed(text: str) -> InvalidRequest:
    return InvalidRequest(f"{text} names no share-partition; it must be GROUP:TOPIC-ID:PARTITION")


@dataclass(frozen=True, slots=True)
class WriteRequest:
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]


class Summary(NamedTuple):
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = NO_START_OFFSET
    delivery_complete_count: int = NO_DELIVERY_COMPLETE_COUNT
