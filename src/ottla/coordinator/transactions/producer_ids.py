"""Producer ids, handed out from blocks that the controller allocates, so that most need no round trip."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class ProducerIds:
    def __init__(self, allocate_block: Callable[[], Awaitable[range]]) -> None:
        self._allocate_block = allocate_block
        self._block = range(0)
        self._refill = asyncio.Lock()

    async def next_id(self) -> int:
        while True:
            producer_id = self.take()
            if producer_id is not None:
                return producer_id
            await self.wait_available()

    def take(self) -> int | None:
        """At once, or None when the block is used up."""
        if not self._block:
            return None
        producer_id, self._block = self._block[0], self._block[1:]
        return producer_id

    async def wait_available(self) -> None:
        """Until `take` has one to give, in this turn of the event loop."""
        if not self._block:
            async with self._refill:
                # Another request may have refilled while this one waited for the lock.
                if not self._block:
                    self._block = await self._allocate_block()
