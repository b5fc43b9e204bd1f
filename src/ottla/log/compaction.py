"""One round of compaction over one log: which record of each key is the last, and the log without the others.

Everything here is for another thread. The parts are generators that yield how many bytes they have handled,
so that whoever runs them can stop and go. They open the files of the log themselves: the event loop opens and
closes its own as it likes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ottla.log.aborted import AbortedScan, AbortedTransaction, TransactionWalk, marker_type
from ottla.log.dirt import Dirt
from ottla.log.offset_map import OffsetMap
from ottla.log.segment import Segment
from ottla.log.walk import BadBatch, headers
from ottla.records.batch import (
    DELETE_HORIZON,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    BatchHeader,
    crc_matches,
    read_header,
)
from ottla.records.filtering import body_of, emptied, spans, with_records
from ottla.runtime.disk import Disk, File, ReadableBuffer
from ottla.wire.errors import CorruptMessage

_PENDING_BUFFERS_MAX = 512


@dataclass(slots=True)
class Survey:
    """What has to be known before anything is decided."""

    records: int = 0
    """In the part not compacted yet: there cannot be more keys."""
    aborted: Sequence[AbortedTransaction] = ()


def survey(disk: Disk, dirt: Dirt, segments: Sequence[tuple[Segment, int]]) -> Generator[int, None, Survey]:
    """Look at the headers of what is not compacted. `segments` come with their sizes and go to the end of the
    log: what ends a transaction may stand behind the part that is compacted now."""
    found = Survey()
    scan = AbortedScan()
    for segment, size in segments:
        with contextlib.closing(disk.open(segment.path)) as file:
            try:
                for at, header in headers(file, 0, size):
                    if header.last_offset < dirt.first_offset:
                        continue
                    if header.base_offset < dirt.end_offset and not header.is_control:
                        found.records += header.record_count
                    if header.is_control:
                        scan.marker(header, marker_type(file.read(at, header.size)))
                    elif header.is_transactional:
                        scan.data(header)
                    yield HEADER_BYTES
            except BadBatch as error:
                raise segment.corrupt(segment.base_offset, error) from error
    found.aborted = scan.found
    return found


def fill_map(
    disk: Disk, dirt: Dirt, known: Survey, offsets: OffsetMap, chunk_bytes: int
) -> Generator[int, None, None]:
    """The last offset of each key in the part not compacted, as far as the map has room."""
    walk = TransactionWalk(known.aborted)
    for segment in dirt.dirty_segments:
        with contextlib.closing(disk.open(segment.path)) as file:
            for header, batch in _batches(segment, file, chunk_bytes, dirt.end_offset):
                yield header.size
                if header.is_control:
                    walk.end(header, marker_type(batch))
                    continue
                if walk.is_aborted(header) or header.last_offset < dirt.first_offset:
                    continue
                for _, _, _, delta, key, _ in spans(body_of(batch, header), header.record_count):
                    offset = header.base_offset + delta
                    if key is None or offset < dirt.first_offset:
                        continue
                    if offsets.is_full:
                        return
                    offsets.put(key, offset)
                    offsets.latest_offset = offset
    offsets.latest_offset = dirt.end_offset - 1


def _batches(
    segment: Segment, file: File, chunk_bytes: int, end_offset: int
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Raises CorruptMessage rather than pass on a batch that has rotted: rewritten, it would look sound."""
    position, limit = 0, segment.size
    next_offset = segment.base_offset
    while position < limit:
        chunk = memoryview(file.read(position, min(chunk_bytes, limit - position)))
        at = 0
        while at + HEADER_BYTES <= len(chunk):
            header = read_header(chunk, at)
            size = header.length + LOG_OVERHEAD_BYTES
            if (
                header.magic != MAGIC
                or size < HEADER_BYTES
                or position + at + size > limit
                # The CRC does not cover the base offset.
                or not next_offset <= header.base_offset <= header.last_offset < end_offset
            ):
                reason = f"magic {header.magic}, {size} bytes, base offset {header.base_offset}"
                raise segment.corrupt(next_offset, BadBatch(position + at, reason))
            if at + size > len(chunk):
                if at:
                    break
                chunk = memoryview(file.read(position, size))
            batch = chunk[at : at + size]
            if not crc_matches(batch, header.crc):
                topic, partition = segment.partition
                raise CorruptMessage(
                    f"topic {topic} partition {partition}: the batch at offset {header.base_offset}, byte "
                    f"{position + at} of {segment.path}, does not match its CRC"
                )
            yield header, batch
            next_offset = header.last_offset + 1
            at += size
        if not at:
            raise segment.corrupt(next_offset, BadBatch(position, "too few bytes for a header"))
        position += at


