"""Logs that move from one data directory of a broker to another while they are written to."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Callable
from uuid import UUID

import pytest
from log_kit import PARTITION, LogKit, batch, fill, read_all
from transaction_kit import end, read_all_committed, send

from ottla.config import BrokerConfig
from ottla.log.log import PartitionLog
from ottla.log.manager import LogManager
from ottla.log.scrub import verify
from ottla.runtime.tasks import TaskScope
from ottla.sim.disk import SimDisk
from ottla.sim.loop import ProcessDied
from ottla.wire.errors import LogDirNotFound, ReplicaNotAvailable, StorageError

DIRS = ("/a", "/b", "/c")


class Broker:
    def __init__(self, disk: SimDisk | None = None, **config: object) -> None:
        self.kit = LogKit(disk, **config)
        self.disk = self.kit.disk
        properties = {"node.id": "1", "log.dirs": ",".join(DIRS), "metadata.log.dir": "/m"}
        self.logs = LogManager(self.kit.runtime, BrokerConfig.from_properties(properties), DIRS)
        self.logs.lock()
        self.logs.open(lambda topic: self.kit.config)
        self.moved: list[str] = []
        self.logs.on_moved = lambda moved: self.moved.append(moved.dir)

    @property
    def log(self) -> PartitionLog:
        found = self.logs.get(PARTITION)
        return found or self.logs.create(*PARTITION, UUID(int=5), self.kit.config)

    def names(self, path: str) -> list[str]:
        return [name for name in self.disk.list_dir(path) if "orders" in name]


async def until(condition: Callable[[], bool], broker: Broker) -> None:
    scope = TaskScope("test", lambda name, error: pytest.fail(f"{name}: {error!r}"))
    scope.spawn(broker.logs.moves.run(), "moves")
    try:
        async with asyncio.timeout(10):
            while not condition():
                await asyncio.sleep(0)
    finally:
        await scope.close()


def busy(log: PartitionLog) -> None:
    send(log, 0, producer_id=1, transactional=True)
    send(log, 0, producer_id=2, transactional=True)
    end(log, producer_id=1, committed=False)
    fill(log, 30)
    log.append(memoryview(batch(b"x")), leader_epoch=4)


def test_a_log_moves_with_all_it_knows() -> None:
    async def scenario() -> None:
        broker = Broker(segment_bytes=700)
        source = broker.log
        busy(source)
        source.delete_records_before(5)
        before, committed, epochs = read_all(source), read_all_committed(source), source.epochs.entries
        assert source.dir == "/a/orders-3"
        await broker.logs.move(PARTITION, "/b")
        assert len(broker.names("/b")) == 1
        assert broker.names("/b")[0].endswith("-future")
        await until(lambda: bool(broker.moved), broker)
        moved = broker.log
        assert (moved.dir, broker.moved, source.is_closed) == ("/b/orders-3", ["/b/orders-3"], True)
        assert broker.names("/b") == ["orders-3"]
        assert [name.endswith("-delete") for name in broker.names("/a")] == [True]
        assert (read_all(moved), read_all_committed(moved)) == (before, committed)
        assert (moved.start_offset, moved.epochs.entries, moved.topic_id) == (5, epochs, UUID(int=5))
        assert {name: len(logs) for name, logs in broker.logs.logs_by_dir().items()} == {
            "/a": 0,
            "/b": 1,
            "/c": 0,
        }
        # It goes on there, through rolls, flushes and a restart.
        send(moved, 1, producer_id=2, transactional=True)
        fill(moved, 30)
        await moved.flush()
        after = read_all(moved)
        await broker.logs.close()
        broker.logs.unlock()
        again = Broker(broker.disk, segment_bytes=700)
        assert (again.log.dir, read_all(again.log)) == ("/b/orders-3", after)
        assert again.log.producers.active[2].transaction_first_offset == 1

    asyncio.run(scenario())


def test_a_log_moves_while_it_is_written_to_cut_off_and_deleted_from() -> None:
    async def scenario() -> None:
        broker = Broker(segment_bytes=2_000_000)
        source, chance = broker.log, random.Random(3)
        busy(source)
        await broker.logs.move(PARTITION, "/c")
        steps = iter(range(40))

        def step() -> bool:
            number = next(steps, None)
            if number is None or broker.moved:
                return bool(broker.moved)
            # More than is copied at once, so that the copy stays behind for a while.
            for _ in range(3):
                data = batch(bytes(400_000 if number < 20 else 10))
                source.append(memoryview(data), leader_epoch=source.latest_epoch)
            if number % 7 == 3:
                source.truncate_to(chance.randint(source.start_offset + 1, source.next_offset))
                source.begin_leader_epoch(source.latest_epoch + 1)
            if number == 11:
                source.delete_records_before(source.next_offset - 1)
            return False

        await until(step, broker)
        assert next(steps, 0) > 20
        assert read_all(broker.log)[-1][1] == broker.log.next_offset - 1
        assert broker.log.next_offset == source.next_offset
        assert broker.log.epochs.entries == source.epochs.entries
        assert list(verify(broker.log)) == []

    asyncio.run(scenario())


def test_what_cannot_be_is_refused_and_what_is_wanted_early_is_remembered() -> None:
    async def scenario() -> None:
        broker = Broker()
        with pytest.raises(LogDirNotFound, match=r"/x is not .* which has /a, /b, /c"):
            await broker.logs.move(PARTITION, "/x")
        with pytest.raises(ReplicaNotAvailable):
            await broker.logs.move(PARTITION, "/c/")
        assert broker.log.dir == "/c/orders-3"
        # It is there already.
        await broker.logs.move(PARTITION, "/c")
        assert not broker.logs.moves.copies
        broker.logs.fail("/b", "gone")
        with pytest.raises(StorageError, match="/b is out of use"):
            await broker.logs.move(PARTITION, "/b")

    asyncio.run(scenario())


def test_a_move_is_off_when_the_log_is_wanted_where_it_is_or_deleted_or_the_disk_fails() -> None:
    async def scenario() -> None:
        broker = Broker()
        fill(broker.log, 10)
        await broker.logs.move(PARTITION, "/b")
        await broker.logs.move(PARTITION, "/a")
        assert not broker.logs.moves.copies
        await broker.logs._keep_house()
        assert broker.names("/b") == []
        await broker.logs.move(PARTITION, "/b")
        broker.logs.fail("/b", "gone")
        assert not broker.logs.moves.copies
        fill(broker.log, 1)
        await broker.logs.move(PARTITION, "/c")
        broker.logs.delete(PARTITION)
        assert not broker.logs.moves.copies
        await broker.logs._keep_house()
        assert broker.names("/c") == []

    asyncio.run(scenario())


def test_a_full_disk_holds_a_move_up() -> None:
    async def scenario() -> None:
        disk = SimDisk()
        broker = Broker(disk)
        fill(broker.log, 10)
        await broker.logs.move(PARTITION, "/b")
        disk.fail("append", errno.ENOSPC, path="/b", times=3)
        await until(lambda: bool(broker.moved), broker)
        assert len(read_all(broker.log)) == 10

    asyncio.run(scenario())


@pytest.mark.parametrize("seed", range(60))
def test_power_cuts_while_it_moves_lose_nothing_that_was_flushed(seed: int) -> None:
    chance = random.Random(seed)
    disk = SimDisk(seed)
    flushed = 0
    for _ in range(5):
        disk.crash_after(chance.randint(0, 200))
        try:
            broker = Broker(disk, segment_bytes=chance.choice([700, 1 << 20]), file_delete_delay_ms=0)

            async def live(broker: Broker = broker) -> None:
                nonlocal flushed
                log = broker.log
                assert log.next_offset >= flushed
                assert len(read_all(log)) == log.next_offset
                assert list(verify(log)) == []
                target = chance.choice(DIRS)
                await broker.logs.move(PARTITION, target)
                steps = 0

                def step() -> bool:
                    nonlocal steps
                    steps += 1
                    if chance.random() < 0.5 and not broker.log.is_closed:
                        fill(broker.log, 1)
                    return steps > 60

                for _ in range(3):
                    steps = 0
                    await until(step, broker)
                    current = broker.log
                    end_offset = current.next_offset
                    await current.flush()
                    flushed = max(flushed, end_offset)
                    if chance.random() < 0.5:
                        await broker.logs.write_checkpoints()
                if chance.random() < 0.3:
                    await broker.logs.close()
                    broker.logs.unlock()

            asyncio.run(live())
            disk.crash()
        except ProcessDied:
            pass
        disk.restart()
        disk.crash_after(None)
    broker = Broker(disk)
    assert broker.log.next_offset >= flushed
    assert len(read_all(broker.log)) == broker.log.next_offset
    homes = [path for path in DIRS if "orders-3" in broker.names(path)]
    assert len(homes) == 1
