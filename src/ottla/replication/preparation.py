"""Records that need work on their way into the log which the event loop has no time for.

They are looked at one by one, or go through another codec. Either takes longer than a request may hold up all
others. Whatever comes for the same partition meanwhile waits behind, so that no record overtakes another.

Inflating and compressing happen in threads, which do it without the interpreter's lock. Looking at records
does not: a few thousand are looked at in a thread, in slices; more, and what inflates to megabytes, in
another process. Bytes that wait, processes, inflated bytes and seconds are bounded.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque

from ottla.log.examination import (
    Corrections,
    Examination,
    TakesLong,
    corrected,
    examine_elsewhere,
    record_count,
)
from ottla.log.log import PartitionLog
from ottla.log.pacing import ThreadJob
from ottla.log.pending_verification import Verification
from ottla.log.types import AppendResult, TopicPartition
from ottla.replication.partition import Partition, Role
from ottla.replication.turns import Turn
from ottla.runtime import Runtime
from ottla.runtime.disk import ReadableBuffer
from ottla.runtime.tasks import ByteBudget
from ottla.runtime.workers import Job
from ottla.wire.errors import (
    NotEnoughReplicas,
    RecordTooLarge,
    RequestTimedOut,
    UnknownTopicOrPartition,
)

log = logging.getLogger(__name__)

WAITING_BYTES_MAX = 64 * 1024 * 1024
# What waiting takes besides the records: a task and its place in the line.
_WAITING_OVERHEAD_BYTES = 4 * 1024
# Threads are few, and syncing needs them too. Each examination may hold all that a request inflates to.
_AT_ONCE_MAX = 2
_IN_THREAD_RECORDS_MAX = 16 * 1024
_IN_THREAD_BYTES_MAX = 1024 * 1024
_IN_THREAD_INFLATED_BYTES_MAX = 4 * 1024 * 1024
# No shorter than producers wait for an answer.
EXAMINATION_SECONDS_MAX = 30.0
_SLICE_BYTES_MAX = 1 << 40


class Preparations:
    def __init__(self, waiting_bytes_max: int = WAITING_BYTES_MAX) -> None:
        self.queues: dict[TopicPartition, deque[Turn]] = {}
        """Empty most of the time."""
        self._waiting_bytes = ByteBudget(waiting_bytes_max)
        self._threads = asyncio.Semaphore(_AT_ONCE_MAX)
        self._processes = asyncio.Semaphore(_AT_ONCE_MAX)

    def join(self, partition: Partition, records: memoryview) -> Turn:
        """A place in the line of the partition.

        Raises NotEnoughReplicas, which producers retry, when too many wait already.
        """
        if not self._waiting_bytes.reserve(len(records) + _WAITING_OVERHEAD_BYTES):
            raise NotEnoughReplicas(
                f"{partition.topic_partition}: too many records wait to be looked at or compressed; retry"
            )
        waiting = self.queues.get(partition.topic_partition)
        if waiting is None:
            waiting = self.queues[partition.topic_partition] = deque()
        turn = Turn(waiting)
        waiting.append(turn)
        return turn

    async def append(
        self,
        runtime: Runtime,
        turn: Turn,
        partition: Partition,
        records: memoryview,
        acks: int,
        transaction: Verification | None,
        *,
        walk: bool,
    ) -> AppendResult:
        """Raises what appending raises. To be called for every turn that was given out."""
        found: ReadableBuffer | Exception
        try:
            # Those that wait are prepared side by side, and appended one after the other.
            is_prepared = walk or partition.log.prepares
            try:
                found = (
                    await self._prepared(runtime, partition.log, records, walk) if is_prepared else records
                )
            except Exception as error:
                # Whatever it is, those behind must not wait for ever.
                found = error
            async with turn:
                if isinstance(found, Exception):
                    raise found
                self._check_still_here(partition)
                try:
                    return partition.append(memoryview(found), acks, transaction, prepared=is_prepared)
                except TakesLong:
                    # Its header has a timestamp that cannot be.
                    found = await self._prepared(runtime, partition.log, records, walk=True)
                self._check_still_here(partition)
                return partition.append(memoryview(found), acks, transaction, prepared=True)
        finally:
            self._waiting_bytes.release(len(records) + _WAITING_OVERHEAD_BYTES)
            if not self.queues.get(partition.topic_partition, True):
                del self.queues[partition.topic_partition]

    def _check_still_here(self, partition: Partition) -> None:
        if partition.role is Role.OFFLINE:
            raise UnknownTopicOrPartition(f"{partition.topic_partition} was deleted meanwhile")

    async def _prepared(
        self, runtime: Runtime, partition_log: PartitionLog, records: ReadableBuffer, walk: bool
    ) -> ReadableBuffer:
        examination = partition_log.examination(walk=walk)
        if examination is not None:
            try:
                corrections = await self._examine(runtime, bytes(records), examination)
            except (OSError, MemoryError) as error:
                # Another process could not be started, or memory ran out in it.
                log.error("cannot look at the records for %s: %r", examination.partition, error)
                raise NotEnoughReplicas(
                    f"{examination.partition}: what looks at the records has failed ({error}); retry"
                ) from error
            records = corrected(records, corrections)
        if not partition_log.is_slow_to_recompress(records):
            return partition_log.recompressed(records)
        async with self._threads:
            return await runtime.offload.run(partition_log.recompressed, records)

    async def _examine(self, runtime: Runtime, records: bytes, examination: Examination) -> Corrections:
        workers = runtime.workers
        if workers is None:
            async with self._threads:
                return await _ended(runtime, _in_thread(runtime, records, examination), examination)
        if len(records) <= _IN_THREAD_BYTES_MAX and record_count(records) <= _IN_THREAD_RECORDS_MAX:
            bytes_max = min(examination.inflated_bytes_max, _IN_THREAD_INFLATED_BYTES_MAX)
            small = examination._replace(inflated_bytes_max=bytes_max)
            try:
                async with self._threads:
                    return await _ended(runtime, _in_thread(runtime, records, small), examination)
            except RecordTooLarge:
                if small == examination:
                    raise
        async with self._processes:
            job = await workers.begin(examine_elsewhere, records, examination)
            return await _ended(runtime, job, examination)


def _in_thread(runtime: Runtime, records: bytes, examination: Examination) -> Job:
    return ThreadJob(runtime, examine_elsewhere(runtime.disk, records, examination))


async def _ended(runtime: Runtime, job: Job, examination: Examination) -> Corrections:
    """The result of an examination, unless it takes too long."""
    until = runtime.clock.monotonic() + EXAMINATION_SECONDS_MAX
    corrections: Corrections = []
    try:
        ended = False
        while not ended:
            _, results, ended = await job.advance(_SLICE_BYTES_MAX)
            for result in results:
                corrections = result
            if not ended and runtime.clock.monotonic() > until:
                raise RequestTimedOut(
                    f"{examination.partition}: looking at the records took longer than "
                    f"{EXAMINATION_SECONDS_MAX:.0f} s; send smaller batches"
                )
    finally:
        await job.close()
    return corrections
