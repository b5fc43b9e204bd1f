"""Long work, done without holding up everybody else.

Whoever has much to do does some of it, then stands in the line of the event loop. In each round of the loop
only a few get a turn, however many want one: hundreds of long lists that each took a short turn in every
round would hold up everybody as much as one that took none. Who has only just begun goes first.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Sequence
from contextvars import ContextVar
from typing import TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")

ITEMS_PER_TURN = 10
FIRST_ITEMS = 2
"""A request with more items than these stands in line before it goes on."""
TURNS_PER_ROUND = 4
SLICE_ITEMS_MAX = 500
"""Of what is handed on as a list: about as much work as a few of the larger requests."""

before_each_turn: ContextVar[Callable[[], Awaitable[None]] | None] = ContextVar(
    "before_each_turn", default=None
)
"""Of the request that is being answered: what else its long work has to wait for."""


class _Line:
    """Of one process."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._call_soon = loop.call_soon
        self._newcomers: deque[Callable[[], object]] = deque()
        self._others: deque[Callable[[], object]] = deque()
        self._given = 0
        self._round_is_due = False

    def takes_turn(self) -> bool:
        """Whether there is a turn in this round, without standing in line; it is taken then."""
        if self._given >= TURNS_PER_ROUND or self._newcomers or self._others:
            return False
        self._give()
        return True

    def join(self, callback: Callable[[], object], *, is_newcomer: bool) -> None:
        (self._newcomers if is_newcomer else self._others).append(callback)
        self._have_round()

    def _give(self) -> None:
        self._given += 1
        self._have_round()

    def _have_round(self) -> None:
        if not self._round_is_due:
            self._round_is_due = True
            self._call_soon(self._round)

    def _round(self) -> None:
        self._round_is_due = False
        self._given = 0
        # One turn is never a newcomer's, so that the others get on as well.
        for may_be_newcomer in (False, *(True,) * (TURNS_PER_ROUND - 1)):
            first, second = self._newcomers, self._others
            if not may_be_newcomer:
                first, second = second, first
            queue = first or second
            if not queue:
                break
            self._give()
            queue.popleft()()


_lines: WeakKeyDictionary[asyncio.AbstractEventLoop, _Line] = WeakKeyDictionary()


_own_line: ContextVar[_Line | None] = ContextVar("own_line", default=None)


def have_own_line(loop: asyncio.AbstractEventLoop) -> None:
    """For a simulated process, which shares its event loop with others: what it has begun ends with it, and
    must not be what they wait for."""
    _own_line.set(_Line(loop))


def _line() -> _Line:
    own = _own_line.get()
    if own is not None:
        return own
    loop = asyncio.get_running_loop()
    line = _lines.get(loop)
    if line is None:
        line = _lines[loop] = _Line(loop)
    return line


def call_in_turn(callback: Callable[[], object]) -> None:
    """For work that no task does."""
    line = _line()
    if line.takes_turn():
        asyncio.get_running_loop().call_soon(callback)
    else:
        line.join(callback, is_newcomer=False)


async def take_turn(*, is_newcomer: bool = False) -> None:
    """Let others go first, until it is one's turn again."""
    before = before_each_turn.get()
    if before is not None:
        await before()
    line = _line()
    if line.takes_turn():
        await asyncio.sleep(0)
        return
    called = asyncio.get_running_loop().create_future()

    def call() -> None:
        if not called.done():
            called.set_result(None)

    line.join(call, is_newcomer=is_newcomer)
    await called


async def in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """The items, with turns for others in between. What the items name may vanish meanwhile."""
    for number, item in enumerate(items, 1):
        yield item
        if number % ITEMS_PER_TURN == 0:
            await take_turn()
        elif number == FIRST_ITEMS:
            await take_turn(is_newcomer=True)


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
            await take_turn()


async def slices_in_turns(items: Sequence[T]) -> AsyncIterator[Sequence[T]]:
    """For commands that take no turns themselves. Of an empty list, one that is empty."""
    yield items[:SLICE_ITEMS_MAX]
    for at in range(SLICE_ITEMS_MAX, len(items), SLICE_ITEMS_MAX):
        await take_turn()
        yield items[at : at + SLICE_ITEMS_MAX]
