"""Where tasks, blocking work and bytes in flight are bounded."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, Protocol, TypeVar

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


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
    """Memory promised before it is used. Who does not get it at once may stand in line for it."""

    __slots__ = ("_granting", "_waiting", "limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        # Ordered, and cheap to take from at either end and in the middle.
        self._waiting: OrderedDict[Callable[[], None], int] = OrderedDict()
        self._granting = False

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def is_tight(self) -> bool:
        """Time to give back what is merely kept for later."""
        return bool(self._waiting) or self.used * 2 > self.limit

    def reserve(self, size: int) -> bool:
        """Refused as well while others wait: who needs much would never get it otherwise."""
        if self._waiting or not self._fits(size):
            return False
        self.used += size
        return True

    def call_when_reserved(self, size: int, callback: Callable[[], None]) -> None:
        """`callback` is called when its turn has come and the bytes are reserved for it."""
        self._waiting[callback] = size
        self._grant()

    def leave(self, callback: Callable[[], None]) -> None:
        """It no longer wants what it waits for, if it does."""
        if self._waiting.pop(callback, None) is not None:
            self._grant()

    def release(self, size: int) -> None:
        self.used -= size
        self._grant()

    def _fits(self, size: int) -> bool:
        # One oversized request may pass when nothing else is in flight; it would starve otherwise.
        return not self.used or self.used + size <= self.limit

    def _grant(self) -> None:
        # Who is called here may release in turn, which must not call the next one below it.
        if self._granting:
            return
        self._granting = True
        try:
            while self._waiting:
                callback, size = next(iter(self._waiting.items()))
                if not self._fits(size):
                    break
                del self._waiting[callback]
                self.used += size
                callback()
        finally:
            self._granting = False
