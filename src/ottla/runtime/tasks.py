"""Where tasks, blocking work and bytes in flight are bounded."""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any, ParamSpec, Protocol, TypeVar

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

ORDINARY_SHARE = 4


class Offload(Protocol):
    """Runs blocking functions (fsync, compression, compaction) away from the event loop."""

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T: ...

    def close(self) -> None: ...


class ThreadOffload:
    """A few threads: enough to overlap fsyncs of several disks, too few to starve the event loop."""

    def __init__(self, threads_max: int = 4) -> None:
        self._threads_max = threads_max
        self._pool: ThreadPoolExecutor | None = None

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads_max, thread_name_prefix="ottla-offload")
        return await asyncio.wrap_future(self._pool.submit(function, *args, **kwargs))

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True)
            self._pool = None


async def finished(work: Coroutine[Any, Any, T]) -> T:
    """Its result, once it has ended: whoever is cancelled meanwhile still waits, and is cancelled then."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        # Looked at, so that nobody is told it never was.
        task.exception()
        raise cancelled
    return task.result()


class TaskScope:
    """Owns background tasks: none outlives its scope, and a failure is never silent.

    `on_failure` decides what a dead task means: a core loop passes a callback that stops the node.
    """

    def __init__(self, name: str, on_failure: Callable[[str, BaseException], None]) -> None:
        self.name = name
        self._on_failure = on_failure
        # A dict for its order: tasks are cancelled in the order they were started, in every run.
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(coroutine, name=f"{self.name}/{name}")
        self._tasks[task] = None
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_failure(task.get_name(), error)

    async def close(self) -> None:
        """Cancel what still runs and wait until it has ended, and what it started while ending, too."""
        while self._tasks:
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


class ByteBudget:
    """Memory promised before it is used. Who does not get it at once may stand in line for it.

    Who wants more than `ordinary_max` stands in a line of its own, and all of those together leave a quarter
    to the others: some who want much, and make nothing of it, hold up nobody who wants little. While they
    wait, the others take no more than that quarter. Among them, who wants least goes first.
    """

    __slots__ = (
        "_granting",
        "_kept_for_ordinary",
        "_large_places",
        "_large_used",
        "_numbers",
        "_ordinary_max",
        "_waiting",
        "_waiting_large",
        "limit",
        "used",
    )

    def __init__(self, limit: int, ordinary_max: int | None = None) -> None:
        self.limit = limit
        self.used = 0
        self._ordinary_max = limit if ordinary_max is None else ordinary_max
        self._kept_for_ordinary = 0 if ordinary_max is None else limit // ORDINARY_SHARE
        self._large_used = 0
        # Ordered, and cheap to take from at either end and in the middle.
        self._waiting: OrderedDict[Callable[[], None], int] = OrderedDict()
        self._waiting_large: list[tuple[int, int, Callable[[], None]]] = []
        """Sorted: size, number, callback."""
        self._large_places: dict[Callable[[], None], tuple[int, int, Callable[[], None]]] = {}
        self._numbers = count()
        self._granting = False

    @property
    def waiting(self) -> int:
        return len(self._waiting) + len(self._waiting_large)

    @property
    def is_tight(self) -> bool:
        """Time to give back what is merely kept for later."""
        return self.waiting > 0 or self.used * 2 > self.limit

    def reserve(self, size: int, held: int = 0) -> bool:
        """Instead of what is held. Refused as well while others wait: who comes first is served first."""
        self._count(-held)
        if (self._waiting_large if size > self._ordinary_max else self._waiting) or not self._fits(size):
            self._count(held)
            return False
        self._count(size)
        return True

    def take(self, size: int) -> None:
        """Even if there is no room: for what is there already. Others wait the longer."""
        self._count(size)

    def call_when_reserved(self, size: int, callback: Callable[[], None]) -> None:
        """`callback` is called when its turn has come and the bytes are reserved for it."""
        if size > self._ordinary_max:
            place = self._large_places[callback] = size, next(self._numbers), callback
            insort(self._waiting_large, place)
        else:
            self._waiting[callback] = size
        self._grant()

    def leave(self, callback: Callable[[], None]) -> None:
        """It no longer wants what it waits for, if it does."""
        place = self._large_places.pop(callback, None)
        if place is not None:
            del self._waiting_large[bisect_left(self._waiting_large, place)]
        elif self._waiting.pop(callback, None) is None:
            return
        self._grant()

    def release(self, size: int) -> None:
        """All that was reserved at once, or is held since."""
        self._count(-size)
        self._grant()

    def _count(self, size: int) -> None:
        self.used += size
        if abs(size) > self._ordinary_max:
            self._large_used += size

    def _fits(self, size: int) -> bool:
        ordinary_used = self.used - self._large_used
        has_room = not self.used or self.used + size <= self.limit
        if size > self._ordinary_max:
            # One oversized request may pass when no other is in flight; it would starve otherwise.
            if not self._large_used:
                return has_room or ordinary_used <= self._kept_for_ordinary
            return has_room and self._large_used + size <= self.limit - self._kept_for_ordinary
        if ordinary_used + size <= self._kept_for_ordinary:
            return True
        return has_room and not self._waiting_large

    def _grant(self) -> None:
        # Who is called here may release in turn, which must not call the next one below it.
        if self._granting:
            return
        self._granting = True
        try:
            while True:
                if self._waiting and self._fits(next(iter(self._waiting.values()))):
                    callback, size = self._waiting.popitem(last=False)
                elif self._waiting_large and self._fits(self._waiting_large[0][0]):
                    size, _, callback = self._waiting_large.pop(0)
                    del self._large_places[callback]
                else:
                    break
                self._count(size)
                callback()
        finally:
            self._granting = False
