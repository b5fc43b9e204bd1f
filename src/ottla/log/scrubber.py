"""A slow walk over everything at rest, so that rot is found while a good copy still exists somewhere.

Each data directory is walked in the order of its partitions and segments, at a bounded rate. How far the
walk got is written down beside the logs, so that a restart goes on there.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from ottla.config import BrokerConfig
from ottla.log.aborted import AbortedTransaction
from ottla.log.log import PartitionLog
from ottla.log.pacing import Pace, ThreadJob
from ottla.log.scrub import verify_at_rest
from ottla.log.segment import Segment
from ottla.log.txn_check import UNTELLABLE, aborted_at_rest
from ottla.log.types import CorruptBatch, TopicPartition
from ottla.runtime import Runtime

log = logging.getLogger(__name__)

PROGRESS_FILE = "ottla-scrub-progress"

# How soon a change of the settings takes effect.
_LOOK_SECONDS_MAX = 60.0
# A restart repeats no more than this.
_PROGRESS_SECONDS = 10.0
# On a disk that rots all over, the first of them tell enough.
_FOUND_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Progress:
    """Of the last walk over a directory."""

    begun_ms: int = -1
    ended: bool = True
    topic: str = ""
    partition: int = -1
    base_offset: int = -1
    """The last segment that was checked; all in order before it were."""

    @property
    def position(self) -> tuple[str, int, int]:
        return self.topic, self.partition, self.base_offset


@dataclass(slots=True)
class ScrubCounters:
    """Since the broker started."""

    passes: int = 0
    segments: int = 0
    bytes: int = 0
    damaged_batches: int = 0


class Scrubber:
    def __init__(
        self,
        runtime: Runtime,
        config: Callable[[], BrokerConfig],
        logs_by_dir: Callable[[], Mapping[str, Sequence[PartitionLog]]],
        refused: Callable[[str, OSError, str], None],
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._logs_by_dir = logs_by_dir
        self._refused = refused
        # While switched off in the middle of a segment, the rest of that segment is read at this rate.
        self._pace = Pace(runtime, lambda: max(self._bytes_per_second, 1))
        self._progress: dict[str, Progress] = {}
        self._written_at = runtime.clock.monotonic()
        self.found: dict[tuple[str, int], CorruptBatch] = {}
        """Damaged batches by file and position; each is logged once."""
        self.counters = ScrubCounters()

    def forget(self, partition: TopicPartition) -> None:
        """Its log is deleted: another of the same name is sound until it is found not to be."""
        gone = [at for at, found in self.found.items() if (found.topic, found.partition) == partition]
        for at in gone:
            del self.found[at]

    @property
    def _bytes_per_second(self) -> int:
        return self._config().integer("ottla.scrub.bytes.per.second")

    async def run(self) -> None:
        """Walk over a directory whenever the interval has gone by since the last time was begun."""
        await asyncio.sleep(self._config().integer("log.initial.task.delay.ms") / 1000)
        while True:
            wait_seconds = _LOOK_SECONDS_MAX
            for directory in self._logs_by_dir():
                due_in_ms = self._due_in_ms(directory)
                if due_in_ms <= 0 and self._bytes_per_second:
                    await self.scrub(directory)
                    due_in_ms = self._due_in_ms(directory)
                wait_seconds = min(wait_seconds, max(due_in_ms / 1000, 1.0))
            await asyncio.sleep(wait_seconds)

    def _due_in_ms(self, directory: str) -> int:
        progress = self._progress_in(directory)
        age_ms = self._runtime.clock.now_ms() - progress.begun_ms
        # A walk begun in the future was dated by a clock that was wrong.
        if not progress.ended or progress.begun_ms < 0 or age_ms < 0:
            return 0
        return self._config().integer("ottla.scrub.interval.ms") - age_ms

    def _progress_in(self, directory: str) -> Progress:
        if directory not in self._progress:
            path = f"{directory}/{PROGRESS_FILE}"
            try:
                self._progress[directory] = Progress(**json.loads(self._runtime.disk.read_file(path)))
            except (FileNotFoundError, ValueError, TypeError):
                # Nothing is lost but the work of walking again.
                self._progress[directory] = Progress()
        return self._progress[directory]

    async def scrub(self, directory: str) -> None:
        """One walk over all segments that are no longer written to, or the rest of one."""
        progress = self._progress_in(directory)
        if progress.ended:
            progress = Progress(begun_ms=self._runtime.clock.now_ms(), ended=False)
            await self._note(directory, progress)
        logs = sorted(self._logs_by_dir().get(directory, ()), key=lambda found: found.topic_partition)
        for partition_log in logs:
            topic, partition = partition_log.topic_partition
            for segment in [found for found in partition_log.segments if found.size]:
                if partition_log.is_closed:
                    break
                if (topic, partition, segment.base_offset) <= progress.position:
                    continue
                # Retention and compaction go on meanwhile.
                if segment is not partition_log.segments.active and partition_log.segments.holds([segment]):
                    await self._scrub_segment(partition_log, segment)
                    progress = Progress(progress.begun_ms, False, topic, partition, segment.base_offset)
                    self._progress[directory] = progress
                    if self._runtime.clock.monotonic() - self._written_at > _PROGRESS_SECONDS:
                        await self._note(directory, progress)
        self.counters.passes += 1
        await self._note(directory, Progress(progress.begun_ms))

    async def _note(self, directory: str, progress: Progress) -> None:
        self._progress[directory] = progress
        self._written_at = self._runtime.clock.monotonic()
        data = json.dumps(asdict(progress)).encode()
        path = f"{directory}/{PROGRESS_FILE}"
        try:
            await self._runtime.offload.run(self._runtime.disk.replace_file, path, data, sync=False)
        except OSError as error:
            # A restart then repeats a little more.
            self._refused(directory, error, "writing down how far the scrub got")

    async def _scrub_segment(self, partition_log: PartitionLog, segment: Segment) -> None:
        found: list[CorruptBatch] = []
        truncations = partition_log.truncations
        try:
            steps = verify_at_rest(self._runtime.disk, segment, found.append)
            await self._pace.run(ThreadJob(self._runtime, steps))
        except FileNotFoundError:
            return
        except OSError as error:
            if not partition_log.is_closed:
                log.error("%s cannot be read to check it: %s; check the disk", segment.path, error)
            return
        # What compaction or truncation changed under way was not damaged.
        if truncations != partition_log.truncations or not _is_at_rest(partition_log, segment):
            return
        self.counters.segments += 1
        self.counters.bytes += segment.size
        if not found:
            await self._check_transactions(partition_log, segment)
        for damaged in found:
            if (damaged.path, damaged.position) not in self.found and len(self.found) < _FOUND_MAX:
                self.found[damaged.path, damaged.position] = damaged
                self.counters.damaged_batches += 1
                log.error(
                    "topic %s partition %d: the batch at offset %d, byte %d of %s, is damaged (%s); restore "
                    "this file from a replica or seek past the damage",
                    damaged.topic,
                    damaged.partition,
                    damaged.offset,
                    damaged.position,
                    damaged.path,
                    damaged.reason,
                )

    async def _check_transactions(self, partition_log: PartitionLog, segment: Segment) -> None:
        """Make the index of aborted transactions again where it does not say what the segment says."""
        snapshots = partition_log.files.snapshots
        is_known = segment.base_offset in snapshots.offsets
        # Compaction drops what the index was made from; and what is dropped needs no index.
        if (
            not partition_log.has_aborted
            or partition_log.config.cleanup_compact
            or not (is_known or segment.base_offset == 0)
        ):
            return
        runtime, index = self._runtime, segment.transactions
        truncations = partition_log.truncations

        def is_the_same() -> bool:
            return truncations == partition_log.truncations and _is_at_rest(partition_log, segment)

        found: list[AbortedTransaction] = []
        path = snapshots.path(segment.base_offset) if is_known else None
        try:
            await self._pace.run(ThreadJob(runtime, aborted_at_rest(runtime.disk, segment, path, found)))
            # As the file has it: what is in memory may have been read before it rotted.
            stored = await runtime.offload.run(index.stored)
            if stored == index.encode(found) or not is_the_same():
                return
            await runtime.offload.run(runtime.disk.replace_file, index.path, index.encode(found))
        except (FileNotFoundError, *UNTELLABLE):
            return
        except OSError as error:
            self._refused(partition_log.dir, error, "making an index of aborted transactions again")
            return
        if is_the_same():
            index.replaced(found)
            log.error(
                "%s did not say which transactions of %s were aborted; it was made again from the log. "
                "Until now, consumers that read committed records may have seen aborted ones. Check the disk",
                index.path,
                partition_log.topic_partition,
            )


def _is_at_rest(partition_log: PartitionLog, segment: Segment) -> bool:
    return (
        not partition_log.is_closed
        and segment is not partition_log.segments.active
        and partition_log.segments.holds([segment])
    )
