"""Long lists in a request, walked without holding up everybody else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator, Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")

ITEMS_PER_TURN = 10
SLICE_ITEMS_MAX = 500
"""Of what is handed on as a list: about as much work as a few of the larger requests."""


async def in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """The items, with turns for others in between. What the items name may vanish meanwhile."""
    for number, item in enumerate(items, 1):
        yield item
        if number % ITEMS_PER_TURN == 0:
            await asyncio.sleep(0)


async def run_in_turns(steps: Generator[None, None, T]) -> T:
    """What the steps return, with turns for others between them."""
    number = 0
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            result: T = ended.value
            return result
        number += 1
        if number % ITEMS_PER_TURN == 0:
            await asyncio.sleep(0)


async def slices_in_turns(items: Sequence[T]) -> AsyncIterator[Sequence[T]]:
    """For commands that take no turns themselves. Of an empty list, one that is empty."""
    yield items[:SLICE_ITEMS_MAX]
    for at in range(SLICE_ITEMS_MAX, len(items), SLICE_ITEMS_MAX):
        await asyncio.sleep(0)
        yield items[at : at + SLICE_ITEMS_MAX]
