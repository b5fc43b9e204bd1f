"""A log manager with all its loops on a machine that loses power: acknowledged after a flush means kept."""

from __future__ import annotations

import asyncio
import random
from uuid import UUID

import pytest

from ottla.config import BrokerConfig, LogConfig
from ottla.log.log import PartitionLog
from ottla.log.manager import LogManager
from ottla.log.scrub import verify
from ottla.log.types import TopicPartition
from ottla.records.batch import iter_headers
from ottla.records.records import Record, encode_batch
from ottla.runtime import Runtime
from ottla.runtime.tasks import TaskScope
from ottla.sim.world import SimWorld, simulate

PARTITIONS = [TopicPartition("orders", number) for number in range(3)]
CONFIG = LogConfig(
    segment_bytes=3000,
    retention_bytes=20_000,
    retention_ms=-1,
    file_delete_delay_ms=500,
    index_interval_bytes=200,
    flush_ms=2000,
)
PROPERTIES = {
    "node.id": "1",
    "log.initial.task.delay.ms": "100",
    "log.retention.check.interval.ms": "700",
    "log.flush.offset.checkpoint.interval.ms": "300",
}


class Machine:
    """Boots a manager and writers; what they were promised outlives the process."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.acknowledged = dict.fromkeys(PARTITIONS, 0)
        self.boots = 0

    async def boot(self, runtime: Runtime) -> None:
        failures: list[tuple[str, BaseException]] = []
        scope = TaskScope("machine", lambda name, error: failures.append((name, error)))
        manager = LogManager(runtime, BrokerConfig.from_properties(PROPERTIES), ["/data"])
        manager.lock()
        manager.open(lambda _: CONFIG)
        self.boots += 1
        for partition in PARTITIONS:
            log = manager.get(partition)
            if log is None:
                assert self.acknowledged[partition] == 0
                log = manager.create(*partition, UUID(int=9), CONFIG)
            self.check(log)
            scope.spawn(self.write(log), "writer")
        manager.start(scope, lambda partition: self.acknowledged[partition])
        await asyncio.sleep(self.chance.uniform(0, 6))
        await scope.close()
        assert failures == []
        await manager.close()
        for log in manager.all_logs:
            self.acknowledged[log.topic_partition] = log.next_offset
        manager.unlock()

    async def write(self, log: PartitionLog) -> None:
        while True:
            for _ in range(self.chance.randint(1, 5)):
                # The value is the offset, so that a record in the wrong place shows.
                value = b"%d" % log.next_offset
                data = encode_batch([Record(b"k" * self.chance.randint(0, 200), value, log.now_ms())])
                log.append(memoryview(data), leader_epoch=self.boots)
            end = log.next_offset
            if self.chance.random() < 0.3:
                await log.flush()
                self.acknowledged[log.topic_partition] = end
            await asyncio.sleep(self.chance.uniform(0, 0.1))

    def check(self, log: PartitionLog) -> None:
        assert log.next_offset >= self.acknowledged[log.topic_partition]
        assert list(verify(log)) == []
        offset = log.start_offset
        while offset < log.next_offset:
            data = log.read(offset, 1000, upto=log.next_offset)
            begin = offset
            for at, header in iter_headers(data):
                assert header.base_offset == offset
                assert bytes(data[at : at + header.size - 1]).endswith(b"%d" % offset)
                offset += 1
            assert offset > begin, f"nothing at {offset} of {log.next_offset}"
        assert offset == log.next_offset
        epochs = [epoch for epoch, _ in log.epochs.entries]
        assert epochs == sorted(set(epochs))


@pytest.mark.parametrize("seed", range(25))
def test_promises_survive_crashes_while_everything_is_going_on(seed: int) -> None:
    async def scenario(world: SimWorld) -> int:
        chance = world.random("scenario")
        machine = Machine(chance)
        outcome: asyncio.Future[None] | None = world.start("broker", machine.boot)
        for _ in range(8):
            if chance.random() < 0.5:
                world.crash_mid_operation("broker", chance.randint(0, 600))
            await asyncio.sleep(chance.uniform(0, 5))
            world.crash_mid_operation("broker", None)
            if outcome is not None and outcome.done() and not outcome.cancelled():
                outcome.result()
            world.crash("broker", power_loss=chance.random() < 0.8)
            outcome = world.restart("broker")
        await asyncio.sleep(10)
        assert outcome is not None
        outcome.result()
        return machine.boots

    assert simulate(scenario, seed=seed) >= 2
