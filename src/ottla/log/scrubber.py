"""A slow walk over everything at rest, so that rot is found while a good copy still exists somewhere."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from ottla.config import BrokerConfig
from ottla.log.log import PartitionLog
from ottla.log.pacing import Pace
from ottla.log.scrub import verify_at_rest
from ottla.log.segment import Segment
from ottla.log.types import CorruptBatch
from ottla.runtime import Runtime

log = logging.getLogger(__name__)

# How soon a change of the settings takes effect.
_LOOK_SECONDS_MAX = 60.0


class Scrubber:
    def __init__(
        self,
        runtime: Runtime,
        config: Callable[[], BrokerConfig],
        logs: Callable[[], Sequence[PartitionLog]],
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._logs = logs
        # While switched off in the middle of a segment, the rest of that segment is read at this rate.
        self._pace = Pace(runtime, lambda: max(self._bytes_per_second, 1))
        self.found: dict[tuple[str, int], CorruptBatch] = {}
        """Damaged batches by file and position; each is logged once."""

    @property
    def _bytes_per_second(self) -> int:
        return self._config().integer("ottla.scrub.bytes.per.second")

    async def run(self) -> None:
        """Begin a pass whenever the interval has gone by since the last one began."""
        clock = self._runtime.clock
        begun = clock.monotonic()
        while True:
            interval_seconds = self._config().integer("ottla.scrub.interval.ms") / 1000
            wait_seconds = begun + interval_seconds - clock.monotonic()
            if wait_seconds > 0 or not self._bytes_per_second:
                await asyncio.sleep(min(max(wait_seconds, 1.0), _LOOK_SECONDS_MAX))
                continue
            begun = clock.monotonic()
            await self.scrub()

    async def scrub(self) -> None:
        """One pass over all segments that are no longer written to."""
        for partition_log in self._logs():
            for segment in [found for found in partition_log.segments if found.size]:
                # Retention and compaction go on meanwhile.
                if segment is not partition_log.segments.active and partition_log.segments.holds([segment]):
                    await self._scrub_segment(partition_log, segment)

    async def _scrub_segment(self, partition_log: PartitionLog, segment: Segment) -> None:
        found: list[CorruptBatch] = []
        try:
            await self._pace.run(verify_at_rest(self._runtime.disk, segment, found.append))
        except FileNotFoundError:
            return
        # What compaction or truncation changed under way was not damaged.
        if not partition_log.segments.holds([segment]):
            return
        for damaged in found:
            if (damaged.path, damaged.position) not in self.found:
                self.found[damaged.path, damaged.position] = damaged
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
