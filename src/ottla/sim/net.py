"""A network in memory between named hosts: slow, cut and partitioned as the seed or the test says.

`SimNetwork` is the whole of it; `HostNetwork` is what one host gets as `runtime.net.Network`.
"""

from __future__ import annotations

import asyncio
import errno
import random
import ssl
from collections.abc import Callable, Iterable
from contextvars import Context, copy_context

from ottla.runtime.net import ProtocolFactory
from ottla.runtime.tls import TlsDoor
from ottla.sim.loop import SimLoop
from ottla.sim.transport import Address, SimTransport, Wire

CONNECT_TIMEOUT_S = 127.0  # Linux gives up a SYN after six retries
EPHEMERAL_PORT_MIN = 49152
OWN_NAMES = frozenset(("", "0.0.0.0", "127.0.0.1", "::", "::1", "localhost"))  # noqa: S104 - of a network that is simulated


class SimListener:
    def __init__(self, network: SimNetwork, address: Address, factory: ProtocolFactory) -> None:
        self.address = address
        self.factory = factory
        self.context = copy_context()
        self._network = network

    async def close(self) -> None:
        self._network.stop_listening(self)


class SimNetwork:
    def __init__(
        self, loop: SimLoop, seed: int | str = 0, *, trace: Callable[[str], None] | None = None
    ) -> None:
        self.loop = loop
        self.context = Context()
        self.delay_range_s = (0.0001, 0.005)
        self.whole_chance = 0.5
        """How often all that has arrived is handed over at once."""
        self.slow_hosts: dict[str, tuple[float, float]] = {}
        """What is sent from or to them takes so much longer."""
        self._random = random.Random(f"net/{seed}")
        self._trace = trace or (lambda _: None)
        self._listeners: dict[Address, SimListener] = {}
        self._transports: dict[SimTransport, SimTransport] = {}
        self._stalled: dict[Wire, None] = {}
        self._blocked: set[tuple[str, str]] = set()
        self._down: set[str] = set()
        self._reachability_changed = asyncio.Event()
        self._ports: dict[str, int] = {}

    def host(self, name: str) -> HostNetwork:
        return HostNetwork(self, name)

    # Chance.

    def delay_s(self, source: str = "", target: str = "") -> float:
        delay_s = self._random.uniform(*self.delay_range_s)
        if self.slow_hosts and source != target:
            for host in (source, target):
                if host in self.slow_hosts:
                    delay_s += self._random.uniform(*self.slow_hosts[host])
        return delay_s

    def piece_bytes(self, available: int) -> int:
        """TCP knows no messages: often less arrives than could."""
        if self._random.random() < self.whole_chance:
            return available
        return self._random.randint(1, available)

    # Faults.

    def partition(self, left: Iterable[str], right: Iterable[str], *, one_way: bool = False) -> None:
        """Nothing passes from left to right, nor back unless one_way; connections stall, as TCP does."""
        left, right = sorted(left), sorted(right)
        self._trace(f"partition {left} {'->' if one_way else '<->'} {right}")
        for source in left:
            for target in right:
                self._blocked.add((source, target))
                if not one_way:
                    self._blocked.add((target, source))

    @property
    def is_parted(self) -> bool:
        return bool(self._blocked)

    def heal(self) -> None:
        """All partitions end; what was held back arrives."""
        if self._blocked:
            self._trace("heal")
            self._blocked.clear()
            self._reachability_changes()

    def cut(self, host: str, other: str | None = None) -> int:
        """Reset the connections of a host, or those between two; how many there were."""
        count = 0
        for transport, peer in list(self._transports.items()):
            if transport.host == host and other in (None, peer.host):
                count += 1
                for end in (transport, peer):
                    end.outgoing.cut()
                    error = ConnectionResetError("connection cut")
                    self.loop.call_later(self.delay_s(), end.lose, error, context=self.context)
        self._trace(f"cut {host} {other or '*'}: {count}")
        return count

    def kill(self, host: str, *, power_loss: bool) -> None:
        """The process of a host ends. Without power its peers hear nothing until it is up again."""
        for address in [address for address in self._listeners if address[0] == host]:
            del self._listeners[address]
        for transport in [transport for transport in self._transports if transport.host == host]:
            transport.die(kernel_survives=not power_loss)
        if power_loss:
            self._down.add(host)

    def power_on(self, host: str) -> None:
        self._down.discard(host)
        self._reachability_changes()

    def reaches(self, source: str, target: str) -> bool:
        if source == target:
            return True
        return target not in self._down and (source, target) not in self._blocked

    def stall(self, wire: Wire) -> None:
        self._stalled[wire] = None

    def _reachability_changes(self) -> None:
        stalled, self._stalled = self._stalled, {}
        for wire in stalled:
            self.loop.call_soon(wire.pump, context=self.context)
        changed, self._reachability_changed = self._reachability_changed, asyncio.Event()
        changed.set()

    # Connections.

    def listen(self, factory: ProtocolFactory, host: str, port: int) -> SimListener:
        if port == 0:
            port = self._ephemeral_port(host)
        if (host, port) in self._listeners:
            raise OSError(errno.EADDRINUSE, f"address already in use: {host}:{port}")
        listener = self._listeners[host, port] = SimListener(self, (host, port), factory)
        return listener

    def stop_listening(self, listener: SimListener) -> None:
        if self._listeners.get(listener.address) is listener:
            del self._listeners[listener.address]

    async def connect(
        self, factory: ProtocolFactory, source: str, target: Address
    ) -> tuple[SimTransport, asyncio.BaseProtocol]:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await self._travel(source, target[0])
                await self._travel(target[0], source)
        except TimeoutError:
            raise TimeoutError(errno.ETIMEDOUT, f"{source} cannot reach {target[0]}:{target[1]}") from None
        listener = self._listeners.get(target)
        if listener is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"nobody listens on {target[0]}:{target[1]}")
        local = (source, self._ephemeral_port(source))
        client = SimTransport(self, source, local, target, copy_context())
        server = SimTransport(self, target[0], target, local, listener.context)
        self._join(client, server)
        self._trace(f"connect {source}:{local[1]} -> {target[0]}:{target[1]}")
        self.loop.call_soon(self._accept, listener, server, context=listener.context)
        return client, client.start(factory)

    def _accept(self, listener: SimListener, server: SimTransport) -> None:
        if self._listeners.get(listener.address) is not listener:
            server.abort()
        else:
            server.start(listener.factory)

    def _join(self, client: SimTransport, server: SimTransport) -> None:
        client.outgoing = server.incoming = Wire(self, client, server)
        server.outgoing = client.incoming = Wire(self, server, client)
        self._transports[client] = server
        self._transports[server] = client

    def forget(self, transport: SimTransport) -> None:
        self._transports.pop(transport, None)

    async def _travel(self, source: str, target: str) -> None:
        await asyncio.sleep(self.delay_s(source, target))
        while not self.reaches(source, target):
            await self._reachability_changed.wait()

    def _ephemeral_port(self, host: str) -> int:
        port = self._ports.get(host, EPHEMERAL_PORT_MIN)
        self._ports[host] = port + 1
        return port


class HostNetwork:
    """The network as one host sees it."""

    def __init__(self, network: SimNetwork, name: str) -> None:
        self._network = network
        self._name = name

    def host_name(self) -> str:
        return self._name

    def descriptors(self) -> tuple[int, int] | None:
        return None

    async def listen(self, factory: ProtocolFactory, host: str, port: int) -> SimListener:
        if host != self._name and host not in OWN_NAMES:
            raise OSError(errno.EADDRNOTAVAIL, f"{self._name} cannot listen on {host}")
        return self._network.listen(factory, self._name, port)

    async def connect(
        self, factory: ProtocolFactory, host: str, port: int, tls: ssl.SSLContext | None = None
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        # Nobody listens in on these links: TLS is taken for granted.
        target = self._name if host in OWN_NAMES else host
        return await self._network.connect(factory, self._name, (target, port))

    async def listen_tls(self, door: TlsDoor, host: str, port: int) -> SimListener:
        return await self.listen(lambda: door.enter(("", 0)), host, port)