@dataclass(slots=True)
class Rewriting:
    """Writes groups of segments anew, one after the other from the first on."""

    disk: Disk
    dirt: Dirt
    offsets: OffsetMap
    walk: TransactionWalk
    now_ms: int
    chunk_bytes: int
    bytes_read: int = 0
    bytes_written: int = 0
    _buffers: list[ReadableBuffer] = field(default_factory=list)
    _written: list[tuple[int, int, int]] = field(default_factory=list)
    _pending_bytes: int = 0

    def rewrite(
        self, group: Sequence[Segment], cleaned: Segment, producers: Mapping[int, tuple[int, int]]
    ) -> Generator[int, None, None]:
        """Fill `cleaned` with what stays of a group, and sync it.

        `producers` has the last offset, or -1, and epoch of each that is active: what they wrote last stays,
        if only as a header, because it holds their sequence number.
        """
        discard(self.disk, cleaned)
        cleaned.create()
        for segment in group:
            with contextlib.closing(self.disk.open(segment.path)) as file:
                for header, batch in _batches(segment, file, self.chunk_bytes, self.dirt.end_offset):
                    kept = self._kept(header, batch, _is_last_of_producer(header, producers))
                    self.bytes_read += header.size
                    if kept is not None:
                        new = read_header(kept)
                        self._buffers.append(kept)
                        self._written.append((new.last_offset, new.size, new.max_timestamp))
                        self._pending_bytes += new.size
                        if (
                            self._pending_bytes >= self.chunk_bytes
                            or len(self._buffers) >= _PENDING_BUFFERS_MAX
                        ):
                            self._write(cleaned)
                        yield header.size + new.size
                    else:
                        yield header.size
        self._write(cleaned)
        cleaned.seal()
        cleaned.file.sync()
        for path in (cleaned.offsets.file.path, cleaned.times.file.path):
            with contextlib.closing(self.disk.open(path)) as index:
                index.sync()
        yield 0

    def _write(self, cleaned: Segment) -> None:
        if self._buffers:
            cleaned.append(self._buffers, self._written)
            self.bytes_written += self._pending_bytes
            self._buffers, self._written, self._pending_bytes = [], [], 0

    def _kept(self, header: BatchHeader, batch: memoryview, is_last: bool) -> ReadableBuffer | None:
        """What stays of a batch: all of it as it is, some of its records, its header alone, or nothing."""
        # Where a round ends must be known after it, whatever it leaves.
        keep_empty = is_last or header.last_offset == self.offsets.latest_offset
        horizon = header.base_timestamp if header.attributes & DELETE_HORIZON else None
        expired = horizon is not None and horizon <= self.now_ms
        if header.is_control:
            spent = self.walk.end(header, marker_type(batch))
            if not spent or (header.record_count and not expired):
                if spent and horizon is None:
                    return self._with_horizon(header, batch)
                return batch
            return emptied(header) if keep_empty else None
        if self.walk.is_aborted(header):
            return emptied(header) if keep_empty else None
        return self._last_of_keys(header, batch, keep_empty=keep_empty, expired=expired)

    def _last_of_keys(
        self, header: BatchHeader, batch: memoryview, *, keep_empty: bool, expired: bool
    ) -> ReadableBuffer | None:
        if header.base_offset > self.offsets.latest_offset:
            return batch
        body = body_of(batch, header)
        latest, get, base = self.offsets.latest_offset, self.offsets.get, header.base_offset
        kept = []
        tombstones = False
        for span in spans(body, header.record_count):
            _, _, _, delta, key, has_value = span
            offset = base + delta
            if offset <= latest and (key is None or offset < get(key) or (expired and not has_value)):
                continue
            kept.append(span)
            tombstones = tombstones or not has_value
        if not kept:
            return emptied(header) if keep_empty else None
        new_horizon = None
        if tombstones and not header.attributes & DELETE_HORIZON:
            new_horizon = self.now_ms + self.dirt.log.config.delete_retention_ms
        if len(kept) == header.record_count and new_horizon is None:
            return batch
        return with_records(header, body, kept, new_horizon)

    def _with_horizon(self, header: BatchHeader, batch: memoryview) -> bytes:
        body = body_of(batch, header)
        kept = list(spans(body, header.record_count))
        return with_records(header, body, kept, self.now_ms + self.dirt.log.config.delete_retention_ms)


def discard(disk: Disk, cleaned: Segment) -> None:
    """Remove what was written of a segment that will not be used, or of an earlier one in its place."""
    cleaned.release()
    for path in (cleaned.path, cleaned.offsets.file.path, cleaned.times.file.path):
        if disk.exists(path):
            disk.remove(path)


def _is_last_of_producer(header: BatchHeader, producers: Mapping[int, tuple[int, int]]) -> bool:
    if header.producer_id < 0 or header.producer_id not in producers:
        return False
    last_offset, epoch = producers[header.producer_id]
    if last_offset >= 0:
        return header.last_offset == last_offset
    # Of a producer known by its marker alone, the epoch is what keeps older instances out.
    return header.is_control and header.producer_epoch == epoch
