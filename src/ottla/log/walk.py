"""Walking the batches of a log file, a chunk at a time.

`position_of`, `whole_batches` and `headers` look at headers alone, as reading does: all they can notice is a
header that cannot be one. `checked_batches` also checks the CRC of everything it passes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import TypeAlias

from ottla.records.batch import (
    ATTRIBUTES_AT,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    BatchHeader,
    crc_matches,
    read_header,
)
from ottla.records.crc import crc32c
from ottla.runtime.disk import File, ReadableBuffer

# base offset, batch length, magic, last offset delta
_STEP = struct.Struct(">qi4xb6xi")
_LENGTH_MIN = HEADER_BYTES - LOG_OVERHEAD_BYTES

# Covers the distance between two index entries with small batches; large ones are stepped over unread.
_CHUNK_BYTES = 8 * 1024
_CHECKED_CHUNK_BYTES = 1024 * 1024

Read: TypeAlias = Callable[[int, int], ReadableBuffer]
"""So many bytes of the file at a position; fewer at its end."""


class BadBatch(ValueError):
    """What stands where a batch should begin is not a good one."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"byte {position}: {reason}")
        self.position = position
        self.reason = reason


def position_of(read: Read, size: int, offset: int, position: int, base_offset: int) -> int:
    """Start of the first batch, from the one at `position` on, that ends at or after `offset`; else `size`.

    `base_offset` is the least that the first batch may have. Raises BadBatch.
    """
    unpack = _STEP.unpack_from
    while position < size:
        chunk = read(position, _CHUNK_BYTES)
        at, end = 0, len(chunk) - _STEP.size
        while at <= end:
            base, length, magic, delta = unpack(chunk, at)
            if magic != MAGIC or length < _LENGTH_MIN or delta < 0 or base < base_offset:
                raise BadBatch(position + at, f"magic {magic}, length {length}, base offset {base}")
            if base + delta >= offset:
                return position + at
            base_offset = base + delta + 1
            at += length + LOG_OVERHEAD_BYTES
        if not at:
            raise BadBatch(position, f"{size - position} bytes are too few for a header")
        position += at
    if position != size:
        raise BadBatch(size, f"the last batch claims to end at {position}")
    return size


def whole_batches(read: Read, position: int, limit: int, bytes_max: int, *, min_one: bool) -> tuple[int, int]:
    """How far batches from `position` on fit into `bytes_max`: (where they end, offset after the last).

    The first counts even if it does not fit, with `min_one`. `limit` is where a batch is known to end.
    Raises BadBatch when there is not one good batch.
    """
    unpack = _STEP.unpack_from
    start, next_offset = position, -1
    while position < limit:
        chunk = read(position, min(limit - position, _CHUNK_BYTES))
        at, end = 0, len(chunk) - _STEP.size
        while at <= end:
            base, length, magic, delta = unpack(chunk, at)
            stop = position + at + length + LOG_OVERHEAD_BYTES
            if magic != MAGIC or length < _LENGTH_MIN or delta < 0 or stop > limit:
                if next_offset >= 0:
                    # One is enough: the reader will be told of this one when it comes for it.
                    return position + at, next_offset
                raise BadBatch(position, f"magic {magic}, length {length}, base offset {base}")
            if stop - start > bytes_max and (next_offset >= 0 or not min_one):
                return position + at, next_offset
            next_offset = base + delta + 1
            at += length + LOG_OVERHEAD_BYTES
        if not at:
            break
        position += at
    return position, next_offset


def check_start(data: ReadableBuffer, offset: int) -> None:
    """That whole batches begin with a good one, which can have records at `offset` or after.

    Raises BadBatch, with the position in the data.
    """
    size = len(data)
    if size < HEADER_BYTES:
        raise BadBatch(0, f"{size} bytes are too few for a header")
    base, length, magic, delta = _STEP.unpack_from(data)
    end = length + LOG_OVERHEAD_BYTES
    last = base + delta
    if magic != MAGIC or length < _LENGTH_MIN or end > size or last < offset:
        raise BadBatch(0, f"magic {magic}, length {length}, offsets {base} to {last}")
    if end != size:
        if end + HEADER_BYTES <= size:
            following, length, magic, _ = _STEP.unpack_from(data, end)
            if magic == MAGIC and length >= _LENGTH_MIN and following > last:
                return
        _check_first(memoryview(data)[:end], offset)


def _check_first(batch: memoryview, offset: int) -> None:
    """What follows a batch does not: either that is damaged, or this one."""
    header = read_header(batch)
    # No CRC covers the base offset.
    if header.base_offset > offset or not crc_matches(batch, header.crc):
        raise BadBatch(0, f"the next batch does not follow: {_describe(header)}")


def headers(file: File, position: int, limit: int) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of the batches from `position` to `limit`. Raises BadBatch."""
    while position < limit:
        chunk = file.read(position, _CHUNK_BYTES)
        at = 0
        while at + HEADER_BYTES <= len(chunk) and position + at < limit:
            header = read_header(chunk, at)
            if header.magic != MAGIC or header.length < _LENGTH_MIN or position + at + header.size > limit:
                raise BadBatch(position + at, _describe(header))
            yield position + at, header
            at += header.size
        if not at:
            raise BadBatch(position, f"{limit - position} bytes are too few for a header")
        position += at


def checked_batches(
    file: File, position: int, limit: int, base_offset: int, *, copying: bool = False
) -> Iterator[tuple[int, BatchHeader, bool]]:
    """(position, header, whether its CRC is right) of the batches from `position` to `limit`.

    `base_offset` is the least that the first batch may have. Raises BadBatch where no header is to be found.
    `copying` is for other threads: waiting for a page of a mapped file stops all of them.
    """
    read = file.read if copying else file.view
    while position < limit:
        chunk = memoryview(read(position, min(_CHECKED_CHUNK_BYTES, limit - position)))
        at = 0
        while at + HEADER_BYTES <= len(chunk):
            header = read_header(chunk, at)
            size = header.length + LOG_OVERHEAD_BYTES
            if (
                header.magic != MAGIC
                or header.length < _LENGTH_MIN
                or position + at + size > limit
                or header.base_offset < base_offset
                or header.last_offset_delta < 0
            ):
                raise BadBatch(position + at, _describe(header))
            if at + size > len(chunk):
                if at:
                    break
                chunk = memoryview(read(position, size))
            yield position + at, header, crc32c(chunk[at + ATTRIBUTES_AT : at + size]) == header.crc
            base_offset = header.base_offset + header.last_offset_delta + 1
            at += size
        if not at:
            raise BadBatch(position, f"{limit - position} bytes are too few for a header")
        position += at


def _describe(header: BatchHeader) -> str:
    return (
        f"magic {header.magic}, length {header.length}, offsets {header.base_offset} to {header.last_offset}"
    )
