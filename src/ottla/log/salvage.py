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
from ottla.runtime.disk import File

_CHUNK_BYTES = 256 * 1024
"""Searched in one step: a few milliseconds at worst."""
_CHECKED_BYTES_MAX = 4 * 1024**3
"""Of what may be batches: each of many false ones that overlap could reach to the end of the file."""
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
    offsets = range(segment.base_offset, end_offset)
    for found in _whole_batches(segment.file, position, segment.size, offsets):
        if found is None:
            yield None
        elif found[1].base_offset >= offset:
            position, header = found
            segment.remember(header.base_offset, position)
            yield header.base_offset
            return


def next_whole_batch(
    file: File, position: int, limit: int, offset: int, offsets: range
) -> tuple[int, int] | None:
    """(position, base offset) of the first whole batch behind the damaged one at `position`, at or after
    `offset`. `offsets` has those that can be in the file."""
    first: tuple[int, int] | None = None
    damaged = header_at(file, position, limit)
    is_whole = damaged is not None and crc_matches(file.read(position, damaged.size), damaged.crc)
    # No CRC covers the base offset. If that alone is wrong, it is known where the batch ends.
    position += damaged.size if damaged is not None and is_whole else 1
    for found in _whole_batches(file, position, limit, offsets):
        if found is None or found[1].base_offset < offset:
            continue
        at, header = found
        end = at + header.size
        following = header_at(file, end, limit)
        if end == limit or (following is not None and following.base_offset > header.last_offset):
            return at, header.base_offset
        # Perhaps the last before a torn end; perhaps only what the damaged batch carries looks like one.
        first = first or (at, header.base_offset)
    return first


def header_at(file: File, position: int, limit: int) -> BatchHeader | None:
    """What can be the header of a batch that ends before `limit`."""
    if position + HEADER_BYTES > limit:
        return None
    header = read_header(file.read(position, HEADER_BYTES))
    fits = _LENGTH_MIN <= header.length <= limit - position - LOG_OVERHEAD_BYTES
    return header if fits and header.magic == MAGIC and header.last_offset_delta >= 0 else None


def _whole_batches(
    file: File, position: int, limit: int, offsets: range
) -> Iterator[tuple[int, BatchHeader] | None]:
    """(position, header) of what is whole from `position` on; None after every step."""
    checked_bytes = 0
    while position + HEADER_BYTES <= limit and checked_bytes < _CHECKED_BYTES_MAX:
        chunk = file.read(position, min(_CHUNK_BYTES, limit - position))
        if len(chunk) < HEADER_BYTES:
            return
        at = 0
        while (magic_at := chunk.find(_MAGIC, at + MAGIC_AT)) >= 0:
            at = magic_at - MAGIC_AT
            if at + HEADER_BYTES > len(chunk):
                break
            header = read_header(chunk, at)
            if not _can_be_header(header, limit - position - at, offsets):
                at += 1
                continue
            checked_bytes += header.size
            if crc_matches(file.read(position + at, header.size), header.crc):
                yield position + at, header
                # What it carries may look like a batch, and is none.
                at += header.size
            else:
                at += 1
        position += max(at, len(chunk) - HEADER_BYTES + 1)
        yield None


def _can_be_header(header: BatchHeader, bytes_left: int, offsets: range) -> bool:
    return (
        _LENGTH_MIN <= header.length <= bytes_left - LOG_OVERHEAD_BYTES
        and offsets.start <= header.base_offset <= header.last_offset < offsets.stop
    )
