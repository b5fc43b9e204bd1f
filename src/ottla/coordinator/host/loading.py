"""What a shard's partition holds, replayed: all of it that can be read.

One rotten bit costs the batch it is in, one record that cannot be understood costs that record; what was
stored before them stands. Each is said, with what to do about it, but no more than a few times per load.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Generic

from ottla.coordinator.host.shard_kind import S, ShardKind, UnknownRecord
from ottla.coordinator.host.shard_log import DamagedBatch, StoredBatch, read_batches
from ottla.records.batch import NO_PRODUCER_ID
from ottla.wire.errors import CorruptMessage

log = logging.getLogger(__name__)

_LOAD_BYTES = 64 * 1024
"""Read and replayed in one turn of the event loop: some milliseconds."""
_SAID_MAX = 10


class Loading(Generic[S]):
    def __init__(self, kind: ShardKind[S], partition: int) -> None:
        self._kind = kind
        self._log = kind.log
        self._partition = partition
        self._name = f"{kind.topic}-{partition}"
        self._records = 0
        self._skipped = 0
        self._damages = 0

    async def run(self, is_wanted: Callable[[], bool]) -> S | None:
        """None if nobody wants it any more. Raises what the log raises when it cannot be read at all."""
        shard = self._kind.new()
        offset = self._log.start_offset(self._partition)
        while offset < (end_offset := self._log.end_offset(self._partition)):
            try:
                data = self._log.read(self._partition, offset, _LOAD_BYTES)
                if not data:
                    break  # compaction can leave nothing before the end
                for batch in read_batches(data, offset, end_offset):
                    self._replay_batch(shard, batch)
                    offset = batch.next_offset
            except CorruptMessage as error:
                offset = await self._skip_damage(offset, offset, str(error))
            except DamagedBatch as error:
                offset = await self._skip_damage(offset, error.resume_offset, str(error))
            await asyncio.sleep(0)
            if not is_wanted():
                return None
        self._summarize()
        return shard

    async def _skip_damage(self, offset: int, resume_offset: int, reason: str) -> int:
        found = resume_offset
        for step in self._log.find_whole_batch(self._partition, resume_offset):
            if step is None:
                await asyncio.sleep(0)
            else:
                found = step
        if found <= offset:
            raise CorruptMessage(f"{self._name} cannot be read at offset {offset}: {reason}")
        self._damages += 1
        if self._damages <= _SAID_MAX:
            log.error(
                "%s: offsets %d to %d are damaged and skipped (%s). Of %s stored there the state before that "
                "counts. Check the disk; %s",
                self._name,
                offset,
                found - 1,
                reason,
                self._kind.noun,
                self._kind.remedy,
            )
        return found

    def _replay_batch(self, shard: S, batch: StoredBatch) -> None:
        self._records += len(batch.records)
        producer_id = NO_PRODUCER_ID if batch.producer is None else batch.producer.id
        for record in batch.records:
            try:
                key, value = self._kind.decode(record.key, record.value)
                shard.replay(key, value, producer_id)
            except Exception as error:
                self._skip(record.offset, error)
        if (marker := batch.marker) is not None:
            try:
                shard.replay_marker(marker.producer_id, committed=marker.committed)
            except Exception as error:
                self._skip(batch.next_offset - 1, error)

    def _skip(self, offset: int, error: Exception) -> None:
        self._skipped += 1
        if self._skipped > _SAID_MAX:
            return
        is_known = isinstance(error, UnknownRecord)
        log.warning(
            "%s: the record at offset %d is skipped: %s; it stays in the log for a release that knows it",
            self._name,
            offset,
            error if is_known else repr(error),
            exc_info=None if is_known else error,
        )

    def _summarize(self) -> None:
        if self._records:
            log.info("%s: %s loaded from %d records", self._name, self._kind.noun, self._records)
        if self._skipped > _SAID_MAX or self._damages > _SAID_MAX:
            log.error(
                "%s: in all %d records and %d damaged ranges of offsets were skipped",
                self._name,
                self._skipped,
                self._damages,
            )
