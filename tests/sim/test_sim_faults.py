"""Fault schedules do what their names say, and undo it at the end."""

from __future__ import annotations

import asyncio

import pytest

from ottla.runtime import Runtime
from ottla.sim.faults import RandomCrashes, RandomCuts, RandomPartitions, SlowDisk, inject
from ottla.sim.world import SimWorld, simulate


def _happened(world: SimWorld, text: str) -> int:
    return sum(text in event for event in world.trace.events)


async def _busy(runtime: Runtime) -> None:
    number = 0
    while True:
        number += 1
        runtime.disk.replace_file(f"/f{number % 3}", b"x")
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("power_loss", [True, False, None])
def test_random_crashes(power_loss: bool | None) -> None:
    async def scenario(world: SimWorld) -> None:
        world.start("b1", _busy)
        async with inject(world, RandomCrashes("b1", every_s=1, down_s=1, power_loss=power_loss)):
            await asyncio.sleep(60)
        assert world.host("b1").is_running
        cuts, kills = _happened(world, "power is cut"), _happened(world, "process is killed")
        assert cuts + kills > 5
        assert (cuts > 0) == (power_loss is not False)
        assert (kills > 0) == (power_loss is not True)
        assert world.host("b1").processes == cuts + kills + 1
        await asyncio.sleep(60)
        assert world.host("b1").processes == cuts + kills + 1

    simulate(scenario)


def test_no_crash_is_left_pending() -> None:
    async def scenario(world: SimWorld) -> None:
        world.start("b1", _busy)
        async with inject(world, RandomCrashes("b1", every_s=1, down_s=0.001, power_loss=True)):
            await asyncio.sleep(5)
        crashes = _happened(world, "power is cut")
        await asyncio.sleep(60)
        assert _happened(world, "power is cut") == crashes

    for seed in range(20):
        simulate(scenario, seed=seed)


def test_a_host_that_never_writes_crashes_all_the_same() -> None:
    async def idle(runtime: Runtime) -> None:
        await asyncio.Event().wait()

    async def scenario(world: SimWorld) -> None:
        world.start("b1", idle)
        async with inject(world, RandomCrashes("b1", every_s=1, down_s=1, power_loss=True)):
            await asyncio.sleep(60)
        assert _happened(world, "power is cut") > 5

    simulate(scenario)


def test_random_partitions() -> None:
    async def scenario(world: SimWorld) -> None:
        async with inject(world, RandomPartitions(("b1",), ("b2", "b3"), every_s=1, for_s=1)):
            blocked = []
            for _ in range(600):
                await asyncio.sleep(0.1)
                blocked.append(not world.network.reaches("b2", "b1"))
                assert world.network.reaches("b2", "b3")
        assert 100 < sum(blocked) < 500
        assert all(world.network.reaches(*pair) for pair in (("b1", "b2"), ("b2", "b1")))
        assert _happened(world, " -> ") > 0
        assert _happened(world, " <-> ") > 0

    simulate(scenario)


def test_random_cuts() -> None:
    async def scenario(world: SimWorld) -> None:
        lost: list[Exception | None] = []

        class Client(asyncio.Protocol):
            def connection_lost(self, exc: Exception | None) -> None:
                lost.append(exc)

        listener = await world.runtime("b1").net.listen(asyncio.Protocol, "", 0)
        async with inject(world, RandomCuts("b1", every_s=1)):
            for _ in range(20):
                await world.runtime("c").net.connect(Client, *listener.address)
                await asyncio.sleep(1)
        assert len(lost) > 5
        assert all(isinstance(error, ConnectionResetError) for error in lost)

    simulate(scenario)


def test_slow_disk() -> None:
    async def scenario(world: SimWorld) -> None:
        world.start("b1", _busy)

        async def sync_seconds() -> float:
            started = world.loop.time()
            await world.runtime("b1").offload.run(int)
            return world.loop.time() - started

        async with inject(world, SlowDisk("b1", (1.0, 2.0))):
            await asyncio.sleep(1)
            assert 2 <= await sync_seconds() <= 4
            world.crash("b1", power_loss=True)
            world.restart("b1")
            assert 2 <= await sync_seconds() <= 4
        assert await sync_seconds() < 0.1

    simulate(scenario)


def test_a_schedule_that_fails_is_not_silent() -> None:
    class Broken:
        async def run(self, world: SimWorld) -> None:
            raise ValueError("broken schedule")

    async def scenario(world: SimWorld) -> None:
        async with inject(world, Broken()):
            await asyncio.sleep(1)

    with pytest.raises(ValueError, match="broken schedule"):
        simulate(scenario)
