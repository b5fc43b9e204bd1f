"""The small values that the log takes and gives."""

from __future__ import annotations

from typing import NamedTuple

from ottla.wire.api import METADATA_TOPIC
from ottla.wire.errors import UnknownTopicOrPartition


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


METADATA_PARTITION = TopicPartition(METADATA_TOPIC, 0)
"""The log of the metadata quorum. It lies among the others, and is no topic that clients could use."""


class AppendResult(NamedTuple):
    base_offset: int
    last_offset: int
    log_append_time_ms: int
    """-1 where records keep the timestamps their producer gave them."""
    start_offset: int
    duplicate: bool
    """The batch was in the log already; the offsets are those of the first time and nothing was written."""


def appended(base_offset: int, last_offset: int, log_append_time_ms: int, start_offset: int) -> AppendResult:
    """As its constructor would, which is written in Python and takes three times as long."""
    return tuple.__new__(AppendResult, (base_offset, last_offset, log_append_time_ms, start_offset, False))


class TimestampOffset(NamedTuple):
    timestamp_ms: int
    offset: int
    leader_epoch: int
    """-1 where the batch carries none."""


class CorruptBatch(NamedTuple):
    topic: str
    partition: int
    offset: int
    position: int
    path: str
    reason: str


class LogClosed(UnknownTopicOrPartition):
    """Somebody came too late: the log is deleted, or closed because the broker stops."""

    def __init__(self, partition: TopicPartition) -> None:
        super().__init__(f"{partition}: its log is closed, the topic was deleted or the broker stops")


class UnexpectedOffset(ValueError):
    """A replicated batch does not continue the log: whoever replicates has lost track."""


class StartsWithinBatch(UnexpectedOffset):
    """A leader's log starts within a batch whose first records were deleted, and a follower's is empty there.

    It has to begin anew at `base_offset`, to take the batch as it is.
    """

    def __init__(self, text: str, base_offset: int) -> None:
        super().__init__(text)
        self.base_offset = base_offset


class NotInMemory(Exception):
    """What was to be read is on disk alone, and the reader must not wait for it."""

    def __init__(self, path: str, position: int, length: int) -> None:
        super().__init__(f"{path}: {length} bytes at {position}")
        self.path = path
        self.position = position
        self.length = length
