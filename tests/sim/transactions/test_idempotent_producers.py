"""Idempotent producers in the simulator: requests that are repeated and late, answers that are lost, crashes.

Each record is there once, and in order.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Callable, Coroutine
from importlib import import_module
from typing import Any

import pytest

from ottla.log.producers import ProducerStates
from ottla.records.records import Record, encode_batch
from ottla.sim.broker import PORT, broker
from ottla.sim.client import RequestFailed, SimClient
from ottla.sim.faults import RandomCrashes, RandomCuts, SlowDisk, inject
from ottla.sim.world import SimWorld, simulate

RECORDS = 60
IN_FLIGHT_MAX = 5
GHOST_CHANCE = 0.4
GHOST_DELAY_S = 2.0


class IdempotentProducer:
    """Keeps up to five requests in flight, and sends in order again what was not acknowledged."""

    def __init__(self, world: SimWorld, host: str) -> None:
        self.world = world
        self.host = host
        self.chance = world.random(f"producer/{host}")
        self.client = SimClient(world.runtime(host), "b1", PORT, timeout_s=2)
        self.producer_id = -1
        self.ghosts: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        await self._init()
        unacknowledged = list(range(RECORDS))
        # A broker that does not know the producer cannot tell that something came before.
        window = 1
        while unacknowledged:
            sent = unacknowledged[:window]
            outcomes = await asyncio.gather(*(self._send(number) for number in sent))
            acknowledged = {number for number, done in zip(sent, outcomes, strict=True) if done}
            unacknowledged = [number for number in unacknowledged if number not in acknowledged]
            if len(unacknowledged) < RECORDS:
                window = self.chance.randint(1, IN_FLIGHT_MAX)
        await asyncio.gather(*self.ghosts)

    async def _init(self) -> None:
        request = import_module("kio.schema.init_producer_id.v4.request").InitProducerIdRequest(
            transactional_id=None, transaction_timeout=datetime.timedelta(0)
        )
        while self.producer_id < 0:
            try:
                self.producer_id = (await self.client.send(request)).producer_id
            except OSError:
                await asyncio.sleep(0.1)

    async def _send(self, number: int) -> bool:
        batch = encode_batch(
            [Record(None, f"{self.host}-{number}".encode(), self.world.runtime(self.host).clock.now_ms())],
            producer_id=self.producer_id,
            producer_epoch=0,
            base_sequence=number,
        )
        if self.chance.random() < GHOST_CHANCE:
            self.ghosts.append(asyncio.ensure_future(self._haunt(batch)))
        try:
            await self.client.produce_batch("t", 0, batch)
        except (OSError, RequestFailed):
            await asyncio.sleep(self.chance.random() / 10)
            return False
        return True

    async def _haunt(self, batch: bytes) -> None:
        """The same request, late and by another way."""
        await asyncio.sleep(self.chance.random() * GHOST_DELAY_S)
        client = SimClient(self.world.runtime("network"), "b1", PORT, timeout_s=2)
        try:
            await client.produce_batch("t", 0, batch)
        except (OSError, RequestFailed):
            pass
        finally:
            client.close()


def produce_through_faults() -> Callable[[SimWorld], Coroutine[Any, Any, dict[str, list[int]]]]:
    """The numbers that the log has of each producer."""

    async def scenario(world: SimWorld) -> dict[str, list[int]]:
        world.start("b1", broker())
        await asyncio.sleep(1)
        admin = SimClient(world.runtime("admin"), "b1", PORT)
        await admin.create_topic("t")
        faults = (
            RandomCrashes("b1", every_s=2, down_s=0.2, power_loss=False),
            RandomCuts("b1", every_s=0.5),
            SlowDisk("b1", (0.0, 0.05)),
        )
        async with inject(world, *faults):
            await asyncio.gather(*(IdempotentProducer(world, host).run() for host in ("c1", "c2")))
        await asyncio.sleep(5)
        found: dict[str, list[int]] = {"c1": [], "c2": []}
        for record in await SimClient(world.runtime("reader"), "b1", PORT).read_all("t", 0):
            host, _, number = (record.value or b"").decode().partition("-")
            found[host].append(int(number))
        return found

    return scenario


@pytest.mark.parametrize("seed", range(20))
def test_every_record_is_there_once_and_in_order(seed: int) -> None:
    found = simulate(produce_through_faults(), seed=seed)
    assert found == {"c1": list(range(RECORDS)), "c2": list(range(RECORDS))}


def test_without_a_memory_of_batches_records_are_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever forgets what a producer sent last takes its repetition for news."""
    monkeypatch.setattr(ProducerStates, "admit", lambda *_, **__: None)
    found = [simulate(produce_through_faults(), seed=seed) for seed in range(2)]
    assert any(len(numbers) > RECORDS for each in found for numbers in each.values())
