"""Named schedules of faults, for tests to run beside their work.

    async with inject(world, RandomCrashes("b1"), RandomPartitions(("b1",), ("client",))):
        await produce_and_consume()

Each goes on until the block ends and then undoes what it did, so that what follows sees a healthy world.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from ottla.sim.world import SimWorld

OPERATIONS_BEFORE_CRASH_MAX = 20


class FaultSchedule(Protocol):
    async def run(self, world: SimWorld) -> None:
        """Until cancelled; undoes its faults then."""
        ...


@contextlib.asynccontextmanager
async def inject(world: SimWorld, *schedules: FaultSchedule) -> AsyncIterator[None]:
    tasks = [
        world.loop.create_task(schedule.run(world), name=f"fault/{type(schedule).__name__}")
        for schedule in schedules
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        for outcome in ended:
            if isinstance(outcome, Exception):
                raise outcome


@dataclass(frozen=True, slots=True)
class RandomCrashes:
    """The host's process dies and is booted again, every so often."""

    host: str
    every_s: float = 5.0
    down_s: float = 1.0
    power_loss: bool | None = None
    """None: chance decides each time."""

    async def run(self, world: SimWorld) -> None:
        chance = world.random(f"crashes/{self.host}")
        try:
            while True:
                await asyncio.sleep(chance.expovariate(1 / self.every_s))
                power_loss = chance.random() < 0.5 if self.power_loss is None else self.power_loss
                if power_loss and chance.random() < 0.5:
                    await self._crash_mid_operation(world, chance.randrange(OPERATIONS_BEFORE_CRASH_MAX))
                world.crash(self.host, power_loss=power_loss)
                await asyncio.sleep(chance.expovariate(1 / self.down_s))
                world.restart(self.host)
        finally:
            world.crash_mid_operation(self.host, None)
            if not world.host(self.host).is_running:
                world.restart(self.host)

    async def _crash_mid_operation(self, world: SimWorld, operations: int) -> None:
        """Leaves the host running if it does not use its disk that much."""
        host = world.host(self.host)
        world.crash_mid_operation(self.host, operations)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(host.died.wait(), self.every_s)


@dataclass(frozen=True, slots=True)
class RandomPartitions:
    """Two groups of hosts lose each other, every so often, in one direction or both."""

    left: tuple[str, ...]
    right: tuple[str, ...]
    every_s: float = 5.0
    for_s: float = 2.0

    async def run(self, world: SimWorld) -> None:
        chance = world.random(f"partitions/{self.left}/{self.right}")
        try:
            while True:
                await asyncio.sleep(chance.expovariate(1 / self.every_s))
                sides = [self.left, self.right]
                chance.shuffle(sides)
                world.network.partition(*sides, one_way=chance.random() < 0.3)
                await asyncio.sleep(chance.expovariate(1 / self.for_s))
                world.network.heal()
        finally:
            world.network.heal()


@dataclass(frozen=True, slots=True)
class RandomCuts:
    """All connections of a host are reset, every so often."""

    host: str
    every_s: float = 2.0

    async def run(self, world: SimWorld) -> None:
        chance = world.random(f"cuts/{self.host}")
        while True:
            await asyncio.sleep(chance.expovariate(1 / self.every_s))
            world.network.cut(self.host)


@dataclass(frozen=True, slots=True)
class SlowDisk:
    """What the host does off its loop, fsync above all, takes so long."""

    host: str
    delay_range_s: tuple[float, float] = (0.1, 2.0)

    async def run(self, world: SimWorld) -> None:
        offload = world.host(self.host).offload
        usual, offload.delay_range_s = offload.delay_range_s, self.delay_range_s
        try:
            await asyncio.Event().wait()
        finally:
            offload.delay_range_s = usual
