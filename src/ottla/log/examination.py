"""The records of a request looked at one by one, before they are appended.

Where a topic needs it (keys in a compacted one, a bound on the age of timestamps), where a listener asks for
it (ottla.records.validate), and where the timestamp in a header cannot be believed. Few small records are
looked at on the event loop; whoever has more gets TakesLong and has it done elsewhere, by the same steps as a
job, see `replication.preparation`.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple, TypeAlias

from ottla.log.refusals import refuse_faults
from ottla.log.types import TopicPartition
from ottla.records.batch import (
    ATTRIBUTES_AT,
    CONTROL,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    BatchHeader,
    iter_headers,
)
from ottla.records.checking import Demands, may_hold, walk
from ottla.records.compression import (
    CODEC_MAX,
    DECOMPRESSED_BYTES_MAX,
    CorruptRecords,
    InflatesTooFar,
    decompress,
)
from ottla.records.crc import crc32c
from ottla.records.stamp import stamp_max_timestamp
from ottla.runtime.disk import Disk, ReadableBuffer
from ottla.runtime.workers import Steps
from ottla.wire.errors import InvalidRecord, RecordTooLarge

# What takes no longer than handing it to another thread. Of compressed records the size is not known: a few
# that stay small are inflated at once, and nothing else.
QUICK_BYTES_MAX = 16 * 1024
QUICK_RECORDS_MAX = 512
_QUICK_COMPRESSED_BYTES_MAX = 1024
_QUICK_COMPRESSED_RECORDS_MAX = 64
_QUICK_INFLATED_BYTES_MAX = 64 * 1024

# Producers keep to the size of a batch before they compress it: Java's max.request.size and librdkafka's
# message.max.bytes count it so. This is far more than any of them sends, and little enough to hold in memory.
INFLATION_MAX = 64
_INFLATED_BYTES_MIN = 4 * 1024 * 1024


class TakesLong(Exception):
    """These records need more work than the event loop has time for."""


class Examination(NamedTuple):
    """What is asked of the batches of one request for one partition."""

    partition: TopicPartition
    demands: Demands
    has_timestamps: bool
    """The timestamps of records count, and not the time they are appended."""
    batch_bytes_max: int
    inflated_bytes_max: int
    """All that the request has for the partition may not be larger than this when it is not compressed."""


Corrections: TypeAlias = list[tuple[int, int]]
"""(position of a batch, what its largest timestamp really is)."""


def inflated_bytes_max(max_message_bytes: int) -> int:
    """How large records may be that a topic takes up to this size."""
    return min(max(max_message_bytes * INFLATION_MAX, _INFLATED_BYTES_MIN), DECOMPRESSED_BYTES_MAX)


def is_quick(records: ReadableBuffer) -> bool:
    """Whether the event loop may look at these."""
    if len(records) > QUICK_BYTES_MAX:
        return False
    count = compressed_bytes = compressed_count = 0
    for _, header in iter_headers(records):
        count += header.record_count
        if header.codec:
            compressed_bytes += header.size
            compressed_count += header.record_count
    return (
        count <= QUICK_RECORDS_MAX
        and compressed_bytes <= _QUICK_COMPRESSED_BYTES_MAX
        and compressed_count <= _QUICK_COMPRESSED_RECORDS_MAX
    )


def record_count(records: ReadableBuffer) -> int:
    """As many as the headers claim."""
    return sum(header.record_count for _, header in iter_headers(records))


def examine_quickly(records: ReadableBuffer, examination: Examination) -> ReadableBuffer:
    """On the event loop. Raises TakesLong, or what is wrong."""
    if not is_quick(records):
        raise TakesLong
    quick = examination._replace(
        inflated_bytes_max=min(examination.inflated_bytes_max, _QUICK_INFLATED_BYTES_MAX)
    )
    steps = examine(records, quick)
    try:
        while True:
            next(steps)
    except StopIteration as ended:
        return corrected(records, ended.value)
    except InflatesTooFar:
        raise TakesLong from None


def examine(records: ReadableBuffer, examination: Examination) -> Generator[int, None, Corrections]:
    """Yields bytes passed. Raises InvalidRecord or InvalidTimestamp, and InflatesTooFar.

    Ends at the first batch that nobody would append: whoever appends says why.
    """
    partition, demands, has_timestamps, batch_bytes_max, inflated_left = examination
    corrections: Corrections = []
    view = memoryview(records)
    for at, header in iter_headers(view):
        stop = at + header.size
        if not _is_sound(header, batch_bytes_max) or crc32c(view[at + ATTRIBUTES_AT : stop]) != header.crc:
            break
        yield header.size
        try:
            body = decompress(header.codec, view[at + HEADER_BYTES : stop], max(inflated_left, 1))
            inflated_left -= len(body)
            faults, fault_count, max_timestamp = yield from walk(
                body, header.record_count, header.base_timestamp, demands
            )
        except InflatesTooFar:
            raise
        except CorruptRecords as error:
            raise InvalidRecord(f"{partition}: {error}") from error
        if faults:
            refuse_faults(partition, faults, fault_count, demands)
        if has_timestamps and max_timestamp != header.max_timestamp:
            corrections.append((at, max_timestamp))
    return corrections


def examine_elsewhere(_: Disk, records: bytes, examination: Examination) -> Steps:
    """The same as a job. Its result are the corrections."""
    try:
        corrections = yield from examine(records, examination)
    except InflatesTooFar as error:
        raise too_far(examination.partition, error) from None
    yield corrections


def too_far(partition: TopicPartition, error: InflatesTooFar) -> RecordTooLarge:
    return RecordTooLarge(
        f"{partition}: {error}, {INFLATION_MAX} times max.message.bytes of the topic; send smaller "
        "batches or raise it"
    )


def corrected(records: ReadableBuffer, corrections: Corrections) -> ReadableBuffer:
    """With the largest timestamps that the records have, as Apache Kafka puts them there."""
    if not corrections:
        return records
    changed = bytearray(records)
    for at, max_timestamp in corrections:
        stamp_max_timestamp(changed, at, max_timestamp)
    return memoryview(changed)


def _is_sound(header: BatchHeader, batch_bytes_max: int) -> bool:
    return (
        header.magic == MAGIC
        and header.size <= batch_bytes_max
        and header.codec <= CODEC_MAX
        and not header.attributes & (CONTROL | LOG_APPEND_TIME)
        and header.record_count > 0
        and header.record_count == header.last_offset_delta + 1
        and may_hold(header.size - HEADER_BYTES, header.codec, header.record_count)
    )
