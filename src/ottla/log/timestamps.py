"""From a point in time to an offset: time index, then batch headers, then the records of one batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.log.segment import Segment
from ottla.log.types import TimestampOffset
from ottla.log.walk import BadBatch, headers
from ottla.records.batch import BatchHeader
from ottla.records.compression import CorruptRecords
from ottla.records.records import Record, iter_records
from ottla.wire.errors import CorruptMessage


def first_at_or_after(
    segments: Sequence[Segment], timestamp_ms: int, start_offset: int, upto: int
) -> TimestampOffset | None:
    """The first record from `start_offset` on, below `upto`, with at least this timestamp."""
    for segment in segments:
        if segment.base_offset >= upto:
            return None
        if segment.largest_timestamp >= timestamp_ms:
            offset = max(segment.base_offset + segment.times.floor_timestamp(timestamp_ms), start_offset)
            found = _find(
                segment,
                offset,
                lambda header: header.max_timestamp >= timestamp_ms and header.last_offset >= start_offset,
                lambda record: record.timestamp_ms >= timestamp_ms and record.offset >= start_offset,
            )
            if found is not None:
                return found if found.offset < upto else None
    return None


def largest(segments: Sequence[Segment]) -> TimestampOffset | None:
    """The first record with the largest timestamp of all."""
    segment = max(segments, key=lambda candidate: candidate.largest_timestamp)
    timestamp_ms = segment.largest_timestamp
    if timestamp_ms < 0:
        return None
    return _find(
        segment,
        segment.largest_timestamp_offset,
        lambda header: header.max_timestamp == timestamp_ms,
        lambda record: record.timestamp_ms == timestamp_ms,
    )


def _find(
    segment: Segment,
    offset: int,
    in_batch: Callable[[BatchHeader], bool],
    is_it: Callable[[Record], bool],
) -> TimestampOffset | None:
    """Search from the index entry before `offset` on."""
    position = segment.offsets.floor_offset(offset - segment.base_offset)
    try:
        for at, header in headers(segment.file, position, segment.size):
            if in_batch(header):
                for record in iter_records(segment.file.read(at, header.size)):
                    if is_it(record):
                        return TimestampOffset(record.timestamp_ms, record.offset, header.leader_epoch)
    except BadBatch as error:
        raise segment.corrupt(offset, error) from error
    except CorruptRecords as error:
        topic, partition = segment.partition
        raise CorruptMessage(
            f"topic {topic} partition {partition}: the records at or after offset {offset} in {segment.path} "
            f"cannot be read: {error}"
        ) from error
    return None
