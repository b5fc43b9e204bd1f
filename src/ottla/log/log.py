"""One partition's log: batches go in with `append`, come out with `read`.

These two are the data path: per batch they unpack one header, check one CRC and leave the records as they
are. Nothing here waits.
"""

from __future__ import annotations

import contextlib
import struct

from crc32c import crc32c

from ottla.config import LogConfig
from ottla.config.key import LONG_MAX
from ottla.log.committed import aborted_between, end_of
from ottla.log.examination import Examination, TakesLong, examine_quickly, inflated_bytes_max, too_far
from ottla.log.files import LogFiles
from ottla.log.incoming import replicated, restamped
from ottla.log.producers import ProducerBatch, last_sequence
from ottla.log.refusals import may_append, refuse, refuse_timestamp
from ottla.log.segment import Segment
from ottla.log.timestamps import Search, SegmentGone, first_at_or_after, largest
from ottla.log.types import AppendResult, LogClosed, TimestampOffset
from ottla.log.verification import Verification
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
)
from ottla.records.checking import RECORD_BYTES_MIN, Demands, may_hold
from ottla.records.compression import CODEC_MAX, CorruptRecords, InflatesTooFar
from ottla.records.markers import read_marker
from ottla.records.recompression import CODECS, is_slow, recompressed
from ottla.runtime.disk import ReadableBuffer
from ottla.runtime.tasks import finished
from ottla.wire.errors import CorruptMessage, OffsetOutOfRange, RecordListTooLarge

_PREFIX = struct.Struct(">qii")  # base offset, batch length, leader epoch
_LENGTH_MIN = HEADER_BYTES - LOG_OVERHEAD_BYTES


class PartitionLog(LogFiles):
    __slots__ = ("_append_time", "_codec", "_walks", "prepares")

    def update_config(self, config: LogConfig) -> None:
        super().update_config(config)
        self._append_time = config.message_timestamp_type == "LogAppendTime"
        # What a header does not tell: keys, and the oldest of the timestamps.
        self._walks = config.cleanup_compact or config.message_timestamp_before_max_ms < LONG_MAX
        self._codec = CODECS[config.compression_type]
        self.prepares = self._walks or self._codec >= 0
        """Producers' batches are looked into, or put into the codec of the topic, before they are written."""

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
            raise self.refused(error, "appending to") from error
        self.next_offset = offset
        if leader_epoch != self.epochs.latest:
            self.epochs.assign(leader_epoch, base_offset)
        for batch in of_producers:
            if batch.marker is not None:
                self._index_if_aborted(batch, segment)
            self.producers.apply(batch)
        return AppendResult(
            base_offset, offset - 1, now_ms if self._append_time else -1, self.start_offset, False
        )

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
                raise self.refused(error, "indexing a transaction of") from error
            self.has_aborted = True

    def append_batches(self, records: ReadableBuffer) -> AppendResult:
        """Append batches whose offsets and leader epochs are set: a follower's, or the metadata log's.

        They must not begin below `next_offset`. A batch cut off at the end is left out.
        """
        data, batches, of_producers, epochs, base_offset, next_offset, newest = replicated(
            records, self.topic_partition, self.next_offset
        )
        if batches:
            try:
                segment = self._roll_if_due(len(data), base_offset, next_offset, newest)
                segment.append([data], batches)
            except OSError as error:
                raise self.refused(error, "appending to") from error
            self.next_offset = next_offset
            for epoch, offset in epochs:
                self.epochs.assign(epoch, offset)
            for batch in of_producers:
                if batch.marker is not None:
                    self._index_if_aborted(batch, segment)
                self.producers.apply(batch)
        return AppendResult(base_offset, next_offset - 1, -1, self.start_offset, False)

    # Reading.

    def read(
        self, offset: int, max_bytes: int, *, upto: int, min_one: bool = True, wait: bool = True
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
                self._open_segments.use(segment)
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
            if search.segment not in self.segments.all:
                # Retention or compaction took it away meanwhile: what is there now decides.
                raise SegmentGone from error
            raise

    @property
    def latest_epoch(self) -> int:
        """Of the leader that wrote last; -1 when none has."""
        return self.epochs.latest

    def epoch_at(self, offset: int) -> int:
        """Of the leader that wrote at an offset; -1 when that is not known."""
        return self.epochs.epoch_at(offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The last epoch up to the one asked for, and where it ended; (-1, -1) when that is not known."""
        return self.epochs.end_offset_for(epoch, self.next_offset)
