"""Compaction in the background: the logs with the largest share of uncompacted bytes first.

    choose · plan · in another process: find the last of each key, rewrite, sync · swap · checkpoint

The swap happens on the event loop, between two requests; everything before it, away from it. Small logs are
compacted in a thread of the broker, because starting a process would cost more. How far each log is compacted
is written down when a round is over: after a crash, the round begins again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from ottla.config import BrokerConfig
from ottla.log.checkpoints import read_offsets, write_offsets
from ottla.log.compaction import CleanedGroup, Compacted, Plan, Source, compact
from ottla.log.dirt import Dirt, dirt_of, grouped
from ottla.log.log import PartitionLog
from ottla.log.names import CLEANED_SUFFIX, CLEANER_OFFSETS_FILE
from ottla.log.pacing import Pace, ThreadJob
from ottla.log.segment import Segment
from ottla.log.types import TopicPartition
from ottla.log.walk import BadBatch
from ottla.records.compression import CorruptRecords
from ottla.runtime import Disk, Runtime
from ottla.runtime.workers import Job
from ottla.wire.errors import CorruptMessage, StorageError

log = logging.getLogger(__name__)

# A process takes a fifth of a second to start, in which a thread has done this.
IN_THREAD_BYTES_MAX = 4 * 1024 * 1024


HighWatermark: TypeAlias = Callable[[TopicPartition], int | None]
"""None for a partition that this broker does not have, or has no longer."""


class Outdated(Exception):
    """The log was cut off or deleted while it was being compacted."""


class SwapFailed(Exception):
    """Files of the log are no longer what memory says."""


@dataclass(slots=True)
class CleanerCounters:
    """Since the broker started."""

    rounds: int = 0
    """That got to their end."""
    failures: int = 0
    """Rounds that could not, and logs that were given up."""
    bytes_read: int = 0
    bytes_written: int = 0
    seconds: float = 0.0
    """That the rounds took, each for itself."""
    round_ended_ms: int = -1
    looked_ms: int = -1
    """When the logs were last looked at for one that needs compaction."""
    dirty_ratio_max: float = 0.0
    """The largest found then."""


class LogCleaner:
    def __init__(
        self,
        runtime: Runtime,
        config: Callable[[], BrokerConfig],
        logs_by_dir: Callable[[], Mapping[str, Sequence[PartitionLog]]],
        write_recovery_points: Callable[[], Awaitable[None]],
        refused: Callable[[str, OSError, str], None],
        fail: Callable[[str, str], None],
    ) -> None:
        """`refused` is told which directory did not take what was written, `fail` which to use no more."""
        self._runtime = runtime
        self._config = config
        self._logs_by_dir = logs_by_dir
        self._write_recovery_points = write_recovery_points
        self._refused = refused
        self._fail = fail
        self._pace = Pace(runtime, lambda: self._config().number("log.cleaner.io.max.bytes.per.second"))
        self._cleaned: dict[TopicPartition, int] = {}
        """Up to where logs are compacted."""
        self._written: dict[str, dict[TopicPartition, int]] = {}
        self._checkpoint_lock = asyncio.Lock()
        self.uncleanable: dict[TopicPartition, str] = {}
        """Partitions with damage that compaction must not copy, until the broker starts again."""
        self._hindered: dict[TopicPartition, str] = {}
        self._in_work: set[TopicPartition] = set()
        self.counters = CleanerCounters()

    @property
    def rounds_under_way(self) -> int:
        return len(self._in_work)

    # What is known of logs.

    def load(self, directory: str) -> None:
        found = read_offsets(self._runtime.disk, f"{directory}/{CLEANER_OFFSETS_FILE}")
        self._written[directory] = found
        self._cleaned.update(found)

    def forget(self, partition: TopicPartition) -> None:
        """Its log is deleted: another of the same name begins uncompacted."""
        self._cleaned.pop(partition, None)
        self.uncleanable.pop(partition, None)
        self._hindered.pop(partition, None)

    def truncated(self, partition: TopicPartition, offset: int) -> None:
        if self._cleaned.get(partition, 0) > offset:
            self._cleaned[partition] = offset

    async def write_checkpoints(self) -> None:
        # Two at a time would write the same temporary file.
        async with self._checkpoint_lock:
            for directory, logs in self._logs_by_dir().items():
                here = {found.topic_partition for found in logs}
                offsets = {
                    partition: offset for partition, offset in self._cleaned.items() if partition in here
                }
                if self._written.get(directory, {}) != offsets:
                    path = f"{directory}/{CLEANER_OFFSETS_FILE}"
                    try:
                        await self._runtime.offload.run(write_offsets, self._runtime.disk, path, offsets)
                    except OSError as error:
                        # Written the next time; until then a crash costs a round.
                        self._refused(directory, error, "writing a checkpoint of the cleaner")
                    else:
                        self._written[directory] = offsets

    # Working.

    async def run(self, high_watermark: HighWatermark) -> None:
        """Compact up to log.cleaner.threads logs at a time."""
        # A dict for its order.
        rounds: dict[asyncio.Task[bool], None] = {}
        wait_until = 0.0
        try:
            while True:
                config, now = self._config(), self._runtime.clock.monotonic()
                enabled = config.boolean("log.cleaner.enable") and now >= wait_until
                while enabled and len(rounds) < config.integer("log.cleaner.threads"):
                    dirt = self._dirtiest(high_watermark)
                    if dirt is None:
                        break
                    rounds[asyncio.create_task(self._clean_alone(dirt))] = None
                # A pause of zero would never let anything else run.
                pause_seconds = max(config.integer("log.cleaner.backoff.ms"), 1) / 1000
                if not rounds:
                    await asyncio.sleep(pause_seconds)
                    continue
                await asyncio.wait(rounds, timeout=pause_seconds, return_when=asyncio.FIRST_COMPLETED)
                for task in [task for task in rounds if task.done()]:
                    del rounds[task]
                    if not task.result():
                        wait_until = self._runtime.clock.monotonic() + pause_seconds
        finally:
            for task in rounds:
                task.cancel()
            await asyncio.gather(*rounds, return_exceptions=True)

    async def clean_dirtiest(self, high_watermark: HighWatermark) -> bool:
        """Compact the log that needs it most; False when none does, or it cannot be done now."""
        dirt = self._dirtiest(high_watermark)
        return dirt is not None and await self._clean_alone(dirt)

    def _dirtiest(self, high_watermark: HighWatermark) -> Dirt | None:
        now_ms = self._runtime.clock.now_ms()
        due = []
        self.counters.looked_ms = now_ms
        self.counters.dirty_ratio_max = 0.0
        for logs in self._logs_by_dir().values():
            for candidate in logs:
                partition = candidate.topic_partition
                if (
                    not candidate.config.cleanup_compact
                    or partition in self.uncleanable
                    or partition in self._in_work
                    or (readable_offset := high_watermark(partition)) is None
                ):
                    continue
                try:
                    dirt = dirt_of(candidate, self._cleaned.get(partition, 0), readable_offset, now_ms)
                except OSError as error:
                    self._hinder(candidate, error)
                    continue
                # A fault stays with the log it is in, whatever it is.
                except Exception as error:
                    self._give_up(partition, error)
                    continue
                self.counters.dirty_ratio_max = max(self.counters.dirty_ratio_max, dirt.ratio)
                if dirt.is_due:
                    due.append(dirt)
        found = max(due, key=lambda dirt: dirt.ratio, default=None)
        if found is not None:
            self._in_work.add(found.log.topic_partition)
        return found

    def _give_up(self, partition: TopicPartition, error: Exception) -> None:
        self.uncleanable[partition] = str(error)
        self.counters.failures += 1
        unforeseen = not isinstance(error, BadBatch | CorruptMessage | CorruptRecords)
        log.error(
            "%s is not compacted any more: %s", partition, error, exc_info=error if unforeseen else None
        )

    def _hinder(self, hindered: PartitionLog, error: OSError) -> None:
        """A full disk, a dead worker, or a log or segment that was deleted meanwhile."""
        partition, hindrance = hindered.topic_partition, f"{type(error).__name__} {error.errno}"
        if self._is_here(hindered):
            self.counters.failures += 1
            if self._hindered.get(partition) != hindrance:
                self._hindered[partition] = hindrance
                log.error("%s could not be compacted and will be tried again: %s", partition, error)

    async def _clean_alone(self, dirt: Dirt) -> bool:
        try:
            return await self._clean(dirt)
        except OSError as error:
            self._hinder(dirt.log, error)
            return False
        except Exception as error:
            if self._is_here(dirt.log):
                self._give_up(dirt.log.topic_partition, error)
            return True
        finally:
            self._in_work.discard(dirt.log.topic_partition)

    async def _clean(self, dirt: Dirt) -> bool:
        cleaned_log, partition, end_before = dirt.log, dirt.log.topic_partition, dirt.log.next_offset
        try:
            # Recovery takes gaps in offsets for damage where nobody has written down that the log is on disk.
            await cleaned_log.flush(upto=dirt.end_offset)
            await self._write_recovery_points()
        except StorageError:
            # Said by who refused it.
            return False
        if not self._is_here(cleaned_log):
            return False
        groups = grouped(dirt)
        plan = self._plan(dirt, groups)
        try:
            await self._compact(dirt, groups, plan)
        except SwapFailed as error:
            if self._is_here(cleaned_log):
                self._fail(cleaned_log.dir, str(error))
            return False
        except Outdated:
            return False
        except (CorruptMessage, CorruptRecords) as error:
            # What was cut off while it was being read only looked damaged.
            if self._is_here(cleaned_log) and cleaned_log.next_offset >= end_before:
                self._give_up(partition, error)
            return True
        finally:
            try:
                await self._runtime.offload.run(_discard, self._runtime.disk, plan)
            except OSError as error:
                self._refused(plan.directory, error, f"removing what compaction of {partition} left")
        self._hindered.pop(partition, None)
        return True

    def _plan(self, dirt: Dirt, groups: Sequence[Sequence[Segment]]) -> Plan:
        config, cleaned_log = self._config(), dirt.log
        threads = max(config.integer("log.cleaner.threads"), 1)
        return Plan(
            partition=cleaned_log.topic_partition,
            directory=cleaned_log.dir,
            config=cleaned_log.config,
            first_offset=dirt.first_offset,
            end_offset=dirt.end_offset,
            groups=tuple(tuple(map(_source, group)) for group in groups),
            rest=tuple(map(_source, cleaned_log.segments.from_offset(dirt.end_offset))),
            suffix=f".{self._runtime.random.getrandbits(64):016x}{CLEANED_SUFFIX}",
            # Who becomes active from now on writes behind the end.
            producers={
                producer.producer_id: (producer.last_offset, producer.epoch)
                for producer in cleaned_log.producers.active.values()
            },
            now_ms=self._runtime.clock.now_ms(),
            map_bytes_max=config.integer("log.cleaner.dedupe.buffer.size") // threads,
            load_factor=config.number("log.cleaner.io.buffer.load.factor"),
            # One half for reading, one for writing.
            chunk_bytes=max(config.integer("log.cleaner.io.buffer.size") // threads // 2, 1),
        )

    async def _compact(self, dirt: Dirt, groups: Sequence[Sequence[Segment]], plan: Plan) -> None:
        clock, cleaned_log = self._runtime.clock, dirt.log
        started = clock.monotonic()
        truncations = cleaned_log.truncations

        async def on_result(result: CleanedGroup | Compacted) -> None:
            if truncations != cleaned_log.truncations:
                # What was read is not what there is now.
                raise Outdated
            match result:
                case CleanedGroup():
                    await self._swap(cleaned_log, groups[result.group], plan, result)
                case Compacted():
                    if not self._is_here(cleaned_log):
                        raise Outdated
                    self._cleaned[cleaned_log.topic_partition] = result.end_offset
                    await self.write_checkpoints()
                    self._count(cleaned_log, result, clock.monotonic() - started)
                case _:
                    assert_never(result)

        await self._pace.run(await self._begin(dirt, plan), on_result)

    def _count(self, cleaned_log: PartitionLog, result: Compacted, seconds: float) -> None:
        counters = self.counters
        counters.rounds += 1
        counters.bytes_read += result.bytes_read
        counters.bytes_written += result.bytes_written
        counters.seconds += seconds
        counters.round_ended_ms = self._runtime.clock.now_ms()
        log.info(
            "compacted %s up to offset %d: %d of %d bytes left, %d keys, %d ms",
            cleaned_log.topic_partition,
            result.end_offset,
            result.bytes_written,
            result.bytes_read,
            result.keys,
            seconds * 1000,
        )

    async def _begin(self, dirt: Dirt, plan: Plan) -> Job:
        workers = self._runtime.workers
        if workers is None or dirt.clean_bytes + dirt.dirty_bytes <= IN_THREAD_BYTES_MAX:
            return ThreadJob(self._runtime, compact(self._runtime.disk, plan))
        return await workers.begin(compact, plan)

    def _is_here(self, wanted: PartitionLog) -> bool:
        return any(found is wanted for logs in self._logs_by_dir().values() for found in logs)

    async def _swap(
        self, cleaned_log: PartitionLog, group: Sequence[Segment], plan: Plan, written: CleanedGroup
    ) -> None:
        cleaned = cleaned_log.files.begin_cleaned(group)
        run, disk = self._runtime.offload.run, self._runtime.disk
        await run(_adopt, disk, plan, cleaned, written)
        try:
            swapped = self._is_here(cleaned_log) and cleaned_log.files.replace(group, cleaned)
        except OSError as error:
            # Files are no longer what memory says; the next start completes the swap.
            raise SwapFailed(
                f"{cleaned_log.topic_partition}: a compacted segment is half in place: {error}"
            ) from error
        if not swapped:
            raise Outdated
        await run(disk.sync_dir, cleaned_log.dir)


def _source(segment: Segment) -> Source:
    return Source(segment.path, segment.base_offset, segment.size)


def _adopt(disk: Disk, plan: Plan, cleaned: Segment, written: CleanedGroup) -> None:
    """Take over what the job has written."""
    indexes = (cleaned.offsets.file.path, cleaned.times.file.path, cleaned.transactions.path)
    for path in (*indexes, cleaned.path):
        written_path = path.removesuffix(CLEANED_SUFFIX) + plan.suffix
        if disk.exists(written_path):
            disk.rename(written_path, path)
    cleaned.size = written.size
    cleaned.offsets.file.attach()
    cleaned.times.file.attach()
    cleaned.transactions.has_file = disk.exists(cleaned.transactions.path)
    cleaned.transactions.attach(cleaned.base_offset)


def _discard(disk: Disk, plan: Plan) -> None:
    """Remove what was written and will not be used."""
    # The log may be deleted at any moment.
    with contextlib.suppress(FileNotFoundError):
        for name in disk.list_dir(plan.directory):
            if name.endswith((plan.suffix, CLEANED_SUFFIX)):
                disk.remove(f"{plan.directory}/{name}")
