"""All logs of a broker: opened at start, kept in order while it runs, closed so the next start is quick."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from uuid import UUID

from ottla.config import BrokerConfig, LogConfig
from ottla.log.checkpoints import read_offsets, write_offsets
from ottla.log.cleaner import HighWatermark, LogCleaner
from ottla.log.log import PartitionLog
from ottla.log.names import (
    CLEAN_SHUTDOWN_FILE,
    DELETED_DIR_SUFFIX,
    HIGH_WATERMARKS_FILE,
    LOCK_FILE,
    RECOVERY_POINTS_FILE,
    START_OFFSETS_FILE,
    STRAY_DIR_SUFFIX,
    deleted_dir_name,
    partition_in_name,
    stray_dir_name,
)
from ottla.log.recovery import open_log
from ottla.log.removal import DelayedRemoval
from ottla.log.scrubber import Scrubber
from ottla.log.segment import OpenSegments
from ottla.log.types import TopicPartition
from ottla.runtime import Runtime
from ottla.runtime.disk import Lock
from ottla.runtime.tasks import TaskScope

log = logging.getLogger(__name__)

# Raft opens this one itself; it may share the directory with ordinary logs.
METADATA_TOPIC = "__cluster_metadata"

HOUSEKEEPING_INTERVAL_MS = 1000


class LogDir:
    """One data directory."""

    def __init__(self, path: str, lock: Lock) -> None:
        self.path = path
        self.lock = lock
        self.clean = False
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.written: dict[str, dict[TopicPartition, int]] = {}
        """What each checkpoint file says, to leave it alone while nothing changes."""


class LogManager:
    def __init__(self, runtime: Runtime, config: BrokerConfig, dirs: Sequence[str]) -> None:
        self.config = config
        self._runtime = runtime
        self._disk = runtime.disk
        self._paths = [path.rstrip("/") or "/" for path in dirs]
        self._dirs: list[LogDir] = []
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._open_segments = OpenSegments()
        self._removal = DelayedRemoval(runtime.disk)
        self._checkpoint_lock = asyncio.Lock()
        # Not known before the partitions are.
        self._high_watermark: HighWatermark = lambda partition: None
        self.cleaner = LogCleaner(runtime, lambda: self.config, self.logs_by_dir, self.write_checkpoints)
        self.scrubber = Scrubber(runtime, lambda: self.config, self.logs_by_dir)

    # The logs.

    def get(self, partition: TopicPartition) -> PartitionLog | None:
        return self._logs.get(partition)

    @property
    def all_logs(self) -> Iterable[PartitionLog]:
        return self._logs.values()

    def logs_by_dir(self) -> dict[str, list[PartitionLog]]:
        return {directory.path: list(directory.logs.values()) for directory in self._dirs}

    def create(self, topic: str, partition: int, topic_id: UUID, config: LogConfig) -> PartitionLog:
        """In the directory that has the fewest."""
        found = TopicPartition(topic, partition)
        if found in self._logs:
            raise ValueError(f"{found} exists in {self._logs[found].dir}")
        directory = min(self._dirs, key=lambda candidate: len(candidate.logs))
        return self._add(
            directory,
            open_log(
                self._runtime,
                f"{directory.path}/{found}",
                found,
                config,
                clean=True,
                topic_id=topic_id,
                open_segments=self._open_segments,
                removal=self._removal,
            ),
        )

    def _add(self, directory: LogDir, partition_log: PartitionLog) -> PartitionLog:
        directory.logs[partition_log.topic_partition] = partition_log
        self._logs[partition_log.topic_partition] = partition_log
        return partition_log

    def delete(self, partition: TopicPartition) -> None:
        """Out of sight at once, off the disk after file.delete.delay.ms."""
        deleted, target = self._put_away(partition, deleted_dir_name)
        self._removal.add_dir(self._runtime.clock.now_ms() + deleted.config.file_delete_delay_ms, target)

    def set_aside(self, partition: TopicPartition) -> str:
        """Out of use, under a name that is never opened nor removed; where that is."""
        return self._put_away(partition, stray_dir_name)[1]

    def _put_away(
        self, partition: TopicPartition, name: Callable[[TopicPartition, int], str]
    ) -> tuple[PartitionLog, str]:
        closed = self._logs.pop(partition)
        self.cleaner.forget(partition)
        self.scrubber.forget(partition)
        directory = next(candidate for candidate in self._dirs if partition in candidate.logs)
        del directory.logs[partition]
        closed.release()
        target = f"{directory.path}/{name(partition, self._runtime.random.getrandbits(128))}"
        self._disk.rename(closed.dir, target)
        return closed, target

    async def truncate(self, partition: TopicPartition, offset: int) -> None:
        """Drop records at and after an offset.

        First it is written down that they need not be on disk: after a crash in between, or before the
        next checkpoint, records that replace them must not be taken for them.
        """
        truncated = self._logs[partition]
        while truncated.lower_recovery_point(offset):
            await self.write_checkpoints()
        truncated.truncate_to(offset)
        self.cleaner.truncated(partition, offset)

    # Start and stop.

    def lock(self) -> None:
        """Claim the directories before anything in them is read. DiskLocked: another broker has one."""
        try:
            for path in self._paths:
                if not self._disk.exists(path):
                    self._disk.make_dirs(path)
                    # Or a power cut would take the directory with all that was ever synced into it.
                    self._disk.sync_dir(path.rpartition("/")[0] or ("/" if path.startswith("/") else "."))
                directory = LogDir(path, self._disk.lock(f"{path}/{LOCK_FILE}"))
                self._dirs.append(directory)
                marker = f"{path}/{CLEAN_SHUTDOWN_FILE}"
                directory.clean = self._disk.exists(marker)
                if directory.clean:
                    # Before anything else: a crash from now on must be recovered from.
                    self._disk.remove(marker)
                    self._disk.sync_dir(path)
        except BaseException:
            self.unlock()
            raise

    def was_closed(self, path: str) -> bool:
        """Whether the directory was left in good order."""
        return any(directory.clean for directory in self._dirs if directory.path == path.rstrip("/"))

    def open(self, config_of: Callable[[str], LogConfig]) -> None:
        """Open what is in the locked directories."""
        started = self._runtime.clock.monotonic()
        for directory in self._dirs:
            self._open_dir(directory, config_of)
            self._lower_checkpoint(directory)
            self.cleaner.load(directory.path)
        # A snapshot may be older than producers are remembered.
        self._forget_idle_producers()
        elapsed_ms = (self._runtime.clock.monotonic() - started) * 1000
        log.info("opened %d logs in %d ms", len(self._logs), elapsed_ms)

    def _open_dir(self, directory: LogDir, config_of: Callable[[str], LogConfig]) -> None:
        path = directory.path
        recovery_points = read_offsets(self._disk, f"{path}/{RECOVERY_POINTS_FILE}")
        start_offsets = read_offsets(self._disk, f"{path}/{START_OFFSETS_FILE}")
        strays = 0
        for name in self._disk.list_dir(path):
            strays += name.endswith(STRAY_DIR_SUFFIX)
            if name.endswith(DELETED_DIR_SUFFIX):
                self._removal.add_dir(0, f"{path}/{name}")
                continue
            partition = partition_in_name(name)
            if partition is None or partition.topic == METADATA_TOPIC:
                continue
            if partition in self._logs:
                other = self._logs[partition].dir
                raise ValueError(f"{partition} is both in {other} and {path}/{name}; remove the older one")
            self._add(
                directory,
                open_log(
                    self._runtime,
                    f"{path}/{name}",
                    partition,
                    config_of(partition.topic),
                    clean=directory.clean,
                    recovery_point=recovery_points.get(partition, 0),
                    start_offset=start_offsets.get(partition, 0),
                    open_segments=self._open_segments,
                    removal=self._removal,
                ),
            )

        if strays:
            log.warning(
                "%s: %d directories are named *%s: logs that the cluster's metadata did not know. They are "
                "not used; move them away, or remove them once nobody misses their records",
                path,
                strays,
                STRAY_DIR_SUFFIX,
            )

    def _lower_checkpoint(self, directory: LogDir) -> None:
        """Where recovery cut a log below its recovery point, a second crash must not trust the old one."""
        path = f"{directory.path}/{RECOVERY_POINTS_FILE}"
        written = read_offsets(self._disk, path)
        found = {partition: opened.checkpoint_offset for partition, opened in directory.logs.items()}
        if any(offset > found.get(partition, offset) for partition, offset in written.items()):
            write_offsets(self._disk, path, found)

    async def close(self, broker_epoch: int = -1) -> None:
        """Sync and close all logs; only where that works will the next start trust what it finds."""
        await asyncio.gather(*(self._close_dir(directory, broker_epoch) for directory in self._dirs))

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
        await self._write_checkpoints(directory)
        content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()
        await run(self._disk.replace_file, f"{directory.path}/{CLEAN_SHUTDOWN_FILE}", content)

    def unlock(self) -> None:
        """Let go of the directories as they are, without closing anything."""
        for directory in self._dirs:
            directory.lock.release()
        self._dirs.clear()
        self._logs.clear()

    # In the background.

    def start(self, scope: TaskScope, high_watermark: HighWatermark) -> None:
        """Begin the periodic work. A failure in any of it ends the node: the disk is not to be trusted."""
        self._high_watermark = high_watermark
        scope.spawn(self._repeat(self._keep_house, None), "log-housekeeping")
        scope.spawn(
            self._repeat(lambda: self._enforce_retention(high_watermark), "log.retention.check.interval.ms"),
            "log-retention",
        )
        scope.spawn(
            self._repeat(self.write_checkpoints, "log.flush.offset.checkpoint.interval.ms"), "log-checkpoints"
        )
        scope.spawn(
            self._repeat(self._expire_producers, "producer.id.expiration.check.interval.ms"), "log-producers"
        )
        scope.spawn(self.cleaner.run(high_watermark), "log-cleaner")
        scope.spawn(self.scrubber.run(), "log-scrub")

    async def _repeat(self, action: Callable[[], Awaitable[None]], interval_key: str | None) -> None:
        if interval_key is not None:
            await asyncio.sleep(self.config.integer("log.initial.task.delay.ms") / 1000)
        while True:
            interval_ms = HOUSEKEEPING_INTERVAL_MS
            if interval_key is not None:
                # Zero would never let anything else run.
                interval_ms = max(self.config.integer(interval_key), 1)
            await asyncio.sleep(interval_ms / 1000)
            await action()

    async def _keep_house(self) -> None:
        """Flush what is due, with every segment that is full, and remove what was deleted a while ago."""
        for partition_log in list(self._logs.values()):
            if partition_log.is_closed:
                continue
            if partition_log.flush_is_due:
                await partition_log.flush()
            elif partition_log.has_unsynced_segments:
                await partition_log.flush(upto=partition_log.segments.active.base_offset)
        files, dirs = self._removal.take_due(self._runtime.clock.now_ms())
        if files or dirs:
            await self._runtime.offload.run(self._removal.remove, files, dirs)
        # A topic that is deleted and made again must not be taken for compacted after a crash.
        await self.cleaner.write_checkpoints()

    async def _enforce_retention(self, high_watermark: HighWatermark) -> None:
        for partition, partition_log in list(self._logs.items()):
            upto = None if partition_log.is_closed else high_watermark(partition)
            if upto is not None:
                partition_log.enforce_retention(self._runtime.clock.now_ms(), upto)
            await asyncio.sleep(0)

    async def write_checkpoints(self) -> None:
        # Two at a time would write the same temporary file.
        async with self._checkpoint_lock:
            for directory in list(self._dirs):
                await self._write_checkpoints(directory)

    async def _write_checkpoints(self, directory: LogDir) -> None:
        recovery_points = {partition: found.checkpoint_offset for partition, found in directory.logs.items()}
        start_offsets = {
            partition: found.start_offset
            for partition, found in directory.logs.items()
            # Otherwise the name of the first file says it.
            if found.start_offset > found.segments[0].base_offset
        }
        readable = {partition: self._high_watermark(partition) for partition in directory.logs}
        high_watermarks = {partition: offset for partition, offset in readable.items() if offset is not None}
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
