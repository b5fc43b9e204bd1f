"""Producer state and aborted transactions as the log itself tells them, from the nearest snapshot on."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence

from ottla.log.producers import ProducerStates, batch_of
from ottla.log.segment import Segment
from ottla.log.snapshots import SnapshotFiles
from ottla.log.types import TopicPartition
from ottla.log.walk import BadBatch, headers
from ottla.records.batch import BatchHeader
from ottla.records.compression import CorruptRecords
from ottla.wire.errors import CorruptMessage

log = logging.getLogger(__name__)

NO_DAMAGE: Mapping[int, Sequence[tuple[int, int]]] = {}


def load_producers(
    partition: TopicPartition,
    snapshots: SnapshotFiles,
    segments: Sequence[Segment],
    end_offset: int,
    *,
    reindex_from: int | None = None,
    damage: Mapping[int, Sequence[tuple[int, int]]] = NO_DAMAGE,
) -> ProducerStates:
    """The state at `end_offset`: where the log ends, or will end, or where the last batch with a producer
    is known to be.

    From the segment that begins at `reindex_from` on, aborted transactions are indexed anew. Their data may
    stand in earlier segments, which is why only this replay can do it. `damage` has, by the base offset of a
    segment, the bytes (from, to) in it that are stepped over.
    """
    upto = end_offset if reindex_from is None else min(end_offset, reindex_from)
    snapshot = snapshots.latest(upto)
    offset, producers = (segments[0].base_offset, []) if snapshot is None else snapshot
    states = ProducerStates(partition, producers)
    for index, segment in enumerate(segments):
        is_reindexed = reindex_from is not None and segment.base_offset >= reindex_from
        if is_reindexed:
            segment.transactions.reset()
        segment_end = segments[index + 1].base_offset if index + 1 < len(segments) else end_offset
        if segment_end > offset and segment.base_offset < end_offset:
            try:
                gaps = damage.get(segment.base_offset, ())
                _replay(states, segment, offset, min(segment_end, end_offset), is_reindexed, gaps)
            except (BadBatch, CorruptMessage, CorruptRecords) as error:
                # Producers of the rest of this segment begin anew; its records are not lost for that.
                log.error("producer state of %s is incomplete after offset %d: %s", partition, offset, error)
    return states


def _replay(
    states: ProducerStates,
    segment: Segment,
    offset: int,
    end_offset: int,
    reindex: bool,
    gaps: Sequence[tuple[int, int]],
) -> None:
    position = segment.locate(offset) if segment.base_offset < offset else 0
    for at, header in _headers_between(segment, position, gaps):
        if header.base_offset >= end_offset:
            return
        if header.producer_id < 0:
            continue
        batch = batch_of(header, segment.file.read(at, header.size) if header.is_control else None)
        if reindex and (aborted := states.aborted_by(batch)) is not None:
            segment.transactions.append(aborted)
        states.apply(batch)


def _headers_between(
    segment: Segment, position: int, gaps: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, BatchHeader]]:
    for start, stop in gaps:
        if position < stop:
            yield from headers(segment.file, position, start)
            position = stop
    yield from headers(segment.file, position, segment.size)
