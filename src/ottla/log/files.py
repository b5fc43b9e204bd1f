"""The files in one partition's directory: segments with their indexes, snapshots of producers.

They are rolled, synced, renamed and removed here. What stands in them, where the log begins and ends, and
what is on disk for certain is for `log.py` to know, which says at which offsets all this happens. Everything
runs on the event loop and never waits, except `sync`, which lets another thread wait for the disk, and
`sync_now`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from ottla.config import LogConfig
from ottla.log.names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    segment_path,
)
from ottla.log.producers import ProducerState
from ottla.log.removal import DelayedRemoval
from ottla.log.segment import OpenSegments, Segment
from ottla.log.segments import Segments, new_segment
from ottla.log.snapshots import SnapshotFiles
from ottla.log.syncing import Unsynced, sync_files
from ottla.log.types import TopicPartition
from ottla.runtime import Runtime
from ottla.runtime.tasks import finished
from ottla.wire.errors import StorageError

OnError: TypeAlias = Callable[[OSError, str], StorageError]
"""Told what could not be written and while doing what; gives back what to answer."""

Replacement: TypeAlias = tuple[str, bytes]
"""The path of a small file, and what is to be in it."""


class LogFiles:
    __slots__ = (
        "_partition",
        "_runtime",
        "_unsynced",
        "config",
        "dir",
        "on_error",
        "open_segments",
        "removal",
        "segments",
        "snapshots",
    )

    def __init__(
        self,
        runtime: Runtime,
        directory: str,
        partition: TopicPartition,
        config: LogConfig,
        *,
        segments: Segments,
        snapshots: SnapshotFiles,
        open_segments: OpenSegments,
        removal: DelayedRemoval,
        unsynced: Unsynced,
        on_error: OnError | None = None,
    ) -> None:
        self._runtime = runtime
        self._partition = partition
        self._unsynced = unsynced
        self.dir = directory
        self.segments = segments
        self.snapshots = snapshots
        self.open_segments = open_segments
        """Shared by all logs of a broker, as `removal` is."""
        self.removal = removal
        self.on_error = on_error
        self.configure(config)

    def configure(self, config: LogConfig) -> None:
        self.config = config
        self.segments.active.configure(config)

    def refused(self, error: OSError, doing: str) -> StorageError:
        """To be raised where something could not be written."""
        if self.on_error is not None:
            return self.on_error(error, f"{doing} {self._partition}")
        return StorageError(
            f"{self._partition}: {error.strerror or error} while {doing} {self.dir}; check the disk"
        )

    # Growing.

    def roll(self, base_offset: int, producers: Iterable[ProducerState]) -> Segment:
        """Begin a segment, with a snapshot of the producers. Nothing has changed when OSError is raised."""
        sealed = self.segments.active
        sealed.seal()
        segment = self._new_segment(base_offset)
        try:
            segment.create()
            snapshot = self.snapshots.take(base_offset, producers, sync=False)
        except OSError:
            # Left behind, it would be taken for the end of a log that may yet grow past it.
            self._discard(segment)
            raise
        self._unsynced.paths += [*sealed.index_paths, snapshot]
        self._unsynced.dirs.append(self.dir)
        self.segments.add(segment)
        self.open_segments.use(sealed)
        return segment

    def _new_segment(self, base_offset: int, suffix: str = "") -> Segment:
        return new_segment(self._runtime, self.dir, self._partition, base_offset, self.config, suffix)

    def _discard(self, segment: Segment) -> None:
        segment.release()
        for path in (segment.path, *segment.index_paths):
            with contextlib.suppress(OSError):
                self._runtime.disk.remove(path)

    # Syncing.

    @property
    def has_unsynced_names(self) -> bool:
        """Files were made, renamed or replaced since the last sync."""
        return bool(self._unsynced)

    async def sync(self, from_offset: int, end_offset: int, replacements: Sequence[Replacement]) -> None:
        """Return once segments with records between the offsets are on disk, and all that goes with them."""
        unflushed = self.segments.from_offset(from_offset)
        others = self._unsynced.take()
        pinned: list[Segment] = []
        try:
            files = []
            for segment in unflushed:
                if segment.base_offset < end_offset:
                    files.append(segment.pin())
                    pinned.append(segment)
            # A thread cannot be cancelled, and a file closed under it would give its number to another.
            await finished(
                self._runtime.offload.run(sync_files, self._runtime.disk, files, others, replacements)
            )
        except BaseException:
            self._unsynced.put_back(others)
            raise
        finally:
            for segment in pinned:
                segment.unpin()

    def sync_now(
        self,
        from_offset: int,
        end_offset: int,
        producers: Iterable[ProducerState],
        replacements: Sequence[Replacement],
    ) -> None:
        """Leave everything as a log at rest has it, with a snapshot of the producers. Blocks."""
        active = self.segments.active
        active.seal()
        others = self._unsynced.take()
        others.paths += active.index_paths
        if end_offset > self.segments[0].base_offset:
            others.paths.append(self.snapshots.take(end_offset, producers, sync=False))
        others.dirs.append(self.dir)
        files = [segment.file for segment in self.segments.from_offset(from_offset)]
        sync_files(self._runtime.disk, files, others, replacements)

    def release(self) -> None:
        """Close them for good, without writing anything."""
        for segment in self.segments:
            self.open_segments.forget(segment)
            segment.retire()

    def moved_to(self, directory: str) -> None:
        """Whoever renamed it says so."""
        self._unsynced.move(self.dir, directory)
        self._unsynced.dirs += [directory, directory.rpartition("/")[0] or "/"]
        self.dir = directory
        self.snapshots.directory = directory
        for segment in self.segments:
            segment.moved_to(directory)

    # Cutting off.

    def drop_first(self, count: int) -> None:
        self._delete(self.segments.take_first(count))

    def truncate(self, offset: int) -> None:
        """Drop what lies at and after an offset."""
        segments = self.segments
        if offset < segments[0].base_offset:
            fresh = self._new_segment(offset)
            fresh.create()
            segments.add(fresh)
            self._delete(segments.take_first(len(segments) - 1))
        else:
            self._delete(segments.take_after(segments.floor(offset)))
            active = segments.active
            self.open_segments.forget(active)
            active.truncate(active.locate(offset), offset)
            # If it ends here, the next append rolls and later flushes no longer come by.
            self._unsynced.paths.append(active.path)
        for snapshot in [other for other in self.snapshots.offsets if other > offset]:
            self.snapshots.remove(snapshot)

    def start_anew(self, offset: int) -> None:
        """Drop everything, to go on at an offset."""
        # First, or after a crash what they tell of would seem to have come before.
        self.snapshots.keep_only(())
        segments = self.segments
        index = segments.floor(offset)
        if segments[index].base_offset == offset:
            # Its name is taken, so it stays, without its records.
            self._delete(segments.take_after(index))
            self._delete(segments.take_first(index))
            active = segments.active
            self.open_segments.forget(active)
            active.truncate(0, offset)
            self._unsynced.paths.append(active.path)
        else:
            fresh = self._new_segment(offset)
            fresh.create()
            segments.add(fresh)
            self._delete(segments.take_first(len(segments) - 1))

    # Compaction.

    def begin_cleaned(self, group: Sequence[Segment]) -> Segment:
        """A segment that will take the place of these; until then its files have names of their own."""
        cleaned = self._new_segment(group[0].base_offset, CLEANED_SUFFIX)
        cleaned.created_ms = group[-1].created_ms
        return cleaned

    def replace(self, group: Sequence[Segment], cleaned: Segment) -> bool:
        """Put a segment that is wholly on disk in the place of others. False: they are no longer there.

        From the moment it is called `.swap`, opening the log after a crash completes this.
        """
        if not self.segments.holds(group) or group[-1] is self.segments.active:
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
        due_ms = self._runtime.clock.now_ms() + self.config.file_delete_delay_ms
        for segment in deleted:
            self.open_segments.forget(segment)
            segment.release()
            for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES, *((SNAPSHOT_SUFFIX,) if with_snapshots else ())):
                path = segment_path(self.dir, segment.base_offset, suffix)
                if disk.exists(path):
                    disk.rename(path, path + DELETED_SUFFIX)
                    self.removal.add_file(due_ms, path + DELETED_SUFFIX)
            if with_snapshots:
                self.snapshots.forget(segment.base_offset)
