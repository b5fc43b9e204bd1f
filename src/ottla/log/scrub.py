"""Looking for rot: every batch of a log against its CRC."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator

from ottla.log.log import PartitionLog
from ottla.log.segment import Segment
from ottla.log.types import CorruptBatch
from ottla.log.walk import BadBatch, checked_batches
from ottla.runtime.disk import Disk, File


def verify(log: PartitionLog) -> Iterator[CorruptBatch]:
    """The damaged batches of a log. After one whose length is damaged too, the index shows where to go on."""
    for segment in list(log.segments):
        found: list[CorruptBatch] = []
        for _ in _verify(segment, segment.file, segment.offsets.next_position, found.append, copying=False):
            yield from found
            found.clear()
        yield from found


def verify_at_rest(
    disk: Disk, segment: Segment, report: Callable[[CorruptBatch], None]
) -> Generator[int, None, None]:
    """The same for one segment that is no longer written to, in another thread, yielding the bytes read."""
    with contextlib.closing(disk.open(segment.path)) as file:
        # Indexes belong to the event loop: behind damage that hides the next batch, nothing is looked at.
        yield from _verify(segment, file, lambda _: None, report, copying=True)


def _verify(
    segment: Segment,
    file: File,
    next_position: Callable[[int], int | None],
    report: Callable[[CorruptBatch], None],
    *,
    copying: bool,
) -> Generator[int, None, None]:
    topic, partition = segment.partition
    offset = segment.base_offset
    resume: int | None = 0
    while resume is not None:
        try:
            for position, header, intact in checked_batches(
                file, resume, segment.size, offset, copying=copying
            ):
                if not intact:
                    report(
                        CorruptBatch(
                            topic,
                            partition,
                            header.base_offset,
                            position,
                            segment.path,
                            "its CRC does not match",
                        )
                    )
                offset = header.last_offset + 1
                yield header.size
            return
        except BadBatch as error:
            report(CorruptBatch(topic, partition, offset, error.position, segment.path, error.reason))
            resume = next_position(error.position)
