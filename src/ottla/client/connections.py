"""One connection to each broker of a cluster, made when first needed and again after it was lost."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Iterable, Mapping, Sequence

from ottla import __version__
from ottla.client.errors import ClusterUnreachable
from ottla.client.frames import CLOSED
from ottla.client.peer import Peer, PeerLost, PeerUnusable
from ottla.client.security import Credentials
from ottla.runtime.net import Network

DEFAULT_PORT = 9092


def parse_addresses(
    bootstrap: str | Iterable[str], default_port: int | None = DEFAULT_PORT
) -> list[tuple[str, int]]:
    """`host:port` each, comma-separated; IPv6 stands in brackets, a listener's name may stand in front."""
    parts = bootstrap.split(",") if isinstance(bootstrap, str) else list(bootstrap)
    addresses = []
    for part in (part.strip() for part in parts):
        if not part:
            continue
        text = part.partition("://")[2] or part
        host, separator, port = text.rpartition(":")
        if not separator or text.endswith("]"):
            host, port = text, str(default_port)
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError(f"bootstrap.servers: {part!r} is not host:port")
        addresses.append((host.strip("[]"), int(port)))
    if not addresses:
        raise ValueError("bootstrap.servers is empty; name at least one broker as host:port")
    return addresses


class Connections:
    def __init__(self, network: Network, properties: Mapping[str, str], connect_timeout_s: float) -> None:
        self._network = network
        self._credentials = Credentials(properties)
        self._client_id = properties.get("client.id", "ottla")
        self._connect_timeout_s = connect_timeout_s
        self._peers: dict[tuple[str, int], Peer] = {}
        self._reached: set[str] = set()
        self._locks: dict[tuple[str, int], asyncio.Lock] = {}

    async def peer(self, host: str, port: int) -> Peer:
        """ClusterUnreachable when the broker cannot be had, PeerUnusable when it is not worth another try."""
        address = (host, port)
        if (peer := self._usable(address)) is not None:
            return peer
        # Many may ask at once for a broker that has just come back: they share one connection.
        async with self._locks.setdefault(address, asyncio.Lock()):
            if (peer := self._usable(address)) is not None:
                return peer
            peer = await self._connect(host, port)
            self._peers[address] = peer
            self._reached.add(peer.address)
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
            except ClusterUnreachable as error:
                failures.update(error.failures)
        raise _unreachable(failures)

    def have_reached(self, addresses: Iterable[str]) -> bool:
        """Whether one of them was ever connected to."""
        return not self._reached.isdisjoint(addresses)

    def drop(self, peer: Peer) -> None:
        """A broker that leaves a request unanswered is not asked again over the same connection."""
        peer.close()

    def close(self) -> None:
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()

    async def _connect(self, host: str, port: int) -> Peer:
        address = f"{host}:{port}"
        security = self._credentials.current()
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                return await Peer.connect(
                    self._network,
                    host,
                    port,
                    client_id=self._client_id,
                    software_version=__version__,
                    security=security,
                )
        except PeerUnusable:
            raise
        except TimeoutError:
            reason = "no answer"
        except PeerLost as error:
            lost = str(error).removeprefix(f"{address}: ")
            reason = f"{lost}; security.protocol may not be the one of that listener"
            if security.tls is not None:
                # With TLS 1.3 a certificate is looked at once the handshake is over on this side.
                reason += ", or it may ask for a certificate that it trusts (ssl.keystore.location)"
        except ssl.SSLEOFError:
            # A broker that is ending does this to handshakes, too.
            reason = CLOSED
        except ssl.SSLError as error:
            raise PeerUnusable(f"{address}: TLS failed: {error.reason or error}") from None
        except OSError as error:
            # Numbers of failed look-ups of names are negative and not the system's.
            number = error.errno or 0
            reason = os.strerror(number) if number > 0 else error.strerror or str(error) or CLOSED
        raise _unreachable({address: reason})

    def _usable(self, address: tuple[str, int]) -> Peer | None:
        peer = self._peers.get(address)
        if peer is None or peer.is_lost:
            return None
        if peer.is_expiring:
            del self._peers[address]
            peer.close_when_idle()
            return None
        return peer


def _unreachable(failures: Mapping[str, str]) -> ClusterUnreachable:
    tried = "; ".join(f"{address} ({reason})" for address, reason in failures.items())
    return ClusterUnreachable(f"no broker can be reached: {tried}. Check bootstrap.servers", failures)
