"""Whether the process of a broker is gone: its kernel says so to whoever tries to connect."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from ottla.metadata.image import BrokerImage
from ottla.runtime.net import Network

CONNECT_SECONDS = 0.2

IsGone: TypeAlias = Callable[[BrokerImage], Awaitable[bool]]


def knocking(net: Network, listener: str) -> IsGone:
    """`listener` is the one that brokers use between themselves."""

    async def is_gone(broker: BrokerImage) -> bool:
        """Only for sure: who is silent, or cannot be reached, may be alive."""
        endpoint = next((each for each in broker.endpoints if each.name.upper() == listener), None)
        if endpoint is None:
            return False
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                transport, _ = await net.connect(asyncio.Protocol, endpoint.host, endpoint.port)
        except ConnectionRefusedError:
            return True
        except (OSError, TimeoutError):
            return False
        transport.abort()
        return False

    return is_gone
