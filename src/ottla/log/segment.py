"""One file of a log with its indexes."""

from __future__ import annotations

import logging
import struct
from collections import OrderedDict
from collections.abc import Sequence

from ottla.config import LogConfig
from ottla.log.index import OFFSET_ENTRY, TIME_ENTRY, WAITING_MAX, OffsetIndex, TimeIndex
from ottla.log.names import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_path,
)
from ottla.log.txn_index import TransactionIndex
from ottla.log.types import LogClosed, NotInMemory, TopicPartition
from ottla.log.walk import BadBatch, check_start, headers, position_of, whole_batches
from ottla.records.batch import HEADER_BYTES, NO_TIMESTAMP
from ottla.runtime.disk import Disk, File, ReadableBuffer
from ottla.wire.errors import CorruptMessage

# Where recent reads ended, so that whoever reads on needs no index. More readers than this at different
# places of one segment only cost each other a lookup.
ENDS_MAX = 64

RELATIVE_OFFSET_MAX = 2**31 - 1
NEVER = 2**63 - 1

_BASE_OFFSET = struct.Struct(">q")
_TOLD_MAX = 100

log = logging.getLogger(__name__)


OPEN_SEGMENTS_MAX = 256


class OpenSegments:
    """Bounds the files and lookup memory that segments no longer written to may hold, over all partitions."""

    def __init__(self, segments_max: int = OPEN_SEGMENTS_MAX) -> None:
        self._segments_max = segments_max
        self._used: OrderedDict[Segment, None] = OrderedDict()

    def use(self, segment: Segment) -> None:
        used = self._used
        if segment in used:
            used.move_to_end(segment)
            return
        used[segment] = None
        if len(used) > self._segments_max:
            used.popitem(last=False)[0].release()

    def forget(self, segment: Segment) -> None:
        self._used.pop(segment, None)


