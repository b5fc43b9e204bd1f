"""Compaction in a process of its own, on a real disk."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from log_kit import LogKit, refused

from ottla.config import BrokerConfig
from ottla.log import cleaner as cleaner_module
from ottla.log.cleaner import LogCleaner
from ottla.log.log import PartitionLog
from ottla.records.records import Record, encode_batch
from ottla.runtime import Runtime
from ottla.runtime.disk import PosixDisk
from ottla.runtime.net import AsyncioNetwork
from ottla.runtime.tasks import ThreadOffload
from ottla.runtime.workers import Job, ProcessWorkers, Slice, Steps


class Table:
    """A log with a few thousand records of a hundred keys."""

    def __init__(self, directory: Path, workers: ProcessWorkers | None, name: str = "orders-3") -> None:
        kit = LogKit(
            PosixDisk(),
            str(directory / name),
            cleanup_compact=True,
            cleanup_delete=False,
            segment_bytes=50_000,
            file_delete_delay_ms=0,
        )
        chance = random.Random(3)
        kit.runtime = Runtime(
            kit.clock, kit.disk, AsyncioNetwork(), random.Random(1), ThreadOffload(), workers
        )
        self.kit = kit
        self.log = kit.open()
        for number in range(300):
            rows = [
                Record(
                    b"key-%d" % chance.randrange(100), chance.randbytes(chance.randrange(80)) or None, 1000
                )
                for _ in range(chance.randrange(1, 30))
            ]
            self.log.append(memoryview(encode_batch(rows, codec=number % 5)), 1, prepared=True)
        self.log.roll()

    def cleaner(self, **properties: str) -> LogCleaner:
        async def nothing() -> None: ...

        names = {name.replace("_", "."): value for name, value in properties.items()}
        broker = BrokerConfig.from_properties({"node.id": "1", **names})
        directory = os.path.dirname(self.kit.directory)
        return LogCleaner(
            self.kit.runtime, lambda: broker, lambda: {directory: [self.log]}, nothing, refused, refused
        )


def contents(log: PartitionLog) -> list[tuple[int, bytes]]:
    return [(segment.base_offset, segment.file.read(0, segment.size)) for segment in log.segments]


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await scenario()

    asyncio.run(main())


@pytest.fixture(autouse=True)
def always_in_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaner_module, "IN_THREAD_BYTES_MAX", 0)


def test_a_process_writes_the_same_bytes_as_a_thread(tmp_path: Path) -> None:
    async def scenario() -> None:
        workers = ProcessWorkers()
        tables = [Table(tmp_path / "thread", None), Table(tmp_path / "process", workers)]
        size = tables[0].log.size_bytes
        for table in tables:
            assert await table.cleaner().clean_dirtiest(lambda _: 10**9)
            assert not [name for name in table.kit.files() if "cleaned" in name or "swap" in name]
        assert contents(tables[0].log) == contents(tables[1].log)
        assert tables[1].log.size_bytes < size / 5
        for table in tables:
            before = contents(table.log)
            table.log.close()
            assert contents(table.kit.open()) == before
        await tables[1].kit.runtime.close()
        tables[0].kit.runtime.offload.close()

    run(scenario)


class DeadlyWorkers(ProcessWorkers):
    """Its workers die after a number of slices."""

    def __init__(self, slices: int) -> None:
        super().__init__()
        self.slices = slices

    async def begin(self, steps: Callable[..., Steps], *args: object) -> Job:
        job: Any = await super().begin(steps, *args)
        usual, left = job.advance, self.slices

        async def advance(bytes_max: int) -> Slice:
            nonlocal left
            if not left:
                os.kill(job._process._process.pid, signal.SIGKILL)
            left -= 1
            return await usual(1000)  # type: ignore[no-any-return]

        job.advance = advance
        return job  # type: ignore[no-any-return]


@pytest.mark.parametrize("slices", [0, 3, 40, 80])
def test_a_worker_that_dies_leaves_a_log_that_the_next_one_compacts(
    tmp_path: Path, slices: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        table, whole = Table(tmp_path, DeadlyWorkers(slices)), Table(tmp_path, None, "whole-1")
        cleaner = table.cleaner()
        assert not await cleaner.clean_dirtiest(lambda _: 10**9)
        assert "has died" in caplog.text
        assert not cleaner.uncleanable
        assert (cleaner.counters.failures, cleaner.counters.rounds) == (1, 0)
        assert not [name for name in table.kit.files() if "cleaned" in name or "swap" in name]
        await table.kit.runtime.close()
        table.kit.runtime = Runtime(
            table.kit.clock, table.kit.disk, AsyncioNetwork(), random.Random(1), ThreadOffload()
        )
        table.log.close()
        table.log = table.kit.open()
        for one in (table, whole):
            assert await one.cleaner().clean_dirtiest(lambda _: 10**9)
        assert contents(table.log) == contents(whole.log)
        for one in (table, whole):
            await one.kit.runtime.close()

    run(scenario)


def test_damage_is_reported_from_the_process(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        table = Table(tmp_path, ProcessWorkers())
        damaged = table.log.segments[1]
        table.kit.flip(os.path.basename(damaged.path), 1000)
        cleaner = table.cleaner()
        await cleaner.clean_dirtiest(lambda _: 10**9)
        assert list(cleaner.uncleanable) == [table.log.topic_partition]
        assert (cleaner.counters.failures, cleaner.counters.rounds) == (1, 0)
        assert damaged.path in caplog.text
        await table.kit.runtime.close()

    run(scenario)


def test_as_many_logs_at_a_time_as_there_are_threads(tmp_path: Path) -> None:
    async def scenario() -> None:
        workers = ProcessWorkers()
        running = most = 0
        begin = workers.begin

        async def counted(steps: Callable[..., Steps], *args: object) -> Job:
            nonlocal running, most
            job: Any = await begin(steps, *args)
            running += 1
            most = max(most, running)
            close = job.close

            async def closed() -> None:
                nonlocal running
                running -= 1
                await close()

            job.close = closed
            return job  # type: ignore[no-any-return]

        workers.begin = counted  # type: ignore[method-assign]
        tables = [Table(tmp_path / str(number), workers) for number in range(3)]
        for number, table in enumerate(tables):
            table.log.topic_partition = table.log.topic_partition._replace(partition=number)
        cleaner = tables[0].cleaner(log_cleaner_threads="2", log_cleaner_backoff_ms="10")
        cleaner._logs_by_dir = lambda: {str(tmp_path): [table.log for table in tables]}
        sizes = [table.log.size_bytes for table in tables]
        task = asyncio.create_task(cleaner.run(lambda _: 10**9))
        while any(table.log.size_bytes == size for table, size in zip(tables, sizes, strict=True)):
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert most == 2
        assert running == 0
        await tables[0].kit.runtime.close()

    run(scenario)
