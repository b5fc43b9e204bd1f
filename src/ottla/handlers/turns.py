"""Long lists in a request, walked without holding up everybody else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

T = TypeVar("T")

ITEMS_PER_TURN = 50


async def in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """The items, with turns for others in between. What the items name may vanish meanwhile."""
    for number, item in enumerate(items, 1):
        yield item
        if number % ITEMS_PER_TURN == 0:
            await asyncio.sleep(0)
