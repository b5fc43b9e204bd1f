"""Power cuts at any moment: what was flushed is there, and what is there is what was written."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import ParamSpec, TypeVar
from uuid import UUID

import pytest

from ottla.config import BrokerConfig, LogConfig
from ottla.log.log import PartitionLog
from ottla.log.manager import LogManager
from ottla.log.scrub import verify
from ottla.log.types import TopicPartition
from ottla.records.batch import iter_headers
from ottla.records.records import Record, encode_batch, iter_records
from ottla.runtime import Runtime
from ottla.runtime.net import AsyncioNetwork
from ottla.sim.disk import SimDisk
from ottla.sim.loop import ProcessDied

P = ParamSpec("P")
T = TypeVar("T")

NOW_MS = 1_750_000_000_000
ORDERS = TopicPartition("orders", 0)
PRODUCER_ID = 9


class FixedClock:
    def now_ms(self) -> int:
        return NOW_MS

    def monotonic(self) -> float:
        return 0.0


class InlineOffload:
    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return function(*args, **kwargs)

    def close(self) -> None: ...


class History:
    """What a log was told, over several lives of its process."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.seen: dict[int, set[bytes]] = {}
        """Every value ever written at an offset: a truncation that was not synced may be undone."""
        self.flushed = 0
        self.start_max = 0
        self.written = 0

    def append(self, log: PartitionLog, count: int) -> None:
        values = [b"%d/%d" % (log.next_offset + index, self.written + index) for index in range(count)]
        self.written += count
        for index, value in enumerate(values):
            self.seen.setdefault(log.next_offset + index, set()).add(value)
        producer = log.producers.active.get(PRODUCER_ID)
        data = encode_batch(
            [Record(b"k", value, NOW_MS) for value in values],
            producer_id=PRODUCER_ID,
            producer_epoch=0,
            base_sequence=0 if producer is None else producer.next_sequence,
            codec=self.written % 5,
        )
        log.append(memoryview(data), leader_epoch=self.written // 20)
        self.values += values

    def truncate(self, manager: LogManager, offset: int) -> None:
        self.flushed = min(self.flushed, offset)
        asyncio.run(manager.truncate(ORDERS, offset))
        del self.values[offset:]

    def check(self, log: PartitionLog) -> None:
        found = contents(log)
        assert log.next_offset >= self.flushed, f"flushed up to {self.flushed}, found {log.next_offset}"
        assert log.start_offset <= self.start_max
        assert list(found) == list(range(log.start_offset, log.next_offset))
        for offset, value in found.items():
            assert value in self.seen[offset]
            if offset < self.flushed:
                assert value == self.values[offset]
        assert list(verify(log)) == []
        # From here on, what survived is what there is.
        kept = self.values[: log.start_offset] + list(found.values())
        self.values = kept
        self.flushed = min(self.flushed, log.next_offset)


def contents(log: PartitionLog) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    offset = log.start_offset
    while offset < log.next_offset:
        data = memoryview(log.read(offset, 500, upto=log.next_offset))
        begin = offset
        for at, header in iter_headers(data):
            for record in iter_records(data[at : at + header.size]):
                if record.offset >= offset:
                    assert record.value is not None
                    found[record.offset] = record.value
            offset = header.last_offset + 1
        assert offset > begin, f"nothing at {offset} of {log.next_offset}"
    return found


def check_producers(log: PartitionLog) -> None:
    """The state must be the one that the last batch in the log gives."""
    sequence = None
    for segment in log.segments:
        data = segment.file.read(0, segment.size)
        for _, header in iter_headers(data):
            sequence = header.base_sequence + header.record_count
    producer = log.producers.active.get(PRODUCER_ID)
    if sequence is not None:
        assert producer is not None
        assert producer.next_sequence == sequence


def live(
    manager: LogManager,
    log: PartitionLog,
    history: History,
    chance: random.Random,
    steps: int,
    truncating: bool,
) -> None:
    for _ in range(steps):
        action = chance.random()
        if action < 0.6:
            history.append(log, chance.randint(1, 4))
        elif action < 0.75:
            target = log.next_offset
            asyncio.run(log.flush())
            history.flushed = target
        elif action < 0.8:
            target = log.segments.active.base_offset
            asyncio.run(log.flush(upto=target))
            history.flushed = max(history.flushed, target)
        elif action < 0.9:
            asyncio.run(manager.write_checkpoints())
        elif action < 0.95 and truncating and log.next_offset > log.start_offset:
            history.truncate(manager, batch_start(log, chance.randint(log.start_offset, log.next_offset - 1)))
        elif log.next_offset > log.start_offset:
            history.start_max = max(history.start_max, log.next_offset)
            log.enforce_retention(NOW_MS + 10, upto=min(history.flushed, log.next_offset))
            history.start_max = log.start_offset


def batch_start(log: PartitionLog, offset: int) -> int:
    return max(next(iter_headers(log.read(offset, 1, upto=log.next_offset)))[1].base_offset, log.start_offset)


@pytest.mark.parametrize("truncating", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_what_was_flushed_survives_power_cuts(seed: int, truncating: bool) -> None:
    chance = random.Random(seed)
    disk = SimDisk(seed)
    history = History()
    config = LogConfig(
        segment_bytes=chance.choice([700, 2000, 1 << 20]),
        index_interval_bytes=chance.choice([0, 300]),
        retention_bytes=3000,
        retention_ms=-1,
        file_delete_delay_ms=0,
    )
    for _ in range(6):
        runtime = Runtime(FixedClock(), disk, AsyncioNetwork(), random.Random(seed), InlineOffload())
        manager = LogManager(runtime, BrokerConfig.from_properties({"node.id": "1"}), ["/data"])
        disk.crash_after(chance.randint(0, 120))
        try:
            manager.lock()
            manager.open(lambda _: config)
            log = manager.get(ORDERS)
            if log is None:
                assert history.flushed == 0
                history.values = []
                log = manager.create("orders", 0, UUID(int=5), config)
            history.check(log)
            check_producers(log)
            live(manager, log, history, chance, chance.randint(5, 60), truncating)
            if chance.random() < 0.5:
                asyncio.run(manager.close())
                history.flushed = len(history.values)
                manager.unlock()
            disk.crash()
        except ProcessDied:
            pass
        disk.restart()
        disk.crash_after(None)
    manager = LogManager(runtime, BrokerConfig.from_properties({"node.id": "1"}), ["/data"])
    manager.lock()
    manager.open(lambda _: config)
    log = manager.get(ORDERS)
    if log is not None:
        history.check(log)
        check_producers(log)
    else:
        assert history.flushed == 0


@pytest.mark.parametrize("seed", range(10))
def test_a_killed_process_loses_nothing(seed: int) -> None:
    chance = random.Random(seed)
    disk = SimDisk(seed)
    history = History()
    config = LogConfig(segment_bytes=1500, retention_ms=-1)
    for _ in range(4):
        runtime = Runtime(FixedClock(), disk, AsyncioNetwork(), random.Random(seed), InlineOffload())
        manager = LogManager(runtime, BrokerConfig.from_properties({"node.id": "1"}), ["/data"])
        manager.lock()
        manager.open(lambda _: config)
        log = manager.get(ORDERS) or manager.create("orders", 0, UUID(int=5), config)
        assert list(contents(log).values()) == history.values
        check_producers(log)
        live(manager, log, history, chance, 40, truncating=True)
        disk.kill()
