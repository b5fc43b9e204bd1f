"""How much of a log waits to be compacted, and how far compaction may go."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.config import LogConfig
from ottla.config.key import LONG_MAX
from ottla.log.index import OFFSET_ENTRY, TIME_ENTRY
from ottla.log.log import PartitionLog
from ottla.log.segment import NEVER, RELATIVE_OFFSET_MAX, Segment
from ottla.log.walk import headers


@dataclass(frozen=True, slots=True)
class Dirt:
    log: PartitionLog
    first_offset: int
    """Below, the log is compacted already."""
    end_offset: int
    """Compaction ends here, where a segment ends."""
    segments: tuple[Segment, ...]
    """All below the end, compacted or not."""
    clean_bytes: int
    dirty_bytes: int
    overdue: bool
    """A record has stayed longer than max.compaction.lag.ms."""

    @property
    def ratio(self) -> float:
        total_bytes = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total_bytes if total_bytes else 0.0

    @property
    def is_due(self) -> bool:
        return self.dirty_bytes > 0 and (
            self.overdue or self.ratio > self.log.config.min_cleanable_dirty_ratio
        )


def dirt_of(log: PartitionLog, cleaned_offset: int, readable_offset: int, now_ms: int) -> Dirt:
    """`cleaned_offset` is where compaction got to; `readable_offset` is the high watermark.

    The active segment, transactions still open and what is younger than min.compaction.lag.ms stay.
    """
    config = log.config
    first = max(cleaned_offset, log.start_offset)
    if first > log.next_offset:
        first = log.start_offset
    bound = min(readable_offset, log.segments.active.base_offset)
    unstable = log.producers.first_unstable_offset
    if unstable is not None:
        bound = min(bound, unstable)
    end = log.segments[0].base_offset
    segments: list[Segment] = []
    clean_bytes = dirty_bytes = 0
    earliest = NEVER
    is_open = True
    for index, segment in enumerate(log.segments):
        if segment is log.segments.active:
            break
        segment_end = log.segments.end_of(index, log.next_offset)
        is_dirty = segment_end > first
        if is_dirty and config.max_compaction_lag_ms < LONG_MAX:
            earliest = min(earliest, _first_timestamp(segment))
        is_open = is_open and segment_end <= bound and not (is_dirty and _is_young(segment, config, now_ms))
        if is_open:
            # One that is compacted in part counts as both, as in Apache Kafka.
            clean_bytes += segment.size if segment.base_offset < first else 0
            dirty_bytes += segment.size if is_dirty else 0
            segments.append(segment)
            end = segment_end
    overdue = earliest < now_ms - config.max_compaction_lag_ms
    return Dirt(log, first, end, tuple(segments), clean_bytes, dirty_bytes, overdue)


def _is_young(segment: Segment, config: LogConfig, now_ms: int) -> bool:
    lag_ms = config.min_compaction_lag_ms
    return lag_ms > 0 and segment.largest_timestamp > now_ms - lag_ms


def _first_timestamp(segment: Segment) -> int:
    """NEVER where there is none. Kept once read: the first batch of a segment at rest does not change."""
    if segment.first_timestamp < 0:
        if not segment.size:
            return NEVER
        segment.set_first_timestamp(next(headers(segment.file, 0, segment.size))[1].max_timestamp)
    return segment.first_timestamp if segment.first_timestamp > 0 else NEVER


def grouped(dirt: Dirt) -> list[list[Segment]]:
    """Neighbours that together are no larger than one segment may be become one.

    Where retention deletes too, they are not of more time either: the oldest record goes with the
    youngest of its segment.
    """
    config = dirt.log.config
    groups: list[list[Segment]] = []
    size = offset_entries = time_entries = 0
    ends = [*(segment.base_offset for segment in dirt.segments[1:]), dirt.end_offset]
    for segment, end in zip(dirt.segments, ends, strict=True):
        size += segment.size
        offset_entries += len(segment.offsets)
        time_entries += len(segment.times)
        if (
            not groups
            or size > config.segment_bytes
            or offset_entries > config.segment_index_bytes // OFFSET_ENTRY.size
            # One entry is kept free for when the segment is sealed.
            or time_entries >= config.segment_index_bytes // TIME_ENTRY.size
            or (
                config.cleanup_delete
                and segment.largest_timestamp - groups[-1][0].largest_timestamp > config.segment_ms
            )
            or end - groups[-1][0].base_offset > RELATIVE_OFFSET_MAX
        ):
            groups.append([])
            size, offset_entries, time_entries = segment.size, len(segment.offsets), len(segment.times)
        groups[-1].append(segment)
    return groups
