"""A whole broker as the process of a simulated host: `world.start("b1", broker())`."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.config import BrokerConfig
from ottla.node import Node
from ottla.runtime import Runtime
from ottla.sim.world import Boot

PORT = 9092
LOG_DIR = "/data"
PROPERTIES = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "listeners": f"PLAINTEXT://:{PORT},CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
    "log.dirs": LOG_DIR,
}


def broker(properties: Mapping[str, str] | None = None) -> Boot:
    """Runs until the host crashes; fails when the node does."""
    config = BrokerConfig.from_properties({**PROPERTIES, **(properties or {})})

    async def boot(runtime: Runtime) -> None:
        node = Node(runtime, config)
        await node.start()
        raise await node.wait_failed()

    return boot
