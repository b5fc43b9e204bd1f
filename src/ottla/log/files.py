"""The files of one partition's log: rolled, synced, cut off at either end, closed.

Everything here runs on the event loop and never waits, except `flush`, which lets another thread wait for the
disk, and `close`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import TypeAlias
from uuid import UUID

from ottla.config import LogConfig
from ottla.log.epochs import LeaderEpochs
from ottla.log.names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIXES,
    LEADER_EPOCHS_FILE,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    segment_path,
)
from ottla.log.producers import ProducerStates
from ottla.log.removal import DelayedRemoval
from ottla.log.replay import load_producers
from ottla.log.retention import expired_segments
from ottla.log.segment import OpenSegments, Segment
from ottla.log.segments import Segments, new_segment
from ottla.log.snapshots import SnapshotFiles
from ottla.log.syncing import Unsynced, sync_files
from ottla.log.types import LogClosed, TopicPartition
from ottla.runtime import Runtime
from ottla.runtime.tasks import finished
from ottla.wire.errors import OffsetOutOfRange, StorageError

log = logging.getLogger(__name__)


OnError: TypeAlias = Callable[[OSError, str], StorageError]
"""Told what could not be written and while doing what; gives back what to answer."""


class LogFiles:
    __slots__ = (
        "_flush_lock",
        "_on_error",
        "_open_segments",
        "_removal",
        "_runtime",
        "_settled_offset",
        "_snapshots",
        "_truncations",
        "_unsynced",
        "config",
        "dir",
        "epochs",
        "flushed_ms",
        "has_aborted",
        "is_closed",
        "lost_because",
        "next_offset",
        "now_ms",
        "producers",
        "recovery_point",
        "segments",
        "start_offset",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        runtime: Runtime,
        directory: str,
        partition: TopicPartition,
        config: LogConfig,
        *,
        topic_id: UUID | None,
        segments: Segments,
        start_offset: int,
        next_offset: int,
        recovery_point: int,
        epochs: LeaderEpochs,
        snapshots: SnapshotFiles,
        producers: ProducerStates,
        open_segments: OpenSegments,
        removal: DelayedRemoval,
        unsynced: Unsynced,
        settled: bool,
        on_error: OnError | None = None,
    ) -> None:
        self._runtime = runtime
        self.now_ms = runtime.clock.now_ms
        self._snapshots = snapshots
        self._open_segments = open_segments
        self._removal = removal
        self._unsynced = unsynced
        self._on_error = on_error
        self._truncations = 0
        # Where the log ended when it was last closed: until it grows, closing it has nothing to do.
        self._settled_offset = next_offset if settled else -1
        self._flush_lock: asyncio.Lock | None = None
        self.flushed_ms = runtime.clock.now_ms()
        self.is_closed = False
        """Deleted, or the broker stops. Whoever comes across the log at an await must expect it: nothing is
        left to flush, clean up or check, and what is at its path may belong to another log."""
        self.lost_because: str | None = None
        """It is closed for a fault of its disk: who still waits for a flush must not take it for done."""
        self.dir = directory
        self.topic_partition = partition
        self.topic_id = topic_id
        self.segments = segments
        self.start_offset = start_offset
        self.next_offset = next_offset
        self.recovery_point = recovery_point
        """Everything below is on disk for certain."""
        self.epochs = epochs
        self.producers = producers
        self.has_aborted = any(segment.transactions.count for segment in segments)
        """Some segment may have aborted transactions in its index."""
        self.update_config(config)

    def update_config(self, config: LogConfig) -> None:
        self.config = config
        self.segments.active.configure(config)

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

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
        sealed = self.segments.active
        if sealed.base_offset == base_offset:
            return sealed
        sealed.seal()
        segment = new_segment(self._runtime, self.dir, self.topic_partition, base_offset, self.config)
        try:
            segment.create()
            snapshot = self._snapshots.take(base_offset, self.producers.active.values(), sync=False)
        except OSError:
            # Left behind, it would be taken for the end of a log that may yet grow past it.
            self._discard(segment)
            raise
        self._unsynced.paths += [*sealed.index_paths, snapshot]
        self._unsynced.dirs.append(self.dir)
        # Its records may be on disk, but its indexes are not: only a flush may pass the end of a segment.
        self.recovery_point = min(self.recovery_point, base_offset - 1)
        self.segments.add(segment)
        self._open_segments.use(sealed)
        return segment

    def _discard(self, segment: Segment) -> None:
        segment.release()
        for path in (segment.path, *segment.index_paths):
            with contextlib.suppress(OSError):
                self._runtime.disk.remove(path)

    def refused(self, error: OSError, doing: str) -> StorageError:
        """To be raised where something could not be written."""
        if self._on_error is not None:
            return self._on_error(error, f"{doing} {self.topic_partition}")
        return StorageError(
            f"{self.topic_partition}: {error.strerror or error} while {doing} {self.dir}; check the disk"
        )

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
                    if self._on_error is None:
                        raise
                    raise self.refused(error, "syncing") from error

    async def wait_flushed(self) -> None:
        """Return when no flush is under way."""
        if self._flush_lock is not None:
            async with self._flush_lock:
                pass

    async def _sync(self, end_offset: int) -> None:
        truncations, active = self._truncations, self.segments.active
        unflushed = self.segments.from_offset(self.recovery_point)
        segments = [segment for segment in unflushed if segment.base_offset < end_offset]
        others, replacements = self._unsynced.take(), self._stale_epochs()
        pinned: list[Segment] = []
        try:
            files = []
            for segment in segments:
                files.append(segment.pin())
                pinned.append(segment)
            # A thread cannot be cancelled, and a file closed under it would give its number to another.
            await finished(
                self._runtime.offload.run(sync_files, self._runtime.disk, files, others, replacements)
            )
        except BaseException:
            self._unsynced.put_back(others)
            self.epochs.dirty = self.epochs.dirty or bool(replacements)
            raise
        finally:
            for segment in pinned:
                segment.unpin()
        if truncations == self._truncations:
            sealed_end = self.segments.base_after(active)
            if sealed_end is not None and end_offset >= sealed_end:
                end_offset = sealed_end - 1
            self.recovery_point = max(self.recovery_point, end_offset)
        self.flushed_ms = self.now_ms()

    def _stale_epochs(self) -> list[tuple[str, bytes]]:
        if not self.epochs.dirty:
            return []
        self.epochs.dirty = False
        return [(f"{self.dir}/{LEADER_EPOCHS_FILE}", self.epochs.encode())]

    def close(self) -> None:
        """Write and sync everything, so that opening needs no recovery. Blocks; may run in another thread."""
        if self._settled_offset != self.next_offset or self._unsynced or self.epochs.dirty:
            active = self.segments.active
            active.seal()
            others = self._unsynced.take()
            others.paths += active.index_paths
            if self.next_offset > self.segments[0].base_offset:
                others.paths.append(
                    self._snapshots.take(self.next_offset, self.producers.active.values(), sync=False)
                )
            others.dirs.append(self.dir)
            files = [segment.file for segment in self.segments.from_offset(self.recovery_point)]
            sync_files(self._runtime.disk, files, others, self._stale_epochs())
            self.recovery_point = self._settled_offset = self.next_offset
        self.release()

    def release(self) -> None:
        """Close for good, without writing anything."""
        self.is_closed = True
        for segment in self.segments:
            self._open_segments.forget(segment)
            segment.retire()

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
                self.refused(error, "rolling a segment of")
                count -= 1
        if count:
            self._delete(self.segments.take_first(count))
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
        self._truncations += 1
        self._settled_offset = -1
        lowered = max(offset - 1, 0)
        if self.recovery_point <= lowered:
            return False
        self.recovery_point = lowered
        return True

    def truncate_to(self, offset: int) -> None:
        """Drop records at and after an offset: a follower's, that its leader does not have.

        For logs in a LogManager use its `truncate`, which keeps the recovery point on disk in step.
        """
        if offset >= self.next_offset:
            # An epoch may have begun here without writing anything.
            self.epochs.truncate_from_end(self.next_offset)
            return
        self.lower_recovery_point(offset)
        segments = self.segments
        if offset < segments[0].base_offset:
            fresh = new_segment(self._runtime, self.dir, self.topic_partition, offset, self.config)
            fresh.create()
            segments.add(fresh)
            self._delete(segments.take_first(len(segments) - 1))
        else:
            index = segments.floor(offset)
            self._delete(segments.take_after(index))
            active = segments.active
            self._open_segments.forget(active)
            active.truncate(active.locate(offset), offset)
            # If it ends here, the next append rolls and later flushes no longer come by.
            self._unsynced.paths.append(active.path)
        for snapshot in [other for other in self._snapshots.offsets if other > offset]:
            self._snapshots.remove(snapshot)
        self.next_offset = offset
        self.start_offset = min(self.start_offset, offset)
        self.epochs.truncate_from_end(offset)
        self.producers = load_producers(self.topic_partition, self._snapshots, segments.all, offset)

    # Compaction.

    def begin_cleaned(self, group: Sequence[Segment]) -> Segment:
        """A segment that will take the place of these; until then its files have names of their own."""
        cleaned = new_segment(
            self._runtime,
            self.dir,
            self.topic_partition,
            group[0].base_offset,
            self.config,
            suffix=CLEANED_SUFFIX,
        )
        cleaned.created_ms = group[-1].created_ms
        return cleaned

    def replace(self, group: Sequence[Segment], cleaned: Segment) -> bool:
        """Put a segment that is wholly on disk in the place of others. False: they are no longer there.

        From the moment it is called `.swap`, opening the log after a crash completes this.
        """
        if not self.segments.holds(group):
            return False
        cleaned.rename(CLEANED_SUFFIX, SWAP_SUFFIX)
        self._delete(group[:1], with_snapshots=False)
        self._delete(group[1:])
        cleaned.rename(SWAP_SUFFIX, "")
        self.segments.replace(group, cleaned)
        cleaned.release()
        return True

    def _delete(self, deleted: Sequence[Segment], *, with_snapshots: bool = True) -> None:
        """Rename now, remove after file.delete.delay.ms: somebody may be reading."""
        disk = self._runtime.disk
        # Were the names to come back after a crash, old records would stand behind newer ones.
        self._unsynced.dirs.append(self.dir)
        due_ms = self.now_ms() + self.config.file_delete_delay_ms
        for segment in deleted:
            self._open_segments.forget(segment)
            segment.release()
            for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES, *((SNAPSHOT_SUFFIX,) if with_snapshots else ())):
                path = segment_path(self.dir, segment.base_offset, suffix)
                if disk.exists(path):
                    disk.rename(path, path + DELETED_SUFFIX)
                    self._removal.add_file(due_ms, path + DELETED_SUFFIX)
            if with_snapshots:
                self._snapshots.forget(segment.base_offset)
