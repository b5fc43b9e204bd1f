"""The line in which requests of one producer wait."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest

from ottla.replication.turns import WAITING_MAX, ProducerTurns, Turn


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_turns_are_taken_in_order_whoever_is_ready_first() -> None:
    async def main() -> None:
        turns = ProducerTurns()
        line = [turns.join(7) for _ in range(3)]
        gates = [asyncio.Event() for _ in line]
        done: list[int] = []

        async def take(number: int) -> None:
            await gates[number].wait()
            turn = line[number]
            assert turn is not None
            async with turn:
                done.append(number)

        tasks = [asyncio.create_task(take(number)) for number in range(3)]
        for ready in (2, 1):
            gates[ready].set()
            await settle()
        assert done == []
        gates[0].set()
        await asyncio.gather(*tasks)
        assert done == [0, 1, 2]
        assert not turns.is_waiting(7)

    asyncio.run(main())


def test_a_failure_lets_the_next_one_in() -> None:
    async def main() -> None:
        queue: deque[Turn] = deque()
        first, second = Turn(queue), None
        queue.append(first)
        second = Turn(queue)
        queue.append(second)
        with pytest.raises(ZeroDivisionError):
            async with first:
                raise ZeroDivisionError
        async with asyncio.timeout(5):
            async with second:
                assert list(queue) == [second]
        assert not queue

    asyncio.run(main())


def test_lines_are_short_and_of_one_producer_each() -> None:
    async def main() -> None:
        turns = ProducerTurns()
        line = [turns.join(1) for _ in range(WAITING_MAX)]
        assert None not in line
        assert turns.join(1) is None, "more than a producer has in flight can only be repetitions"
        other = turns.join(2)
        assert other is not None
        async with asyncio.timeout(5):
            async with other:
                assert turns.is_waiting(1)
        for turn in line:
            assert turn is not None
            async with turn:
                pass
        assert not turns.is_waiting(1)
        assert turns.join(3) is not None
        assert list(turns._queues) == [3], "lines that nobody is in any more are forgotten"

    asyncio.run(main())
