"""The listener for scrapes."""

from __future__ import annotations

import logging

from ottla.config import ConfigError
from ottla.config.listeners import Address
from ottla.handlers.context import Broker
from ottla.runtime.net import Listener
from ottla.runtime.tasks import TaskScope
from ottla.server.listener import ConnectionLimits
from ottla.server.metrics.connection import PATH, MetricsConnection
from ottla.server.metrics.page import Page, render
from ottla.server.metrics.snapshot import read_snapshot

log = logging.getLogger(__name__)


class MetricsEndpoint:
    def __init__(self, broker: Broker, limits: ConnectionLimits) -> None:
        self._broker = broker
        self._limits = limits
        # A scrape answers for its own failures.
        self._tasks = TaskScope("metrics", lambda name, error: None)
        self._connections: dict[MetricsConnection, None] = {}
        self._listener: Listener | None = None

    async def serve(self, address: Address) -> None:
        """ConfigError where that cannot be."""
        try:
            self._listener = await self._broker.runtime.net.listen(
                lambda: MetricsConnection(self._scrape, self._tasks, self._connections), *address
            )
        except OSError as error:
            raise ConfigError(
                f"ottla.metrics.listener={address}: cannot listen there ({error.strerror}); choose another "
                "address or port"
            ) from error
        log.info("metrics are at http://%s%s", Address(*self._listener.address), PATH)

    async def stop(self) -> None:
        if self._listener is not None:
            await self._listener.close()
        for connection in tuple(self._connections):
            connection.abort()
        await self._tasks.close()

    async def _scrape(self, accept: str) -> Page:
        snapshot = await read_snapshot(self._broker, self._limits)
        # With thousands of partitions, writing the text takes longer than requests should wait.
        return await self._broker.runtime.offload.run(render, snapshot, accept)
