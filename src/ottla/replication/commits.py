"""Who waits until what was appended is committed: a heap per partition, no task per request."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from typing import TypeAlias

from ottla.wire.errors import KafkaError

Then: TypeAlias = Callable[[KafkaError | None], None]
"""Called once: with None when it is committed, else with why nobody can tell whether it ever will be."""


class Waiter:
    """A place in the heap. Who gives up cancels it."""

    __slots__ = ("_commits", "then")

    def __init__(self, commits: Commits, then: Then) -> None:
        self._commits = commits
        self.then: Then | None = then

    def cancel(self) -> None:
        if self.then is not None:
            self.then = None
            self._commits.abandoned()


class Commits:
    """Of one leader's time: once it is over, all who still come are told so."""

    __slots__ = ("_abandoned", "_failure", "_heap", "_order", "_upto")

    def __init__(self) -> None:
        self._failure: KafkaError | None = None
        self._heap: list[tuple[int, int, Waiter]] = []
        self._order = count()
        self._abandoned = 0
        self._upto = -1

    def __len__(self) -> int:
        return len(self._heap) - self._abandoned

    def wait(self, end_offset: int, then: Then) -> Waiter:
        """Until the high watermark is at `end_offset`. `then` is called at once if it is."""
        waiter = Waiter(self, then)
        if self._failure is not None or end_offset <= self._upto:
            self._finish(waiter, self._failure)
            return waiter
        heapq.heappush(self._heap, (end_offset, next(self._order), waiter))
        return waiter

    def advance(self, high_watermark: int, error: KafkaError | None = None) -> None:
        """Everything below is committed; `error` says what has to be told with it."""
        self._upto = high_watermark
        heap = self._heap
        while heap and heap[0][0] <= high_watermark:
            self._finish(heapq.heappop(heap)[2], error)

    def fail(self, error: KafkaError) -> None:
        self._failure = error
        heap, self._heap = self._heap, []
        for _, _, waiter in sorted(heap, key=lambda entry: entry[:2]):
            self._finish(waiter, error)

    def abandoned(self) -> None:
        self._abandoned += 1
        if self._abandoned * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].then is not None]
            heapq.heapify(self._heap)
            self._abandoned = 0

    def _finish(self, waiter: Waiter, error: KafkaError | None) -> None:
        then, waiter.then = waiter.then, None
        if then is None:
            self._abandoned -= 1
        else:
            then(error)
