"""Producer state as the log itself tells it, from the nearest snapshot on."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ottla.log.producers import ProducerStates, batch_of
from ottla.log.segment import Segment
from ottla.log.snapshots import SnapshotFiles
from ottla.log.types import TopicPartition
from ottla.log.walk import BadBatch, headers
from ottla.wire.errors import CorruptMessage

log = logging.getLogger(__name__)


def load_producers(
    partition: TopicPartition, snapshots: SnapshotFiles, segments: Sequence[Segment], end_offset: int
) -> ProducerStates:
    """The state at `end_offset`: where the log ends, or will end, or where the last batch with a producer
    is known to be."""
    states = ProducerStates(partition)
    snapshot = snapshots.latest(end_offset)
    offset = segments[0].base_offset
    if snapshot is not None:
        offset, producers = snapshot
        states.active = {producer.producer_id: producer for producer in producers}
    for index, segment in enumerate(segments):
        segment_end = segments[index + 1].base_offset if index + 1 < len(segments) else end_offset
        if segment_end > offset and segment.base_offset < end_offset:
            try:
                _replay(states, segment, offset, min(segment_end, end_offset))
            except (BadBatch, CorruptMessage) as error:
                # Producers of the rest of this segment begin anew; its records are not lost for that.
                log.error("producer state of %s is incomplete after offset %d: %s", partition, offset, error)
    return states


def _replay(states: ProducerStates, segment: Segment, offset: int, end_offset: int) -> None:
    position = segment.locate(offset) if segment.base_offset < offset else 0
    for at, header in headers(segment.file, position, segment.size):
        if header.base_offset >= end_offset:
            return
        if header.producer_id >= 0:
            # A control batch without its record is what compaction leaves of a transaction long over.
            if not header.is_control:
                states.apply(batch_of(header, None))
            elif header.record_count > 0:
                states.apply(batch_of(header, segment.file.read(at, header.size)))
