"""Who gets a turn of the event loop, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from ottla.runtime.turns import ITEMS_PER_TURN, TURNS_PER_ROUND, call_in_turn, in_turns, take_turn


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 10))


def test_however_many_want_turns_few_get_one_in_a_round() -> None:
    async def scenario() -> None:
        done = [0] * 50

        async def work(number: int) -> None:
            async for _ in in_turns(range(100)):
                done[number] += 1

        tasks = [asyncio.create_task(work(number)) for number in range(len(done))]
        await asyncio.sleep(0)
        while not all(task.done() for task in tasks):
            before = sum(done)
            await asyncio.sleep(0)
            # What was given in one round may be used together with what is given in the next.
            assert sum(done) - before <= 2 * TURNS_PER_ROUND * ITEMS_PER_TURN
        assert done == [100] * 50

    run(scenario())


def test_who_has_just_begun_goes_before_those_who_go_on() -> None:
    async def scenario() -> None:
        order: list[str] = []

        async def turn(name: str, is_newcomer: bool) -> None:
            await take_turn(is_newcomer=is_newcomer)
            order.append(name)

        old = [asyncio.create_task(turn("old", False)) for _ in range(20)]
        await asyncio.sleep(0)
        new = asyncio.create_task(turn("new", True))
        await asyncio.gather(new, *old)
        assert order.index("new") <= 3 * TURNS_PER_ROUND

    run(scenario())


def test_those_who_go_on_are_not_starved_by_newcomers() -> None:
    async def scenario() -> None:
        is_over = False

        async def newcomers() -> None:
            while not is_over:
                await take_turn(is_newcomer=True)

        others = [asyncio.create_task(newcomers()) for _ in range(3 * TURNS_PER_ROUND)]
        await asyncio.sleep(0)
        for _ in range(5):
            await take_turn()
        is_over = True
        await asyncio.gather(*others)

    run(scenario())


def test_a_cancelled_one_leaves_and_calls_have_turns_as_well() -> None:
    async def scenario() -> None:
        waiting = [asyncio.create_task(take_turn()) for _ in range(20)]
        await asyncio.sleep(0)
        for task in waiting[5:]:
            task.cancel()
        called = asyncio.Event()
        call_in_turn(called.set)
        await called.wait()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert [task.cancelled() for task in waiting] == [False] * 5 + [True] * 15

    run(scenario())
