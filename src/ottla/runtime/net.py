"""Sockets behind asyncio's protocol and transport interfaces; the simulator implements the same two calls."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import socket
import ssl
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any, Protocol

from ottla.runtime.tls import TlsDoor, TlsListener

BACKLOG = 1024
WAITING_IN_KERNEL_BYTES_MAX = 128 * 1024
"""Of what is written to a client and not sent, as the client has no room for it. The kernel would take four
megabytes, for which everybody waits up to ten milliseconds, and keep them for each client that does not read.
What is under way to a client is not counted, so that one far away gets as much as its line carries."""
_PORTS_TO_CHOOSE_FROM = range(15_000, 32_000)

ProtocolFactory = Callable[[], asyncio.BaseProtocol]


class Listener(Protocol):
    @property
    def address(self) -> tuple[str, int]:
        """The address actually bound, so that port 0 can be asked for."""
        ...

    async def close(self) -> None:
        """Stop accepting. Open connections are their owners' business."""
        ...


class Network(Protocol):
    def host_name(self) -> str:
        """What other machines call this one. May ask a name server."""
        ...

    def descriptors(self) -> tuple[int, int] | None:
        """Files and sockets this process has open, and how many it may; None where nobody counts them."""
        ...

    async def listen(self, factory: ProtocolFactory, host: str, port: int) -> Listener: ...

    async def connect(
        self, factory: ProtocolFactory, host: str, port: int, tls: ssl.SSLContext | None = None
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]: ...

    async def listen_tls(self, door: TlsDoor, host: str, port: int) -> Listener: ...


def free_ports(host: str, count: int) -> list[int]:
    """Free at this moment, and none that the system gives to outgoing connections: such a connection could
    take it before it is used, or while the one who uses it is started again."""
    chance = random.SystemRandom()
    with ExitStack() as stack:
        ports: list[int] = []
        while len(ports) < count:
            port = chance.choice(_PORTS_TO_CHOOSE_FROM)
            taken = stack.enter_context(socket.socket())
            with suppress(OSError):
                taken.bind((host, port))
                ports.append(port)
        return ports


class AsyncioListener:
    def __init__(self, server: asyncio.Server) -> None:
        self._server = server
        self.address: tuple[str, int] = server.sockets[0].getsockname()[:2]

    async def close(self) -> None:
        self._server.close()


class AsyncioNetwork:
    def host_name(self) -> str:
        return socket.getfqdn()

    def descriptors(self) -> tuple[int, int] | None:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if limit == resource.RLIM_INFINITY:
            return None
        try:
            # One of them is the directory itself.
            return len(os.listdir("/dev/fd")) - 1, limit
        except FileNotFoundError:
            return None

    async def listen(self, factory: ProtocolFactory, host: str, port: int) -> AsyncioListener:
        loop = asyncio.get_running_loop()
        family = _family_of_literal(host)
        if family is None:
            server = await loop.create_server(factory, host or None, port, backlog=BACKLOG)
            for each in server.sockets:
                _let_little_wait_in_kernel(each)
        else:
            listening = _listening(family, (host, port))
            server = await loop.create_server(factory, sock=listening, backlog=BACKLOG)
        return AsyncioListener(server)

    async def connect(
        self, factory: ProtocolFactory, host: str, port: int, tls: ssl.SSLContext | None = None
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.create_connection(factory, host, port, ssl=tls)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return transport, protocol

    async def listen_tls(self, door: TlsDoor, host: str, port: int) -> TlsListener:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        return TlsListener(door, [_listening(family, address) for family, _, _, _, address in found])


def _family_of_literal(host: str) -> int | None:
    """Of an address in numbers. To look such one up would do as well, but Python loads how names in all
    scripts are written for it: half a megabyte."""
    for family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError):
            socket.inet_pton(family, host)
            return family
    return None


def _listening(family: int, address: tuple[Any, ...]) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        _let_little_wait_in_kernel(listening)
        listening.setblocking(False)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise OSError(error.errno, f"cannot listen on {address[0]}:{address[1]}: {error.strerror}") from None
    return listening


def _let_little_wait_in_kernel(listening: socket.socket) -> None:
    """Whoever is accepted inherits it."""
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, WAITING_IN_KERNEL_BYTES_MAX)
