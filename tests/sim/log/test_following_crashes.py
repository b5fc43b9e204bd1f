"""A replica that follows, with power cuts at any moment: it always comes to have what its leader has."""

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
from ottla.log.pending_verification import EXEMPT
from ottla.log.recovery import open_log
from ottla.log.scrub import verify
from ottla.log.types import StartsWithinBatch, TopicPartition, UnexpectedOffset
from ottla.records.batch import BatchHeader, iter_headers
from ottla.records.markers import Marker, encode_marker
from ottla.records.records import Record, encode_batch
from ottla.runtime import Runtime
from ottla.runtime.net import AsyncioNetwork
from ottla.sim.disk import SimDisk
from ottla.sim.loop import ProcessDied
from ottla.wire.errors import OffsetOutOfRange

P = ParamSpec("P")
T = TypeVar("T")

NOW_MS = 1_750_000_000_000
ORDERS = TopicPartition("orders", 0)


class FixedClock:
    def now_ms(self) -> int:
        return NOW_MS

    def monotonic(self) -> float:
        return 0.0


class InlineOffload:
    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return function(*args, **kwargs)

    def close(self) -> None: ...


def runtime_on(disk: SimDisk, seed: int) -> Runtime:
    return Runtime(FixedClock(), disk, AsyncioNetwork(), random.Random(seed), InlineOffload())