class Segment:
    __slots__ = (
        "_bytes_max",
        "_disk",
        "_ends",
        "_file",
        "_index_interval_bytes",
        "_largest_known",
        "_largest_offset",
        "_largest_timestamp",
        "_offset_entries_max",
        "_pins",
        "_release_wanted",
        "_roll_jitter_ms",
        "_roll_ms",
        "_time_entries_max",
        "_told",
        "_unindexed_bytes",
        "base_offset",
        "created_ms",
        "first_timestamp",
        "index_full",
        "is_retired",
        "offsets",
        "partition",
        "path",
        "roll_offset",
        "roll_timestamp",
        "size",
        "times",
        "transactions",
        "write_due",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        partition: TopicPartition,
        base_offset: int,
        *,
        config: LogConfig,
        created_ms: int,
        roll_jitter_ms: int,
        suffix: str = "",
    ) -> None:
        self._disk = disk
        self._file: File | None = None
        self._pins = 0
        self._release_wanted = False
        self.is_retired = False
        # Where damage was found and told of.
        self._told: tuple[int, ...] = ()
        self._ends: dict[int, int] = {}
        self._unindexed_bytes = 0
        self.write_due = False
        # The largest timestamp and the last offset of the first batch that has it; read when first asked for.
        self._largest_known = False
        self._largest_timestamp = NO_TIMESTAMP
        self._largest_offset = base_offset
        self.partition = partition
        self.base_offset = base_offset
        self.path = segment_path(directory, base_offset, LOG_SUFFIX + suffix)
        self.size = 0
        self.created_ms = created_ms
        self.first_timestamp = NO_TIMESTAMP
        self._roll_jitter_ms = roll_jitter_ms
        # No need to roll before one of these is passed.
        self.roll_timestamp = NEVER
        self.roll_offset = base_offset + RELATIVE_OFFSET_MAX
        self.index_full = False
        self.offsets = OffsetIndex(disk, segment_path(directory, base_offset, OFFSET_INDEX_SUFFIX + suffix))
        self.times = TimeIndex(disk, segment_path(directory, base_offset, TIME_INDEX_SUFFIX + suffix))
        self.transactions = TransactionIndex(
            disk, segment_path(directory, base_offset, TRANSACTION_INDEX_SUFFIX + suffix)
        )
        self.configure(config)

    def configure(self, config: LogConfig) -> None:
        self._bytes_max = config.segment_bytes
        roll_ms = config.segment_ms
        if config.cleanup_compact:
            # Compaction leaves the active segment alone.
            roll_ms = min(roll_ms, config.max_compaction_lag_ms)
        self._roll_ms = roll_ms - self._roll_jitter_ms
        self._set_roll_timestamp()
        self._index_interval_bytes = config.index_interval_bytes
        self._offset_entries_max = config.segment_index_bytes // OFFSET_ENTRY.size
        # One entry of the time index is kept free for when the segment is sealed.
        self._time_entries_max = config.segment_index_bytes // TIME_ENTRY.size - 1
        self._check_index_full()

    def _set_roll_timestamp(self) -> None:
        if not self.size:
            self.roll_timestamp = NEVER
        else:
            # Without a timestamp to go by, every append looks at the clock.
            first = self.first_timestamp
            self.roll_timestamp = first + self._roll_ms if first >= 0 else NO_TIMESTAMP - 1

    def is_due_to_roll(self, size: int, next_offset: int, timestamp: int, now_ms: int) -> bool:
        """Whether to begin a new segment before appending `size` bytes that end at `next_offset`."""
        if next_offset > self.roll_offset:
            return True
        if not self.size:
            return False
        first = self.first_timestamp
        age_ms = timestamp - first if first >= 0 else now_ms - self.created_ms
        return self.size + size > self._bytes_max or age_ms > self._roll_ms or self.index_full

    def set_first_timestamp(self, timestamp: int) -> None:
        """Of the first batch: the age of the segment counts from it."""
        self.first_timestamp = timestamp
        self._set_roll_timestamp()

    def _check_index_full(self) -> None:
        self.index_full = (
            len(self.offsets) >= self._offset_entries_max or len(self.times) >= self._time_entries_max
        )

    def create(self) -> None:
        self._file = self._disk.open(self.path, create=True)
        self.offsets.file.create()
        self.times.file.create()
        self._largest_known = True

    @property
    def file(self) -> File:
        if self._file is None:
            if self.is_retired:
                # Another log may have the path by now.
                raise LogClosed(self.partition)
            self._file = self._disk.open(self.path)
        return self._file

    # Writing.

    def append(self, buffers: Sequence[ReadableBuffer], batches: Sequence[tuple[int, int, int]]) -> None:
        """`batches` has (last offset, bytes, largest timestamp) of each batch in the buffers.

        Nothing has changed when OSError is raised.
        """
        if self.write_due:
            self.write_indexes()
        if not self._largest_known:
            self._read_largest()
        file = self._file
        if file is None:
            file = self.file
        file.append(buffers)
        is_first = not self.size
        self.note(batches)
        if is_first:
            self.set_first_timestamp(batches[0][2])

    def note(self, batches: Sequence[tuple[int, int, int]]) -> None:
        """Index batches that now stand at the end of the file."""
        position = self.size
        unindexed = self._unindexed_bytes
        for last_offset, size, timestamp in batches:
            if timestamp > self._largest_timestamp:
                self._largest_timestamp = timestamp
                self._largest_offset = last_offset
            if unindexed > self._index_interval_bytes:
                unindexed = 0
                self.offsets.append(last_offset - self.base_offset, position)
                self.times.append(self._largest_timestamp, self._largest_offset - self.base_offset)
                self.write_due = self.offsets.waiting >= WAITING_MAX
                self._check_index_full()
            position += size
            unindexed += size
        self.size = position
        self._unindexed_bytes = unindexed

    def step_over(self, position: int, offset: int) -> None:
        """Damage reaches from the end to `position`, where the batch that begins with `offset` stands.

        Its entry lets readers find what lies behind without walking through the damage.
        """
        self.offsets.append(offset - self.base_offset, position)
        self.write_due = self.offsets.waiting >= WAITING_MAX
        self.size = position
        self._unindexed_bytes = 0

    def reset(self) -> None:
        """Forget all that is known of the contents, to find it out by noting every batch again."""
        self.offsets.truncate(0)
        self.times.truncate(0)
        self.size = 0
        self._unindexed_bytes = 0
        self._largest_timestamp = NO_TIMESTAMP
        self._largest_offset = self.base_offset
        self._largest_known = True
        self._ends.clear()

    def write_indexes(self) -> None:
        self.offsets.write()
        self.times.write()
        self.write_due = False

    def seal(self) -> None:
        """Nothing more will be appended: leave the indexes as a segment at rest has them.

        The last entry of the time index is then the segment's largest timestamp, which retention goes by.
        """
        if self._largest_known:
            self.times.append(self._largest_timestamp, self._largest_offset - self.base_offset)
        self.write_indexes()

    def truncate(self, position: int, offset: int) -> None:
        """Cut the file at `position`, where the first batch at or after `offset` begins."""
        self.offsets.truncate(offset - self.base_offset)
        self.times.truncate(offset - self.base_offset)
        self.transactions.truncate(offset)
        self.file.truncate(position)
        self.size = position
        self._ends.clear()
        self._told = ()
        self._unindexed_bytes = 0
        self.write_due = False
        # Batches behind the last index entry may have larger timestamps than it knows of.
        self._read_largest()
        for _, header in headers(self.file, self.offsets.floor_position(position), position):
            if header.max_timestamp > self._largest_timestamp:
                self._largest_timestamp = header.max_timestamp
                self._largest_offset = header.last_offset
        self._set_roll_timestamp()
        self._check_index_full()

    # Looking things up.

    @property
    def largest_timestamp(self) -> int:
        if not self._largest_known:
            self._read_largest()
        return self._largest_timestamp

    @property
    def largest_timestamp_offset(self) -> int:
        """Last offset of the first batch with the largest timestamp."""
        if not self._largest_known:
            self._read_largest()
        return self._largest_offset

    def _read_largest(self) -> None:
        timestamp, relative_offset = self.times.last
        self._largest_timestamp = timestamp
        self._largest_offset = self.base_offset + relative_offset
        self._largest_known = True

    def locate(self, offset: int, wait: bool = True) -> int:
        """Position of the batch that holds `offset`, else of the next, else the end of the file."""
        if not wait:
            self._require_index()
        position = self.offsets.floor_offset(offset - self.base_offset)
        read = self.file.read if wait else self._view_nowait
        try:
            return position_of(read, self.size, offset, position, self.base_offset)
        except BadBatch as error:
            raise self.corrupt(offset, error) from error

    def corrupt(self, offset: int, error: BadBatch, *, tell: bool = True) -> CorruptMessage:
        """`tell` is for the event loop alone: to others it may only seem so."""
        topic, partition = self.partition
        text = (
            f"topic {topic} partition {partition}: offset {offset} cannot be reached, the batch header at "
            f"byte {error.position} of {self.path} is damaged ({error.reason}). Other offsets stay readable; "
            "restore this file from a replica or seek past the damage."
        )
        # Readers come back again and again; one line for each place says it.
        if tell and error.position not in self._told:
            self._told = (*self._told[-_TOLD_MAX:], error.position)
            log.error("%s Readers get CORRUPT_MESSAGE. Check the disk", text)
        return CorruptMessage(text)

    # Reading.

    def read(
        self, offset: int, bytes_max: int, upto: int, end_offset: int, min_one: bool, wait: bool = True
    ) -> ReadableBuffer:
        """Whole batches from the one that holds `offset`, all below `upto`. The segment has `end_offset`.

        Without `wait`, NotInMemory is raised where the disk would have to be waited for.
        """
        position = self._ends.get(offset, -1)
        if position < 0:
            position = self.locate(offset, wait)
        if upto >= end_offset:
            upto = end_offset
            limit = self.size
        else:
            limit = self._ends.get(upto, -1)
            if limit < 0:
                limit = self.locate(upto, wait)
                self.remember(upto, limit)
        length = limit - position
        if length <= 0:
            return b""
        if length > bytes_max:
            return self._read_part(offset, position, bytes_max, limit, min_one, wait)
        self.remember(upto, limit)
        file = self._file
        if file is None:
            file = self.file
        data = file.view(position, length) if wait else file.view_nowait(position, length)
        if data is None:
            raise NotInMemory(self.path, position, length)
        # A reader that cannot make out the first batch would wait for its rest, and ask again, for ever.
        # Where a later one is damaged, the reader comes back with its offset.
        try:
            check_start(data, offset)
        except BadBatch as error:
            raise self._corrupt_start(position, offset, error) from error
        return data

    def _read_part(
        self, offset: int, position: int, bytes_max: int, limit: int, min_one: bool, wait: bool
    ) -> ReadableBuffer:
        if not wait:
            self._require_index()
        cut = self.offsets.floor_position(position + bytes_max)
        if cut > position:
            length = cut - position
            # A few bytes more tell with which offset the next read will come.
            view = memoryview(self._view(position, length + _BASE_OFFSET.size, wait))
            (next_offset,) = _BASE_OFFSET.unpack_from(view, length)
            data = view[:length]
            try:
                check_start(data, offset)
            except BadBatch as error:
                raise self._corrupt_start(position, offset, error) from error
            if next_offset > offset:
                self.remember(next_offset, cut)
            return data
        read = self.file.read if wait else self._view_nowait
        try:
            cut, next_offset = whole_batches(read, position, limit, bytes_max, min_one=min_one)
        except BadBatch as error:
            raise self.corrupt(offset, error) from error
        if cut == position:
            return b""
        # With the header of the next batch, if there is one: only that shows whether the length can be right.
        view = memoryview(self._view(position, min(cut + HEADER_BYTES, limit) - position, wait))
        try:
            check_start(view, offset)
        except BadBatch as error:
            raise self._corrupt_start(position, offset, error) from error
        self.remember(next_offset, cut)
        return view[: cut - position]

    def _corrupt_start(self, position: int, offset: int, error: BadBatch) -> CorruptMessage:
        return self.corrupt(offset, BadBatch(position + error.position, error.reason))

    def _view(self, position: int, length: int, wait: bool) -> ReadableBuffer:
        return self.file.view(position, length) if wait else self._view_nowait(position, length)

    def _view_nowait(self, position: int, length: int) -> ReadableBuffer:
        file = self._file
        if file is None:
            file = self.file
        data = file.view_nowait(position, length)
        if data is None:
            raise NotInMemory(self.path, position, length)
        return data

    def _require_index(self) -> None:
        index = self.offsets.file
        if not index.is_in_memory():
            raise NotInMemory(index.path, 0, index.count * OFFSET_ENTRY.size)

    def remember(self, offset: int, position: int) -> None:
        """Where a reader will go on that comes with this offset."""
        ends = self._ends
        ends[offset] = position
        if len(ends) > ENDS_MAX:
            del ends[next(iter(ends))]

    # Files.

    @property
    def index_paths(self) -> list[str]:
        """Of the index files there are."""
        paths = [self.offsets.file.path, self.times.file.path]
        return [*paths, self.transactions.path] if self.transactions.has_file else paths

    def rename(self, old_suffix: str, new_suffix: str) -> None:
        """The log comes last: where it has the new name, all have."""
        offsets, times = self.offsets.file, self.times.file
        offsets.path = self._renamed(offsets.path, old_suffix, new_suffix)
        times.path = self._renamed(times.path, old_suffix, new_suffix)
        if self.transactions.has_file:
            self.transactions.path = self._renamed(self.transactions.path, old_suffix, new_suffix)
        self.path = self._renamed(self.path, old_suffix, new_suffix)

    def _renamed(self, path: str, old_suffix: str, new_suffix: str) -> str:
        new_path = path.removesuffix(old_suffix) + new_suffix
        self._disk.rename(path, new_path)
        return new_path

    def moved_to(self, directory: str) -> None:
        """An open file stays open."""
        for holder in (self, self.offsets.file, self.times.file, self.transactions):
            holder.path = f"{directory}/{holder.path.rpartition('/')[2]}"

    def pin(self) -> File:
        """Keep the file open while another thread syncs it."""
        file = self.file
        self._pins += 1
        return file

    def unpin(self) -> None:
        self._pins -= 1
        if self._release_wanted:
            self.release()

    def release(self) -> None:
        """Close files and give back lookup memory; both come back when needed."""
        self._ends.clear()
        self.offsets.file.forget()
        self.times.file.forget()
        self.transactions.forget()
        self._release_wanted = self._pins > 0
        if self._file is not None and not self._pins:
            self._file.close()
            self._file = None

    def retire(self) -> None:
        """As `release`, for good."""
        self.is_retired = True
        self.write_due = False
        self.release()
