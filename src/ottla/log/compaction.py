"""One round of compaction over one log: which record of each key is the last, and the log without the others.

    survey headers · find the last record of each key · rewrite one group of segments after the other

It is a job for another process: it knows paths, sizes and settings, opens files of its own and hands back the
names of what it has written. What it reads no longer changes; what it writes has names that nobody else uses,
so that neither it nor a broker that was started anew can get in the other's way.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.config import LogConfig
from ottla.log.aborted import AbortedScan, AbortedTransaction, TransactionWalk, marker_type
from ottla.log.latest_records import LATEST, SUPERSEDED, TOMBSTONE, LatestRecords
from ottla.log.names import LOG_SUFFIX, TRANSACTION_INDEX_SUFFIX
from ottla.log.segment import Segment
from ottla.log.txn_index import TransactionIndex
from ottla.log.types import TopicPartition
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
from ottla.records.compression import CorruptRecords
from ottla.records.filtering import body_of, emptied, keys_of, offset_deltas, select, with_records
from ottla.runtime.disk import Disk, File, ReadableBuffer
from ottla.runtime.workers import Steps
from ottla.wire.errors import CorruptMessage

_PENDING_BUFFERS_MAX = 512


class Source(NamedTuple):
    """A segment at rest."""

    path: str
    base_offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Plan:
    partition: TopicPartition
    directory: str
    config: LogConfig
    first_offset: int
    """Below, the log is compacted already."""
    end_offset: int
    """Compaction ends here, where a segment ends."""
    groups: tuple[tuple[Source, ...], ...]
    """All segments below the end; those of a group become one."""
    rest: tuple[Source, ...]
    """Those behind: what ends a transaction may stand there."""
    suffix: str
    """Of the names of files that are written."""
    producers: Mapping[int, tuple[int, int]]
    """The last offset, or -1, and epoch of each that is active: what they wrote last stays, if only as a
    header, because it holds their sequence number."""
    now_ms: int
    map_bytes_max: int
    load_factor: float
    chunk_bytes: int


class CleanedGroup(NamedTuple):
    """A group is written anew, and on disk."""

    group: int
    """Its index."""
    base_offset: int
    size: int


class Compacted(NamedTuple):
    """The round is over."""

    end_offset: int
    """Up to here the log is compacted."""
    keys: int
    bytes_read: int
    bytes_written: int


def compact(disk: Disk, plan: Plan) -> Steps:
    """Yields bytes handled, a CleanedGroup after each group, and at last what was Compacted."""
    yield from _Round(disk, plan).run()


@dataclass(slots=True)
class _Round:
    disk: Disk
    plan: Plan
    bytes_read: int = 0
    bytes_written: int = 0
    latest_offset: int = -1
    """Up to where it is known what is the last of its key."""
    _records: int = 0
    _aborted: Sequence[AbortedTransaction] = ()
    _numbered: int = 0
    _buffers: list[ReadableBuffer] = field(default_factory=list)
    _written: list[tuple[int, int, int]] = field(default_factory=list)
    _pending_bytes: int = 0
    _latest: LatestRecords = field(init=False)
    _walk: TransactionWalk = field(init=False)

    def run(self) -> Steps:
        plan = self.plan
        sources = [source for group in plan.groups for source in group]
        ends = [*(source.base_offset for source in sources[1:]), plan.end_offset]
        dirty = [source for source, end in zip(sources, ends, strict=True) if end > plan.first_offset]
        yield from self._survey([*dirty, *plan.rest])
        self._latest = LatestRecords(plan.map_bytes_max, plan.load_factor, self._records)
        yield from self._find_latest(dirty)
        self._walk = TransactionWalk(self._aborted)
        for index, group in enumerate(plan.groups):
            if group[0].base_offset > self.latest_offset:
                break
            yield from self._rewrite(index, group)
        yield Compacted(self.latest_offset + 1, self._latest.count, self.bytes_read, self.bytes_written)

    # Finding out.

    def _survey(self, sources: Sequence[Source]) -> Steps:
        """Look at the headers of what is not compacted: how many records, and which transactions aborted."""
        first, end = self.plan.first_offset, self.plan.end_offset
        scan = AbortedScan()
        for source in sources:
            with contextlib.closing(self.disk.open(source.path)) as file:
                try:
                    for at, header in headers(file, 0, source.size):
                        if header.last_offset < first:
                            continue
                        if header.base_offset < end and not header.is_control:
                            self._records += header.record_count
                        if header.is_control:
                            scan.marker(header, marker_type(file.read(at, header.size)))
                        elif header.is_transactional:
                            scan.data(header)
                        yield HEADER_BYTES
                except BadBatch as error:
                    raise self._damaged(source, source.base_offset, error) from error
        self._aborted = scan.found

    def _find_latest(self, sources: Sequence[Source]) -> Steps:
        """Of each key in the part not compacted, as far as there is room."""
        plan, latest = self.plan, self._latest
        walk = TransactionWalk(self._aborted)
        for source in sources:
            with contextlib.closing(self.disk.open(source.path)) as file:
                for header, batch in self._batches(source, file):
                    yield header.size
                    if header.is_control:
                        walk.end(header, marker_type(batch))
                        continue
                    if walk.is_aborted(header) or header.last_offset < plan.first_offset:
                        continue
                    try:
                        body = body_of(batch, header)
                        keys, tombstones = keys_of(body, header.record_count)
                    except CorruptRecords as error:
                        raise _poisoned(header, error) from error
                    skipped = self._records_below_first(header, body)
                    if skipped:
                        keys = keys[skipped:]
                        tombstones = [index - skipped for index in tombstones if index >= skipped]
                    taken = latest.add(keys, tombstones)
                    if taken < len(keys):
                        if taken:
                            deltas = offset_deltas(body, header.record_count)
                            self.latest_offset = header.base_offset + deltas[skipped + taken - 1]
                        return
                    self.latest_offset = header.last_offset
        self.latest_offset = plan.end_offset - 1

    def _records_below_first(self, header: BatchHeader, body: bytes) -> int:
        """How many records of a batch belong to the part that is compacted."""
        first = self.plan.first_offset
        if header.base_offset >= first:
            return 0
        deltas = offset_deltas(body, header.record_count)
        return sum(header.base_offset + delta < first for delta in deltas)

    def _batches(self, source: Source, file: File) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Raises CorruptMessage rather than pass on what has rotted: rewritten, it would look sound."""
        position, limit, chunk_bytes = 0, source.size, self.plan.chunk_bytes
        next_offset, end_offset = source.base_offset, self.plan.end_offset
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
                    raise self._damaged(source, next_offset, BadBatch(position + at, reason))
                if at + size > len(chunk):
                    if at:
                        break
                    chunk = memoryview(file.read(position, size))
                batch = chunk[at : at + size]
                if not crc_matches(batch, header.crc):
                    reason = f"the batch at offset {header.base_offset} does not match its CRC"
                    raise self._damaged(source, header.base_offset, BadBatch(position + at, reason))
                yield header, batch
                next_offset = header.last_offset + 1
                at += size
            if not at:
                raise self._damaged(source, next_offset, BadBatch(position, "too few bytes for a header"))
            position += at

    def _damaged(self, source: Source, offset: int, error: BadBatch) -> CorruptMessage:
        topic, partition = self.plan.partition
        return CorruptMessage(
            f"topic {topic} partition {partition}: the log is damaged at offset {offset}, byte "
            f"{error.position} of {source.path} ({error.reason}); restore this file from a replica"
        )

    # Rewriting.

    def _rewrite(self, index: int, group: Sequence[Source]) -> Steps:
        """Write what stays of a group, and sync it."""
        plan = self.plan
        cleaned = Segment(
            self.disk,
            plan.directory,
            plan.partition,
            group[0].base_offset,
            config=plan.config,
            created_ms=plan.now_ms,
            roll_jitter_ms=0,
            suffix=plan.suffix,
        )
        cleaned.create()
        try:
            for source in group:
                yield from self._copy(source, cleaned)
            self._flush(cleaned)
            cleaned.seal()
            cleaned.file.sync()
            for path in cleaned.index_paths:
                with contextlib.closing(self.disk.open(path)) as written:
                    written.sync()
        finally:
            cleaned.release()
        yield CleanedGroup(index, cleaned.base_offset, cleaned.size)

    def _copy(self, source: Source, cleaned: Segment) -> Steps:
        index = TransactionIndex(self.disk, source.path.removesuffix(LOG_SUFFIX) + TRANSACTION_INDEX_SUFFIX)
        index.has_file = self.disk.exists(index.path)
        index.attach(source.base_offset)
        if index.has_file and not cleaned.transactions.has_file:
            # Even if nothing will be in it: whatever interrupts the swap, the old one is replaced.
            self.disk.open(cleaned.transactions.path, create=True).close()
            cleaned.transactions.has_file = True
        aborted = {transaction.last_offset: transaction for transaction in index.entries}
        with contextlib.closing(self.disk.open(source.path)) as file:
            for header, batch in self._batches(source, file):
                kept = self._kept(header, batch, _is_last_of_producer(header, self.plan.producers))
                self.bytes_read += header.size
                if kept is None:
                    yield header.size
                    continue
                self._write(cleaned, kept)
                # Without a marker that ends it, an aborted transaction would hide all that follows.
                if header.is_control and header.last_offset in aborted and len(kept) > HEADER_BYTES:
                    cleaned.transactions.append(aborted[header.last_offset])
                yield header.size + len(kept)

    def _write(self, cleaned: Segment, kept: ReadableBuffer) -> None:
        header = read_header(kept)
        self._buffers.append(kept)
        self._written.append((header.last_offset, header.size, header.max_timestamp))
        self._pending_bytes += header.size
        if self._pending_bytes >= self.plan.chunk_bytes or len(self._buffers) >= _PENDING_BUFFERS_MAX:
            self._flush(cleaned)

    def _flush(self, cleaned: Segment) -> None:
        if self._buffers:
            cleaned.append(self._buffers, self._written)
            self.bytes_written += self._pending_bytes
            self._buffers, self._written, self._pending_bytes = [], [], 0

    def _kept(self, header: BatchHeader, batch: memoryview, is_last: bool) -> ReadableBuffer | None:
        """What stays of a batch: all of it as it is, some of its records, its header alone, or nothing."""
        # Where a round ends must be known after it, whatever it leaves.
        keep_empty = is_last or header.last_offset == self.latest_offset
        horizon = header.base_timestamp if header.attributes & DELETE_HORIZON else None
        expired = horizon is not None and horizon <= self.plan.now_ms
        if header.is_control:
            spent = self._walk.end(header, marker_type(batch))
            if not spent or (header.record_count and not expired):
                if spent and horizon is None:
                    return self._with_horizon(header, batch)
                return batch
            return emptied(header) if keep_empty else None
        if self._walk.is_aborted(header):
            return emptied(header) if keep_empty else None
        if header.base_offset > self.latest_offset:
            return batch
        try:
            body, kinds = self._kinds(header, batch)
        except CorruptRecords as error:
            if header.last_offset < self.plan.first_offset:
                # Deleted, or passed by earlier: nothing that is kept depends on it.
                return batch
            raise _poisoned(header, error) from error
        if expired:
            kinds = kinds.replace(bytes([TOMBSTONE]), bytes([SUPERSEDED]))
        gone = kinds.count(SUPERSEDED)
        if gone == len(kinds):
            return emptied(header) if keep_empty else None
        new_horizon = None
        if TOMBSTONE in kinds and not header.attributes & DELETE_HORIZON:
            new_horizon = self.plan.now_ms + self.plan.config.delete_retention_ms
        if not gone and new_horizon is None:
            return batch
        if body is None:
            body = body_of(batch, header)
        return with_records(header, body, select(body, kinds), new_horizon)

    def _kinds(self, header: BatchHeader, batch: memoryview) -> tuple[bytes | None, bytes | bytearray]:
        """What each record of a batch is, and the records themselves where they had to be looked at."""
        first, count = self.plan.first_offset, header.record_count
        if header.base_offset >= first and header.last_offset <= self.latest_offset:
            self._numbered += count
            return None, self._latest.kinds[self._numbered - count : self._numbered]
        body = body_of(batch, header)
        keys, tombstones = keys_of(body, count)
        # In the part that is compacted each key has one record, which any later one supersedes.
        kinds = bytearray(SUPERSEDED if key is None or key in self._latest else LATEST for key in keys)
        for index in tombstones:
            if kinds[index]:
                kinds[index] = TOMBSTONE
        if header.last_offset >= first:
            # A round can begin or end in the middle of a batch.
            for index, delta in enumerate(offset_deltas(body, count)):
                offset = header.base_offset + delta
                if offset > self.latest_offset:
                    # Even a tombstone whose time has come: what it deletes is not known to be gone.
                    kinds[index] = LATEST
                elif offset >= first:
                    kinds[index] = self._latest.kinds[self._numbered]
                    self._numbered += 1
        return body, kinds

    def _with_horizon(self, header: BatchHeader, batch: memoryview) -> bytes:
        body = body_of(batch, header)
        kept = select(body, bytes([LATEST]) * header.record_count)
        return with_records(header, body, kept, self.plan.now_ms + self.plan.config.delete_retention_ms)


def _poisoned(header: BatchHeader, error: CorruptRecords) -> CorruptRecords:
    return CorruptRecords(
        f"a producer sent a batch, offsets {header.base_offset} to {header.last_offset}, without the records "
        f"that it claims ({error}), and consumers stop there too; delete what is below offset "
        f"{header.last_offset + 1} with kafka-delete-records, then start the broker again; "
        "ottla.records.validate=records keeps such batches out"
    )


def _is_last_of_producer(header: BatchHeader, producers: Mapping[int, tuple[int, int]]) -> bool:
    if header.producer_id < 0 or header.producer_id not in producers:
        return False
    last_offset, epoch = producers[header.producer_id]
    if last_offset >= 0:
        return header.last_offset == last_offset
    # Of a producer known by its marker alone, the epoch is what keeps older instances out.
    return header.is_control and header.producer_epoch == epoch
