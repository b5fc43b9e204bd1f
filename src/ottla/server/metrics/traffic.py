"""Bytes and records per topic, without anybody counting them: logs say how far they have come.

What a log has grown by since the last look was written by producers if this broker leads the partition, and
fetched from its leader if it follows. Totals only grow, whatever is cut off, deleted or moved away.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from ottla.log.log import PartitionLog
from ottla.replication.partition import Partition, Role


@dataclass(slots=True)
class Traffic:
    bytes_in: int = 0
    records_in: int = 0
    appends: int = 0
    replicated_in: int = 0
    bytes_out: int = 0
    replicated_out: int = 0

    def add(self, other: Traffic) -> None:
        self.bytes_in += other.bytes_in
        self.records_in += other.records_in
        self.appends += other.appends
        self.replicated_in += other.replicated_in
        self.bytes_out += other.bytes_out
        self.replicated_out += other.replicated_out


class _Mark(NamedTuple):
    """Where a partition was."""

    log: PartitionLog
    segment: int
    """Its last, by the base offset."""
    segment_bytes: int
    next_offset: int
    appends: int
    sent_bytes: int
    sent_to_followers: int


class TrafficMeter:
    def __init__(self) -> None:
        self.topics: defaultdict[str, Traffic] = defaultdict(Traffic)
        self.all = Traffic()
        self._marks: dict[Partition, _Mark] = {}

    def begin(self, partitions: Iterable[Partition]) -> None:
        """What they have from before does not count."""
        for partition in partitions:
            self._marks[partition] = _mark(partition)

    def look(self, partition: Partition) -> None:
        mark = _mark(partition)
        before = self._marks.get(partition)
        self._marks[partition] = mark
        grown_bytes, grown_records = _growth(before, mark)
        appends, sent, sent_to_followers = mark.appends, mark.sent_bytes, mark.sent_to_followers
        if before is not None:
            appends -= before.appends
            sent -= before.sent_bytes
            sent_to_followers -= before.sent_to_followers
        found = Traffic(appends=appends, bytes_out=sent - sent_to_followers, replicated_out=sent_to_followers)
        if partition.role is Role.LEADER:
            found.bytes_in, found.records_in = grown_bytes, grown_records
        else:
            found.replicated_in = grown_bytes
        self.topics[partition.topic_partition.topic].add(found)
        self.all.add(found)

    def forget_others(self, seen: set[Partition], topics: set[str]) -> None:
        for partition in [*self._marks.keys() - seen]:
            del self._marks[partition]
        for topic in [*self.topics.keys() - topics]:
            del self.topics[topic]


def _mark(partition: Partition) -> _Mark:
    log = partition.log
    active = log.segments.active
    return _Mark(
        log,
        active.base_offset,
        active.size,
        log.next_offset,
        partition.appends,
        partition.sent_bytes,
        partition.sent_to_followers,
    )


def _growth(before: _Mark | None, now: _Mark) -> tuple[int, int]:
    """In bytes and records. Segments that were deleted or compacted since are missing in the bytes."""
    segments = now.log.segments
    if before is None:
        return segments.size_bytes, now.next_offset - now.log.start_offset
    records = max(now.next_offset - before.next_offset, 0)
    if before.log is not now.log:
        # It moved to another directory: its files say nothing of what came since.
        return 0, records
    later = [each for each in segments.from_offset(before.segment) if each.base_offset >= before.segment]
    size = sum(segment.size for segment in later)
    if later and later[0].base_offset == before.segment:
        size -= before.segment_bytes
    return max(size, 0), records
