"""Records that are looked at or compressed elsewhere: in order, within bounds, whatever happens."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from ottla.config import LogConfig
from ottla.log.recovery import open_log
from ottla.log.types import AppendResult, TopicPartition
from ottla.records.batch import HEADER_BYTES, iter_headers
from ottla.records.records import Record, encode_batch
from ottla.replication import preparation
from ottla.replication.partition import Partition
from ottla.replication.preparation import Preparations
from ottla.runtime import Runtime
from ottla.runtime.net import AsyncioNetwork
from ottla.runtime.tasks import ThreadOffload
from ottla.runtime.workers import Job, ProcessWorkers, Slice, Steps, WorkerDied, take_slice
from ottla.sim.disk import SimDisk
from ottla.wire.errors import (
    InvalidRecord,
    KafkaError,
    NotEnoughReplicas,
    RecordTooLarge,
    RequestTimedOut,
    UnknownTopicOrPartition,
)

NOW_MS = 1_750_000_000_000
MIB = 1 << 20


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def now_ms(self) -> int:
        return NOW_MS

    def monotonic(self) -> float:
        return self.seconds


class Workers:
    """Jobs begin when the gate is open, take `seconds` a slice, and run where the test does."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.gate = asyncio.Event()
        self.begun = self.open = self.open_max = 0
        self.seconds = 0.0
        self.error: Exception | None = None

    async def begin(self, steps: Callable[..., Steps], *args: object) -> Job:
        self.begun += 1
        self.open += 1
        self.open_max = max(self.open_max, self.open)
        return _Job(self, steps(SimDisk(), *args))

    async def close(self) -> None: ...


class _Job:
    def __init__(self, workers: Workers, steps: Steps) -> None:
        self.workers = workers
        self.steps = steps

    async def advance(self, bytes_max: int) -> Slice:
        await self.workers.gate.wait()
        if self.workers.error is not None:
            raise self.workers.error
        self.workers.clock.seconds += self.workers.seconds
        return take_slice(self.steps, lambda: 0.0, 1.0, 1 if self.workers.seconds else bytes_max)

    async def close(self) -> None:
        self.workers.open -= 1


class Kit:
    def __init__(self, workers: Any = None, waiting_bytes_max: int = 64 * MIB, **config: Any) -> None:
        self.clock = Clock()
        self.workers = workers or Workers(self.clock)
        self.runtime = Runtime(
            self.clock, SimDisk(), AsyncioNetwork(), random.Random(1), ThreadOffload(), self.workers
        )
        name = TopicPartition("a", 0)
        self.config = LogConfig(**{"cleanup_compact": True, "cleanup_delete": False} | config)
        log = open_log(self.runtime, "/data/a-0", name, self.config, clean=True, topic_id=UUID(int=1))
        self.partition = Partition(log, UUID(int=1), 0, (1,))
        self.preparations = Preparations(waiting_bytes_max)

    def send(self, data: bytes, *, walk: bool = False) -> asyncio.Task[AppendResult]:
        records = memoryview(data)
        turn = self.preparations.join(self.partition, records)
        return asyncio.create_task(
            self.preparations.append(self.runtime, turn, self.partition, records, 1, None, walk=walk)
        )

    @property
    def counts(self) -> list[int]:
        """Of the records of each batch in the log."""
        log = self.partition.log
        data = log.read(0, 1 << 30, upto=log.next_offset)
        return [header.record_count for _, header in iter_headers(data)]

    def check_nothing_is_left(self) -> None:
        assert not self.preparations.queues
        assert self.preparations._waiting_bytes.used == 0
        if isinstance(self.workers, Workers):
            assert self.workers.open == 0


