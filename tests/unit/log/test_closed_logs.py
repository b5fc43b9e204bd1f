"""A log may be deleted at every await of whatever works on it."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar
from uuid import UUID

import pytest
from log_kit import LogKit, batch, fill

from ottla.config import BrokerConfig, LogConfig
from ottla.log.manager import LogManager
from ottla.log.types import TopicPartition
from ottla.runtime.disk import PosixDisk
from ottla.runtime.tasks import TaskScope, ThreadOffload
from ottla.wire.errors import UnknownTopicOrPartition

P = ParamSpec("P")
T = TypeVar("T")


class GatedOffload(ThreadOffload):
    """Threads that begin their work when the test lets them."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = asyncio.Event()
        self.gate = threading.Event()

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self.begun.set()

        def work() -> T:
            assert self.gate.wait(20)
            return function(*args, **kwargs)

        return await ThreadOffload.run(self, work)


def open_manager(kit: LogKit, **properties: str) -> LogManager:
    config = BrokerConfig.from_properties({"node.id": "1", **properties})
    manager = LogManager(kit.runtime, config, ["/data"])
    manager.lock()
    manager.open(lambda topic: LogConfig())
    return manager


def test_a_flush_that_waited_for_another_finds_its_log_deleted() -> None:
    async def scenario() -> None:
        kit = LogKit()
        offload = GatedOffload()
        kit.runtime = dataclasses.replace(kit.runtime, offload=offload)
        manager = open_manager(kit)
        log = manager.create("orders", 0, UUID(int=1), LogConfig(segment_bytes=1000))
        fill(log, 20)
        first = asyncio.ensure_future(log.flush())
        await offload.begun.wait()
        fill(log, 1)
        second = asyncio.ensure_future(log.flush())
        await asyncio.sleep(0)
        manager.delete(TopicPartition("orders", 0))
        offload.gate.set()
        await asyncio.gather(first, second)
        offload.close()

    asyncio.run(scenario())


def test_a_log_that_is_deleted_writes_nothing_into_its_successor() -> None:
    kit = LogKit()
    manager = open_manager(kit)
    orders = TopicPartition("orders", 0)
    old = manager.create("orders", 0, UUID(int=1), LogConfig())
    fill(old, 3)
    manager.delete(orders)
    new = manager.create("orders", 0, UUID(int=2), LogConfig())
    with pytest.raises(UnknownTopicOrPartition, match="orders-0"):
        old.append(memoryview(batch(b"late")), leader_epoch=1)
    with pytest.raises(UnknownTopicOrPartition):
        old.roll()
    assert old.is_closed
    assert not new.is_closed
    assert kit.disk.read_file("/data/orders-0/00000000000000000000.log") == b""


def test_background_work_passes_over_partitions_that_vanish() -> None:
    """The topic goes in the middle of each round, between the list being made and its turn."""

    async def scenario() -> None:
        kit = LogKit()
        properties = {
            "log.retention.check.interval.ms": "1",
            "log.initial.task.delay.ms": "0",
            "log.cleaner.backoff.ms": "1",
        }
        manager = open_manager(kit, **properties)
        failures: list[tuple[str, BaseException]] = []
        scope = TaskScope("test", lambda name, error: failures.append((name, error)))

        def high_watermark(partition: TopicPartition) -> int | None:
            found = manager.get(partition)
            # Deleted by somebody else as soon as anything of its neighbour was looked at.
            if found is not None and partition.partition == 0:
                manager.delete(TopicPartition(partition.topic, 1))
                manager.delete(partition)
                return None
            return None if found is None else found.next_offset

        for number in range(20):
            for partition in range(2):
                config = LogConfig(cleanup_compact=True, segment_bytes=1000, flush_messages=1)
                fill(manager.create(f"t{number}", partition, UUID(int=1), config), 20)
        manager.start(scope, high_watermark)
        async with asyncio.timeout(10):
            while list(manager.all_logs):
                await asyncio.sleep(0.005)
        await asyncio.sleep(0.02)
        await scope.close()
        assert failures == []

    asyncio.run(scenario())


def test_a_cancelled_flush_leaves_files_open_until_they_are_synced(tmp_path: Path) -> None:
    """A thread cannot be cancelled: were the file closed, it would sync whatever has its number next."""

    async def scenario() -> None:
        kit = LogKit(PosixDisk(), f"{tmp_path}/orders-3")
        offload = GatedOffload()
        kit.runtime = dataclasses.replace(kit.runtime, offload=offload)
        log = kit.open()
        fill(log, 3)
        file = log.segments.active.file
        flush = asyncio.ensure_future(log.flush())
        await offload.begun.wait()
        flush.cancel()
        await asyncio.sleep(0)
        log.release()
        os.fstat(file._fd)  # type: ignore[attr-defined]
        assert not flush.done()
        offload.gate.set()
        with pytest.raises(asyncio.CancelledError):
            await flush
        assert file._fd == -1  # type: ignore[attr-defined]
        offload.close()

    asyncio.run(scenario())
