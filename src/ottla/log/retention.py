"""Which segments are too old, too many, or below the start of the log."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.config import LogConfig
from ottla.log.segment import Segment


def expired_segments(
    segments: Sequence[Segment],
    config: LogConfig,
    *,
    now_ms: int,
    start_offset: int,
    end_offset: int,
    upto: int,
) -> int:
    """How many of the oldest segments may go. The last one counts only while it has records.

    Nothing that reaches beyond `upto`, the high watermark, is touched: the start of a log never passes it.
    """
    ends = [segment.base_offset for segment in segments[1:]] + [end_offset]
    size = sum(segment.size for segment in segments) if config.cleanup_delete else 0
    count = 0
    for segment, end in zip(segments, ends, strict=True):
        is_last = count == len(segments) - 1
        if end > upto or (is_last and not segment.size):
            break
        below_start = end <= start_offset and not is_last
        if not below_start and not _breaches(segment, config, now_ms, size):
            break
        size -= segment.size
        count += 1
    return count


def _breaches(segment: Segment, config: LogConfig, now_ms: int, size: int) -> bool:
    if not config.cleanup_delete:
        return False
    if config.retention_ms >= 0:
        timestamp = segment.largest_timestamp
        newest = timestamp if timestamp >= 0 else segment.created_ms
        if now_ms - newest > config.retention_ms:
            return True
    return config.retention_bytes >= 0 and size - segment.size >= config.retention_bytes