class Leader:
    """Whoever leads at the time: its machine never fails, but what it has may be cut off by the next one."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.epoch = 0
        config = LogConfig(segment_bytes=600)
        self.log = open_log(runtime_on(SimDisk(), 0), "/leader/orders-0", ORDERS, config, clean=True)
        self.log.begin_leader_epoch(0)

    def write(self) -> None:
        producer_id = self._chance.randint(1, 3)
        known = self.log.producers.active.get(producer_id)
        if known is not None and known.transaction_first_offset >= 0 and self._chance.random() < 0.4:
            marker = Marker(producer_id, 0, 1, committed=self._chance.random() < 0.5)
            self.log.append(memoryview(encode_marker(marker, NOW_MS)), self.epoch, trusted=True)
            return
        records = [
            Record(b"k", b"%d/%d" % (self.epoch, self._chance.getrandbits(32)), NOW_MS)
            for _ in range(self._chance.randint(1, 4))
        ]
        data = encode_batch(
            records,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0 if known is None else known.next_sequence,
            transactional=True,
        )
        self.log.append(memoryview(data), self.epoch, transaction=EXEMPT)

    def change(self, committed: int) -> None:
        """Another replica takes over, which has everything that was committed, and perhaps no more."""
        self.epoch += 1
        starts = [header.base_offset for header in batches(self.log) if header.base_offset >= committed]
        if starts:
            self.log.truncate_to(self._chance.choice([*starts, self.log.next_offset]))
        self.log.begin_leader_epoch(self.epoch)


def batches(log: PartitionLog) -> list[BatchHeader]:
    return [
        header for segment in log.segments for _, header in iter_headers(segment.file.read(0, segment.size))
    ]


def bytes_from(log: PartitionLog, offset: int) -> bytes:
    return b"".join(
        segment.file.read(0, segment.size)[at : at + header.size]
        for segment in log.segments
        for at, header in iter_headers(segment.file.read(0, segment.size))
        if header.base_offset >= offset
    )


class Follower:
    def __init__(self, logs: LogManager, config: LogConfig, chance: random.Random) -> None:
        self.logs = logs
        self._chance = chance
        self.log = logs.get(ORDERS) or logs.create("orders", 0, UUID(int=5), config)

    def is_behind(self, leader: PartitionLog) -> bool:
        """The leader does not know any more what comes next here."""
        log = self.log
        if log.next_offset < leader.start_offset:
            return True
        try:
            self._diverging(leader)
        except OffsetOutOfRange:
            return True
        return False

    def _diverging(self, leader: PartitionLog) -> tuple[int, int] | None:
        log = self.log
        return leader.diverging_epoch(log.latest_epoch, log.next_offset) if log.latest_epoch >= 0 else None

    def fetch(self, leader: PartitionLog) -> None:
        """One round as a fetcher has it."""
        log = self.log
        later = log.start_of_later_epochs(leader.latest_epoch)
        if later is not None:
            asyncio.run(self.logs.truncate(ORDERS, later))
        elif self.is_behind(leader):
            asyncio.run(self.logs.truncate_fully_and_start_at(ORDERS, leader.start_offset))
        elif (diverging := self._diverging(leader)) is not None:
            asyncio.run(self.logs.truncate(ORDERS, log.truncation_offset(*diverging)))
        elif log.next_offset < leader.next_offset:
            size = self._chance.choice([1, 200, 1000])
            data = leader.read(log.next_offset, size, upto=leader.next_offset)
            try:
                log.append_as_follower(data)
            except StartsWithinBatch as error:
                asyncio.run(self.logs.truncate_fully_and_start_at(ORDERS, error.base_offset))
                log.append_as_follower(data)
            except UnexpectedOffset:
                # Of the batch within which the leader's log starts, this log has the beginning from another
                # leader, and epochs cannot tell any more.
                assert log.next_offset == leader.start_offset
                asyncio.run(self.logs.truncate_fully_and_start_at(ORDERS, leader.start_offset))
        if leader.start_offset > log.start_offset:
            log.delete_records_before(min(leader.start_offset, log.next_offset))

    def has_the_same(self, leader: PartitionLog) -> bool:
        """All that it has, the leader has."""
        return not self.is_behind(leader) and self._diverging(leader) is None

    def catch_up(self, leader: PartitionLog) -> None:
        for _ in range(1000):
            self.fetch(leader)
            if self.log.next_offset == leader.next_offset and self.has_the_same(leader):
                return
        raise AssertionError("it never gets there")


def committed_offsets(log: PartitionLog, start: int) -> list[int]:
    """Where the batches begin that a reader of committed records is shown."""
    waiting = sorted((first, producer_id) for producer_id, first in log.aborted_transactions(start, 1 << 40))
    aborting: set[int] = set()
    shown = []
    for header in batches(log):
        while waiting and waiting[0][0] <= header.last_offset:
            aborting.add(waiting.pop(0)[1])
        if header.last_offset < start:
            continue
        if header.is_control:
            aborting.discard(header.producer_id)
        elif header.producer_id not in aborting:
            shown.append(header.base_offset)
    return shown


def same_knowledge(follower: PartitionLog, leader: PartitionLog) -> None:
    start = max(leader.start_offset, follower.start_offset)
    starts = [header.base_offset for header in batches(leader) if header.last_offset >= start]
    boundary = min(starts, default=start)
    assert bytes_from(follower, boundary) == bytes_from(leader, boundary)
    assert committed_offsets(follower, start) == committed_offsets(leader, start)
    assert list(verify(follower)) == []
    for header in batches(follower):
        if header.base_offset >= boundary and not header.is_control:
            known, same = (log.producers.active[header.producer_id] for log in (follower, leader))
            assert known.next_sequence == same.next_sequence
            if same.transaction_first_offset >= boundary:
                assert known.transaction_first_offset == same.transaction_first_offset


@pytest.mark.parametrize("seed", range(60))
def test_a_follower_comes_to_have_what_its_leader_has(seed: int) -> None:
    chance = random.Random(seed)
    leader = Leader(chance)
    disk = SimDisk(seed)
    config = LogConfig(
        segment_bytes=chance.choice([700, 2000, 1 << 20]),
        index_interval_bytes=chance.choice([0, 300]),
        file_delete_delay_ms=0,
    )
    # What the follower had on disk, and every leader since has: it may never be missing again.
    committed = 0
    for _ in range(6):
        logs = LogManager(runtime_on(disk, seed), BrokerConfig.from_properties({"node.id": "1"}), ["/data"])
        disk.crash_after(chance.randint(0, 150))
        try:
            logs.lock()
            logs.open(lambda _: config)
            follower = Follower(logs, config, chance)
            assert list(verify(follower.log)) == []
            for _ in range(chance.randint(5, 60)):
                assert follower.log.next_offset >= committed or committed <= leader.log.start_offset
                action = chance.random()
                if action < 0.4:
                    leader.write()
                elif action < 0.75:
                    follower.fetch(leader.log)
                elif action < 0.85:
                    asyncio.run(follower.log.flush())
                    if follower.has_the_same(leader.log):
                        committed = max(committed, follower.log.next_offset)
                elif action < 0.92:
                    asyncio.run(logs.write_checkpoints())
                elif action < 0.97:
                    leader.change(max(committed, leader.log.start_offset))
                elif leader.log.next_offset > leader.log.start_offset:
                    leader.log.delete_records_before(
                        chance.randint(leader.log.start_offset, leader.log.next_offset)
                    )
            follower.catch_up(leader.log)
            same_knowledge(follower.log, leader.log)
            if chance.random() < 0.5:
                asyncio.run(logs.close())
                logs.unlock()
            disk.crash()
        except ProcessDied:
            pass
        disk.restart()
        disk.crash_after(None)
    logs = LogManager(runtime_on(disk, seed), BrokerConfig.from_properties({"node.id": "1"}), ["/data"])
    logs.lock()
    logs.open(lambda _: config)
    follower = Follower(logs, config, chance)
    assert follower.log.next_offset >= committed or committed <= leader.log.start_offset
    follower.catch_up(leader.log)
    same_knowledge(follower.log, leader.log)
