"""Who is at the door of the metrics: how many, from where, and how often each has said a wrong password.

Whoever scrapes comes, asks and goes. So it is those who came first and ask nothing, or do not read what they
asked for, that go when there are too many: they cannot keep a Prometheus out.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import Counter, OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address
from typing import Protocol

from ottla.runtime.clock import Clock
from ottla.runtime.seldom import SeldomEach
from ottla.runtime.tls import Peer

log = logging.getLogger(__name__)

CONNECTIONS_MAX = 64
HANDSHAKES_OF_ONE_MAX = 16
"""At once, from one address, or one network of the sixth version."""
HANDSHAKES_MAX = 256
HANDSHAKE_SECONDS_MAX = 10.0
GUESSES_AT_ONCE = 10
GUESS_SECONDS = 1.0
"""How long an address waits for one more wrong password, when it has had those."""
_ADDRESSES_MAX = 1000
_IPV6_NETWORK_BITS = 64
"""What one customer of a provider has."""


class Visitor(Protocol):
    @property
    def is_being_served(self) -> bool:
        """What it asks for is being made."""
        ...

    def abort(self) -> None: ...


class Visitors:
    def __init__(self, clock: Clock) -> None:
        self._here: dict[Visitor, None] = {}
        self._clock = clock
        self._guesses: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """By address: how many wrong passwords it may still say, and when that was."""
        self._complaints = SeldomEach(clock)

    def come(self, visitor: Visitor) -> bool:
        """False where there is no room, since all are being served."""
        self._here[visitor] = None
        if len(self._here) <= CONNECTIONS_MAX:
            return True
        idle = next((each for each in self._here if not each.is_being_served and each is not visitor), None)
        if idle is None:
            return False
        del self._here[idle]
        idle.abort()
        return True

    def go(self, visitor: Visitor) -> None:
        self._here.pop(visitor, None)

    def abort(self) -> None:
        for each in tuple(self._here):
            each.abort()

    # Passwords

    def may_guess(self, address: str) -> bool:
        return self._left(_network(address)) >= 1

    def guessed_wrong(self, address: str) -> None:
        network = _network(address)
        self._guesses[network] = (self._left(network) - 1, self._clock.monotonic())
        self._guesses.move_to_end(network)
        if len(self._guesses) > _ADDRESSES_MAX:
            self._guesses.popitem(last=False)
        if self._complaints.is_due(network):
            log.warning("somebody at %s asks for metrics with a wrong name or password", address)

    def _left(self, network: str) -> float:
        left, at_s = self._guesses.get(network, (float(GUESSES_AT_ONCE), 0.0))
        return min(left + (self._clock.monotonic() - at_s) / GUESS_SECONDS, float(GUESSES_AT_ONCE))


def _network(address: str) -> str:
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, IPv6Address) and found.ipv4_mapped is None:
        return str(int(found) >> (128 - _IPV6_NETWORK_BITS))
    return address


class MetricsDoor:
    """TLS of the listener; a `runtime.tls.TlsDoor`."""

    handshake_seconds_max = HANDSHAKE_SECONDS_MAX

    def __init__(self, context: ssl.SSLContext, connection: Callable[[], asyncio.BufferedProtocol]) -> None:
        self._context = context
        self._connection = connection
        self._handshakes: Counter[str] = Counter()

    def begin(self, peer: Peer) -> ssl.SSLContext | None:
        network = _network(peer[0])
        if self._handshakes[network] >= HANDSHAKES_OF_ONE_MAX or self._handshakes.total() >= HANDSHAKES_MAX:
            return None
        self._handshakes[network] += 1
        return self._context

    def enter(self, peer: Peer) -> asyncio.BufferedProtocol:
        return self._connection()

    def failed(self, peer: Peer, error: OSError) -> None:
        log.debug("TLS with %s failed: %s", peer[0], error)

    def end(self, peer: Peer) -> None:
        network = _network(peer[0])
        self._handshakes[network] -= 1
        if not self._handshakes[network]:
            del self._handshakes[network]
