"""One partition's log: batches go in with `append`, come out with `read`.

These two are the data path: per batch they unpack one header, check one CRC and leave the records as they
are. The log knows what is in it: where it begins and ends, what is on disk for certain, which leaders and
producers wrote it. Its files are kept by `files.py`. Nothing here waits, except `flush` and `close`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
from uuid import UUID

from ottla.config import LogConfig
from ottla.config.key import LONG_MAX
from ottla.log.committed import aborted_between, end_of
from ottla.log.epochs import LeaderEpochs
from ottla.log.examination import Examination, TakesLong, examine_quickly, inflated_bytes_max, too_far
from ottla.log.files import LogFiles, Replacement
from ottla.log.incoming import replicated, restamped
from ottla.log.names import LEADER_EPOCHS_FILE
from ottla.log.pending_verification import Verification
from ottla.log.producers import ProducerBatch, ProducerStates, last_sequence
from ottla.log.refusals import may_append, refuse, refuse_timestamp
from ottla.log.replay import load_producers
from ottla.log.retention import expired_segments
from ottla.log.segment import Segment
from ottla.log.timestamps import Search, SegmentGone, first_at_or_after, largest
from ottla.log.types import (
    AppendResult,
    LogClosed,
    StartsWithinBatch,
    TimestampOffset,
    TopicPartition,
    appended,
)
from ottla.records import compression
from ottla.records.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_AT,
    NO_TIMESTAMP,
    read_header,
)
from ottla.records.checking import RECORD_BYTES_MIN, Demands, may_hold
from ottla.records.compression import CODEC_MAX, CorruptRecords, InflatesTooFar
from ottla.records.crc import crc32c
from ottla.records.markers import read_marker
from ottla.records.recompression import CODECS, is_slow, recompressed
from ottla.runtime import Runtime
from ottla.runtime.disk import ReadableBuffer
from ottla.runtime.tasks import finished
from ottla.wire.errors import CorruptMessage, OffsetOutOfRange, RecordListTooLarge, StorageError

log = logging.getLogger(__name__)

_PREFIX = struct.Struct(">qii")  # base offset, batch length, leader epoch
_LENGTH_MIN = HEADER_BYTES - LOG_OVERHEAD_BYTES


class PartitionLog:
    __slots__ = (
        "_append_time",
        "_codec",
        "_flush_lock",
        "_runtime",
        "_settled_offset",
        "_walks",
        "config",
        "dir",
        "epochs",
        "files",
        "flushed_ms",
        "has_aborted",
        "is_closed",
        "lost_because",
        "next_offset",
        "now_ms",
        "prepares",
        "producers",
        "recovery_point",
        "segments",
        "start_offset",
        "topic_id",
        "topic_partition",
        "truncations",
    )

    def __init__(
        self,
        runtime: Runtime,
        partition: TopicPartition,
        config: LogConfig,
        files: LogFiles,
        *,
        topic_id: UUID | None,
        start_offset: int,
        next_offset: int,
        recovery_point: int,
        epochs: LeaderEpochs,
        producers: ProducerStates,
        settled: bool,
    ) -> None:
        self._runtime = runtime
        self.now_ms = runtime.clock.now_ms
        self.truncations = 0
        """How often something was cut off the end: files read by another thread since before are no longer
        what they were."""
        # Where the log ended when it was last closed: until it grows, closing it has nothing to do.
        self._settled_offset = next_offset if settled else -1
        self._flush_lock: asyncio.Lock | None = None
        self.flushed_ms = runtime.clock.now_ms()
        self.is_closed = False
        """Deleted, or the broker stops. Whoever comes across the log at an await must expect it: nothing is
        left to flush, clean up or check, and what is at its path may belong to another log."""
        self.lost_because: str | None = None
        """It is closed for a fault of its disk: who still waits for a flush must not take it for done."""
        self.files = files
        self.dir = files.dir
        self.segments = files.segments
        self.topic_partition = partition
        self.topic_id = topic_id
        self.start_offset = start_offset
        self.next_offset = next_offset
        self.recovery_point = recovery_point
        """Everything below is on disk for certain."""
        self.epochs = epochs
        self.producers = producers
        self.has_aborted = any(segment.transactions.count for segment in self.segments)
        """Some segment may have aborted transactions in its index."""
        self.update_config(config)

    def update_config(self, config: LogConfig) -> None:
        self.config = config
        self.files.configure(config)
        self._append_time = config.message_timestamp_type == "LogAppendTime"
        # What a header does not tell: keys, and the oldest of the timestamps.
        self._walks = config.cleanup_compact or config.message_timestamp_before_max_ms < LONG_MAX
        self._codec = CODECS[config.compression_type]
        self.prepares = self._walks or self._codec >= 0
        """Producers' batches are looked into, or put into the codec of the topic, before they are written."""

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    # Writing.

    def append(  # noqa: PLR0912 - a call per branch would cost what this path may not
        self,
        records: ReadableBuffer,
        leader_epoch: int,
        trusted: bool = False,
        transaction: Verification | None = None,
        transaction_version: int = 0,
        walk: bool = False,
        prepared: bool = False,
    ) -> AppendResult:
        """Append whole batches as their leader: all of them, or none and a KafkaError.

        `trusted` is for what the broker itself writes: it may contain transaction markers, carries no
        sequence numbers and needs no look at its keys. `transaction` is for a request that names a
        transactional id, `transaction_version` for a marker. With `walk` every record is looked at, whatever
        the topic asks for.

        Raises TakesLong where that, or another codec, would hold up the event loop: it is to be done
        elsewhere, see `replication.preparation`, and the result appended as `prepared`.
        """
        # The innermost loop of the broker. A header is unpacked into local names and integers are compared;
        # what is wrong with a batch is worked out elsewhere, once something is.
        now_ms = self.now_ms()
        config = self.config
        if (self.prepares or walk) and not trusted and not prepared:
            records = self._prepare_quickly(records, walk)
        offset = base_offset = self.next_offset
        newest = -1
        buffers: list[ReadableBuffer] = []
        batches: list[tuple[int, int, int]] = []
        of_producers: list[ProducerBatch] = []
        at, end = 0, len(records)
        while True:
            if end - at < HEADER_BYTES:
                refuse(self.topic_partition, records, at, config)
            (
                given_offset,
                length,
                _,
                magic,
                crc,
                attributes,
                delta,
                _,
                timestamp,
                producer_id,
                producer_epoch,
                sequence,
                count,
            ) = HEADER.unpack_from(records, at)
            size = length + LOG_OVERHEAD_BYTES
            stop = at + size
            if (
                magic != MAGIC
                or stop > end
                or length < _LENGTH_MIN
                or size > config.max_message_bytes
                or delta < 0
                or count != delta + 1
                or given_offset
                or (
                    not 0 <= attributes <= CODEC_MAX
                    and not may_append(attributes, trusted, transactional=transaction is not None)
                )
                or (
                    count * RECORD_BYTES_MIN > length - _LENGTH_MIN
                    and not may_hold(length - _LENGTH_MIN, attributes & CODEC_MASK, count)
                )
            ):
                named = trusted or transaction is not None
                refuse(self.topic_partition, records, at, config, transactional=named)
            if crc32c(records[at + ATTRIBUTES_AT : stop]) != crc:
                raise CorruptMessage(f"{self.topic_partition}: the CRC of a batch does not match its records")
            if self._append_time:
                timestamp = now_ms
                buffers += restamped(records[at:stop], offset, leader_epoch, now_ms)
            else:
                age_ms = now_ms - timestamp
                if (
                    age_ms > config.message_timestamp_before_max_ms
                    or -age_ms > config.message_timestamp_after_max_ms
                ) and timestamp != NO_TIMESTAMP:
                    if trusted or prepared:
                        refuse_timestamp(self.topic_partition, timestamp, now_ms, config)
                    # Only the records tell which of them it is, and whether the header is right.
                    sound = self._prepare_quickly(records, walk=True)
                    return self.append(sound, leader_epoch, transaction=transaction, prepared=True)
                buffers.append(_PREFIX.pack(offset, length, leader_epoch))
                buffers.append(records[at + MAGIC_AT : stop])
            if producer_id >= 0:
                batch = ProducerBatch(
                    producer_id,
                    producer_epoch,
                    sequence,
                    last_sequence(sequence, delta),
                    offset,
                    offset + delta,
                    timestamp,
                    attributes,
                    read_marker(records[at:stop]) if attributes & CONTROL else None,
                )
                repeated = self.producers.admit(
                    batch, of_producers, trusted, transaction, transaction_version
                )
                if repeated is not None:
                    return self._answer_again(repeated)
                of_producers.append(batch)
            if timestamp > newest:  # noqa: PLR1730 - half the time of max()
                newest = timestamp
            batches.append((offset + delta, size, timestamp))
            offset += count
            if stop == end:
                break
            at = stop

        segment = self.segments.active
        try:
            if (
                segment.size + end > config.segment_bytes
                or newest > segment.roll_timestamp
                or offset > segment.roll_offset
                or segment.index_full
            ):
                if end > config.segment_bytes:
                    raise self._too_large(end)
                segment = self._roll_if_due(end, base_offset, offset, newest)
            segment.append(buffers, batches)
        except OSError as error:
            raise self.files.refused(error, "appending to") from error
        self.next_offset = offset
        if leader_epoch != self.epochs.latest:
            self.epochs.assign(leader_epoch, base_offset)
        for batch in of_producers:
            if batch.marker is not None:
                self._index_if_aborted(batch, segment)
            self.producers.apply(batch)
        return appended(base_offset, offset - 1, now_ms if self._append_time else -1, self.start_offset)

    def examination(self, *, walk: bool) -> Examination | None:
        """What is asked of the records of a producer; None where their headers are enough."""
        if not walk and not self._walks:
            return None
        config = self.config
        oldest_ms, newest_ms = -LONG_MAX, LONG_MAX
        if not self._append_time:
            now_ms = self.now_ms()
            oldest_ms = now_ms - config.message_timestamp_before_max_ms
            newest_ms = now_ms + config.message_timestamp_after_max_ms
        return Examination(
            self.topic_partition,
            Demands(config.cleanup_compact, oldest_ms, newest_ms),
            not self._append_time,
            config.max_message_bytes,
            inflated_bytes_max(config.max_message_bytes),
        )

    def _prepare_quickly(self, records: ReadableBuffer, walk: bool) -> ReadableBuffer:
        """What `append` needs. Raises TakesLong, or what is wrong with the records."""
        examination = self.examination(walk=walk)
        if examination is not None:
            records = examine_quickly(records, examination)
        if self._codec >= 0:
            if is_slow(records, self._codec):
                raise TakesLong
            records = self.recompressed(records)
        return records

    def is_slow_to_recompress(self, records: ReadableBuffer) -> bool:
        """Whether another thread should do this first: the event loop would be held up."""
        return self._codec >= 0 and is_slow(records, self._codec)

    def recompressed(self, records: ReadableBuffer) -> ReadableBuffer:
        """In the codec of the topic. May run in another thread. Raises CorruptMessage or RecordTooLarge."""
        if self._codec < 0:
            return records
        config, level = self.config, None
        match self._codec:
            case compression.GZIP if config.compression_gzip_level > 0:
                level = config.compression_gzip_level
            case compression.LZ4:
                level = config.compression_lz4_level
            case compression.ZSTD:
                level = config.compression_zstd_level
        bytes_max = config.max_message_bytes
        try:
            return recompressed(records, self._codec, level, bytes_max, inflated_bytes_max(bytes_max))
        except InflatesTooFar as error:
            raise too_far(self.topic_partition, error) from error
        except CorruptRecords as error:
            raise CorruptMessage(f"{self.topic_partition}: {error}") from error

    def _answer_again(self, batch: ProducerBatch) -> AppendResult:
        append_time = batch.timestamp if self._append_time else -1
        return AppendResult(batch.first_offset, batch.last_offset, append_time, self.start_offset, True)

    def _too_large(self, size: int) -> RecordListTooLarge:
        return RecordListTooLarge(
            f"{self.topic_partition}: {size} bytes were sent at once, segment.bytes of the topic is "
            f"{self.config.segment_bytes}"
        )

    def _index_if_aborted(self, batch: ProducerBatch, segment: Segment) -> None:
        """Before the marker has any effect: should this fail, the transaction stays open and hides its
        records until the marker is written once more or the log is opened again."""
        aborted = self.producers.aborted_by(batch)
        if aborted is not None:
            try:
                segment.transactions.append(aborted)
            except OSError as error:
                raise self.files.refused(error, "indexing a transaction of") from error
            self.has_aborted = True

    def append_as_follower(self, records: ReadableBuffer) -> AppendResult:
        """Append batches byte for byte as their leader has them, offsets and leader epochs included: those of
        a fetch, or those of the metadata log. A batch cut off at the end is left out.

        Raises UnexpectedOffset where they do not continue the log: they overlap it, or are of an older leader
        than its last. Offsets may be missing in between, as compaction leaves them. Raises CorruptMessage
        where a batch is damaged; then nothing was appended. StartsWithinBatch: an empty log must first begin
        anew where the batch does.
        """
        if self.next_offset == self.start_offset:
            self._check_first(records)
        data, batches, of_producers, epochs, base_offset, next_offset, newest = replicated(
            records, self.topic_partition, self.next_offset, self.epochs.latest
        )
        if batches:
            try:
                segment = self._roll_if_due(len(data), base_offset, next_offset, newest)
                segment.append([data], batches)
            except OSError as error:
                raise self.files.refused(error, "appending to") from error
            before, self.next_offset = self.next_offset, next_offset
            for epoch, offset in epochs:
                self.epochs.assign(epoch, offset)
            try:
                for batch in of_producers:
                    if batch.marker is not None:
                        self._index_if_aborted(batch, segment)
                    self.producers.apply(batch)
            except StorageError:
                # A leader's marker comes only once: without the index, it must not be here either.
                self.truncate_to(before)
                raise
        return appended(base_offset, next_offset - 1, -1, self.start_offset)

    def _check_first(self, records: ReadableBuffer) -> None:
        if len(records) >= HEADER_BYTES:
            header = read_header(records)
            if header.base_offset < self.next_offset <= header.last_offset:
                raise StartsWithinBatch(
                    f"{self.topic_partition}: the log is empty at {self.next_offset}, which is in a batch "
                    f"that begins with {header.base_offset}",
                    header.base_offset,
                )

    def _roll_if_due(self, size: int, base_offset: int, next_offset: int, timestamp: int) -> Segment:
        """The segment to append to: a new one if the active one has no room or has been open long enough."""
        active = self.segments.active
        if active.is_due_to_roll(size, next_offset, timestamp, self.now_ms()):
            return self.roll(base_offset)
        return active

    def roll(self, base_offset: int | None = None) -> Segment:
        """Begin a new segment. The old one is synced by the next flush."""
        if self.is_closed:
            raise LogClosed(self.topic_partition)
        if base_offset is None:
            base_offset = self.next_offset
        if self.segments.active.base_offset == base_offset:
            return self.segments.active
        segment = self.files.roll(base_offset, self.producers.active.values())
        # Its records may be on disk, but its indexes are not: only a flush may pass the end of a segment.
        self.recovery_point = min(self.recovery_point, base_offset - 1)
        return segment

    # Reading.

    def read(
        self, offset: int, max_bytes: int, upto: int, min_one: bool = True, wait: bool = True
    ) -> ReadableBuffer:
        """Whole batches from the one that holds `offset`, of one segment, ending below `upto`.

        Empty at the end. The first batch comes even if it alone exceeds `max_bytes`, with `min_one`. Without
        `wait`, NotInMemory is raised where the disk would have to be waited for.
        """
        next_offset = self.next_offset
        if offset < self.start_offset or offset > next_offset:
            raise OffsetOutOfRange(
                f"{self.topic_partition} has offsets {self.start_offset} to {next_offset}, not {offset}"
            )
        if upto > next_offset:  # noqa: PLR1730 - half the time of min()
            upto = next_offset
        if offset >= upto:
            return b""
        segments = self.segments
        segment = segments.active
        if offset >= segment.base_offset:
            return segment.read(offset, max_bytes, upto, next_offset, min_one, wait)
        for index in range(segments.floor(offset), len(segments)):
            segment = segments[index]
            end_offset = segments.end_of(index, next_offset)
            if segment is not segments.active:
                self.files.open_segments.use(segment)
            first = max(offset, segment.base_offset)
            data = segment.read(first, max_bytes, upto, end_offset, min_one, wait)
            # Compaction can leave nothing between an offset and the end of its segment.
            if data or upto <= end_offset or segment.locate(offset, wait) < segment.size:
                return data
        return b""

    def aborted_transactions(self, fetch_offset: int, upto: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of those with anything between the offsets, for whoever reads there."""
        if not self.has_aborted:
            return []
        return aborted_between(self.segments, fetch_offset, upto)

    def aborted_in(self, fetch_offset: int, data: ReadableBuffer) -> list[tuple[int, int]]:
        """The same for what `read` has just given."""
        if not self.has_aborted or not data:
            return []
        return self.aborted_transactions(fetch_offset, end_of(self.segments, data))

    async def offset_for_timestamp(self, timestamp_ms: int, upto: int) -> TimestampOffset | None:
        """The first record below `upto` with at least this timestamp."""
        while True:
            segments = tuple(self.segments.all)
            try:
                for search in first_at_or_after(segments, timestamp_ms, self.start_offset, upto):
                    found = await self._searched(search)
                    if found is not None:
                        return found if found.offset < upto else None
            except SegmentGone:
                continue
            return None

    async def max_timestamp_offset(self) -> TimestampOffset | None:
        """The first record with the largest timestamp."""
        while (search := largest(self.segments.all)) is not None:
            with contextlib.suppress(SegmentGone):
                return await self._searched(search)
        return None

    async def _searched(self, search: Search) -> TimestampOffset | None:
        runtime = self._runtime
        try:
            # A thread that has begun is not taken back, and counts until it ends.
            return await finished(runtime.offload.run(search.run, runtime.disk))
        except (OSError, CorruptMessage) as error:
            if self.is_closed:
                raise LogClosed(self.topic_partition) from error
            if search.segment not in self.segments.all or search.segment.size < search.size:
                # Retention, compaction or truncation took it away meanwhile: what is there now decides.
                raise SegmentGone from error
            raise

    @property
    def latest_epoch(self) -> int:
        """Of the leader that wrote last; -1 when none has."""
        return self.epochs.latest

    def epoch_at(self, offset: int) -> int:
        """Of the leader that wrote at an offset; -1 when that is not known."""
        return self.epochs.epoch_at(offset)

    def begin_leader_epoch(self, epoch: int) -> None:
        """This broker leads from here on: followers may ask where the epoch before ended, before any record
        of this one is written."""
        if epoch > self.epochs.latest:
            self.epochs.assign(epoch, self.next_offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The last epoch up to the one asked for, and where it ended; (-1, -1) when that is not known."""
        return self.epochs.end_offset_for(epoch, self.next_offset)

    def diverging_epoch(self, last_fetched_epoch: int, fetch_offset: int) -> tuple[int, int] | None:
        """For a follower that has everything below an offset, its last record being of an epoch: the epoch up
        to which it may have what this log has, and where that ended. None: it has the same, and reads on.

        Raises OffsetOutOfRange where that is not known any more.
        """
        epoch, end_offset = self.epochs.end_offset_for(last_fetched_epoch, self.next_offset)
        if epoch < 0 or end_offset < 0 or fetch_offset < self.start_offset:
            raise OffsetOutOfRange(
                f"{self.topic_partition} has offsets {self.start_offset} to {self.next_offset}; whether what "
                f"is below {fetch_offset} and of epoch {last_fetched_epoch} is the same cannot be told"
            )
        if epoch < last_fetched_epoch or end_offset < fetch_offset:
            return epoch, end_offset
        return None

    def start_of_later_epochs(self, epoch: int) -> int | None:
        """Where records begin that claim to be of a later leader than the one there is.

        No CRC covers the epoch of a batch: after a power cut it may be anything. A follower cuts them off and
        has them sent again.
        """
        return next((start for later, start in self.epochs.entries if later > epoch), None)

    def truncation_offset(self, epoch: int, end_offset: int) -> int:
        """Where to cut this log, given up to which epoch its leader has the same, and where that ended there.

        Where this log has no such epoch, what it has of older ones is asked about next.
        """
        _, own_end_offset = self.epochs.end_offset_for(epoch, self.next_offset)
        if own_end_offset < 0:
            # All of it is older, or nothing is known of epochs.
            return min(end_offset, self.next_offset)
        return min(own_end_offset, end_offset, self.next_offset)

    # Durability.

    @property
    def reached_flush_messages(self) -> bool:
        """So many records are not synced that the last of them may not be acknowledged before they are."""
        return self.next_offset - self.recovery_point >= self.config.flush_messages

    @property
    def flush_is_due(self) -> bool:
        """flush.messages or flush.ms has been reached."""
        unflushed = self.next_offset - self.recovery_point
        return unflushed > 0 and (
            unflushed >= self.config.flush_messages or self.now_ms() - self.flushed_ms >= self.config.flush_ms
        )

    @property
    def checkpoint_offset(self) -> int:
        """The recovery point to write down. If it is where the log ends now, it would also be the end of the
        active segment were that to roll, with indexes that are not synced: then the last record is left to
        recovery, and with it the segment."""
        is_closed = self._settled_offset == self.next_offset
        if is_closed or self.recovery_point <= self.segments.active.base_offset:
            return self.recovery_point
        return self.recovery_point - 1

    @property
    def has_unsynced_segments(self) -> bool:
        """Segments that are full wait to be synced, so that a crash need not check them."""
        return self.recovery_point < self.segments.active.base_offset

    async def flush(self, upto: int | None = None) -> None:
        """Return once all that is written now, or is below `upto`, is on disk. Many callers share one sync.

        A log that is closed, before or meanwhile, has nothing that must be there.

        Raises StorageError where the disk refuses: then the kernel may have dropped what it could not write,
        and nothing of the log is to be trusted before it is opened anew. Outside a data directory OSError.
        """
        target = self.next_offset if upto is None else upto
        if self._flush_lock is None:
            self._flush_lock = asyncio.Lock()
        async with self._flush_lock:
            if self.lost_because is not None:
                raise StorageError(f"{self.topic_partition}: {self.lost_because}")
            if not self.is_closed and self.recovery_point < min(target, self.next_offset):
                try:
                    await self._sync(self.next_offset if upto is None else min(upto, self.next_offset))
                except OSError as error:
                    if self.files.on_error is None:
                        raise
                    raise self.files.refused(error, "syncing") from error

    async def wait_flushed(self) -> None:
        """Return when no flush is under way."""
        if self._flush_lock is not None:
            async with self._flush_lock:
                pass

    async def _sync(self, end_offset: int) -> None:
        truncations, active = self.truncations, self.segments.active
        replacements = self._stale_epochs()
        try:
            await self.files.sync(self.recovery_point, end_offset, replacements)
        except BaseException:
            self.epochs.dirty = self.epochs.dirty or bool(replacements)
            raise
        if truncations == self.truncations:
            sealed_end = self.segments.base_after(active)
            if sealed_end is not None and end_offset >= sealed_end:
                end_offset = sealed_end - 1
            self.recovery_point = max(self.recovery_point, end_offset)
        self.flushed_ms = self.now_ms()

    def _stale_epochs(self) -> list[Replacement]:
        if not self.epochs.dirty:
            return []
        self.epochs.dirty = False
        return [(f"{self.dir}/{LEADER_EPOCHS_FILE}", self.epochs.encode())]

    def close(self) -> None:
        """Write and sync everything, so that opening needs no recovery. Blocks; may run in another thread."""
        files, end = self.files, self.next_offset
        if self._settled_offset != end or files.has_unsynced_names or self.epochs.dirty:
            files.sync_now(self.recovery_point, end, self.producers.active.values(), self._stale_epochs())
            self.recovery_point = self._settled_offset = end
        self.release()

    def release(self) -> None:
        """Close for good, without writing anything."""
        self.is_closed = True
        self.files.release()

    def moved_to(self, directory: str) -> None:
        """Its files have been renamed, and are open or will be opened there."""
        self.dir = directory
        self.files.moved_to(directory)

    # Cutting off.

    def enforce_retention(self, now_ms: int, upto: int | None = None) -> int:
        """Delete segments that retention or the start offset leaves behind; their number.

        Records at or above `upto`, the high watermark, stay.
        """
        count = expired_segments(
            self.segments.all,
            self.config,
            now_ms=now_ms,
            start_offset=self.start_offset,
            end_offset=self.next_offset,
            upto=self.next_offset if upto is None else upto,
        )
        if count and count == len(self.segments):
            try:
                self.roll()
            except OSError as error:
                # No room for an empty segment; without the others there may be, next time.
                self.files.refused(error, "rolling a segment of")
                count -= 1
        if count:
            self.files.drop_first(count)
            self._set_start_offset(self.segments[0].base_offset)
            log.info(
                "%s: deleted %d segments, the log now starts at offset %d",
                self.topic_partition,
                count,
                self.start_offset,
            )
        return count

    def delete_records_before(self, offset: int) -> None:
        """Move the start of the log. Segments left wholly below it go with the next retention check."""
        if offset > self.next_offset:
            raise OffsetOutOfRange(
                f"{self.topic_partition} ends at offset {self.next_offset}, before {offset}"
            )
        self._set_start_offset(offset)

    def _set_start_offset(self, offset: int) -> None:
        if offset > self.start_offset:
            self.start_offset = offset
            self.epochs.truncate_from_start(offset)

    def lower_recovery_point(self, offset: int) -> bool:
        """Records from here on will be replaced, also those that a flush under way is writing.

        To one less than that, so that recovery looks at the segment that will end here: it may find it
        longer. False if it was that low before.
        """
        self.truncations += 1
        self._settled_offset = -1
        lowered = max(offset - 1, 0)
        if self.recovery_point <= lowered:
            return False
        self.recovery_point = lowered
        return True

    def batch_start(self, offset: int) -> int:
        """Where the batch begins that holds an offset; the offset itself where none does."""
        segment = self.segments[self.segments.floor(offset)]
        position = segment.locate(offset)
        if position >= segment.size:
            return offset
        return min(offset, read_header(segment.file.read(position, HEADER_BYTES)).base_offset)

    def truncate_to(self, offset: int) -> None:
        """Drop records at and after an offset, with the batch that holds it: a follower's, that its leader
        does not have.

        What was read before, and waits to be sent, stays as it was. For logs in a LogManager use its
        `truncate`, which keeps the recovery point on disk in step.
        """
        if offset >= self.next_offset:
            # An epoch may have begun here without writing anything.
            self.epochs.truncate_from_end(self.next_offset)
            return
        offset = self.batch_start(offset)
        self.lower_recovery_point(offset)
        self.files.truncate(offset)
        self.next_offset = offset
        self.start_offset = min(self.start_offset, offset)
        self.epochs.truncate_from_end(offset)
        self.producers = load_producers(self.topic_partition, self.files.snapshots, self.segments.all, offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Begin anew: a follower's, whose leader no longer has what comes next here.

        For logs in a LogManager use its method of the same name.
        """
        self.lower_recovery_point(self.segments[0].base_offset)
        self.files.start_anew(offset)
        self.recovery_point = min(self.recovery_point, offset)
        self.start_offset = self.next_offset = offset
        self.has_aborted = False
        self.epochs.clear()
        self.producers = ProducerStates(self.topic_partition)
