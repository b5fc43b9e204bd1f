"""Record batches on their way from one cluster to another, opened only where they cannot stay as they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from ottla.client.fetch import Aborted
from ottla.records.batch import (
    ATTRIBUTES_AT,
    DELETE_HORIZON,
    LENGTH,
    LENGTH_AT,
    LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_AT,
    BatchHeader,
    read_header,
)
from ottla.records.compression import CorruptRecords
from ottla.records.crc import crc32c
from ottla.records.markers import read_marker
from ottla.records.merging import merged
from ottla.records.records import encode_batch, iter_records

# Up to here it takes less time to copy records into a larger batch than to send a request for them.
_SMALL_RECORDS_MAX: Final = 16
_SMALL_BYTES_MAX: Final = 4 * 1024
_MERGED_BYTES_MAX: Final = 128 * 1024


class OldFormat(Exception):
    """Records in a format from before Kafka 0.11, which no broker takes any more."""


class Piece(NamedTuple):
    """Records of a batch that have neighbouring offsets in the source."""

    offset: int
    at: int
    """Which of the batch the first is."""
    records: int


class Batch(NamedTuple):
    data: memoryview
    record_count: int
    pieces: Sequence[Piece]

    @property
    def last_offset(self) -> int:
        last = self.pieces[-1]
        return last.offset + last.records - 1


class Read(NamedTuple):
    batches: Sequence[Batch]
    """With records that count: those of aborted transactions, and markers, are left out."""
    next_offset: int
    """Behind all that was looked at, whether it counts or not."""


def read_committed(records: memoryview, aborted: Sequence[Aborted], offset: int) -> Read:
    """What a fetch from an offset has brought, of whole batches. Raises CorruptRecords and OldFormat."""
    batches: list[Batch] = []
    aborted_left = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
    being_aborted: set[int] = set()
    for at, header in _headers(records):
        if header.last_offset < offset:
            continue
        data = records[at : at + header.size]
        while aborted_left and aborted_left[-1].first_offset <= header.last_offset:
            being_aborted.add(aborted_left.pop().producer_id)
        if header.is_control:
            marker = read_marker(data)
            if marker is not None and not marker.committed:
                being_aborted.discard(header.producer_id)
        elif header.record_count and not (header.is_transactional and header.producer_id in being_aborted):
            if crc32c(data[ATTRIBUTES_AT:]) != header.crc:
                raise CorruptRecords(f"the batch at offset {header.base_offset} does not match its checksum")
            batch = _sendable(data, header, offset)
            if batch is not None:
                batches.append(batch)
        offset = header.last_offset + 1
    return Read(batches, offset)


def _headers(records: memoryview) -> Iterator[tuple[int, BatchHeader]]:
    """Of whole batches; the last may be cut off."""
    at, end = 0, len(records)
    while at + MAGIC_AT < end:
        (length,) = LENGTH.unpack_from(records, at + LENGTH_AT)
        if length <= 0:
            raise CorruptRecords(f"a batch of {length} bytes")
        if at + LOG_OVERHEAD_BYTES + length > end:
            return
        if records[at + MAGIC_AT] < MAGIC:
            raise OldFormat(
                f"records of message format {records[at + MAGIC_AT]}: what Kafka before 0.11 wrote has to be "
                "written anew by a client, or to be left behind (kafka-delete-records)"
            )
        yield at, read_header(records, at)
        at += LOG_OVERHEAD_BYTES + length


def _sendable(data: memoryview, header: BatchHeader, offset: int) -> Batch | None:
    """As a producer could have sent it; None where nothing is left from the offset on.

    A broker numbers records itself, so there may be none missing in between, which compaction leaves; and
    where the time is the broker's, that of the records has to be made it. Such batches are written anew.
    """
    is_whole = header.record_count == header.last_offset_delta + 1 and header.base_offset >= offset
    if is_whole and not header.attributes & (LOG_APPEND_TIME | DELETE_HORIZON):
        return Batch(data, header.record_count, (Piece(header.base_offset, 0, header.record_count),))
    records = [record for record in iter_records(data) if record.offset >= offset]
    if not records:
        return None
    pieces: list[Piece] = []
    for index, record in enumerate(records):
        if pieces and pieces[-1].offset + pieces[-1].records == record.offset:
            pieces[-1] = pieces[-1]._replace(records=pieces[-1].records + 1)
        else:
            pieces.append(Piece(record.offset, index, 1))
    return Batch(memoryview(encode_batch(records, codec=header.codec)), len(records), pieces)


def merge_small(batches: Sequence[Batch]) -> list[Batch]:
    """Neighbours of a few records each become one batch, in the codec they have. Raises CorruptRecords.

    A request may have one batch for each partition, so many small ones would take longer to send than to
    pack.
    """
    found: list[Batch] = []
    small: list[Batch] = []
    codec = size = 0
    for batch in batches:
        header = read_header(batch.data)
        is_small = batch.record_count <= _SMALL_RECORDS_MAX and len(batch.data) <= _SMALL_BYTES_MAX
        if small and (not is_small or header.codec != codec or size + len(batch.data) > _MERGED_BYTES_MAX):
            found.append(_merged(small, codec))
            small, size = [], 0
        if is_small:
            small.append(batch)
            codec = header.codec
            size += len(batch.data)
        else:
            found.append(batch)
    if small:
        found.append(_merged(small, codec))
    return found


def _merged(batches: Sequence[Batch], codec: int) -> Batch:
    if len(batches) == 1:
        return batches[0]
    pieces: list[Piece] = []
    count = 0
    for batch in batches:
        for piece in batch.pieces:
            last = pieces[-1] if pieces else None
            if last is not None and last.offset + last.records == piece.offset:
                pieces[-1] = last._replace(records=last.records + piece.records)
            else:
                pieces.append(piece._replace(at=count + piece.at))
        count += batch.record_count
    data = merged([batch.data for batch in batches], codec)
    return Batch(memoryview(data), count, pieces)
