"""Accepts connections within limits, and closes the idle ones."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter

from ottla.config import BrokerConfig, Endpoint
from ottla.config.listeners import parse_connection_overrides
from ottla.runtime import Runtime
from ottla.runtime.net import Listener
from ottla.runtime.tasks import ByteBudget
from ottla.server.connection import Connection
from ottla.server.dispatch import Dispatcher
from ottla.wire.frame import SCRATCH_BYTES

log = logging.getLogger(__name__)

UNLIMITED_BYTES = 1 << 62


class ConnectionLimits:
    """What all connections of a node share: the scratch buffer, the memory budget, the counts."""

    def __init__(self, config: BrokerConfig, dispatcher: Dispatcher) -> None:
        self.dispatcher = dispatcher
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.request_bytes_max = config.integer("socket.request.max.bytes")
        queued_bytes = config.integer("queued.max.request.bytes")
        self.request_bytes = ByteBudget(queued_bytes if queued_bytes >= 0 else UNLIMITED_BYTES)
        self.connections: dict[Connection, None] = {}
        self.admitted = 0
        self.refused = 0
        self._per_host: Counter[str] = Counter()
        self._connections_max = config.integer("max.connections")
        self._per_host_max = config.integer("max.connections.per.ip")
        self._per_host_overrides = parse_connection_overrides(
            config.string("max.connections.per.ip.overrides")
        )
        self.accepting = True
        self.serving = False
        self.emptied = asyncio.Event()

    def admit(self, connection: Connection) -> str | None:
        """Why not, or None."""
        refusal = self._refusal(connection.host)
        if refusal is not None:
            self.refused += 1
            return refusal
        self.admitted += 1
        self.connections[connection] = None
        self._per_host[connection.host] += 1
        return None

    def _refusal(self, host: str) -> str | None:
        if not self.accepting:
            return "the broker is stopping"
        if len(self.connections) >= self._connections_max:
            return f"max.connections={self._connections_max} is reached"
        per_host_max = self._per_host_overrides.get(host, self._per_host_max)
        if self._per_host[host] >= per_host_max:
            return f"max.connections.per.ip={per_host_max} is reached for {host}"
        return None

    def reclaim(self) -> bool:
        """Take back the buffers that connections only keep for later; whether there were any."""
        before = self.request_bytes.used
        for connection in tuple(self.connections):
            connection.release_buffer()
        return self.request_bytes.used < before

    def forget(self, connection: Connection) -> None:
        if connection in self.connections:
            del self.connections[connection]
            if not self.connections:
                self.emptied.set()
            self._per_host[connection.host] -= 1
            if not self._per_host[connection.host]:
                del self._per_host[connection.host]


class Server:
    def __init__(self, runtime: Runtime, config: BrokerConfig, dispatcher: Dispatcher) -> None:
        self._runtime = runtime
        self._idle_ms = config.integer("connections.max.idle.ms")
        self.limits = ConnectionLimits(config, dispatcher)
        self._listeners: list[Listener] = []

    async def bind(self, endpoint: Endpoint) -> Endpoint:
        """Take the address, so that the port is known; connections wait until `serve`."""
        name = endpoint.listener
        listener = await self._runtime.net.listen(
            lambda: Connection(self.limits, name), endpoint.host, endpoint.port
        )
        self._listeners.append(listener)
        return Endpoint(name, endpoint.host, listener.address[1])

    def serve(self) -> None:
        self.limits.serving = True
        for connection in tuple(self.limits.connections):
            connection.serve()

    async def close_idle_connections(self) -> None:
        """Runs for the life of the node. A connection is idle when nothing came for a whole period."""
        while self._idle_ms >= 0:
            await asyncio.sleep(self._idle_ms / 1000)
            for connection in tuple(self.limits.connections):
                connection.release_buffer()
                if not connection.active and not connection.is_waiting:
                    log.info(
                        "closing connection from %s: idle for connections.max.idle.ms", connection.address
                    )
                    connection.close()
                connection.active = False

    async def stop(self, drain_seconds: float) -> None:
        """Stop accepting, let waiting requests finish until the deadline, close."""
        self.limits.accepting = False
        for listener in self._listeners:
            await listener.close()
        for connection in tuple(self.limits.connections):
            connection.drain()
        if self.limits.connections:
            self.limits.emptied.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.limits.emptied.wait(), drain_seconds)
        for connection in tuple(self.limits.connections):
            connection.abort()
