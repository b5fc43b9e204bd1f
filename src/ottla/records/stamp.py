"""Who sends a batch, and how young it is, written into its header after it was built."""

from __future__ import annotations

import struct

from ottla.records.batch import (
    ATTRIBUTES_AT,
    CRC_AT,
    HEADER_BYTES,
    LENGTH,
    LENGTH_AT,
    LOG_OVERHEAD_BYTES,
    TRANSACTIONAL,
)
from ottla.records.crc import crc32c
from ottla.runtime.disk import ReadableBuffer

_ATTRIBUTES = struct.Struct(">h")
_CRC = struct.Struct(">I")
_PRODUCER = struct.Struct(">qhi")
_PRODUCER_AT = 43  # producer id, epoch, base sequence
_TIMESTAMP = struct.Struct(">q")
_MAX_TIMESTAMP_AT = 35
_PLACE = struct.Struct(">q")  # the base offset
_EPOCH = struct.Struct(">i")
_EPOCH_AT = 12  # of the leader
_SEQUENCES = 1 << 31
"""Sequence numbers go up to the largest 32-bit integer and start again at 0."""


def stamped(
    batch: bytes, producer_id: int, producer_epoch: int, base_sequence: int, *, transactional: bool
) -> bytes:
    """The batch as this producer sends it, with its checksum."""
    parts = stamped_parts(batch, producer_id, producer_epoch, base_sequence, transactional=transactional)
    return b"".join(parts)


def stamped_parts(
    batch: ReadableBuffer, producer_id: int, producer_epoch: int, base_sequence: int, *, transactional: bool
) -> tuple[bytearray, memoryview]:
    """The same in two parts, of which the second is the records where they are: they are not copied."""
    header = bytearray(batch[:HEADER_BYTES])
    (attributes,) = _ATTRIBUTES.unpack_from(header, ATTRIBUTES_AT)
    attributes = attributes | TRANSACTIONAL if transactional else attributes & ~TRANSACTIONAL
    _ATTRIBUTES.pack_into(header, ATTRIBUTES_AT, attributes)
    _PRODUCER.pack_into(header, _PRODUCER_AT, producer_id, producer_epoch, base_sequence)
    records = memoryview(batch)[HEADER_BYTES:]
    _CRC.pack_into(header, CRC_AT, crc32c(records, crc32c(memoryview(header)[ATTRIBUTES_AT:])))
    return header, records


def unplace(header: bytearray) -> None:
    """Takes back where a broker had put the batch: producers number records from 0.

    A broker that finds other numbers would write compressed records anew to number them.
    """
    _PLACE.pack_into(header, 0, 0)
    _EPOCH.pack_into(header, _EPOCH_AT, -1)


def stamp_max_timestamp(batches: bytearray, at: int, timestamp_ms: int) -> None:
    """Into the batch at a position, with its checksum."""
    (length,) = LENGTH.unpack_from(batches, at + LENGTH_AT)
    _TIMESTAMP.pack_into(batches, at + _MAX_TIMESTAMP_AT, timestamp_ms)
    checked = memoryview(batches)[at + ATTRIBUTES_AT : at + LOG_OVERHEAD_BYTES + length]
    _CRC.pack_into(batches, at + CRC_AT, crc32c(checked))


def next_sequence(sequence: int, record_count: int) -> int:
    """The sequence number behind a batch that starts with this one."""
    return (sequence + record_count) % _SEQUENCES
