"""Whether an index of aborted transactions says what the log says.

It has no checksum, as in Apache Kafka, and one wrong bit in it shows aborted records to whoever reads
committed ones, or hides committed ones. So where a log is opened, entries are held against the batches they
name, and the scrubber works out from the whole segment what has to be in its index.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator

from ottla.log.aborted import AbortedTransaction
from ottla.log.producers import ProducerState, ProducerStates, batch_of
from ottla.log.segment import Segment
from ottla.log.segments import Segments
from ottla.log.snapshots import CorruptSnapshot, decode_producers
from ottla.log.walk import BadBatch, headers
from ottla.records.batch import HEADER_BYTES, BatchHeader
from ottla.records.compression import CorruptRecords
from ottla.records.markers import read_marker
from ottla.runtime.disk import Disk
from ottla.wire.errors import CorruptMessage

_LOOKED_UP_MAX = 1000
"""Entries of one segment, the last ones, for which opening a log looks at their batches: some 50 ms."""


def first_doubtful(segments: Segments, *, compacted: bool) -> Segment | None:
    """The first segment whose index says something that cannot be true."""
    doubtful = None
    earliest_later: int | None = None
    for index in reversed(range(len(segments))):
        segment = segments[index]
        end_offset = segments.base_after(segment)
        entries = segment.transactions.entries
        for number, entry in enumerate(reversed(entries)):
            if (
                not segment.base_offset <= entry.last_offset
                or (end_offset is not None and entry.last_offset >= end_offset)
                or not 0 <= entry.first_offset < entry.last_offset
                or not 0 <= entry.last_stable_offset <= entry.last_offset + 1
                # Readers stop at an entry that is stable so far: none behind it may begin below.
                or (earliest_later is not None and entry.last_stable_offset > earliest_later)
                or (
                    number < _LOOKED_UP_MAX
                    and not _is_told_by_the_log(segments, segment, entry, compacted=compacted)
                )
            ):
                doubtful = segment
                break
            if earliest_later is None or entry.first_offset < earliest_later:
                earliest_later = entry.first_offset
    return doubtful


def _is_told_by_the_log(
    segments: Segments, segment: Segment, entry: AbortedTransaction, *, compacted: bool
) -> bool:
    try:
        found = _batch_at(segment, entry.last_offset)
        if found is None:
            return False
        position, header = found
        if not header.is_control or (header.base_offset, header.producer_id) != (
            entry.last_offset,
            entry.producer_id,
        ):
            return False
        marker = read_marker(segment.file.read(position, header.size))
        if marker is not None and marker.committed:
            return False
        if entry.first_offset < segments[0].base_offset:
            return True
        found = _batch_at(segments[segments.floor(entry.first_offset)], entry.first_offset)
        if found is None or found[1].base_offset > entry.first_offset:
            # Compaction drops what was aborted.
            return compacted
        _, header = found
        return (
            header.base_offset == entry.first_offset
            and header.producer_id == entry.producer_id
            and header.is_transactional
            and not header.is_control
        )
    except (BadBatch, CorruptMessage, CorruptRecords):
        # The log itself is damaged there: that is another matter.
        return True


def _batch_at(segment: Segment, offset: int) -> tuple[int, BatchHeader] | None:
    """The batch that holds an offset, or the first after it."""
    position = segment.locate(offset)
    return next(headers(segment.file, position, segment.size), None)


def aborted_at_rest(
    disk: Disk, segment: Segment, snapshot_path: str | None, found: list[AbortedTransaction]
) -> Generator[int, None, None]:
    """What has to be in the index of a segment at rest. For another thread; yields bytes.

    The snapshot tells of transactions that were open where the segment begins. Raises BadBatch,
    CorruptRecords, CorruptSnapshot or OSError where that cannot be told.
    """
    producers: list[ProducerState] = []
    if snapshot_path is not None:
        producers = decode_producers(disk.read_file(snapshot_path))
    states = ProducerStates(segment.partition, producers)
    with contextlib.closing(disk.open(segment.path)) as file:
        for position, header in headers(file, 0, segment.size):
            if header.producer_id >= 0:
                batch = batch_of(header, file.read(position, header.size) if header.is_control else None)
                aborted = states.aborted_by(batch)
                if aborted is not None:
                    found.append(aborted)
                states.apply(batch)
            yield HEADER_BYTES


UNTELLABLE = (BadBatch, CorruptRecords, CorruptSnapshot)
"""What `aborted_at_rest` raises where something else is damaged."""
