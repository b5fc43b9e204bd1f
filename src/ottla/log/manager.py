"""All logs of a broker: opened at start, kept in order while it runs, closed so the next start is quick."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeAlias
from uuid import UUID

from ottla.config import BrokerConfig, LogConfig
from ottla.log.checkpoints import (
    encode_partition_metadata,
    read_offsets,
    read_partition_metadata,
    write_offsets,
)
from ottla.log.cleaner import HighWatermark, LogCleaner
from ottla.log.directory import LogDir, Missing, Unopened, is_fault
from ottla.log.log import PartitionLog
from ottla.log.moving import Moves
from ottla.log.names import (
    CLEAN_SHUTDOWN_FILE,
    DELETED_DIR_SUFFIX,
    HIGH_WATERMARKS_FILE,
    LOCK_FILE,
    MOVED_FROM_FILE,
    PARTITION_METADATA_FILE,
    RECOVERY_POINTS_FILE,
    START_OFFSETS_FILE,
    STRAY_DIR_SUFFIX,
    deleted_dir_name,
    future_dir_name,
    partition_in_name,
    partition_of_future,
    stray_dir_name,
)
from ottla.log.presence import PRESENCE_INTERVAL_MS, Presence
from ottla.log.recovery import open_log
from ottla.log.removal import DelayedRemoval
from ottla.log.scrubber import Scrubber
from ottla.log.segment import OpenSegments
from ottla.log.types import METADATA_PARTITION, LogClosed, TopicPartition
from ottla.runtime import Clock, Runtime
from ottla.runtime.tasks import TaskScope, finished
from ottla.wire.errors import LogDirNotFound, ReplicaNotAvailable, StorageError

log = logging.getLogger(__name__)

HOUSEKEEPING_INTERVAL_MS = 1000

OPENING_SLICE_SECONDS = 0.25
OPENING_SAID_SECONDS = 10.0

ConfigOf: TypeAlias = Callable[[str], LogConfig]
TopicIdOf: TypeAlias = Callable[[TopicPartition], UUID | None]
IsElsewhere: TypeAlias = Callable[[TopicPartition], bool]
"""Whether what a log has can be had from another broker, too, so that none of it is kept that is damaged."""
PathOf: TypeAlias = Callable[[TopicPartition], str | None]
"""The data directory in which the cluster's metadata has a log, if it names one of this broker's."""


class LogInTwoDirs(Exception):
    """Nobody knows which is the right one. The text names both."""


class LogManager:
    def __init__(self, runtime: Runtime, config: BrokerConfig, dirs: Sequence[str]) -> None:
        self.config = config
        self._runtime = runtime
        self._disk = runtime.disk
        self._paths = [path.rstrip("/") or "/" for path in dirs]
        self._dirs: list[LogDir] = []
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._open_segments = OpenSegments()
        self._being_opened = ""
        self._removal = DelayedRemoval(runtime.disk)
        self._checkpoint_lock = asyncio.Lock()
        # Not known before the partitions are.
        self._high_watermark: HighWatermark = lambda partition: None
        self._high_watermarks_at_start: dict[TopicPartition, int] = {}
        self.cleaner = LogCleaner(
            runtime, lambda: self.config, self.logs_by_dir, self.write_checkpoints, self.refused, self.fail
        )
        self.scrubber = Scrubber(runtime, lambda: self.config, self.logs_by_dir, self.refused)
        self.presence = Presence(runtime, lambda: self.config, self._dirs, self._logs, self._take_offline)
        self.moves = Moves(runtime, lambda: self.config, self._put_in_place, self.write_checkpoints)
        self._preferred: dict[TopicPartition, str] = {}
        """Where logs are to be made that somebody wanted elsewhere before they were there."""
        self.on_moved: Callable[[PartitionLog], None] = lambda moved: None
        """Told of each log that has taken the place of another, in another directory."""
        self.on_offline: Callable[[TopicPartition, str], None] = lambda partition, reason: None
        """Told of each log that is out of use from now on, and why."""

    # The logs.

    def get(self, partition: TopicPartition) -> PartitionLog | None:
        return self._logs.get(partition)

    @property
    def all_logs(self) -> Iterable[PartitionLog]:
        return self._logs.values()

    def logs_by_dir(self) -> dict[str, list[PartitionLog]]:
        return {directory.path: list(directory.logs.values()) for directory in self._dirs}

    def failure_of(self, path: str) -> str | None:
        """Why a directory is out of use."""
        found = next((found for found in self._dirs if found.path == path.rstrip("/")), None)
        return None if found is None else found.failure

    @property
    def failed_directories(self) -> int:
        return sum(directory.failure is not None for directory in self._dirs)

    def refused(self, path: str, error: OSError, doing: str) -> None:
        """Something in a directory could not be written: say so, and act upon it."""
        for directory in self._dirs:
            if f"{path}/".startswith(f"{directory.path}/"):
                directory.refused(error, doing)

    def fail(self, path: str, reason: str) -> None:
        """Take a directory out of use."""
        for directory in self._dirs:
            if f"{path}/".startswith(f"{directory.path}/"):
                directory.fail(reason)

    # Logs are made and put away in steps: those that wait for the disk can be done by another thread.

    def create(self, topic: str, partition: int, topic_id: UUID, config: LogConfig) -> PartitionLog:
        """All steps at once."""
        found = TopicPartition(topic, partition)
        if found in self._logs:
            raise ValueError(f"{found} exists in {self._logs[found].dir}")
        directory = self.dir_for(found)
        try:
            return self.add(directory, self.make(directory, found, topic_id, config))
        finally:
            directory.coming -= 1

    def dir_for(self, partition: TopicPartition, place: LogDir | None = None) -> LogDir:
        """The one that has its files, or may have some of them (`place`), else the one that has the fewest
        logs.

        It counts as `coming` there, until whoever asked takes it back.
        """
        usable = [directory for directory in self._dirs if directory.failure is None]
        for directory in self._dirs:
            if directory is place or partition in directory.unopened:
                if directory.failure is not None:
                    raise StorageError(f"{directory.path} is out of use: {directory.failure}")
                usable = [directory]
        if (wanted := self._preferred.get(partition)) is not None and len(usable) > 1:
            usable = [directory for directory in usable if directory.path == wanted] or usable
        if not usable:
            raise StorageError("all data directories are out of use; check the disks, restart the broker")
        chosen = min(usable, key=lambda candidate: len(candidate.logs) + candidate.coming)
        chosen.coming += 1
        return chosen

    def make(
        self, directory: LogDir, partition: TopicPartition, topic_id: UUID, config: LogConfig
    ) -> PartitionLog:
        """Blocks. OSError: it cannot be made, or something is in its place.

        Where a log could not be opened at start, this is another try.
        """
        unopened = directory.unopened.get(partition)
        if unopened is not None:
            found = unopened.open(config)
            self._adopt(found, topic_id)
            if found.topic_id != topic_id:
                found.release()
                raise _another_topics(found.dir)
            return found
        path = f"{directory.path}/{partition}"
        is_new = not self._disk.exists(path)
        try:
            made = open_log(
                self._runtime,
                path,
                partition,
                config,
                clean=True,
                topic_id=topic_id,
                open_segments=self._open_segments,
                removal=self._removal,
                on_error=directory.refused,
            )
        except OSError:
            if is_new:
                # Half a log would be in the way of another.
                with contextlib.suppress(OSError):
                    self._disk.remove_tree(path)
            raise
        if made.topic_id != topic_id:
            made.release()
            raise _another_topics(path)
        return made

    def _adopt(self, found: PartitionLog, topic_id: UUID | None) -> None:
        """A log that does not say whose it is belongs to the topic of its name, as in Apache Kafka."""
        if found.topic_id is not None or topic_id is None:
            return
        path = f"{found.dir}/{PARTITION_METADATA_FILE}"
        try:
            self._disk.replace_file(path, encode_partition_metadata(topic_id))
        except OSError:
            found.release()
            raise
        found.topic_id = topic_id
        log.warning(
            "%s was missing or damaged: it is written anew with the id of the topic that has the name now, "
            "and the log is used. If the topic was deleted and made again since, these are the old records",
            path,
        )

    def add(self, directory: LogDir, partition_log: PartitionLog) -> PartitionLog:
        directory.unopened.pop(partition_log.topic_partition, None)
        self.miss_no_more(partition_log.topic_partition)
        directory.logs[partition_log.topic_partition] = partition_log
        self._logs[partition_log.topic_partition] = partition_log
        return partition_log

    def delete(self, partition: TopicPartition) -> None:
        """All steps at once: out of sight, off the disk after file.delete.delay.ms."""
        closed = self.close_log(partition)
        target = self.name_out_of_use(closed, stray=False)
        self.move_away(closed, target)
        self.remove_later(closed, target)

    def close_log(self, partition: TopicPartition) -> PartitionLog:
        """Out of use and out of sight; its files are where they were."""
        closed = self._logs.pop(partition)
        self._preferred.pop(partition, None)
        self.cancel_move(partition)
        self.cleaner.forget(partition)
        self.scrubber.forget(partition)
        for directory in self._dirs:
            directory.logs.pop(partition, None)
        closed.release()
        return closed

    def name_out_of_use(self, closed: PartitionLog, *, stray: bool) -> str:
        """Where to put the files of a closed log: those of a stray are never opened nor removed."""
        name = stray_dir_name if stray else deleted_dir_name
        unique = self._runtime.random.getrandbits(128)
        return f"{closed.dir.rpartition('/')[0]}/{name(closed.topic_partition, unique)}"

    def move_away(self, closed: PartitionLog, target: str) -> None:
        """Blocks."""
        self._disk.rename(closed.dir, target)

    def remove_later(self, closed: PartitionLog, path: str) -> None:
        self._removal.add_dir(self._runtime.clock.now_ms() + closed.config.file_delete_delay_ms, path)

    def _dir_failed(self, directory: LogDir) -> None:
        for partition, (_, copy) in list(self.moves.copies.items()):
            if copy.dir.startswith(f"{directory.path}/"):
                self.moves.forget(partition)
                copy.release()
        for partition in list(directory.logs):
            self._take_offline(partition, f"{directory.path} is out of use: {directory.failure}")

    # Moving.

    async def move(self, partition: TopicPartition, path: str) -> None:
        """Begin to move a log to another directory, or leave it where it is if that is there already.

        Raises LogDirNotFound, StorageError, or ReplicaNotAvailable: the log will be made there once it is.
        """
        path = path.rstrip("/") or "/"
        target = next((directory for directory in self._dirs if directory.path == path), None)
        if target is None:
            known = ", ".join(directory.path for directory in self._dirs)
            raise LogDirNotFound(f"{path} is not a data directory of this broker, which has {known}")
        if target.failure is not None:
            raise StorageError(f"{path} is out of use: {target.failure}")
        source = self._logs.get(partition)
        if source is None:
            self._preferred[partition] = path
            raise ReplicaNotAvailable(
                f"{partition} is not on this broker; when it comes, it will be in {path}"
            )
        copy = self.moves.copy_of(partition)
        if copy is not None and copy.dir.rpartition("/")[0] == path:
            return
        self.cancel_move(partition)
        if source.dir.rpartition("/")[0] == path:
            return
        name = future_dir_name(partition, self._runtime.random.getrandbits(128))
        try:
            made = await self._runtime.offload.run(
                self._open_copy, target, f"{path}/{name}", partition, source.config, source.topic_id
            )
        except OSError as error:
            raise target.refused(error, f"making a copy of {partition}") from error
        if self._logs.get(partition) is not source or partition in self.moves.copies:
            made.release()
            self._removal.add_dir(0, made.dir)
            return
        if source.start_offset:
            made.truncate_fully_and_start_at(source.start_offset)
        log.info("%s moves from %s to %s", partition, source.dir, path)
        self.moves.begin(source, made)

    def _open_copy(
        self,
        directory: LogDir,
        path: str,
        partition: TopicPartition,
        config: LogConfig,
        topic_id: UUID | None,
    ) -> PartitionLog:
        """Blocks. What is there already is checked whole: nobody writes down how far a copy is on disk."""
        return open_log(
            self._runtime,
            path,
            partition,
            config,
            clean=False,
            topic_id=topic_id,
            open_segments=self._open_segments,
            removal=self._removal,
            on_error=directory.refused,
        )

    def cancel_move(self, partition: TopicPartition) -> None:
        copy = self.moves.forget(partition)
        if copy is not None:
            copy.release()
            self._removal.add_dir(self._runtime.clock.now_ms(), copy.dir)

    def _put_in_place(self, source: PartitionLog, copy: PartitionLog) -> None:
        """The copy has everything that the log has, on disk but for the last of it."""
        partition = source.topic_partition
        home = next(found for found in self._dirs if copy.dir.startswith(f"{found.path}/"))
        deleted = self.name_out_of_use(source, stray=False)
        try:
            self._disk.rename(source.dir, deleted)
            self._disk.rename(copy.dir, f"{home.path}/{partition}")
        except OSError as error:
            home.fail(f"{error.strerror or error} while putting {partition} into its new place")
            return
        copy.moved_to(f"{home.path}/{partition}")
        copy.update_config(source.config)
        # The same and more: of transactions that began below the start of the log, a copy has not seen all.
        copy.producers = source.producers
        for directory in self._dirs:
            directory.logs.pop(partition, None)
        # Who waits for a flush there must not take it for done.
        source.lost_because = f"its log was moved to {home.path} meanwhile; retry"
        source.release()
        self.scrubber.forget(partition)
        self.remove_later(source, deleted)
        self.add(home, copy)
        log.info("%s is now in %s", partition, copy.dir)
        self.on_moved(copy)

    def _put_away_what_was_moved(self) -> None:
        """At start: of a log that was put away when a copy took its place, the old name may be back."""
        found: dict[str, list[LogDir]] = {}
        for directory in self._dirs:
            for name in self._names_in(directory):
                if partition_in_name(name) is not None:
                    found.setdefault(name, []).append(directory)
        for name, directories in found.items():
            for directory in directories if len(directories) > 1 else ():
                marker = f"{directory.path}/{name}/{MOVED_FROM_FILE}"
                partition = partition_in_name(name)
                if partition is None or not self._disk.exists(marker):
                    continue
                old = self._disk.read_file(marker).decode("utf-8", "replace")
                home = next((other for other in directories if f"{other.path}/{name}" == old), None)
                if home is not None:
                    away = deleted_dir_name(partition, self._runtime.random.getrandbits(128))
                    log.warning("%s was moved to %s/%s before; it is put away", old, directory.path, name)
                    self._disk.rename(old, f"{home.path}/{away}")
                    self._disk.sync_dir(home.path)

    def _resume_moves(self, config_of: ConfigOf) -> None:
        """At start: copies go on growing; one whose log is gone was about to take its place."""
        for directory in self._dirs:
            if directory.failure is not None:
                continue
            for name in self._disk.list_dir(directory.path):
                partition = partition_of_future(name)
                if partition is None:
                    continue
                path = f"{directory.path}/{name}"
                source = self._logs.get(partition)
                try:
                    if source is None and not any(found.holds(partition) for found in self._dirs):
                        self._disk.rename(path, f"{directory.path}/{partition}")
                        path = f"{directory.path}/{partition}"
                        log.warning(
                            "%s: takes the place of a log that was moved when the broker stopped", path
                        )
                        copy = self._open_copy(directory, path, partition, config_of(partition.topic), None)
                        self.add(directory, copy)
                    elif (
                        source is None
                        or partition in self.moves.copies
                        or source.dir.startswith(f"{directory.path}/")
                    ):
                        log.warning("%s is a copy that nobody needs; it is left, remove it", path)
                    else:
                        copy = self._open_copy(directory, path, partition, source.config, source.topic_id)
                        self.moves.begin(source, copy)
                except OSError as error:
                    directory.refused(error, f"opening {path}")

    def _take_offline(self, partition: TopicPartition, reason: str) -> None:
        self.close_log(partition).lost_because = reason
        self.on_offline(partition, reason)

    @property
    def clock(self) -> Clock:
        return self._runtime.clock

    async def truncate(self, partition: TopicPartition, offset: int) -> None:
        """Drop records at and after an offset.

        First it is written down that they need not be on disk: after a crash in between, or before the
        next checkpoint, records that replace them must not be taken for them.
        """
        truncated = self._logs[partition]
        if offset < truncated.next_offset:
            offset = truncated.batch_start(offset)
        while offset < truncated.next_offset and truncated.lower_recovery_point(offset):
            await self.write_checkpoints()
        if truncated.is_closed:
            raise LogClosed(partition)
        try:
            truncated.truncate_to(offset)
        except OSError as error:
            raise truncated.files.refused(error, "cutting off the end of") from error
        self.cleaner.truncated(partition, offset)

    async def truncate_fully_and_start_at(self, partition: TopicPartition, offset: int) -> None:
        """Drop all records and go on at an offset, on disk as well when this returns: nothing of what was
        there may come back between what is appended from then on."""
        emptied = self._logs[partition]
        while emptied.lower_recovery_point(emptied.segments[0].base_offset):
            await self.write_checkpoints()
        if emptied.is_closed:
            raise LogClosed(partition)
        try:
            emptied.truncate_fully_and_start_at(offset)
        except OSError as error:
            raise emptied.files.refused(error, "beginning anew with") from error
        self.cleaner.truncated(partition, 0)
        await emptied.flush(upto=offset)
        await self.write_checkpoints()

    def checkpointed_high_watermark(self, partition: TopicPartition) -> int:
        """How far the log was committed, as last written down before the broker started: no less than its
        start, no more than what it has."""
        found = self._logs[partition]
        written = self._high_watermarks_at_start.get(partition, 0)
        return min(max(written, found.start_offset), found.next_offset)

    # Start and stop.

    def lock(self) -> None:
        """Claim the directories before anything in them is read. DiskLocked: another broker has one.

        One whose disk fails is left out, unless it is the last, or the one with the metadata."""
        try:
            for path in self._paths:
                directory = LogDir(self._runtime, path, self._dir_failed)
                self._dirs.append(directory)
                try:
                    self._claim(directory)
                except OSError as error:
                    self.fail_at_start(path, error, "claiming it")
        except BaseException:
            self.unlock()
            raise

    def _claim(self, directory: LogDir) -> None:
        path = directory.path
        if not self._disk.exists(path):
            self._disk.make_dirs(path)
            # Or a power cut would take the directory with all that was ever synced into it.
            self._disk.sync_dir(path.rpartition("/")[0] or ("/" if path.startswith("/") else "."))
        directory.lock = self._disk.lock(f"{path}/{LOCK_FILE}")
        marker = f"{path}/{CLEAN_SHUTDOWN_FILE}"
        directory.clean = self._disk.exists(marker)
        if directory.clean:
            directory.closed_epoch = _epoch_in(self._disk.read_file(marker))
            # Before anything else: a crash from now on must be recovered from.
            self._disk.remove(marker)
            self._disk.sync_dir(path)

    def fail_at_start(self, path: str, error: OSError, doing: str) -> None:
        """Begin without a directory whose disk fails, or raise the error again where that cannot be."""
        directory = next(found for found in self._dirs if found.path == path.rstrip("/"))
        others = [found for found in self._dirs if found is not directory and found.failure is None]
        is_last = not others and len(self._dirs) == len(self._paths)
        if not is_fault(error) or is_last or directory.path == self.config.metadata_log_dir.rstrip("/"):
            raise error
        directory.fail_at_start(error, doing)

    def presume(self, partitions: Iterable[TopicPartition]) -> None:
        """Logs that are in none of the directories in use must be in one that is not: made anew, they would
        be empty. Until that is back, they are offline."""
        failed = next(directory for directory in self._dirs if directory.failure is not None)

        def refuse(config: LogConfig) -> PartitionLog:
            raise StorageError(f"{failed.path} is out of use: {failed.failure}")

        for partition in partitions:
            failed.unopened[partition] = Unopened(refuse, 0, None)

    def has_unopened(self, partition: TopicPartition) -> bool:
        """Whether its files are in one of the directories, though they could not be opened."""
        return any(partition in directory.unopened for directory in self._dirs)

    def was_closed(self, path: str) -> bool:
        """Whether the directory was left in good order."""
        return any(directory.clean for directory in self._dirs if directory.path == path.rstrip("/"))

    @property
    def closed_epoch(self) -> int:
        """Of the broker that left all directories in good order; -1 where one was not, or nobody knows."""
        epochs = {directory.closed_epoch for directory in self._dirs}
        return epochs.pop() if len(epochs) == 1 else -1

    def open(
        self,
        config_of: ConfigOf,
        topic_id_of: TopicIdOf = lambda partition: None,
        is_elsewhere: IsElsewhere = lambda partition: False,
        path_of: PathOf = lambda partition: None,
    ) -> None:
        """Open what is in the locked directories. `topic_id_of` is asked for logs that do not know theirs,
        `path_of` where there are two of a name.

        Blocks, for minutes where much has to be recovered: `open_in_turns` does not.
        """
        for _ in self._opening(config_of, topic_id_of, is_elsewhere, path_of):
            pass

    async def open_in_turns(
        self,
        config_of: ConfigOf,
        topic_id_of: TopicIdOf = lambda partition: None,
        is_elsewhere: IsElsewhere = lambda partition: False,
        path_of: PathOf = lambda partition: None,
    ) -> None:
        """As `open`, in a thread. Nobody may ask for logs before it is done."""
        steps = self._opening(config_of, topic_id_of, is_elsewhere, path_of)
        clock = self._runtime.clock
        began = clock.monotonic()
        take = asyncio.ensure_future(self._take(steps))
        try:
            while not (await asyncio.wait([take], timeout=OPENING_SAID_SECONDS))[0]:
                log.info(
                    "still opening logs, %d of them after %.0f s; next is %s",
                    len(self._logs),
                    clock.monotonic() - began,
                    self._being_opened,
                )
            take.result()
        finally:
            if not take.done():
                take.cancel()
                await asyncio.wait([take])

    async def _take(self, steps: Iterator[None]) -> None:
        # A thread cannot be stopped in the middle of a log, and the directories are in its hands.
        while await finished(self._runtime.offload.run(_some_of, steps, self._runtime.clock)):
            pass

    def _opening(
        self, config_of: ConfigOf, topic_id_of: TopicIdOf, is_elsewhere: IsElsewhere, path_of: PathOf
    ) -> Iterator[None]:
        """A step for each log."""
        started = self._runtime.clock.monotonic()
        self._put_away_what_was_moved()
        for directory in self._dirs:
            if directory.failure is not None:
                continue
            try:
                yield from self._open_dir(directory, config_of, topic_id_of, is_elsewhere, path_of)
                self._miss(directory)
                self._lower_checkpoint(directory)
                self.cleaner.load(directory.path)
            except OSError as error:
                if not is_fault(error):
                    raise
                directory.fail(f"{error.strerror} while opening its logs")
        for partition in self.all_missing:
            if partition in self._logs or self.has_unopened(partition):
                # Somebody has put it into another directory.
                self.miss_no_more(partition)
        self._resume_moves(config_of)
        # A snapshot may be older than producers are remembered.
        self._forget_idle_producers()
        elapsed_ms = (self._runtime.clock.monotonic() - started) * 1000
        log.info("opened %d logs in %d ms", len(self._logs), elapsed_ms)

    def _miss(self, directory: LogDir) -> None:
        recovery_points = directory.written[RECOVERY_POINTS_FILE]
        high_watermarks = directory.written[HIGH_WATERMARKS_FILE]
        known = {
            partition: Missing(recovery_points.get(partition, 0), high_watermarks.get(partition, 0))
            for partition in {**recovery_points, **high_watermarks}
            if not directory.holds(partition) and partition.topic != METADATA_PARTITION.topic
        }
        directory.missing = {partition: offsets for partition, offsets in known.items() if any(offsets)}

    @property
    def all_missing(self) -> list[TopicPartition]:
        return [partition for directory in self._dirs for partition in directory.missing]

    def missing_from(self, partition: TopicPartition) -> str | None:
        """The directory that has had records of it, though its files were not there at start."""
        paths = (directory.path for directory in self._dirs if partition in directory.missing)
        return next(paths, None)

    def miss_no_more(self, partition: TopicPartition) -> None:
        """It has been fetched anew, or is not to be here."""
        for directory in self._dirs:
            directory.missing.pop(partition, None)

    def _names_in(self, directory: LogDir) -> Sequence[str]:
        """None of one whose disk fails, which is left out then."""
        if directory.failure is not None:
            return ()
        try:
            return self._disk.list_dir(directory.path)
        except OSError as error:
            self.fail_at_start(directory.path, error, "looking what is in it")
            return ()

    def _open_dir(
        self,
        directory: LogDir,
        config_of: ConfigOf,
        topic_id_of: TopicIdOf,
        is_elsewhere: IsElsewhere,
        path_of: PathOf,
    ) -> Iterator[None]:
        path = directory.path
        for file in (RECOVERY_POINTS_FILE, START_OFFSETS_FILE, HIGH_WATERMARKS_FILE):
            directory.written[file] = read_offsets(self._disk, f"{path}/{file}")
        recovery_points = directory.written[RECOVERY_POINTS_FILE]
        start_offsets = directory.written[START_OFFSETS_FILE]
        self._high_watermarks_at_start |= directory.written[HIGH_WATERMARKS_FILE]
        strays = 0
        for name in self._disk.list_dir(path):
            strays += name.endswith(STRAY_DIR_SUFFIX)
            if name.endswith(DELETED_DIR_SUFFIX):
                self._removal.add_dir(0, f"{path}/{name}")
                continue
            partition = partition_in_name(name)
            # Raft opens the metadata's log itself.
            if partition is None or partition.topic == METADATA_PARTITION.topic:
                continue
            other = next((each for each in self._dirs if each.holds(partition)), None)
            if other is not None and not self._replaces(
                partition, directory, other, topic_id_of(partition), path_of(partition)
            ):
                continue
            if not self._disk.is_dir(f"{path}/{name}"):
                log.warning("%s/%s is a file, where a log would have its directory; remove it", path, name)
                continue
            opening = Unopened(
                partial(
                    open_log,
                    self._runtime,
                    f"{path}/{name}",
                    partition,
                    clean=directory.clean,
                    recovery_point=recovery_points.get(partition, 0),
                    start_offset=start_offsets.get(partition, 0),
                    open_segments=self._open_segments,
                    removal=self._removal,
                    on_error=directory.refused,
                    keep_damage=not is_elsewhere(partition),
                ),
                recovery_points.get(partition, 0),
                start_offsets.get(partition),
            )
            self._being_opened = f"{path}/{name}"
            yield
            try:
                opened = opening.open(config_of(partition.topic))
                self._adopt(opened, topic_id_of(partition))
                self.add(directory, opened)
            # Whatever is wrong with the files of one log, the others are not to blame.
            except Exception as error:
                if not isinstance(error, OSError):
                    log.error("%s: %s/%s cannot be opened", partition, path, name, exc_info=error)
                directory.unopened[partition] = opening
        if strays:
            log.warning(
                "%s: %d directories are named *%s: logs that the cluster's metadata did not know. They are "
                "not used; move them away, or remove them once nobody misses their records",
                path,
                strays,
                STRAY_DIR_SUFFIX,
            )

    def _replaces(
        self,
        partition: TopicPartition,
        directory: LogDir,
        other: LogDir,
        topic_id: UUID | None,
        known_path: str | None,
    ) -> bool:
        """Whether of two logs of one name the one found last is the right one; the other is set aside.

        While a disk fails, or is out of `log.dirs`, a topic may be deleted and another be made under its name
        elsewhere, or a replica be fetched anew into another directory.
        """
        path, other_path = f"{directory.path}/{partition}", f"{other.path}/{partition}"
        here = read_partition_metadata(self._disk, f"{path}/{PARTITION_METADATA_FILE}")
        there = other.logs[partition].topic_id if partition in other.logs else None
        if here is not None and there is not None and here != there:
            is_right, why = here == topic_id, "of the topic"
        elif known_path in (directory.path, other.path):
            is_right, why = known_path == directory.path, "in the directory"
        else:
            raise LogInTwoDirs(
                f"{partition} is both in {other_path} and {path}; look which one is current, and "
                "move the other one away"
            )
        if is_right:
            if partition in other.logs:
                self.close_log(partition)
            other.unopened.pop(partition, None)
        right, wrong = (path, other_path) if is_right else (other_path, path)
        aside = stray_dir_name(partition, self._runtime.random.getrandbits(128))
        self._disk.rename(wrong, f"{wrong.rpartition('/')[0]}/{aside}")
        log.warning(
            "%s: there is also a log of this name in %s, and this one is not %s that the cluster's metadata "
            "knows. It is set aside as %s and not used",
            wrong,
            right,
            why,
            aside,
        )
        return is_right

    def _lower_checkpoint(self, directory: LogDir) -> None:
        """Where recovery cut a log below its recovery point, a second crash must not trust the old one."""
        written = directory.written[RECOVERY_POINTS_FILE]
        found = {partition: opened.checkpoint_offset for partition, opened in directory.logs.items()}
        found |= {partition: kept.recovery_point for partition, kept in directory.unopened.items()}
        found |= {partition: missing.recovery_point for partition, missing in directory.missing.items()}
        if any(offset > found.get(partition, offset) for partition, offset in written.items()):
            write_offsets(self._disk, f"{directory.path}/{RECOVERY_POINTS_FILE}", found)
            directory.written[RECOVERY_POINTS_FILE] = found

    async def close(self, broker_epoch: int = -1) -> None:
        """Sync and close all logs; only where that works will the next start trust what it finds."""
        for _, copy in self.moves.copies.values():
            copy.release()
        self.moves.copies.clear()
        usable = [directory for directory in self._dirs if directory.failure is None]
        await asyncio.gather(*(self._close_dir(directory, broker_epoch) for directory in usable))

    async def _close_dir(self, directory: LogDir, broker_epoch: int) -> None:
        run = self._runtime.offload.run
        results = await asyncio.gather(
            *(run(partition_log.close) for partition_log in directory.logs.values()), return_exceptions=True
        )
        failures = [result for result in results if isinstance(result, BaseException)]
        for failure in failures:
            if not isinstance(failure, Exception):
                raise failure
        if failures:
            log.error("%s: %d logs could not be closed: %s", directory.path, len(failures), failures[0])
            return
        if directory.unopened:
            # Nobody knows whether these are in good order.
            return
        content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()
        try:
            await self._write_checkpoints(directory)
            await run(self._disk.replace_file, f"{directory.path}/{CLEAN_SHUTDOWN_FILE}", content)
        except OSError as error:
            log.error(
                "%s cannot be left in good order, the next start will check it: %s", directory.path, error
            )

    def unlock(self) -> None:
        """Let go of the directories as they are, without closing anything."""
        for directory in self._dirs:
            if directory.lock is not None:
                directory.lock.release()
        self._dirs.clear()
        self._logs.clear()

    # In the background.

    def start(self, scope: TaskScope, high_watermark: HighWatermark) -> None:
        """Begin the periodic work. It sets aside what fails: a log, or a directory."""
        self._high_watermark = high_watermark
        # By itself, since housekeeping may wait for the disk.
        scope.spawn(self._repeat(self.presence.check, PRESENCE_INTERVAL_MS), "log-presence")
        scope.spawn(self._repeat(self._keep_house, HOUSEKEEPING_INTERVAL_MS), "log-housekeeping")
        scope.spawn(
            self._repeat(lambda: self._enforce_retention(high_watermark), "log.retention.check.interval.ms"),
            "log-retention",
        )
        scope.spawn(self.moves.run(), "log-moves")
        scope.spawn(
            self._repeat(self._checkpoint, "log.flush.offset.checkpoint.interval.ms"), "log-checkpoints"
        )
        scope.spawn(
            self._repeat(self._expire_producers, "producer.id.expiration.check.interval.ms"), "log-producers"
        )
        scope.spawn(self.cleaner.run(high_watermark), "log-cleaner")
        scope.spawn(self.scrubber.run(), "log-scrub")

    async def _repeat(self, action: Callable[[], Awaitable[None]], interval: str | int) -> None:
        """`interval` has milliseconds, or names the setting that does."""
        if isinstance(interval, str):
            await asyncio.sleep(self.config.integer("log.initial.task.delay.ms") / 1000)
        while True:
            # Zero would never let anything else run.
            interval_ms = interval if isinstance(interval, int) else max(self.config.integer(interval), 1)
            await asyncio.sleep(interval_ms / 1000)
            await action()

    async def _keep_house(self) -> None:
        """Flush what is due, with every segment that is full, and remove what was deleted a while ago."""
        for partition_log in list(self._logs.values()):
            if partition_log.is_closed:
                continue
            # Who refuses says so; it is tried again the next time.
            with contextlib.suppress(StorageError):
                if partition_log.flush_is_due:
                    await partition_log.flush()
                elif partition_log.has_unsynced_segments:
                    await partition_log.flush(upto=partition_log.segments.active.base_offset)
        files, dirs = self._removal.take_due(self._runtime.clock.now_ms())
        if files or dirs:
            await self._runtime.offload.run(self._removal.remove, files, dirs)
        # A topic that is deleted and made again must not be taken for compacted after a crash.
        await self.cleaner.write_checkpoints()
        for directory in self._dirs:
            if directory.is_full:
                await self._runtime.offload.run(directory.notice_room)

    async def _enforce_retention(self, high_watermark: HighWatermark) -> None:
        for partition, partition_log in list(self._logs.items()):
            upto = None if partition_log.is_closed else high_watermark(partition)
            if upto is not None:
                try:
                    partition_log.enforce_retention(self._runtime.clock.now_ms(), upto)
                except OSError as error:
                    partition_log.files.refused(error, "deleting old segments of")
            await asyncio.sleep(0)

    async def _checkpoint(self) -> None:
        with contextlib.suppress(StorageError):
            await self.write_checkpoints()

    async def write_down_as_gone(self, partitions: Collection[TopicPartition]) -> None:
        """Before logs are made where others of the same name were, which were closed: after a crash, what is
        known of those must not be taken for these. StorageError: it cannot be written."""
        await self.write_checkpoints(
            lambda directory: any(
                partition in offsets for offsets in directory.written.values() for partition in partitions
            )
        )

    async def write_checkpoints(self, only: Callable[[LogDir], bool] = lambda directory: True) -> None:
        """Of all directories that are in use, or StorageError."""
        refusal: StorageError | None = None
        # Two at a time would write the same temporary file.
        async with self._checkpoint_lock:
            for directory in list(self._dirs):
                if directory.failure is None and only(directory):
                    try:
                        await self._write_checkpoints(directory)
                    except OSError as error:
                        refusal = directory.refused(error, "writing checkpoints")
        if refusal is not None:
            raise refusal

    async def _write_checkpoints(self, directory: LogDir) -> None:
        recovery_points = {partition: found.recovery_point for partition, found in directory.unopened.items()}
        recovery_points |= {
            partition: missing.recovery_point for partition, missing in directory.missing.items()
        }
        start_offsets = {
            partition: found.start_offset
            for partition, found in directory.unopened.items()
            if found.start_offset is not None
        }
        for partition, opened in directory.logs.items():
            recovery_points[partition] = opened.checkpoint_offset
            # Otherwise the name of the first file says it.
            if opened.start_offset > opened.segments[0].base_offset:
                start_offsets[partition] = opened.start_offset
        readable = {partition: self._high_watermark(partition) for partition in directory.logs}
        high_watermarks = {partition: offset for partition, offset in readable.items() if offset is not None}
        high_watermarks |= {
            partition: missing.high_watermark for partition, missing in directory.missing.items()
        }
        for name, offsets in (
            (RECOVERY_POINTS_FILE, recovery_points),
            (START_OFFSETS_FILE, start_offsets),
            (HIGH_WATERMARKS_FILE, high_watermarks),
        ):
            if directory.written.get(name) != offsets:
                path = f"{directory.path}/{name}"
                await self._runtime.offload.run(write_offsets, self._disk, path, offsets)
                directory.written[name] = offsets

    async def _expire_producers(self) -> None:
        self._forget_idle_producers()

    def _forget_idle_producers(self) -> None:
        idle_since_ms = self._runtime.clock.now_ms() - self.config.integer("producer.id.expiration.ms")
        for partition_log in self._logs.values():
            partition_log.producers.expire(idle_since_ms)


def _epoch_in(content: bytes) -> int:
    """As Apache Kafka writes it, too; older versions left the file empty."""
    try:
        return int(json.loads(content)["brokerEpoch"])
    except (ValueError, KeyError, TypeError):
        return -1


def _some_of(steps: Iterator[None], clock: Clock) -> bool:
    """Take steps for a while; whether there are more."""
    end = clock.monotonic() + OPENING_SLICE_SECONDS
    return any(clock.monotonic() >= end for _ in steps)


def _another_topics(path: str) -> FileExistsError:
    return FileExistsError(errno.EEXIST, "the log of another topic is in the place", path)
