"""Places for long answers, and what clients leave unread."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from ottla.runtime.turns import ITEMS_PER_TURN, in_turns
from ottla.server.long_answers import PLACES, TURNS_WITHOUT_PLACE, LongAnswers

LONG = ITEMS_PER_TURN * TURNS_WITHOUT_PLACE * 10


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 10))


class Work:
    """Items of a request, in turns; `gate` holds it up in the middle."""

    def __init__(self, answers: LongAnswers, items: int = LONG, gate: asyncio.Event | None = None) -> None:
        self.done = 0
        self._items = items
        self._gate = gate
        self.task = asyncio.create_task(answers.bounded(self._work()))

    @property
    def is_past_the_gate(self) -> bool:
        return self.done > LONG // 2

    async def _work(self) -> None:
        async for _ in in_turns(range(self._items)):
            self.done += 1
            if self.done == LONG // 2 and self._gate is not None:
                await self._gate.wait()


async def settled() -> None:
    for _ in range(2000):
        await asyncio.sleep(0)


def test_as_many_long_answers_are_made_at_once_as_there_are_places() -> None:
    async def scenario() -> None:
        answers = LongAnswers(1000)
        gate = asyncio.Event()
        works = [Work(answers, gate=gate) for _ in range(PLACES + 5)]
        await settled()
        assert sum(work.done == LONG // 2 for work in works) == PLACES
        short = Work(answers, items=ITEMS_PER_TURN * (TURNS_WITHOUT_PLACE - 1))
        await short.task
        gate.set()
        await asyncio.gather(*(work.task for work in works))

    run(scenario())


def test_nothing_long_begins_while_too_much_is_unread() -> None:
    async def scenario() -> None:
        answers = LongAnswers(1000)
        answers.made(600)
        answers.made(600)
        work = Work(answers)
        await settled()
        assert not work.task.done()
        assert answers.wait_for_memory
        answers.sent(600)
        await work.task
        assert not answers.wait_for_memory

    run(scenario())


def test_who_is_cancelled_gives_its_place_back() -> None:
    async def scenario() -> None:
        answers = LongAnswers(1000)
        never = asyncio.Event()
        works = [Work(answers, gate=never) for _ in range(PLACES + 2)]
        await settled()
        for work in works:
            work.task.cancel()
        await asyncio.gather(*(work.task for work in works), return_exceptions=True)
        for _ in range(PLACES + 1):
            await Work(answers).task

    run(scenario())
