"""Requests of one producer that cannot be carried out at once, each behind the one before it.

A connection goes on with the next request while one waits. Records of one producer must not overtake each
other, though: their sequence numbers would be refused.
"""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType

# As many as a producer may have in flight. More could only be repetitions.
WAITING_MAX = 5


class Turn:
    """Entered once all earlier ones were left."""

    __slots__ = ("_before", "_left", "_queue")

    def __init__(self, queue: deque[Turn]) -> None:
        self._queue = queue
        self._before = queue[-1] if queue else None
        self._left = asyncio.Event()

    async def __aenter__(self) -> None:
        if self._before is not None:
            await self._before._left.wait()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._queue.remove(self)
        self._left.set()


class ProducerTurns:
    def __init__(self) -> None:
        self._queues: dict[int, deque[Turn]] = {}

    def is_waiting(self, producer_id: int) -> bool:
        return bool(self._queues.get(producer_id))

    def join(self, producer_id: int) -> Turn | None:
        """At the end of the line; None if that is too long already."""
        if not self.is_waiting(producer_id):
            # Those of other producers that nobody is in any more go by the way.
            self._queues = {other: queue for other, queue in self._queues.items() if queue}
            self._queues[producer_id] = deque()
        queue = self._queues[producer_id]
        if len(queue) >= WAITING_MAX:
            return None
        turn = Turn(queue)
        queue.append(turn)
        return turn
