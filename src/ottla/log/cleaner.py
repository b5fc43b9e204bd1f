"""Compaction in the background: one log at a time, the one with the largest share of uncompacted bytes first.

    choose · survey headers · fill the offset map · per group of segments: rewrite, sync, swap · checkpoint

The swap happens on the event loop, between two requests; everything before it, away from it. How far each log
is compacted is written down when a round is over: after a crash, the round begins again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from ottla.config import BrokerConfig
from ottla.log.aborted import TransactionWalk
from ottla.log.checkpoints import read_offsets, write_offsets
from ottla.log.compaction import Rewriting, discard, fill_map, survey
from ottla.log.dirt import Dirt, dirt_of, grouped
from ottla.log.log import PartitionLog
from ottla.log.names import CLEANER_OFFSETS_FILE
from ottla.log.offset_map import OffsetMap
from ottla.log.pacing import Pace
from ottla.log.segment import Segment
from ottla.log.types import TopicPartition
from ottla.records.compression import CorruptRecords
from ottla.runtime import Runtime
from ottla.wire.errors import CorruptMessage

log = logging.getLogger(__name__)


class SwapFailed(RuntimeError):
    """The node must stop."""


class LogCleaner:
    def __init__(
        self,
        runtime: Runtime,
        config: Callable[[], BrokerConfig],
        logs_by_dir: Callable[[], Mapping[str, Sequence[PartitionLog]]],
        write_recovery_points: Callable[[], Awaitable[None]],
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._logs_by_dir = logs_by_dir
        self._write_recovery_points = write_recovery_points
        self._pace = Pace(runtime, lambda: self._config().number("log.cleaner.io.max.bytes.per.second"))
        self._cleaned: dict[TopicPartition, int] = {}
        """Up to where logs are compacted."""
        self._written: dict[str, dict[TopicPartition, int]] = {}
        self.uncleanable: dict[TopicPartition, str] = {}
        """Partitions with damage that compaction must not copy, until the broker starts again."""
        self._hindered: dict[TopicPartition, str] = {}

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
        for directory, logs in self._logs_by_dir().items():
            here = {found.topic_partition for found in logs}
            offsets = {partition: offset for partition, offset in self._cleaned.items() if partition in here}
            if self._written.get(directory, {}) != offsets:
                path = f"{directory}/{CLEANER_OFFSETS_FILE}"
                await self._runtime.offload.run(write_offsets, self._runtime.disk, path, offsets)
                self._written[directory] = offsets

    # Working.

    async def run(self, high_watermark: Callable[[TopicPartition], int]) -> None:
        while True:
            config = self._config()
            busy = config.boolean("log.cleaner.enable") and await self.clean_dirtiest(high_watermark)
            # A pause of zero would never let anything else run.
            await asyncio.sleep(0 if busy else max(config.integer("log.cleaner.backoff.ms"), 1) / 1000)

    async def clean_dirtiest(self, high_watermark: Callable[[TopicPartition], int]) -> bool:
        """Compact the log that needs it most; False when none does."""
        dirt = self._dirtiest(high_watermark)
        if dirt is None:
            return False
        partition = dirt.log.topic_partition
        # Recovery takes gaps in offsets for damage where nobody has written down that the log is on disk.
        await dirt.log.flush(upto=dirt.end_offset)
        await self._write_recovery_points()
        try:
            finished = await self._clean(dirt)
        except (CorruptMessage, CorruptRecords) as error:
            self.uncleanable[partition] = str(error)
            log.error("%s will not be compacted until the broker starts again: %s", partition, error)
            return True
        except OSError as error:
            # A full disk, or a log that was deleted meanwhile. The log itself is as it was.
            if self._is_here(dirt.log) and self._hindered.get(partition) != str(error):
                self._hindered[partition] = str(error)
                log.error("%s could not be compacted and will be tried again: %s", partition, error)
            return False
        self._hindered.pop(partition, None)
        return finished

    def _dirtiest(self, high_watermark: Callable[[TopicPartition], int]) -> Dirt | None:
        now_ms = self._runtime.clock.now_ms()
        due = []
        for logs in self._logs_by_dir().values():
            for candidate in logs:
                partition = candidate.topic_partition
                if candidate.config.cleanup_compact and partition not in self.uncleanable:
                    dirt = dirt_of(
                        candidate, self._cleaned.get(partition, 0), high_watermark(partition), now_ms
                    )
                    if dirt.is_due:
                        due.append(dirt)
        return max(due, key=lambda dirt: (dirt.overdue, dirt.ratio), default=None)

    def _is_here(self, wanted: PartitionLog) -> bool:
        return any(found is wanted for logs in self._logs_by_dir().values() for found in logs)

    def _swap(self, cleaned_log: PartitionLog, group: Sequence[Segment], cleaned: Segment) -> bool:
        try:
            return self._is_here(cleaned_log) and cleaned_log.replace(group, cleaned)
        except OSError as error:
            # Files are no longer what memory says; the next start completes the swap.
            raise SwapFailed(
                f"{cleaned_log.topic_partition}: a compacted segment is half in place"
            ) from error

    async def _clean(self, dirt: Dirt) -> bool:
        """False: the log was cut off or deleted in the meantime."""
        config, disk, clock = self._config(), self._runtime.disk, self._runtime.clock
        cleaned_log = dirt.log
        partition = cleaned_log.topic_partition
        started = clock.monotonic()
        to_the_end = cleaned_log.segments.from_offset(dirt.first_offset)
        known = await self._pace.run(survey(disk, dirt, [(segment, segment.size) for segment in to_the_end]))
        chunk_bytes = max(config.integer("log.cleaner.io.buffer.size"), 1)
        offsets = OffsetMap(
            config.integer("log.cleaner.dedupe.buffer.size"),
            config.number("log.cleaner.io.buffer.load.factor"),
            known.records,
        )
        await self._pace.run(fill_map(disk, dirt, known, offsets, chunk_bytes))
        walk = TransactionWalk(known.aborted)
        rewriting = Rewriting(disk, dirt, offsets, walk, clock.now_ms(), chunk_bytes)
        for group in grouped(dirt):
            if group[0].base_offset > offsets.latest_offset:
                break
            producers = {
                producer.producer_id: (producer.last_offset, producer.epoch)
                for producer in cleaned_log.producers.active.values()
            }
            cleaned = cleaned_log.begin_cleaned(group)
            try:
                await self._pace.run(rewriting.rewrite(group, cleaned, producers))
            except Exception:
                await self._runtime.offload.run(discard, disk, cleaned)
                raise
            if not self._swap(cleaned_log, group, cleaned):
                await self._runtime.offload.run(discard, disk, cleaned)
                return False
            await self._runtime.offload.run(disk.sync_dir, cleaned_log.dir)
        self._cleaned[partition] = offsets.latest_offset + 1
        await self.write_checkpoints()
        log.info(
            "compacted %s up to offset %d: %d of %d bytes left, %d keys, %d ms",
            partition,
            offsets.latest_offset + 1,
            rewriting.bytes_written,
            rewriting.bytes_read,
            offsets.count,
            (clock.monotonic() - started) * 1000,
        )
        return True
