"""Looking for rot: every batch of a log against its CRC."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.log.log import PartitionLog
from ottla.log.segment import Segment
from ottla.log.types import CorruptBatch
from ottla.log.walk import BadBatch, checked_batches


def verify(log: PartitionLog) -> Iterator[CorruptBatch]:
    """The damaged batches of a log. After one whose length is damaged too, the index shows where to go on."""
    for segment in list(log.segments):
        yield from _verify_segment(segment)


def _verify_segment(segment: Segment) -> Iterator[CorruptBatch]:
    topic, partition = segment.partition
    offset = segment.base_offset
    resume: int | None = 0
    while resume is not None:
        try:
            for position, header, intact in checked_batches(segment.file, resume, segment.size, offset):
                if not intact:
                    yield CorruptBatch(
                        topic, partition, header.base_offset, position, segment.path, "its CRC does not match"
                    )
                offset = header.last_offset + 1
            return
        except BadBatch as error:
            yield CorruptBatch(topic, partition, offset, error.position, segment.path, error.reason)
            resume = segment.offsets.next_position(error.position)
