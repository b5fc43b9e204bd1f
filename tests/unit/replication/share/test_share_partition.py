"""A share partition and where its state is kept: what is stored first, what goes together, what fences."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from ottla.log.types import TimestampOffset, TopicPartition
from ottla.replication.partition import Role
from ottla.replication.share.in_flight import (
    Acknowledgement,
    AckType,
    InFlight,
    LogBatch,
    State,
    StateBatch,
    Wanted,
)
from ottla.replication.share.persister import ShareKey, StateChange, StoredState
from ottla.replication.share.settings import ShareSettings
from ottla.replication.share.share_partition import SharePartition
from ottla.runtime.seldom import SeldomEach
from ottla.runtime.tasks import TaskScope
from ottla.sim.loop import SimLoop
from ottla.wire.errors import (
    CoordinatorNotAvailable,
    ErrorCode,
    FencedLeaderEpoch,
    InvalidRecordState,
    KafkaError,
    NotLeaderOrFollower,
)

KEY = ShareKey("group", UUID(int=7), 0)
WANTED = Wanted(500, 500)
STORED = StoredState(5, 0, ())
SETTINGS = ShareSettings()
LOG = [LogBatch(0, 9), LogBatch(10, 19)]


class FakePersister:
    """Writes wait until they are let through."""

    def __init__(self, stored: StoredState) -> None:
        self.stored = stored
        self.changes: list[StateChange] = []
        self.answers: asyncio.Queue[KafkaError | None] = asyncio.Queue()
        self.refusal: KafkaError | None = None

    async def read(self, key: ShareKey, leader_epoch: int) -> StoredState:
        assert (key, leader_epoch) == (KEY, 3)
        if self.refusal is not None:
            raise self.refusal
        return self.stored

    async def write(self, key: ShareKey, change: StateChange) -> None:
        self.changes.append(change)
        answer = await self.answers.get()
        if answer is not None:
            raise answer


class World:
    def __init__(self, stored: StoredState, settings: ShareSettings, latest: int) -> None:
        async def offset_for_timestamp(timestamp_ms: int, upto: int) -> TimestampOffset | None:
            return TimestampOffset(timestamp_ms, 12, 0) if settings.begins_ms_ago < 5000 else None

        self.persister = FakePersister(stored)
        self.settings = settings
        self.fenced: list[SharePartition] = []
        self.log = SimpleNamespace(
            start_offset=2, next_offset=1000, offset_for_timestamp=offset_for_timestamp
        )
        self.partition: Any = SimpleNamespace(
            topic_partition=TopicPartition("orders", 0),
            role=Role.LEADER,
            leader_epoch=3,
            high_watermark=latest,
            log=self.log,
        )
        self.failures: list[BaseException] = []
        self.tasks = TaskScope("test", lambda name, error: self.failures.append(error))
        loop = asyncio.get_running_loop()
        clock: Any = SimpleNamespace(monotonic=loop.time, now_ms=lambda: 10_000)
        self.share = SharePartition(
            KEY,
            self.partition,
            self.persister,
            lambda group: self.settings,
            clock,
            self.tasks,
            asyncio.Semaphore(1),
            self.fenced.append,
            SeldomEach(clock),
        )

    async def loaded(self) -> InFlight:
        while self.share.flight is None and self.share.error is None:
            await asyncio.sleep(0)
        assert self.share.flight is not None
        return self.share.flight

    def acknowledge(self, member: str, first: int, last: int, kind: AckType) -> asyncio.Task[None]:
        decided = self.share.acknowledge(member, [Acknowledgement(first, last, [kind])])
        return asyncio.ensure_future(decided)


def simulated(
    test: Callable[[World], Awaitable[None]],
    stored: StoredState = STORED,
    settings: ShareSettings = SETTINGS,
    latest: int = 20,
) -> None:
    async def run() -> None:
        world = World(stored, settings, latest)
        try:
            await test(world)
        finally:
            await world.tasks.close()
        assert not world.failures

    in_simulator(run())


def in_simulator(main: Coroutine[Any, Any, None]) -> None:
    loop = SimLoop()
    try:
        loop.run_until_complete(main)
    finally:
        loop.close()


def test_nothing_is_answered_before_it_is_stored() -> None:
    async def test(world: World) -> None:
        flight = await world.loaded()
        world.share.acquire("a", LOG, WANTED)
        acknowledged = world.acknowledge("a", 0, 9, AckType.ACCEPT)
        await asyncio.sleep(1)
        assert not acknowledged.done()
        (change,) = world.persister.changes
        assert change == StateChange(5, 3, 0, 10, [StateBatch(0, 9, State.ACKNOWLEDGED, 1)])
        world.persister.answers.put_nowait(None)
        await acknowledged
        assert flight.start == 10

    simulated(test)


def test_what_comes_while_something_is_written_goes_together() -> None:
    async def test(world: World) -> None:
        await world.loaded()
        world.share.acquire("a", LOG, WANTED)
        decided = [world.acknowledge("a", 0, 0, AckType.ACCEPT)]
        await asyncio.sleep(1)
        decided += [world.acknowledge("a", at, at, AckType.ACCEPT) for at in range(1, 20)]
        await asyncio.sleep(1)
        for _ in range(2):
            world.persister.answers.put_nowait(None)
        await asyncio.gather(*decided)
        first, rest = world.persister.changes
        assert [len(first.batches), len(rest.batches)] == [1, 19]
        assert (rest.start_offset, rest.delivery_complete_count) == (1, 19)

    simulated(test)


def test_what_speaks_of_the_same_offsets_is_written_one_after_the_other() -> None:
    async def test(world: World) -> None:
        await world.loaded()
        world.share.acquire("z", [LogBatch(0, 0)], WANTED)
        first = world.acknowledge("z", 0, 0, AckType.ACCEPT)
        world.share.acquire("a", LOG, WANTED)
        await asyncio.sleep(31)  # the locks expire while the first write is under way
        world.share.acquire("b", LOG, WANTED)
        second = world.acknowledge("b", 1, 19, AckType.ACCEPT)
        await asyncio.sleep(1)
        for _ in range(3):
            world.persister.answers.put_nowait(None)
        await asyncio.gather(first, second)
        assert [[batch.state for batch in change.batches] for change in world.persister.changes] == [
            [State.ACKNOWLEDGED],
            [State.AVAILABLE],
            [State.ACKNOWLEDGED],
        ]

    simulated(test)


def test_a_write_that_fails_changes_nothing() -> None:
    async def test(world: World) -> None:
        await world.loaded()
        world.share.acquire("a", LOG, WANTED)
        acknowledged = world.acknowledge("a", 0, 9, AckType.ACCEPT)
        world.persister.answers.put_nowait(CoordinatorNotAvailable("moves"))
        with pytest.raises(CoordinatorNotAvailable):
            await acknowledged
        again = world.acknowledge("a", 0, 9, AckType.ACCEPT)
        world.persister.answers.put_nowait(None)
        await again
        assert world.share.error is None

    simulated(test)


def test_writes_that_fail_again_and_again_are_said_once(caplog: pytest.LogCaptureFixture) -> None:
    async def test(world: World) -> None:
        await world.loaded()
        world.share.acquire("a", LOG, WANTED)
        for _ in range(3):
            world.persister.answers.put_nowait(CoordinatorNotAvailable("moves"))
            with pytest.raises(CoordinatorNotAvailable):
                await world.acknowledge("a", 0, 9, AckType.ACCEPT)

    simulated(test)
    assert caplog.text.count("its state cannot be written") == 1


def test_another_leader_or_state_fences() -> None:
    async def test(world: World) -> None:
        await world.loaded()
        world.share.acquire("a", LOG, WANTED)
        told = asyncio.Event()
        world.share.wait(told.set)
        acknowledged = [world.acknowledge("a", at, at, AckType.ACCEPT) for at in range(3)]
        world.persister.answers.put_nowait(FencedLeaderEpoch("another leads"))
        for each in acknowledged:
            with pytest.raises(NotLeaderOrFollower):
                await each
        assert world.fenced == [world.share]
        assert told.is_set()
        with pytest.raises(NotLeaderOrFollower):
            await world.acknowledge("a", 5, 5, AckType.ACCEPT)

    simulated(test)


def test_who_asks_may_go_away_and_what_it_decided_is_stored() -> None:
    async def test(world: World) -> None:
        flight = await world.loaded()
        world.share.acquire("a", LOG, WANTED)
        acknowledged = world.acknowledge("a", 0, 9, AckType.ACCEPT)
        await asyncio.sleep(1)
        acknowledged.cancel()
        world.persister.answers.put_nowait(None)
        await asyncio.sleep(1)
        assert flight.start == 10

    simulated(test)


def test_expired_locks_wake_whoever_waits() -> None:
    async def test(world: World) -> None:
        await world.loaded()
        world.share.acquire("a", LOG, WANTED)
        told = asyncio.Event()
        world.share.wait(told.set)
        began = asyncio.get_running_loop().time()
        await told.wait()
        assert 29.9 < asyncio.get_running_loop().time() - began < 30.1
        world.persister.answers.put_nowait(None)
        with pytest.raises(InvalidRecordState):
            await world.acknowledge("a", 0, 9, AckType.ACCEPT)

    simulated(test)


@pytest.mark.parametrize(
    ("begins_at", "ms_ago", "start"),
    [("earliest", 0, 2), ("latest", 0, 20), ("by_duration", 1000, 12), ("by_duration", 9000, 20)],
)
def test_where_a_group_begins_that_has_no_state(begins_at: str, ms_ago: int, start: int) -> None:
    async def test(world: World) -> None:
        assert (await world.loaded()).start == start

    settings = ShareSettings(begins_at=begins_at, begins_ms_ago=ms_ago)
    simulated(test, StoredState(0, -1, ()), settings)


def test_state_that_cannot_be_read_fences() -> None:
    async def run() -> None:
        world = World(StoredState(0, 0, ()), ShareSettings(), 0)
        world.persister.refusal = CoordinatorNotAvailable("nobody coordinates")
        while world.share.error is None:
            await asyncio.sleep(0)
        assert world.share.error.code is ErrorCode.coordinator_not_available
        await world.tasks.close()

    in_simulator(run())


@pytest.mark.parametrize(
    ("stored", "runs"),
    [
        (StoredState(5, 2**62, ()), []),
        (StoredState(5, 2**62, (StateBatch(2**62, 2**62 + 9, State.ACKNOWLEDGED, 1),)), []),
        (
            StoredState(
                5,
                990,
                (StateBatch(995, 2**62, State.AVAILABLE, 2), StateBatch(2**62, 2**63 - 2, State.ARCHIVED, 1)),
            ),
            [(990, 994, 0), (995, 999, 2)],
        ),
    ],
)
def test_a_group_goes_on_at_the_end_of_the_log_where_its_state_lies_behind(
    stored: StoredState, runs: list[tuple[int, int, int]]
) -> None:
    async def test(world: World) -> None:
        flight = await world.loaded()
        assert flight.end == 1000
        assert [(run.first, run.last, run.deliveries) for run in flight] == runs

    simulated(test, stored)
