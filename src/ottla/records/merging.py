"""One batch made of several small ones. Keys, values and headers of records are copied, not looked at."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.records.batch import HEADER, HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC, NO_PRODUCER_ID, read_header
from ottla.records.compression import CorruptRecords, compress
from ottla.records.crc import crc32c
from ottla.records.filtering import body_of
from ottla.records.records import CHECKED
from ottla.runtime.disk import ReadableBuffer
from ottla.varints import append_varint, read_varint


def merged(batches: Sequence[ReadableBuffer], codec: int) -> bytes:
    """All records in their order, numbered from 0 on, of no producer. Raises CorruptRecords.

    Times have to be those of the records (CreateTime) in all of them.
    """
    headers = [read_header(batch) for batch in batches]
    base_timestamp = headers[0].base_timestamp
    records = bytearray()
    count = 0
    for batch, header in zip(batches, headers, strict=True):
        body = body_of(batch, header)
        shift_ms = header.base_timestamp - base_timestamp
        at = 0
        try:
            for _ in range(header.record_count):
                length, at = read_varint(body, at)
                end = at + length
                content = bytearray(body[at : at + 1])
                timestamp_delta, at = read_varint(body, at + 1)
                _, at = read_varint(body, at)
                if length < 0 or not at <= end <= len(body):
                    raise CorruptRecords(f"a record of {length} bytes in a body of {len(body)}")
                append_varint(content, timestamp_delta + shift_ms)
                append_varint(content, count)
                append_varint(records, len(content) + end - at)
                records += content
                records += body[at:end]
                at = end
                count += 1
        except IndexError:
            raise CorruptRecords(f"a record is cut off at byte {at} of {len(body)}") from None
        if at != len(body):
            raise CorruptRecords(f"{len(body) - at} bytes are left after {header.record_count} records")
    data = compress(codec, records) if codec else bytes(records)
    max_timestamp = max(header.max_timestamp for header in headers)
    fields = (codec, count - 1, base_timestamp, max_timestamp, NO_PRODUCER_ID, -1, -1, count)
    crc = crc32c(data, crc32c(CHECKED.pack(*fields)))
    length = HEADER_BYTES - LOG_OVERHEAD_BYTES + len(data)
    return HEADER.pack(0, length, -1, MAGIC, crc, *fields) + data
