"""Accepts connections within limits, and closes the idle ones."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections import Counter
from typing import TYPE_CHECKING

from ottla.config import BrokerConfig, Endpoint
from ottla.config.key import INT_MAX
from ottla.config.listeners import parse_connection_overrides
from ottla.handlers.context import Broker
from ottla.handlers.registry import REGISTRY, Apis
from ottla.runtime import Runtime
from ottla.runtime.net import Listener
from ottla.runtime.seldom import SeldomEach
from ottla.runtime.tasks import ByteBudget, TaskScope
from ottla.security.rates import RateLimit
from ottla.server.admission import DescriptorQuota, RefusalLog
from ottla.server.connection import Connection
from ottla.server.dispatch import Dispatcher
from ottla.server.long_answers import LongAnswers
from ottla.server.tls_door import ListenerDoor
from ottla.wire.frame import SCRATCH_BYTES

if TYPE_CHECKING:
    from ottla.server.guard import Guard

log = logging.getLogger(__name__)

UNLIMITED_BYTES = 1 << 62
UNREAD_ANSWERS_SHARE = 4
"""Of the memory for requests, a part of this size is for long answers that clients have not read yet."""
MEMORY_WAITERS_MIN = 128
TICK_SECONDS = 10.0
ORDINARY_REQUEST_BYTES_MAX = 1024 * 1024
# While others wait for memory: who sends less than so much of its request in so many looks gives way.
LOOK_SECONDS = 1.0
LOOKS_MAX = 3
PROGRESS_BYTES_MIN = 64 * 1024


class ConnectionLimits:
    """What all connections of a node share: the scratch buffer, the memory budget, the counts."""

    def __init__(self, runtime: Runtime, config: BrokerConfig, dispatcher: Dispatcher) -> None:
        self.dispatcher = dispatcher
        self.monotonic = runtime.clock.monotonic
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.request_bytes_max = config.integer("socket.request.max.bytes")
        self.request_bytes = dispatcher.request_bytes
        self.connections: dict[Connection, None] = {}
        self._handshakes: set[tuple[str, str]] = set()
        """Addresses, and listeners, of those whose TLS has begun, and is not a connection yet."""
        self.admitted = 0
        self.refused = 0
        self._per_host: Counter[str] = Counter()
        self._per_listener: Counter[str] = Counter()
        self._complaints_of_tls = SeldomEach(runtime.clock)
        self._complaints_of_requests = SeldomEach(runtime.clock)
        self.descriptors = DescriptorQuota(runtime)
        self._refusals = RefusalLog(runtime)
        self.configure(config)
        self.accepting = True
        self.serving = False
        self.emptied = asyncio.Event()

    def configure(self, config: BrokerConfig) -> None:
        """For connections from now on; those that are open stay."""
        self._connections_max = config.integer("max.connections")
        self._listener_max = {
            each.listener: config.listener(each.listener).own("max.connections")
            for each in (*config.broker_listeners, *config.controller_listeners)
        }
        windows = config.integer("quota.window.num"), config.integer("quota.window.size.seconds") * 1000
        rate = config.integer("max.connection.creation.rate")
        self._creation_rate = RateLimit(max(rate, 1), *windows) if rate < INT_MAX else None
        self._creation_rates = {
            listener: RateLimit(max(of_listener, 1), *windows)
            for listener, of_listener in config.connection_rates.items()
        }
        self._per_host_max = config.integer("max.connections.per.ip")
        self._per_host_overrides = parse_connection_overrides(
            config.string("max.connections.per.ip.overrides")
        )

    def admit(self, connection: Connection) -> bool:
        session = connection.session
        # It is counted already, as one that might become a connection.
        self.end_handshake(session.address, session.host, session.listener)
        if not self._count(session.host, session.listener, session.address):
            return False
        self.admitted += 1
        self.connections[connection] = None
        self.dispatcher.connected(session)
        self._hold_back(connection)
        return True

    def begin_handshake(self, address: str, host: str, listener: str) -> bool:
        """Whether there is room for one more that may become a connection."""
        if not self._count(host, listener, address):
            return False
        self._handshakes.add((address, listener))
        return True

    def end_handshake(self, address: str, host: str, listener: str) -> None:
        if (address, listener) in self._handshakes:
            self._handshakes.remove((address, listener))
            self._uncount(host, listener)

    def complain_of_tls(self, address: str, host: str, listener: str, reason: str) -> None:
        if self._complaints_of_tls.is_due(host):
            log.warning("TLS with %s failed on listener %s: %s", address, listener, reason)

    def complain_of_request(self, address: str, host: str, reason: object) -> None:
        """Whoever sends nonsense may do so thousands of times a second."""
        level = logging.WARNING if self._complaints_of_requests.is_due(host) else logging.DEBUG
        log.log(level, "closing connection from %s: %s", address, reason)

    def _count(self, host: str, listener: str, address: str) -> bool:
        refusal = self._refusal(host, listener)
        if refusal is not None:
            self.refused += 1
            self._refusals.report(address, *refusal)
            return False
        self._per_host[host] += 1
        self._per_listener[listener] += 1
        return True

    def _uncount(self, host: str, listener: str) -> None:
        self._per_listener[listener] -= 1
        self._per_host[host] -= 1
        if not self._per_host[host]:
            del self._per_host[host]

    def _hold_back(self, connection: Connection) -> None:
        """Whoever connects too often has to wait, as Apache Kafka lets it: addresses are hung up on then."""
        session = connection.session
        if session.quotas is None:
            return
        wait_ms = session.quotas.connected(session.host)
        if wait_ms:
            self._refusals.report(
                session.address, "connection_creation_rate", f"{session.host} connects more often than it may"
            )
            connection.abort_after(wait_ms)
            return
        now_ms = self.monotonic() * 1000
        limits = [self._creation_rates.get(session.listener), self._creation_rate]
        wait_ms = max((limit.record(1, now_ms) for limit in limits if limit is not None), default=0)
        if wait_ms:
            connection.mute(wait_ms)

    def _refusal(self, host: str, listener: str) -> tuple[str, str] | None:
        """The limit that is reached, and a sentence for whoever has to deal with it."""
        if not self.accepting:
            return "stopping", "the broker is stopping"
        count = len(self.connections) + len(self._handshakes)
        if count >= self._connections_max:
            return "max.connections", f"max.connections={self._connections_max} is reached"
        listener_max = self._listener_max.get(listener)
        if isinstance(listener_max, int) and self._per_listener[listener] >= listener_max:
            name = f"listener.name.{listener.lower()}.max.connections"
            return name, f"{name}={listener_max} is reached"
        per_host_max = self._per_host_overrides.get(host, self._per_host_max)
        if self._per_host[host] >= per_host_max:
            return (
                "max.connections.per.ip",
                f"max.connections.per.ip={per_host_max} is reached for {host}",
            )
        if self.descriptors.is_used_up(count):
            return (
                "descriptors",
                f"the limit of open files, {self.descriptors.limit}, leaves no more for connections than the "
                f"{count} there are; raise it (ulimit -n, LimitNOFILE=)",
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
            self.dispatcher.disconnected(connection.session)
            if not self.connections:
                self.emptied.set()
            self._uncount(connection.session.host, connection.session.listener)


class Server:
    def __init__(self, runtime: Runtime, config: BrokerConfig, broker: Broker, tasks: TaskScope) -> None:
        queued_bytes = config.integer("queued.max.request.bytes")
        bytes_max = queued_bytes if queued_bytes >= 0 else UNLIMITED_BYTES
        dispatcher = Dispatcher(
            broker,
            tasks,
            LongAnswers(bytes_max // UNREAD_ANSWERS_SHARE),
            ByteBudget(bytes_max, ORDINARY_REQUEST_BYTES_MAX),
        )
        self._runtime = runtime
        self._idle_ms = config.integer("connections.max.idle.ms")
        self.limits = ConnectionLimits(runtime, config, dispatcher)
        self._listeners: list[Listener] = []

    async def bind(self, endpoint: Endpoint, apis: Apis = REGISTRY, guard: Guard | None = None) -> Endpoint:
        """Take the address, so that the port is known; connections wait until `serve`."""
        name, limits, tls = endpoint.listener, self.limits, None if guard is None else guard.tls

        def connection() -> Connection:
            return Connection(limits, name, apis, guard)

        net, place = self._runtime.net, (endpoint.host, endpoint.port)
        if tls is None:
            listener = await net.listen(connection, *place)
        else:
            listener = await net.listen_tls(ListenerDoor(limits, name, tls, connection), *place)
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
                if connection.has_read_nothing() and self._others_wait_for(connection):
                    log.warning(
                        "closing connection from %s: it has read nothing of its answers for %d s, and others "
                        "wait for the memory that it takes",
                        connection.session.address,
                        tick_seconds,
                    )
                    connection.abort()
                elif connection.quiet_ticks * tick_seconds >= idle_seconds and not connection.is_waiting:
                    log.info(
                        "closing connection from %s: idle for connections.max.idle.ms",
                        connection.session.address,
                    )
                    connection.close()

    async def make_way(self) -> None:
        """Runs for the life of the node. Memory for requests is not for those that do not come."""
        slow: dict[Connection, tuple[int, int]] = {}
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            before, slow = slow, {}
            if not self.limits.request_bytes.waiting:
                continue
            for connection in tuple(self.limits.connections):
                come = connection.unfinished_bytes
                if not come:
                    continue
                come_before, looks = before.get(connection, (0, 0))
                if come - come_before >= PROGRESS_BYTES_MIN:
                    slow[connection] = come, 0
                elif looks < LOOKS_MAX:
                    slow[connection] = come_before, looks + 1
                else:
                    log.warning(
                        "closing connection from %s: the rest of its request has not come for %d s, and "
                        "others wait for the memory that it takes",
                        connection.session.address,
                        LOOKS_MAX * LOOK_SECONDS,
                    )
                    connection.abort()

    def _others_wait_for(self, connection: Connection) -> bool:
        """What this one holds, without any use."""
        return (connection.holds_long_answer and self.limits.dispatcher.long_answers.wait_for_memory) or (
            connection.holds_request_bytes and self.limits.request_bytes.waiting > 0
        )

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
