"""Batches on their way into the log that need more than a new offset."""

from __future__ import annotations

from typing import NamedTuple

from ottla.log.producers import ProducerBatch, batch_of
from ottla.log.types import TopicPartition, UnexpectedOffset
from ottla.records.batch import (
    ATTRIBUTES_AT,
    CONTROL,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    read_header,
)
from ottla.records.crc import crc32c
from ottla.records.records import CHECKED
from ottla.runtime.disk import ReadableBuffer
from ottla.wire.errors import CorruptMessage

_LENGTH_MIN = HEADER_BYTES - LOG_OVERHEAD_BYTES


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
    """(leader epoch, offset from which on) where another one begins."""
    base_offset: int
    next_offset: int
    newest: int
    """The largest timestamp of all."""


def replicated(
    records: ReadableBuffer, partition: TopicPartition, next_offset: int, latest_epoch: int
) -> Replicated:
    """Check batches that are to follow `next_offset`, in a log whose last leader had `latest_epoch`.

    A batch that is cut off is left out. Raises CorruptMessage or UnexpectedOffset.
    """
    base_offset = -1
    newest = -1
    batches: list[tuple[int, int, int]] = []
    of_producers: list[ProducerBatch] = []
    epochs: list[tuple[int, int]] = []
    view = memoryview(records)
    at, end = 0, len(view)
    # As in `PartitionLog.append`: integers are compared, and what is wrong is worked out once something is.
    while end - at >= HEADER_BYTES:
        base, length, epoch, magic, crc, attributes, delta, _, timestamp, producer_id, _, _, _ = (
            HEADER.unpack_from(view, at)
        )
        stop = at + length + LOG_OVERHEAD_BYTES
        if stop > end and magic == MAGIC:
            break
        if magic != MAGIC or length < _LENGTH_MIN or crc32c(view[at + ATTRIBUTES_AT : stop]) != crc:
            raise CorruptMessage(
                f"{partition}: the batch fetched for offset {next_offset} is damaged (magic {magic}, base "
                f"offset {base}, {length + LOG_OVERHEAD_BYTES} bytes)"
            )
        if base < next_offset or delta < 0 or (epoch < latest_epoch and epoch >= 0):
            raise UnexpectedOffset(
                f"{partition}: a batch with offsets {base} to {base + delta} of leader epoch {epoch} does "
                f"not continue the log at {next_offset}, of epoch {latest_epoch}"
            )
        if not batches:
            base_offset = base
        if producer_id >= 0:
            header = read_header(view, at)
            of_producers.append(batch_of(header, view[at:stop] if attributes & CONTROL else None))
        if epoch > latest_epoch:
            epochs.append((epoch, base))
            latest_epoch = epoch
        if timestamp > newest:  # noqa: PLR1730 - half the time of max()
            newest = timestamp
        next_offset = base + delta + 1
        batches.append((next_offset - 1, stop - at, timestamp))
        at = stop
    return Replicated(view[:at], batches, of_producers, epochs, base_offset, next_offset, newest)