def run(scenario: Callable[[Kit], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        kit = Kit(**options)
        await scenario(kit)
        kit.check_nothing_is_left()
        await kit.runtime.close()

    asyncio.run(main())


def batch(count: int, codec: int = 0, key: bytes | None = b"k") -> bytes:
    return encode_batch([Record(key, b"v", NOW_MS)] * count, codec=codec)


def garbage(count: int) -> bytes:
    from ottla.records.stamp import stamp_max_timestamp

    data = bytearray(batch(count))
    data[HEADER_BYTES + 3] ^= 0xFF  # the number of the first record
    stamp_max_timestamp(data, 0, NOW_MS)  # for the CRC
    return bytes(data)


def test_no_record_overtakes_another() -> None:
    async def scenario(kit: Kit) -> None:
        # In another process, behind it at once, in a thread, and in another process again.
        tasks = [kit.send(data) for data in (batch(20_000), batch(1), batch(600, codec=1), batch(30_000))]
        while kit.workers.begun < 2:
            await asyncio.sleep(0.001)
        assert kit.counts == []
        kit.workers.gate.set()
        results = await asyncio.gather(*tasks)
        assert [result.base_offset for result in results] == [0, 20_000, 20_001, 20_601]
        assert kit.counts == [20_000, 1, 600, 30_000]

    run(scenario)


def test_what_is_refused_holds_up_nobody() -> None:
    async def scenario(kit: Kit) -> None:
        kit.workers.gate.set()
        tasks = [kit.send(data) for data in (garbage(20_000), batch(2, key=None), batch(3))]
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(found[0], InvalidRecord)
        assert "record 0 at byte 0" in str(found[0])
        assert isinstance(found[1], InvalidRecord)
        assert [index for index, _ in found[1].record_errors] == [0, 1]
        assert kit.counts == [3]

    run(scenario)


def test_a_bomb_goes_to_another_process_and_no_further_than_the_bound() -> None:
    async def scenario(kit: Kit) -> None:
        kit.workers.gate.set()
        small_bomb = encode_batch([Record(b"k", bytes(5 * MIB), NOW_MS)], codec=1)
        assert (await kit.send(small_bomb)).base_offset == 0
        assert kit.workers.begun == 1, "more than a thread of the broker is given"
        bomb = encode_batch([Record(b"k", bytes(7 * MIB), NOW_MS)], codec=1)
        with pytest.raises(RecordTooLarge, match=r"max\.message\.bytes"):
            await kit.send(bomb)
        assert kit.counts == [1]

    run(scenario, max_message_bytes=100_000)


def test_processes_and_what_waits_are_bounded() -> None:
    async def scenario(kit: Kit) -> None:
        data = batch(20_000)
        tasks = [kit.send(data) for _ in range(5)]
        with pytest.raises(NotEnoughReplicas, match="too many records wait"):
            kit.send(data)
        while kit.workers.begun < 2:
            await asyncio.sleep(0.001)
        kit.workers.gate.set()
        await asyncio.gather(*tasks)
        assert kit.workers.open_max == 2
        assert (await kit.send(batch(1))).base_offset == 100_000

    run(scenario, waiting_bytes_max=5 * (len(batch(20_000)) + 4096) + 1)


def test_what_takes_too_long_is_given_up() -> None:
    async def scenario(kit: Kit) -> None:
        kit.workers.gate.set()
        kit.workers.seconds = preparation.EXAMINATION_SECONDS_MAX / 4
        with pytest.raises(RequestTimedOut, match="took longer than 30 s"):
            await kit.send(batch(20_000))
        assert kit.counts == []

    run(scenario)


@pytest.mark.parametrize("error", [WorkerDied("killed"), OSError(24, "too many files"), MemoryError()])
def test_a_process_that_dies_is_a_reason_to_retry(error: Exception) -> None:
    async def scenario(kit: Kit) -> None:
        kit.workers.gate.set()
        kit.workers.error = error
        with pytest.raises(NotEnoughReplicas, match="retry"):
            await kit.send(batch(20_000))
        kit.workers.error = None
        await kit.send(batch(20_000))

    run(scenario)


def test_a_topic_that_is_deleted_meanwhile() -> None:
    async def scenario(kit: Kit) -> None:
        task = kit.send(batch(20_000))
        while not kit.workers.begun:
            await asyncio.sleep(0.001)
        kit.partition.go_offline()
        kit.workers.gate.set()
        with pytest.raises(UnknownTopicOrPartition, match="deleted meanwhile"):
            await task

    run(scenario)


def test_a_policy_that_changes_meanwhile() -> None:
    async def scenario(kit: Kit) -> None:
        tasks = [kit.send(batch(20_000)), kit.send(batch(1, key=None))]
        kit.partition.log.update_config(replace(kit.config, cleanup_compact=False, cleanup_delete=True))
        tasks.append(kit.send(batch(2, key=None)))
        kit.workers.gate.set()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(result, KafkaError) for result in found] == [False, False, False]
        assert kit.counts == [20_000, 1, 2]

    run(scenario)


def test_a_lying_timestamp_is_looked_into_in_its_turn() -> None:
    from ottla.records.stamp import stamp_max_timestamp

    async def scenario(kit: Kit) -> None:
        kit.workers.gate.set()
        lying = bytearray(batch(20_000))
        stamp_max_timestamp(lying, 0, 1 << 60)
        await asyncio.gather(kit.send(bytes(lying)), kit.send(batch(1)))
        assert kit.counts == [20_000, 1]
        assert kit.partition.log.segments.active.largest_timestamp == NOW_MS

    run(scenario, cleanup_compact=False)


def test_looked_at_and_compressed_anew() -> None:
    async def scenario(kit: Kit) -> None:
        kit.workers.gate.set()
        await asyncio.gather(kit.send(batch(20_000)), kit.send(batch(1, codec=1)))
        data = kit.partition.log.read(0, 1 << 30, upto=30_000)
        assert [header.codec for _, header in iter_headers(data)] == [4, 4]

    run(scenario, compression_type="zstd")


def test_with_real_processes() -> None:
    async def scenario(kit: Kit) -> None:
        tasks = [
            kit.send(batch(20_000, codec=4)),
            kit.send(garbage(20_000)),
            kit.send(batch(20_000, key=None)),
        ]
        good, bad, keyless = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(good, AppendResult)
        assert isinstance(bad, InvalidRecord)
        assert isinstance(keyless, InvalidRecord)
        assert len(keyless.record_errors) == 20_000
        assert kit.counts == [20_000]

    run(scenario, workers=ProcessWorkers())
