"""Questions to other brokers: those that come while a request is under way share the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, TypeVar

from ottla.runtime.tasks import TaskScope

Q = TypeVar("Q")
A = TypeVar("A")


class Gathering(Generic[Q, A]):
    def __init__(
        self,
        send: Callable[[int, Sequence[Q]], Awaitable[Sequence[A]]],
        key: Callable[[Q], Hashable],
        tasks: TaskScope,
        name: str,
    ) -> None:
        """`send` asks a broker all of these and answers each; no two in one request have the same `key`."""
        self._send = send
        self._key = key
        self._tasks = tasks
        self._name = name
        self._waiting: dict[int, list[tuple[Q, asyncio.Future[A]]]] = {}
        """By broker; one that is here has a task at work."""

    async def ask(self, broker_id: int, question: Q) -> A:
        """Raises what `send` raises."""
        answer: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        if (waiting := self._waiting.get(broker_id)) is not None:
            waiting.append((question, answer))
        else:
            self._waiting[broker_id] = [(question, answer)]
            self._tasks.spawn(self._run(broker_id), f"{self._name}-{broker_id}")
        return await answer

    async def _run(self, broker_id: int) -> None:
        # What others ask in this turn of the event loop goes along.
        await asyncio.sleep(0)
        while self._waiting[broker_id]:
            together = self._take(broker_id)
            try:
                answers = await self._send(broker_id, [question for question, _ in together])
            except Exception as error:
                for _, answer in together:
                    if not answer.done():
                        answer.set_exception(error)
            else:
                for (_, answer), given in zip(together, answers, strict=True):
                    if not answer.done():
                        answer.set_result(given)
        del self._waiting[broker_id]

    def _take(self, broker_id: int) -> list[tuple[Q, asyncio.Future[A]]]:
        taken: dict[Hashable, tuple[Q, asyncio.Future[A]]] = {}
        left = []
        for entry in self._waiting[broker_id]:
            if entry[1].done():
                continue  # nobody waits for it any more
            if taken.setdefault(self._key(entry[0]), entry) is not entry:
                left.append(entry)
        self._waiting[broker_id] = left
        return list(taken.values())
