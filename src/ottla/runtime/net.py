"""Sockets behind asyncio's protocol and transport interfaces; the simulator implements the same two calls."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import ssl
from collections.abc import Callable
from contextlib import ExitStack
from typing import Protocol

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
    @property
    def host_name(self) -> str:
        """What other machines call this one."""
        ...

    def descriptors(self) -> tuple[int, int] | None:
        """Files and sockets this process has open, and how many it may; None where nobody counts them."""
        ...

    async def listen(self, factory: ProtocolFactory, host: str, port: int) -> Listener: ...

    async def connect(
        self, factory: ProtocolFactory, host: str, port: int, tls: ssl.SSLContext | None = None
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]: ...


def free_ports(host: str, count: int) -> list[int]:
    """Free at this moment: nobody can promise more."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((host, 0))
        return [each.getsockname()[1] for each in sockets]


class AsyncioListener:
    def __init__(self, server: asyncio.Server) -> None:
        self._server = server
        self.address: tuple[str, int] = server.sockets[0].getsockname()[:2]

    async def close(self) -> None:
        self._server.close()


class AsyncioNetwork:
    @property
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
        server = await loop.create_server(factory, host or None, port, backlog=1024)
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
