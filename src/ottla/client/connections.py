"""One connection to each broker of a cluster, made when first needed and again after it was lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from ottla import __version__
from ottla.client.errors import ClusterUnreachable
from ottla.client.peer import AuthenticationFailed, Peer, PeerLost
from ottla.client.security import security_from_properties
from ottla.runtime.net import Network

DEFAULT_PORT = 9092


def parse_addresses(bootstrap: str | Iterable[str]) -> list[tuple[str, int]]:
    """`host:port` each, comma-separated; the port may be left out, IPv6 stands in brackets."""
    parts = bootstrap.split(",") if isinstance(bootstrap, str) else list(bootstrap)
    addresses = []
    for part in (part.strip() for part in parts):
        if not part:
            continue
        text = part.partition("://")[2] or part
        host, separator, port = text.rpartition(":")
        if not separator or text.endswith("]"):
            host, port = text, str(DEFAULT_PORT)
        if not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError(f"bootstrap.servers: {part!r} is not host:port")
        addresses.append((host.strip("[]"), int(port)))
    if not addresses:
        raise ValueError("bootstrap.servers is empty; name at least one broker as host:port")
    return addresses


class Connections:
    def __init__(self, network: Network, properties: Mapping[str, str], connect_timeout_s: float) -> None:
        self._network = network
        self._security = security_from_properties(properties)
        self._client_id = properties.get("client.id", "ottla")
        self._connect_timeout_s = connect_timeout_s
        self._peers: dict[tuple[str, int], Peer] = {}
        self._locks: dict[tuple[str, int], asyncio.Lock] = {}

    async def peer(self, host: str, port: int) -> Peer:
        """OSError or PeerLost when the broker cannot be had."""
        address = (host, port)
        if (peer := self._usable(address)) is not None:
            return peer
        # Many may ask at once for a broker that has just come back: they share one connection.
        async with self._locks.setdefault(address, asyncio.Lock()):
            if (peer := self._usable(address)) is not None:
                return peer
            try:
                async with asyncio.timeout(self._connect_timeout_s):
                    peer = await Peer.connect(
                        self._network,
                        host,
                        port,
                        client_id=self._client_id,
                        software_version=__version__,
                        security=self._security,
                    )
            except TimeoutError:
                raise PeerLost(f"{host}:{port}: no answer within {self._connect_timeout_s:g} s") from None
            self._peers[address] = peer
            return peer

    async def any_peer(self, addresses: Sequence[tuple[str, int]]) -> Peer:
        """The first that answers, those first that are connected already."""
        for address in addresses:
            if (peer := self._usable(address)) is not None:
                return peer
        failures: dict[str, str] = {}
        for host, port in addresses:
            try:
                return await self.peer(host, port)
            except AuthenticationFailed:
                raise
            except (OSError, PeerLost) as error:
                failures[f"{host}:{port}"] = str(error).removeprefix(f"{host}:{port}: ")
        tried = "; ".join(f"{address} ({reason})" for address, reason in failures.items())
        raise ClusterUnreachable(
            f"no broker can be reached: {tried}. Check bootstrap.servers, and that security.protocol is the "
            "one of that listener"
        )

    def drop(self, peer: Peer) -> None:
        """A broker that leaves a request unanswered is not asked again over the same connection."""
        peer.close()

    def close(self) -> None:
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()

    def _usable(self, address: tuple[str, int]) -> Peer | None:
        peer = self._peers.get(address)
        if peer is None or peer.is_lost:
            return None
        if peer.is_expiring:
            del self._peers[address]
            peer.close_when_idle()
            return None
        return peer
