"""What whoever reads committed records alone must be told: the aborted transactions among what was read."""

from __future__ import annotations

import struct

from ottla.log.segments import Segments
from ottla.log.walk import BadBatch, headers
from ottla.runtime.disk import ReadableBuffer

_BASE_OFFSET = struct.Struct(">q")


def aborted_between(segments: Segments, offset: int, upto: int) -> list[tuple[int, int]]:
    """(producer id, first offset) of aborted transactions with anything between the offsets.

    A transaction is in the index of the segment that has its marker, which may be much later.
    """
    found = []
    for segment in segments.from_offset(offset):
        if segment.transactions.count:
            aborted, complete = segment.transactions.overlapping(offset, upto)
            found += [(transaction.producer_id, transaction.first_offset) for transaction in aborted]
            if complete:
                break
    return found


def end_of(segments: Segments, data: ReadableBuffer) -> int:
    """The offset after the last of batches read from one of the segments. CorruptMessage: it is damaged."""
    offset = int(_BASE_OFFSET.unpack_from(data)[0])
    segment = segments[segments.floor(offset)]
    position = segment.locate(offset)
    end = position + len(data)
    near = max(segment.offsets.floor_position(end - 1), position)
    try:
        for _, header in headers(segment.file, near, end):
            offset = header.last_offset + 1
    except BadBatch as error:
        raise segment.corrupt(offset, error) from error
    return offset
