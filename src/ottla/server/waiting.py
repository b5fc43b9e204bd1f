"""Listeners of a broker that cannot start yet, because a disk has no room: whoever comes is told so.

A connection that nobody takes says that there is no broker, and one that is taken and not answered says
nothing. The answer to ApiVersions, with which clients begin, has a place for an error.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Sequence
from typing import cast

from ottla.config import Endpoint
from ottla.runtime.net import Listener, Network
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode

log = logging.getLogger(__name__)

_HEAD = struct.Struct(">ihhi")
"""Length, API, version and correlation id of a request."""
FIRST_FLEXIBLE_VERSION = 3
FIRST_VERSION_WITH_THROTTLE_TIME = 1


class WaitingListeners:
    def __init__(self, network: Network, endpoints: Sequence[Endpoint]) -> None:
        self._network = network
        self._endpoints = endpoints
        self._listeners: list[Listener] | None = None

    async def open(self) -> None:
        """Once, however often it is asked for."""
        if self._listeners is not None:
            return
        self._listeners = []
        for endpoint in self._endpoints:
            if endpoint.port:
                try:
                    self._listeners.append(await self._network.listen(_Refusal, endpoint.host, endpoint.port))
                except OSError as error:
                    log.warning("%s cannot be listened on while the start waits: %s", endpoint, error)

    async def close(self) -> None:
        for listener in self._listeners or ():
            await listener.close()
        self._listeners = None


class _Refusal(asyncio.Protocol):
    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._received = (self._received + data)[: _HEAD.size]
        if len(self._received) < _HEAD.size:
            return
        _, api, version, correlation_id = _HEAD.unpack(self._received)
        if api == ApiKey.API_VERSIONS:
            transport.write(_refused(version, correlation_id))
        transport.close()


def _refused(version: int, correlation_id: int) -> bytes:
    """As the version has it: an error and no APIs. Its header is the same in all of them."""
    is_flexible = version >= FIRST_FLEXIBLE_VERSION
    body = struct.pack(">ih", correlation_id, ErrorCode.kafka_storage_error)
    body += b"\x01" if is_flexible else bytes(4)
    body += bytes(4) if version >= FIRST_VERSION_WITH_THROTTLE_TIME else b""
    body += b"\x00" if is_flexible else b""
    return struct.pack(">i", len(body)) + body
