"""Taking records out of a batch without decoding the ones that stay.

A record that stays keeps its bytes: its offset is relative to the batch's base offset, which does not change,
and the batch keeps its last offset, so that sequence numbers can still be told from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from ottla.records.batch import (
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    TRANSACTIONAL,
    BatchHeader,
)
from ottla.records.compression import CorruptRecords, compress, decompress
from ottla.records.crc import crc32c
from ottla.records.records import CHECKED
from ottla.runtime.disk import ReadableBuffer
from ottla.varints import append_varint, read_uvarlong, read_varint

Kept: TypeAlias = tuple[int, int, int]
"""A record that stays: where it begins and ends in the body of its batch, and its timestamp delta."""


def body_of(batch: ReadableBuffer, header: BatchHeader) -> bytes:
    """The records of exactly one batch, decompressed."""
    data = memoryview(batch)[HEADER_BYTES:]
    # A batch that was emptied keeps its header alone.
    return decompress(header.attributes & CODEC_MASK, data) if header.record_count else b""


def keys_of(body: bytes, count: int) -> tuple[list[bytes | None], list[int]]:
    """The key of each record, and the indexes of those that have no value.

    Raises CorruptRecords where the body does not hold so many records.
    """
    keys: list[bytes | None] = []
    tombstones: list[int] = []
    size = len(body)
    at = start = 0
    try:
        # Millions of times: most numbers have one byte or two, and a call for each would take longer than all
        # the rest. The lowest bit is the sign.
        for index in range(count):
            start = at
            number = body[at]
            if number < 0x80:
                at += 1
            elif (second := body[at + 1]) < 0x80:
                number = number & 0x7F | second << 7
                at += 2
            else:
                number, at = read_uvarlong(body, at)
            end = at + (number >> 1)
            # Attributes, then timestamp and offset, which nobody asks about.
            at += 1
            while body[at] >= 0x80:
                at += 1
            at += 1
            while body[at] >= 0x80:
                at += 1
            at += 1
            key_number = body[at]
            if key_number < 0x80:
                at += 1
            else:
                key_number, at = read_uvarlong(body, at)
            if key_number & 1:
                keys.append(None)
            else:
                key_end = at + (key_number >> 1)
                keys.append(body[at:key_end])
                at = key_end
            if number & 1 or end > size or at >= end:
                raise CorruptRecords(f"record at byte {start} of {size} claims {end - start} bytes")
            if body[at] & 1:
                tombstones.append(index)
            at = end
    except IndexError:
        raise CorruptRecords(f"record at byte {start} of {size} is cut off") from None
    if at != size:
        raise CorruptRecords(f"{size - at} bytes are left after the {count} records of the batch")
    return keys, tombstones


def offset_deltas(body: bytes, count: int) -> list[int]:
    """Of the records of a body that is known to be sound."""
    deltas = []
    at = 0
    for _ in range(count):
        length, at = read_varint(body, at)
        end = at + length
        _, at = read_varint(body, at + 1)
        deltas.append(read_varint(body, at)[0])
        at = end
    return deltas


def select(body: bytes, wanted: ReadableBuffer) -> list[Kept]:
    """The records whose byte in `wanted`, which has one for each, is not zero.

    Raises CorruptRecords where the body does not hold so many records.
    """
    kept = []
    size = len(body)
    at = start = 0
    try:
        for is_wanted in wanted:
            start = at
            number = body[at]
            if number < 0x80:
                at += 1
            elif (second := body[at + 1]) < 0x80:
                number = number & 0x7F | second << 7
                at += 2
            else:
                number, at = read_uvarlong(body, at)
            end = at + (number >> 1)
            if number & 1 or end > size:
                raise CorruptRecords(f"record at byte {start} of {size} claims {end - start} bytes")
            if is_wanted:
                delta = body[at + 1]
                delta = (delta >> 1) ^ -(delta & 1) if delta < 0x80 else read_varint(body, at + 1)[0]
                kept.append((start, end, delta))
            at = end
    except IndexError:
        raise CorruptRecords(f"record at byte {start} of {size} is cut off") from None
    if at != size:
        raise CorruptRecords(f"{size - at} bytes are left after the {len(wanted)} records of the batch")
    return kept


def with_records(
    header: BatchHeader, body: bytes, kept: Sequence[Kept], delete_horizon_ms: int | None
) -> bytes:
    """The batch with these of its records alone, in the codec it had.

    A `delete_horizon_ms` is when its tombstones may go; it takes the place of the base timestamp.
    """
    attributes = header.attributes
    base_timestamp = header.base_timestamp
    if delete_horizon_ms is None:
        records = b"".join([body[start:end] for start, end, _ in kept])
    else:
        attributes |= DELETE_HORIZON
        records = _rebased(body, kept, base_timestamp - delete_horizon_ms)
        base_timestamp = delete_horizon_ms
    max_timestamp = header.max_timestamp
    if not attributes & LOG_APPEND_TIME:
        max_timestamp = header.base_timestamp + max([delta for _, _, delta in kept])
    codec = attributes & CODEC_MASK
    return _batch(
        header,
        attributes,
        base_timestamp,
        max_timestamp,
        len(kept),
        compress(codec, records) if codec else records,
    )


def _rebased(body: bytes, kept: Sequence[Kept], shift_ms: int) -> bytes:
    """The records with timestamps relative to another one."""
    records = bytearray()
    for start, end, timestamp_delta in kept:
        _, content_at = read_varint(body, start)
        _, rest_at = read_varint(body, content_at + 1)
        content = bytearray(body[content_at : content_at + 1])
        append_varint(content, timestamp_delta + shift_ms)
        content += body[rest_at:end]
        append_varint(records, len(content))
        records += content
    return bytes(records)


def emptied(header: BatchHeader) -> bytes:
    """The batch without records: what remains is the last sequence number and epoch of its producer."""
    attributes = header.attributes & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL)
    return _batch(header, attributes, header.max_timestamp, header.max_timestamp, 0, b"")


def _batch(
    header: BatchHeader,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    count: int,
    data: ReadableBuffer,
) -> bytes:
    fields = (
        attributes,
        header.last_offset_delta,
        base_timestamp,
        max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        count,
    )
    crc = crc32c(data, crc32c(CHECKED.pack(*fields)))
    length = HEADER_BYTES - LOG_OVERHEAD_BYTES + len(data)
    start = HEADER.pack(header.base_offset, length, header.leader_epoch, header.magic, crc, *fields)
    return start + data
