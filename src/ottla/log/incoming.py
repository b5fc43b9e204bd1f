"""Batches on their way into the log that need more than a new offset."""

from __future__ import annotations

from typing import NamedTuple

from crc32c import crc32c

from ottla.log.producers import ProducerBatch, batch_of
from ottla.log.types import TopicPartition, UnexpectedOffset
from ottla.records.batch import HEADER, HEADER_BYTES, LOG_APPEND_TIME, MAGIC, crc_matches, iter_headers
from ottla.records.records import CHECKED
from ottla.runtime.disk import ReadableBuffer
from ottla.wire.errors import CorruptMessage


def restamped(
    batch: ReadableBuffer, offset: int, leader_epoch: int, append_time_ms: int
) -> tuple[bytes, ReadableBuffer]:
    """A batch with the time it was appended at. Its records keep their own; what counts is the header's."""
    _, length, _, _, _, attributes, delta, base_timestamp, _, *producer_and_count = HEADER.unpack_from(batch)
    checked = (attributes | LOG_APPEND_TIME, delta, base_timestamp, append_time_ms, *producer_and_count)
    records = batch[HEADER_BYTES:]
    crc = crc32c(records, crc32c(CHECKED.pack(*checked)))
    return HEADER.pack(offset, length, leader_epoch, MAGIC, crc, *checked), records


class Replicated(NamedTuple):
    """Batches that have their offsets and leader epochs already."""

    data: ReadableBuffer
    batches: list[tuple[int, int, int]]
    """(last offset, bytes, largest timestamp) of each."""
    of_producers: list[ProducerBatch]
    epochs: list[tuple[int, int]]
    """(leader epoch, base offset) of each."""
    base_offset: int
    next_offset: int
    newest: int


def replicated(records: ReadableBuffer, partition: TopicPartition, next_offset: int) -> Replicated:
    """Check what was fetched from the leader, or written by it elsewhere.

    Offsets may leave gaps, where the leader has compacted. A batch cut off at the end is left out.
    Raises CorruptMessage or UnexpectedOffset.
    """
    base_offset = next_offset
    newest = -1
    batches: list[tuple[int, int, int]] = []
    of_producers: list[ProducerBatch] = []
    epochs: list[tuple[int, int]] = []
    end = 0
    view = memoryview(records)
    for at, header in iter_headers(view):
        end = at + header.size
        if header.magic != MAGIC or not crc_matches(view[at:end], header.crc):
            raise CorruptMessage(
                f"{partition}: the batch fetched for offset {next_offset} is damaged (magic {header.magic}, "
                f"base offset {header.base_offset}, {header.size} bytes)"
            )
        if header.base_offset < next_offset or header.last_offset_delta < 0:
            raise UnexpectedOffset(
                f"{partition}: a batch with offsets {header.base_offset} to {header.last_offset} does not "
                f"continue the log at {next_offset}"
            )
        if not batches:
            base_offset = header.base_offset
        if header.producer_id >= 0:
            of_producers.append(batch_of(header, view[at:end] if header.is_control else None))
        epochs.append((header.leader_epoch, header.base_offset))
        batches.append((header.last_offset, header.size, header.max_timestamp))
        newest = max(newest, header.max_timestamp)
        next_offset = header.last_offset + 1
    return Replicated(view[:end], batches, of_producers, epochs, base_offset, next_offset, newest)
