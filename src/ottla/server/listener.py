"""Accepts connections within limits, and closes the idle ones."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections import Counter

from ottla.config import BrokerConfig, Endpoint
from ottla.config.listeners import parse_connection_overrides
from ottla.runtime import Runtime
from ottla.runtime.net import Listener
from ottla.runtime.tasks import ByteBudget
from ottla.server.admission import DescriptorQuota, RefusalLog
from ottla.server.connection import Connection
from ottla.server.dispatch import Dispatcher
from ottla.wire.frame import SCRATCH_BYTES

log = logging.getLogger(__name__)

UNLIMITED_BYTES = 1 << 62
MEMORY_WAITERS_MIN = 128
TICK_SECONDS = 10.0
"""Who sends nothing for so long, in the middle of a request, gives way if others wait for memory."""


class ConnectionLimits:
    """What all connections of a node share: the scratch buffer, the memory budget, the counts."""

    def __init__(self, runtime: Runtime, config: BrokerConfig, dispatcher: Dispatcher) -> None:
        self.dispatcher = dispatcher
        self.monotonic = runtime.clock.monotonic
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.request_bytes_max = config.integer("socket.request.max.bytes")
        queued_bytes = config.integer("queued.max.request.bytes")
        self.request_bytes = ByteBudget(queued_bytes if queued_bytes >= 0 else UNLIMITED_BYTES)
        self.connections: dict[Connection, None] = {}
        self.admitted = 0
        self.refused = 0
        self._per_host: Counter[str] = Counter()
        self.descriptors = DescriptorQuota(runtime)
        self._refusals = RefusalLog(runtime)
        self.configure(config)
        self.accepting = True
        self.serving = False
        self.emptied = asyncio.Event()

    def configure(self, config: BrokerConfig) -> None:
        """For connections from now on; those that are open stay."""
        self._connections_max = config.integer("max.connections")
        self._per_host_max = config.integer("max.connections.per.ip")
        self._per_host_overrides = parse_connection_overrides(
            config.string("max.connections.per.ip.overrides")
        )

    def admit(self, connection: Connection) -> bool:
        refusal = self._refusal(connection.host)
        if refusal is not None:
            self.refused += 1
            self._refusals.report(connection.address, *refusal)
            return False
        self.admitted += 1
        self.connections[connection] = None
        self._per_host[connection.host] += 1
        return True

    def _refusal(self, host: str) -> tuple[str, str] | None:
        """The limit that is reached, and a sentence for whoever has to deal with it."""
        if not self.accepting:
            return "stopping", "the broker is stopping"
        if len(self.connections) >= self._connections_max:
            return "max.connections", f"max.connections={self._connections_max} is reached"
        per_host_max = self._per_host_overrides.get(host, self._per_host_max)
        if self._per_host[host] >= per_host_max:
            return (
                "max.connections.per.ip",
                f"max.connections.per.ip={per_host_max} is reached for {host}",
            )
        if self.descriptors.is_used_up(len(self.connections)):
            return (
                "descriptors",
                f"the limit of open files, {self.descriptors.limit}, leaves no more for connections than the "
                f"{len(self.connections)} there are; raise it (ulimit -n, LimitNOFILE=)",
            )
        return None

    @property
    def may_wait_for_memory(self) -> bool:
        """What a client has sent is kept while it waits; those who wait may keep as much as the budget."""
        return self.request_bytes.waiting < max(MEMORY_WAITERS_MIN, self.request_bytes.limit // SCRATCH_BYTES)

    def reclaim(self) -> bool:
        """Take back the buffers that connections only keep for later; whether there were any."""
        # While somebody waits, none are kept.
        if self.request_bytes.waiting:
            return False
        before = self.request_bytes.used
        for connection in tuple(self.connections):
            connection.release_buffer()
        return self.request_bytes.used < before

    def forget(self, connection: Connection) -> None:
        if connection in self.connections:
            del self.connections[connection]
            self.dispatcher.disconnected(connection.address)
            if not self.connections:
                self.emptied.set()
            self._per_host[connection.host] -= 1
            if not self._per_host[connection.host]:
                del self._per_host[connection.host]


class Server:
    def __init__(self, runtime: Runtime, config: BrokerConfig, dispatcher: Dispatcher) -> None:
        self._runtime = runtime
        self._idle_ms = config.integer("connections.max.idle.ms")
        self.limits = ConnectionLimits(runtime, config, dispatcher)
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
        idle_seconds = self._idle_ms / 1000 if self._idle_ms >= 0 else math.inf
        tick_seconds = min(TICK_SECONDS, idle_seconds)
        while True:
            await asyncio.sleep(tick_seconds)
            for connection in tuple(self.limits.connections):
                if connection.active:
                    connection.active = False
                    connection.quiet_ticks = 0
                    continue
                connection.quiet_ticks += 1
                connection.release_buffer()
                if connection.quiet_ticks * tick_seconds >= idle_seconds and not connection.is_waiting:
                    log.info(
                        "closing connection from %s: idle for connections.max.idle.ms", connection.address
                    )
                    connection.close()
                elif self.limits.request_bytes.waiting and connection.holds_unfinished_request:
                    log.warning(
                        "closing connection from %s: the rest of its request has not come for %d s, and "
                        "others wait for the memory that it takes",
                        connection.address,
                        tick_seconds,
                    )
                    connection.abort()

    async def stop_reading(self) -> None:
        """Take no more connections and no more requests; those that only wait for more are answered now."""
        self.limits.accepting = False
        for listener in self._listeners:
            await listener.close()
        for connection in tuple(self.limits.connections):
            connection.drain()

    async def wait_drained(self, drain_seconds: float) -> None:
        """Until what was read before is answered, or the time is up."""
        if self.limits.connections:
            self.limits.emptied.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.limits.emptied.wait(), drain_seconds)

    def abort(self) -> None:
        for connection in tuple(self.limits.connections):
            connection.abort()
