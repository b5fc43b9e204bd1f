"""How long a client waits for a change of the cluster's metadata."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Awaitable
from typing import TypeVar

from ottla.wire.errors import RequestTimedOut

T = TypeVar("T")


async def within(limit: datetime.timedelta, change: Awaitable[T]) -> T:
    """Only the waiting has a limit: the change itself was accepted and goes on. Zero or less is no limit."""
    seconds = limit.total_seconds()
    try:
        async with asyncio.timeout(seconds if seconds > 0 else None):
            return await change
    except TimeoutError:
        raise RequestTimedOut(
            f"The change was not committed within {seconds} s, but may still be; describe it to find out"
        ) from None
