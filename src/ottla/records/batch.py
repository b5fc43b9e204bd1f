"""The header of a record batch, read in place. Batches stay opaque: nothing here looks at single records.

    base offset i64 · batch length i32 · leader epoch i32 · magic i8 · crc u32 ·
    attributes i16 · last offset delta i32 · base timestamp i64 · max timestamp i64 ·
    producer id i64 · producer epoch i16 · base sequence i32 · record count i32 · records

The length counts from the leader epoch on; the CRC-32C covers everything from the attributes on, so base
offset and leader epoch can be set by the broker without touching it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from ottla.records.crc import crc32c

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = HEADER.size  # 61
LENGTH = struct.Struct(">i")
LENGTH_AT = 8
LOG_OVERHEAD_BYTES = 12  # base offset and length: what stands before the counted bytes
MAGIC_AT = 16
CRC_AT = 17
ATTRIBUTES_AT = 21
MAGIC = 2

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

NO_PRODUCER_ID = -1
NO_TIMESTAMP = -1


class BatchHeader(NamedTuple):
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch, from the base offset to the last record."""
        return self.length + LOG_OVERHEAD_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)


def read_header(buffer: bytes | bytearray | memoryview, at: int = 0) -> BatchHeader:
    return BatchHeader._make(HEADER.unpack_from(buffer, at))


def crc_matches(batch: memoryview | bytes, crc: int) -> bool:
    """`batch` is exactly one batch."""
    return crc32c(memoryview(batch)[ATTRIBUTES_AT:]) == crc


def iter_headers(buffer: bytes | bytearray | memoryview) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each whole batch; stops at a partial one."""
    at, end = 0, len(buffer)
    while at + HEADER_BYTES <= end:
        header = read_header(buffer, at)
        if header.length < HEADER_BYTES - LOG_OVERHEAD_BYTES or at + header.size > end:
            return
        yield at, header
        at += header.size
