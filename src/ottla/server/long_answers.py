"""How many long answers are made at once, and how much of them may wait for clients to read it.

A question of a few bytes may have an answer of many megabytes, and hundreds of clients may ask it at once. So
an answer that turns out long waits for one of a few places before it goes on, and gets none while clients
have left too much unread of the long answers before. Short ones are not concerned.

Only what merely looks things up is bounded like this: whoever holds a place waits for no other client.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from ottla.runtime.turns import before_each_turn

T = TypeVar("T")

PLACES = 4
TURNS_WITHOUT_PLACE = 5
UNCOUNTED_BYTES_MAX = 128 * 1024
"""An answer that is no longer is not counted."""


class LongAnswers:
    """What all connections of a node share."""

    def __init__(self, unread_bytes_max: int) -> None:
        self.unread_bytes_max = unread_bytes_max
        self.unread_bytes = 0
        self._free_places = PLACES
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def wait_for_memory(self) -> bool:
        """Somebody has to wait until clients read what they asked for."""
        return bool(self._waiting) and self.unread_bytes >= self.unread_bytes_max

    def made(self, size: int) -> None:
        self.unread_bytes += size

    def sent(self, size: int) -> None:
        """Or dropped, with its connection."""
        self.unread_bytes -= size
        self._admit()

    async def bounded(self, answer: Awaitable[T]) -> T:
        """Its result; the work for it waits for a place as soon as it takes many turns."""
        with self._place():
            return await answer

    @contextmanager
    def _place(self) -> Iterator[None]:
        turns = 0
        is_held = False
        is_over = False

        async def before() -> None:
            nonlocal turns, is_held
            turns += 1
            # Tasks that the request leaves behind have no place to give back.
            if turns > TURNS_WITHOUT_PLACE and not is_held and not is_over:
                await self._wait()
                is_held = True

        token = before_each_turn.set(before)
        try:
            yield
        finally:
            is_over = True
            before_each_turn.reset(token)
            if is_held:
                self._free_places += 1
                self._admit()

    async def _wait(self) -> None:
        if self._is_open and not self._waiting:
            self._free_places -= 1
            return
        admitted = asyncio.get_running_loop().create_future()
        self._waiting.append(admitted)
        try:
            await admitted
        except asyncio.CancelledError:
            if admitted.done() and not admitted.cancelled():
                # It was let in and cancelled at the same moment.
                self._free_places += 1
                self._admit()
            raise

    @property
    def _is_open(self) -> bool:
        return self._free_places > 0 and self.unread_bytes < self.unread_bytes_max

    def _admit(self) -> None:
        while self._waiting and self._is_open:
            admitted = self._waiting.popleft()
            if not admitted.done():
                self._free_places -= 1
                admitted.set_result(None)
