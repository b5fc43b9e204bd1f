"""Single records: read out of a batch and built into one.

The data path never comes here. What does: looking up a timestamp, the metadata log and the coordinators
(whose records the broker writes itself), and tests.

    length varint · attributes i8 · timestamp delta varlong · offset delta varint ·
    key length varint · key · value length varint · value ·
    header count varint · (name length varint · name · value length varint · value)*
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from ottla.records.batch import (
    CODEC_MASK,
    CONTROL,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TRANSACTIONAL,
)
from ottla.records.compression import DECOMPRESSED_BYTES_MAX, CorruptRecords, compress, decompress
from ottla.records.crc import crc32c
from ottla.runtime.disk import ReadableBuffer
from ottla.varints import append_varint, read_varint

CHECKED = struct.Struct(">hiqqqhii")
"""What the CRC covers of the header."""

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    key: bytes | None
    value: bytes | None
    timestamp_ms: int = NO_TIMESTAMP
    headers: Headers = ()
    offset: int = -1
    """Set by `iter_records`; `encode_batch` numbers records itself."""


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    codec: int = 0,
    compression_level: int | None = None,
    log_append_time_ms: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
) -> bytes:
    """One whole batch, its records numbered from `base_offset` without gaps."""
    if not records:
        raise ValueError("a batch holds at least one record")
    base_timestamp = records[0].timestamp_ms
    max_timestamp = NO_TIMESTAMP
    body = bytearray()
    for delta, record in enumerate(records):
        max_timestamp = max(max_timestamp, record.timestamp_ms)
        _write_record(body, record, record.timestamp_ms - base_timestamp, delta)
    data = compress(codec, body, compression_level) if codec else bytes(body)
    attributes = codec
    if log_append_time_ms is not None:
        attributes |= LOG_APPEND_TIME
        max_timestamp = log_append_time_ms
    if transactional:
        attributes |= TRANSACTIONAL
    if control:
        attributes |= CONTROL
    count = len(records)
    fields = (
        attributes,
        count - 1,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    crc = crc32c(data, crc32c(CHECKED.pack(*fields)))
    length = HEADER_BYTES - LOG_OVERHEAD_BYTES + len(data)
    return HEADER.pack(base_offset, length, leader_epoch, MAGIC, crc, *fields) + data


def iter_records(batch: ReadableBuffer, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
    """The records of exactly one batch. Raises CorruptRecords where they do not match its header, and
    InflatesTooFar where they are compressed and larger than `bytes_max`."""
    if len(batch) < HEADER_BYTES:
        raise CorruptRecords(f"a batch has at least {HEADER_BYTES} bytes, this one {len(batch)}")
    (base_offset, length, _, _, _, attributes, _, base_timestamp, max_timestamp, _, _, _, count) = (
        HEADER.unpack_from(batch)
    )
    if length + LOG_OVERHEAD_BYTES != len(batch):
        raise CorruptRecords(f"batch claims {length + LOG_OVERHEAD_BYTES} bytes and has {len(batch)}")
    data = memoryview(batch)[HEADER_BYTES:]
    # A batch that compaction has emptied keeps its header alone.
    body = decompress(attributes & CODEC_MASK, data, bytes_max) if count else bytes(data)
    append_time = max_timestamp if attributes & LOG_APPEND_TIME else None
    at = 0
    for _ in range(count):
        try:
            record_length, at = read_varint(body, at)
            end = at + record_length
            if record_length < 0 or end > len(body):
                raise CorruptRecords(f"record at byte {at} of {len(body)} claims {record_length} bytes")
            timestamp_delta, offset_delta, key, value, headers = _read_record(body, at, end)
        except IndexError:
            raise CorruptRecords(f"record at byte {at} of {len(body)} is cut off") from None
        timestamp = base_timestamp + timestamp_delta if append_time is None else append_time
        yield Record(key, value, timestamp, headers, base_offset + offset_delta)
        at = end
    if at != len(body):
        raise CorruptRecords(f"{len(body) - at} bytes are left after the {count} records of the batch")


def _read_record(body: bytes, at: int, end: int) -> tuple[int, int, bytes | None, bytes | None, Headers]:
    at += 1  # attributes of a record are unused
    timestamp_delta, at = read_varint(body, at)
    offset_delta, at = read_varint(body, at)
    key, at = _read_bytes(body, at, end)
    value, at = _read_bytes(body, at, end)
    header_count, at = read_varint(body, at)
    headers: Headers = ()
    if header_count:
        if not 0 <= header_count <= end - at:
            raise CorruptRecords(f"record claims {header_count} headers in {end - at} bytes")
        pairs = []
        for _ in range(header_count):
            name, at = _read_bytes(body, at, end)
            if name is None:
                raise CorruptRecords("a record header has no name")
            header_value, at = _read_bytes(body, at, end)
            # Names need not be UTF-8 for the broker to carry them unharmed.
            pairs.append((name.decode("utf-8", "surrogateescape"), header_value))
        headers = tuple(pairs)
    if at != end:
        raise CorruptRecords(f"record ends at byte {at} of its batch, its length says {end}")
    return timestamp_delta, offset_delta, key, value, headers


def _read_bytes(body: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    length, at = read_varint(body, at)
    if length < 0:
        if length != -1:
            raise CorruptRecords(f"field at byte {at} claims {length} bytes")
        return None, at
    stop = at + length
    if stop > end:
        raise CorruptRecords(f"field at byte {at} claims {length} bytes and its record ends at {end}")
    return body[at:stop], stop


def _write_record(body: bytearray, record: Record, timestamp_delta: int, offset_delta: int) -> None:
    content = bytearray(1)
    append_varint(content, timestamp_delta)
    append_varint(content, offset_delta)
    _write_bytes(content, record.key)
    _write_bytes(content, record.value)
    append_varint(content, len(record.headers))
    for name, value in record.headers:
        _write_bytes(content, name.encode("utf-8", "surrogateescape"))
        _write_bytes(content, value)
    append_varint(body, len(content))
    body += content


def _write_bytes(target: bytearray, data: bytes | None) -> None:
    if data is None:
        target.append(1)
    else:
        append_varint(target, len(data))
        target += data
