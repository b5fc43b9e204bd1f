"""A whole broker through crashes and cut connections, checked by what its clients see."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ottla.sim.broker import PORT, broker
from ottla.sim.checkers import (
    Acked,
    CorruptRead,
    DuplicateFromIdempotentProducer,
    History,
    InvariantViolation,
    Read,
    ReadingStarts,
    Sent,
)
from ottla.sim.client import RequestFailed, SimClient
from ottla.sim.faults import RandomCrashes, RandomCuts, SlowDisk, inject
from ottla.sim.world import SimWorld, simulate

PARTITIONS = 2
RECORDS = 30


def produce_through_faults(
    history: History, *, power_loss: bool | None, settings: dict[str, str] | None = None
) -> Callable[[SimWorld], Coroutine[Any, Any, str]]:
    """Two producers write while the broker crashes; then everything is read and checked."""

    async def produce(world: SimWorld, host: str) -> None:
        client = SimClient(world.runtime(host), "b1", PORT, timeout_s=5)
        for number in range(RECORDS):
            partition = number % PARTITIONS
            value = f"{host}-{number}".encode()
            history.observe(Sent(("t", partition), value))
            try:
                offset = await client.produce("t", partition, [value])
            except (OSError, RequestFailed):
                pass
            else:
                history.observe(Acked(("t", partition), offset, value))
            await asyncio.sleep(world.runtime(host).random.random() / 2)

    async def read(world: SimWorld) -> None:
        client = SimClient(world.runtime("reader"), "b1", PORT)
        for partition in range(PARTITIONS):
            history.observe(ReadingStarts(("t", partition), 0))
            for record in await client.read_all("t", partition):
                assert record.value is not None
                history.observe(Read(("t", partition), record.offset, record.value))

    async def scenario(world: SimWorld) -> str:
        world.start("b1", broker(settings))
        await asyncio.sleep(1)
        admin = SimClient(world.runtime("admin"), "b1", PORT)
        await admin.create_topic("t", partitions=PARTITIONS)
        faults = (
            RandomCrashes("b1", every_s=2, down_s=0.3, power_loss=power_loss),
            RandomCuts("b1", every_s=4),
            SlowDisk("b1", (0.0, 0.05)),
        )
        async with inject(world, *faults):
            await asyncio.gather(produce(world, "c1"), produce(world, "c2"))
        await asyncio.sleep(5)
        await read(world)
        history.check()
        return world.trace.digest()

    return scenario


@pytest.mark.parametrize("seed", range(10))
def test_killing_the_process_loses_no_acknowledged_record(seed: int) -> None:
    simulate(produce_through_faults(History(), power_loss=False), seed=seed)


@pytest.mark.parametrize("seed", range(20))
def test_a_power_cut_leaves_a_broker_that_starts_and_reads_that_are_true(seed: int) -> None:
    """Whether records survive it is up to flush.messages; topics and bytes must."""
    simulate(
        produce_through_faults(History(CorruptRead(), DuplicateFromIdempotentProducer()), power_loss=None),
        seed=seed,
    )


@pytest.mark.parametrize("seed", range(20))
def test_what_is_acknowledged_after_its_flush_survives_power_cuts(seed: int) -> None:
    settings = {"log.flush.interval.messages": "1"}
    simulate(produce_through_faults(History(), power_loss=True, settings=settings), seed=seed)


def test_a_power_cut_before_the_flush_loses_records_and_the_checker_sees_it() -> None:
    for seed in itertools.count():
        try:
            simulate(produce_through_faults(History(), power_loss=True), seed=seed)
        except InvariantViolation:
            return
        assert seed < 10


def test_the_same_seed_gives_the_same_events() -> None:
    def digest() -> str:
        return simulate(
            produce_through_faults(
                History(CorruptRead(), DuplicateFromIdempotentProducer()), power_loss=None
            ),
            seed=3,
        )

    assert digest() == digest()
