"""A broker that says it is ready is one that whoever asks it is told of."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from ottla.config import BrokerConfig
from ottla.controller.brokers import BrokerRegistration
from ottla.controller.heartbeats import BrokerHeartbeat, BrokerState, HeartbeatReply
from ottla.membership.life import BrokerLife
from ottla.metadata.image import BrokerImage, MetadataImage
from ottla.metadata.publisher import MetadataPublisher
from ottla.runtime.clock import SystemClock

BROKER = 2


class Controlling:
    """Takes every broker, and unfences it with its first heartbeat that asks for it."""

    is_in_touch = True

    def __init__(self) -> None:
        self.unfenced = asyncio.Event()

    async def register_broker(self, registration: BrokerRegistration) -> int:
        return 7

    async def heartbeat(self, heartbeat: BrokerHeartbeat) -> HeartbeatReply:
        if heartbeat.wants_fence:
            return HeartbeatReply(is_caught_up=True, state=BrokerState.FENCED)
        self.unfenced.set()
        return HeartbeatReply(is_caught_up=True, state=BrokerState.UNFENCED)


def image(offset: int, *, fenced: bool) -> MetadataImage:
    own = BrokerImage(
        id=BROKER,
        epoch=7,
        incarnation_id=UUID(int=1),
        endpoints=(),
        features=(),
        rack=None,
        fenced=fenced,
        in_controlled_shutdown=False,
        directories=(),
    )
    return MetadataImage(offset=offset, brokers={BROKER: own})


def test_it_serves_when_it_has_read_that_it_is_unfenced() -> None:
    async def main() -> None:
        metadata, controller = MetadataPublisher(), Controlling()
        runtime: Any = SimpleNamespace(clock=SystemClock())
        registration = BrokerRegistration(BROKER, UUID(int=1), (), ())
        life = BrokerLife(
            runtime, BrokerConfig.from_properties({"node.id": "2"}), controller, metadata, registration, tuple
        )  # type: ignore[arg-type]
        await life.register()
        metadata.on_snapshot(image(7, fenced=True))
        async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
            beating = tasks.create_task(life.run())
            serving = tasks.create_task(life.serve())
            await controller.unfenced.wait()
            for _ in range(10):
                await asyncio.sleep(0)
            assert not serving.done()
            metadata.on_snapshot(image(8, fenced=False))
            await serving
            beating.cancel()

    asyncio.run(main())
