"""From a point in time to an offset: time index, then batch headers, then the records of one batch.

The indexes are looked at by whoever asks. The rest is a `Search` for another thread: it may wait for the
disk, and inflate and walk records, which is bounded. Beyond the bound a batch is as exact as the answer gets.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ottla.log.segment import Segment
from ottla.log.types import TimestampOffset
from ottla.log.walk import BadBatch, headers
from ottla.records.batch import BatchHeader
from ottla.records.compression import CorruptRecords, InflatesTooFar
from ottla.records.records import iter_records
from ottla.runtime.disk import Disk, File
from ottla.wire.errors import CorruptMessage

# Far more than the batches of any producer we know of inflate to, and walked in a second or two.
WALKED_BYTES_MAX = 16 * 1024 * 1024
# One is enough unless headers lie.
_WALKED_BATCHES_MAX = 8


class SegmentGone(Exception):
    """It was deleted or replaced while a search was under way."""


@dataclass(frozen=True, slots=True)
class Search:
    """In one segment, from a position on."""

    segment: Segment
    path: str
    position: int
    size: int
    offset: int
    timestamp_ms: int
    is_exact: bool
    """The timestamp is wanted, and none after it."""

    def run(self, disk: Disk) -> TimestampOffset | None:
        """Safe to call from another thread. Raises CorruptMessage, and what the disk raises."""
        # A descriptor of its own: the log may close its file at any time.
        with contextlib.closing(disk.open(self.path)) as file:
            try:
                return self._find(file)
            except BadBatch as error:
                raise self.segment.corrupt(self.offset, error, tell=False) from error
            except CorruptRecords as error:
                topic, partition = self.segment.partition
                raise CorruptMessage(
                    f"topic {topic} partition {partition}: the records at or after offset {self.offset} in "
                    f"{self.path} cannot be read: {error}"
                ) from error

    def _find(self, file: File) -> TimestampOffset | None:
        walked = 0
        for at, header in headers(file, self.position, self.size):
            if not self._fits(header.max_timestamp, header.last_offset):
                continue
            walked += 1
            if header.size > WALKED_BYTES_MAX or walked > _WALKED_BATCHES_MAX:
                return self._somewhere_in(header)
            try:
                for record in iter_records(file.read(at, header.size), WALKED_BYTES_MAX):
                    if self._fits(record.timestamp_ms, record.offset):
                        return TimestampOffset(record.timestamp_ms, record.offset, header.leader_epoch)
            except InflatesTooFar:
                return self._somewhere_in(header)
        return None

    def _fits(self, timestamp_ms: int, offset: int) -> bool:
        if self.is_exact:
            return timestamp_ms == self.timestamp_ms
        return timestamp_ms >= self.timestamp_ms and offset >= self.offset

    def _somewhere_in(self, header: BatchHeader) -> TimestampOffset:
        # Reading from the start of the batch misses nothing.
        first = header.last_offset if self.is_exact else max(header.base_offset, self.offset)
        return TimestampOffset(header.max_timestamp, first, header.leader_epoch)


def first_at_or_after(
    segments: Sequence[Segment], timestamp_ms: int, start_offset: int, upto: int
) -> Iterator[Search]:
    """For the first record from `start_offset` on with at least this timestamp: the first that finds one has
    it. Segments that begin at or after `upto` are left out."""
    for segment in segments:
        if segment.base_offset >= upto:
            return
        if segment.largest_timestamp >= timestamp_ms:
            offset = max(segment.base_offset + segment.times.floor_timestamp(timestamp_ms), start_offset)
            yield _search(segment, offset, start_offset, timestamp_ms, is_exact=False)


def largest(segments: Sequence[Segment]) -> Search | None:
    """For the first record with the largest timestamp of all."""
    segment = max(segments, key=lambda candidate: candidate.largest_timestamp)
    timestamp_ms = segment.largest_timestamp
    if timestamp_ms < 0:
        return None
    offset = segment.largest_timestamp_offset
    return _search(segment, offset, offset, timestamp_ms, is_exact=True)


def _search(segment: Segment, offset: int, start_offset: int, timestamp_ms: int, *, is_exact: bool) -> Search:
    """From the index entry before `offset` on."""
    position = segment.offsets.floor_offset(offset - segment.base_offset)
    return Search(segment, segment.path, position, segment.size, start_offset, timestamp_ms, is_exact)
