"""Producer ids, handed out from blocks that the controller allocates, so that most need no round trip."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class ProducerIds:
    def __init__(self, allocate_block: Callable[[], Awaitable[range]]) -> None:
        self._allocate_block = allocate_block
        self._block = iter(range(0))
        self._refill = asyncio.Lock()

    async def next_id(self) -> int:
        while True:
            producer_id = next(self._block, None)
            if producer_id is not None:
                return producer_id
            async with self._refill:
                # Another request may have refilled while this one waited for the lock.
                producer_id = next(self._block, None)
                if producer_id is not None:
                    return producer_id
                self._block = iter(await self._allocate_block())
