"""Moving logs between the data directories of one broker, while they are used.

A copy grows beside the log, in a directory named `-future` as in Apache Kafka, as a follower's does: by
epochs it notices what was cut off, and by its start what was deleted. Once it has everything, and has on disk
what the log has there, it takes the place of the log between two requests. The log goes under a `-delete`
name first, so that there are never two of one name: a crash in between leaves the copy alone, which the next
start takes for the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from ottla.config import BrokerConfig
from ottla.log.log import PartitionLog
from ottla.log.names import MOVED_FROM_FILE
from ottla.log.throttle import Throttle
from ottla.log.types import NotInMemory, StartsWithinBatch, TopicPartition, UnexpectedOffset
from ottla.runtime import Disk, Runtime
from ottla.wire.errors import KafkaError, OffsetOutOfRange

log = logging.getLogger(__name__)

SLICE_BYTES = 1024 * 1024
"""Copied in one turn of the event loop: a millisecond or two."""
_LAST_SLICES_MAX = 4
_RETRY_SECONDS = 1.0
_THROTTLED_SECONDS = 0.1


class Moves:
    """The copies that grow, and the one task that lets them."""

    def __init__(
        self,
        runtime: Runtime,
        config: Callable[[], BrokerConfig],
        put_in_place: Callable[[PartitionLog, PartitionLog], None],
        write_checkpoints: Callable[[], Awaitable[None]],
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._throttle = Throttle(runtime.clock)
        self._put_in_place = put_in_place
        self._write_checkpoints = write_checkpoints
        self._wanted = asyncio.Event()
        self._stalled: set[TopicPartition] = set()
        self.copies: dict[TopicPartition, tuple[PartitionLog, PartitionLog]] = {}
        """The log, and the copy that will take its place."""

    def begin(self, source: PartitionLog, copy: PartitionLog) -> None:
        self.copies[source.topic_partition] = (source, copy)
        self._wanted.set()

    def forget(self, partition: TopicPartition) -> PartitionLog | None:
        """The move is off; the copy that there was."""
        self._stalled.discard(partition)
        _, copy = self.copies.pop(partition, (None, None))
        return copy

    def copy_of(self, partition: TopicPartition) -> PartitionLog | None:
        return self.copies[partition][1] if partition in self.copies else None

    async def run(self) -> None:
        while True:
            self._wanted.clear()
            if not self.copies:
                await self._wanted.wait()
            for partition in list(self.copies):
                await self._wait_for_room()
                await self._advance(partition)
            if self.copies and len(self._stalled) == len(self.copies):
                await asyncio.sleep(_RETRY_SECONDS)
            await asyncio.sleep(0)

    async def _wait_for_room(self) -> None:
        """For as long as all of them together have been too fast. The rate may change meanwhile."""
        while True:
            config = self._config()
            self._throttle.configure(
                config.integer("replica.alter.log.dirs.io.max.bytes.per.second"),
                config.integer("alter.log.dirs.replication.quota.window.num"),
                config.integer("alter.log.dirs.replication.quota.window.size.seconds"),
            )
            if not self._throttle.is_exceeded:
                return
            await asyncio.sleep(_THROTTLED_SECONDS)

    async def _advance(self, partition: TopicPartition) -> None:
        move = self.copies.get(partition)
        if move is None:
            return
        source, copy = move
        try:
            await self._copy(source, copy)
            # Of what comes while the copy is synced, the last is copied without waiting.
            if copy.next_offset >= source.next_offset and self._is_on(move):
                await copy.flush()
                # Names in two directories may reach the disk in any order: should both logs be there after a
                # power cut, this says which one is right.
                marker, old = f"{copy.dir}/{MOVED_FROM_FILE}", source.dir.encode()
                await self._runtime.offload.run(self._runtime.disk.replace_file, marker, old)
                await source.wait_flushed()
                if self._is_on(move) and _catch_up(source, copy):
                    del self.copies[partition]
                    parents = {each.dir.rpartition("/")[0] for each in move}
                    self._put_in_place(source, copy)
                    await self._runtime.offload.run(_settle, self._runtime.disk, sorted(parents), copy.dir)
                    await self._write_checkpoints()
            self._stalled.discard(partition)
        except (KafkaError, UnexpectedOffset, OSError) as error:
            if self._is_on(move):
                if partition not in self._stalled:
                    log.error("%s cannot be moved to %s: %s; trying again", partition, copy.dir, error)
                self._stalled.add(partition)

    def _is_on(self, move: tuple[PartitionLog, PartitionLog]) -> bool:
        source, copy = move
        return self.copies.get(source.topic_partition) is move and not source.is_closed and not copy.is_closed

    async def _copy(self, source: PartitionLog, copy: PartitionLog) -> None:
        size_before = copy.size_bytes
        try:
            _follow(source, copy, wait=False)
        except NotInMemory as missing:
            place = (missing.path, missing.position, missing.length)
            await self._runtime.offload.run(_load, self._runtime.disk, *place)
            if not source.is_closed and not copy.is_closed:
                _follow(source, copy, wait=True)
        self._throttle.count(max(copy.size_bytes - size_before, 0))


def _diverging(source: PartitionLog, copy: PartitionLog) -> tuple[int, int] | None:
    if copy.latest_epoch < 0:
        return None
    return source.diverging_epoch(copy.latest_epoch, copy.next_offset)


def _catch_up(source: PartitionLog, copy: PartitionLog) -> bool:
    """Whether the copy has everything now, and on disk what the log has there."""
    for _ in range(_LAST_SLICES_MAX):
        if copy.next_offset < source.next_offset and not _follow(source, copy, wait=True):
            return False
    return (
        copy.next_offset == source.next_offset
        and copy.recovery_point >= source.recovery_point
        and _diverging(source, copy) is None
    )


def _follow(source: PartitionLog, copy: PartitionLog, *, wait: bool) -> bool:
    """One step. False where the copy had to be cut back."""
    try:
        diverging = _diverging(source, copy)
    except OffsetOutOfRange:
        copy.truncate_fully_and_start_at(source.start_offset)
        return False
    if diverging is not None or copy.next_offset > source.next_offset:
        offset = source.next_offset if diverging is None else copy.truncation_offset(*diverging)
        copy.truncate_to(offset)
        return False
    if copy.next_offset < source.start_offset:
        copy.truncate_fully_and_start_at(source.start_offset)
    if copy.next_offset < source.next_offset:
        data = source.read(copy.next_offset, SLICE_BYTES, upto=source.next_offset, wait=wait)
        try:
            copy.append_as_follower(data)
        except StartsWithinBatch as error:
            copy.truncate_fully_and_start_at(error.base_offset)
            copy.append_as_follower(data)
    if source.start_offset > copy.start_offset:
        copy.delete_records_before(min(source.start_offset, copy.next_offset))
    return True


def _settle(disk: Disk, parents: list[str], moved: str) -> None:
    for parent in parents:
        disk.sync_dir(parent)
    with contextlib.suppress(FileNotFoundError):
        disk.remove(f"{moved}/{MOVED_FROM_FILE}")


def _load(disk: Disk, path: str, position: int, length: int) -> None:
    with contextlib.closing(disk.open(path)) as file:
        file.load(position, length)
