"""Waiting until what a leader has appended is committed: until everybody who is in sync has it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator
from typing import Any

from ottla.replication.partition import Partition
from ottla.wire.errors import NotLeaderOrFollower


def wait_committed(partition: Partition) -> Awaitable[None] | None:
    """All that is in the log now, as durable as its topic asks for. None: it is.

    Raises NotLeaderOrFollower when another broker leads before that: it may lack the last of it.
    """
    end_offset = partition.log.next_offset
    if partition.log.reached_flush_messages:
        return FlushedAndCommitted(partition)
    if partition.high_watermark >= end_offset:
        return None
    return _Waiting(partition, end_offset).future


class FlushedAndCommitted:
    """Begins when it is awaited; what nobody comes to wait for, as when the broker stops, leaves nothing."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition

    def __await__(self) -> Generator[Any, None, None]:
        return self._wait().__await__()

    async def _wait(self) -> None:
        partition = self._partition
        end_offset = partition.log.next_offset
        partition.check_leads()
        await partition.log.flush()
        if partition.high_watermark < end_offset:
            await _Waiting(partition, end_offset).future


class _Waiting:
    """A watcher of the partition: it is told of every move of the high watermark and of every new role."""

    def __init__(self, partition: Partition, end_offset: int) -> None:
        self._partition = partition
        self._end_offset = end_offset
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.partition_changed()

    def partition_changed(self) -> None:
        if self.future.done():
            return
        try:
            self._partition.check_leads()
        except NotLeaderOrFollower as error:
            self.future.set_exception(error)
            return
        if self._partition.high_watermark >= self._end_offset:
            self.future.set_result(None)
        else:
            self._partition.watchers[self] = None
