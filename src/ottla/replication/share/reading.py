"""What the log has for a share group: from the first offset that somebody may have, whole batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from ottla.log.aborted import ABORT, marker_type
from ottla.records.batch import iter_headers
from ottla.replication.share.in_flight import Acquired, LogBatch
from ottla.replication.share.settings import ShareSettings
from ottla.replication.share.share_partition import SharePartition
from ottla.runtime.disk import ReadableBuffer

BATCHES_MAX = 2000
"""Looked at in one go: a log may have millions in a row that nobody is to get."""


class _Place(NamedTuple):
    position: int
    end: int
    base: int
    last: int


class Reading:
    """Iterated, it gives batches; what was acquired of those is then cut out."""

    def __init__(self, data: ReadableBuffer, aborted: Sequence[tuple[int, int]]) -> None:
        self.data = data
        self._aborted = sorted(aborted, key=lambda transaction: transaction[1])
        self._seen: list[_Place] = []

    def __iter__(self) -> Iterator[LogBatch]:
        waiting, aborting = list(self._aborted), set[int]()
        for position, header in islice(iter_headers(self.data), BATCHES_MAX):
            base, last = header.base_offset, header.last_offset
            self._seen.append(_Place(position, position + header.size, base, last))
            is_aborted = False
            if self._aborted:
                while waiting and waiting[0][1] <= last:
                    aborting.add(waiting.pop(0)[0])
                if not header.is_control:
                    is_aborted = header.is_transactional and header.producer_id in aborting
                elif header.producer_id in aborting:
                    batch = memoryview(self.data)[position : position + header.size]
                    if marker_type(batch) == ABORT:
                        aborting.discard(header.producer_id)
            yield LogBatch(base, last, is_aborted)

    def records(self, acquired: Sequence[Acquired]) -> ReadableBuffer:
        """Whole batches, from the first to the last that something was acquired of."""
        first, last = acquired[0].first, acquired[-1].last
        wanted = [place for place in self._seen if place.last >= first and place.base <= last]
        if not wanted:
            return b""
        return memoryview(self.data)[wanted[0].position : wanted[-1].end]


def read(
    share: SharePartition, settings: ShareSettings, max_bytes: int, *, min_one: bool, wait: bool
) -> Reading | None:
    """None where there is nothing to be had at present. Raises as `PartitionLog.read` does."""
    flight, partition = share.flight, share.partition
    if flight is None:
        return None
    flight.log_starts_at(partition.log.start_offset)
    offset = flight.next_offset
    upto = partition.last_stable_offset if settings.read_committed else partition.high_watermark
    if offset >= upto or not flight.may_give(settings):
        return None
    data = partition.log.read(offset, max_bytes, upto, min_one, wait)
    if not data:
        return None
    aborted = partition.log.aborted_in(offset, data) if settings.read_committed else ()
    return Reading(data, aborted)
