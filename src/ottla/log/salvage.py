"""Where a log can be read again behind damage.

A damaged header hides where its batch ends, and walking on from it leads nowhere. So the next batch is looked
for at every byte: one that fits into the file, has offsets that can follow, and whose CRC is right.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ottla.log.log import PartitionLog
from ottla.log.segment import Segment
from ottla.records.batch import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_AT,
    BatchHeader,
    crc_matches,
    read_header,
)

_CHUNK_BYTES = 256 * 1024
"""Searched in one step: a few milliseconds at worst."""
_LENGTH_MIN = HEADER_BYTES - LOG_OVERHEAD_BYTES
_MAGIC = struct.pack("b", MAGIC)


def find_whole_batch(log: PartitionLog, offset: int) -> Iterator[int | None]:
    """The base offset of the first whole batch at or after `offset`, which can be read from there; else the
    end of the log. None comes before it, as often as somebody else may have a turn."""
    end_offset = offset
    while end_offset < log.next_offset:
        # Looked up again each time: segments come and go in between.
        index = log.segments.floor(end_offset)
        segment = log.segments[index]
        end_offset = log.segments.end_of(index, log.next_offset)
        for found in _find_in_segment(segment, offset, end_offset):
            yield found
            if found is not None:
                return
    yield log.next_offset


def _find_in_segment(segment: Segment, offset: int, end_offset: int) -> Iterator[int | None]:
    position = 0
    if offset > segment.base_offset:
        position = segment.offsets.floor_offset(offset - segment.base_offset)
    while position + HEADER_BYTES <= segment.size:
        chunk = segment.file.read(position, _CHUNK_BYTES)
        if len(chunk) < HEADER_BYTES:
            return
        at = 0
        while (magic_at := chunk.find(_MAGIC, at + MAGIC_AT)) >= 0:
            at = magic_at - MAGIC_AT
            if at + HEADER_BYTES > len(chunk):
                break
            header = read_header(chunk, at)
            if not _is_whole(segment, position + at, header, end_offset):
                at += 1
            elif header.base_offset >= offset:
                segment.remember(header.base_offset, position + at)
                yield header.base_offset
                return
            else:
                # Stands before the damage. What it carries may look like a batch, and is none.
                at += header.size
        position += max(at, len(chunk) - HEADER_BYTES + 1)
        yield None


def _is_whole(segment: Segment, position: int, header: BatchHeader, end_offset: int) -> bool:
    return (
        _LENGTH_MIN <= header.length <= segment.size - position - LOG_OVERHEAD_BYTES
        and segment.base_offset <= header.base_offset <= header.last_offset < end_offset
        and crc_matches(segment.file.read(position, header.size), header.crc)
    )
