"""An asyncio event loop with virtual time: a day passes as fast as its callbacks run, the same way each time.

Time jumps to the next timer when nothing is ready. While something is, it moves by what each turn costs
(`costs.TURN`), or stands still on a loop whose turns are free. What is ready runs in rounds, as in asyncio: a
round is everything that was ready when it began, so `sleep(0)` lets all others run once. Within a round the
seed decides the order of task steps among themselves and among plain callbacks. That is safe because a task
never has two steps pending; plain callbacks keep the order in which they were scheduled, which is what
asyncio promises and transports and future callbacks rely on.

Sets of tasks or futures (inside `asyncio.wait`, `TaskGroup`) iterate by hash, which is an address by default
and would differ from run to run; ours are numbered.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import random
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from contextvars import Context, ContextVar, copy_context
from types import CoroutineType
from typing import Any, NoReturn, TypeVar, TypeVarTuple

from ottla.sim.costs import TURN

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

TIME_LIMIT_S = 30 * 24 * 3600.0
ROUNDS_WITHOUT_REST_MAX = 100_000
UNWINDINGS_MAX = 100


class Deadlock(Exception):
    """Nothing is ready and no timer is set, but the main coroutine has not finished."""


class Livelock(Exception):
    """Callbacks keep each other busy and never wait for a timer."""


class TimeLimitReached(Exception):
    """Periodic timers go on but the main coroutine does not finish."""


class UnhandledFailure(Exception):
    """A callback or an abandoned task failed; its exception is the cause of this one."""


class ProcessDied(BaseException):
    """Raised into code of a dead process. Not an Exception: no error handling may survive a power cut."""


class Process:
    """Tasks, timers and callbacks created inside one simulated process; once dead, none of them runs again.

    Nothing is cancelled and no `finally` block runs at that moment: that is what SIGKILL means. While it is
    paused, as by SIGSTOP, what becomes due is kept, and runs late.
    """

    __slots__ = ("alive", "held", "name", "paused")

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.paused = False
        self.held: list[SimHandle] = []


PROCESS: ContextVar[Process | None] = ContextVar("PROCESS", default=None)


class SimTask(asyncio.Task[Any]):
    def __init__(
        self, coro: Coroutine[Any, Any, Any], *, loop: SimLoop, name: str | None, context: Context | None
    ) -> None:
        self.number = loop.next_number()
        self.process = PROCESS.get() if context is None else context.get(PROCESS)
        # asyncio's own default counts per interpreter, so a trace would depend on what ran before.
        super().__init__(coro, loop=loop, name=name or f"task-{self.number}", context=context)

    def __hash__(self) -> int:
        return self.number


class SimFuture(asyncio.Future[Any]):
    def __init__(self, *, loop: SimLoop) -> None:
        self.number = loop.next_number()
        self.process = PROCESS.get()
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self.number


class SimHandle(asyncio.TimerHandle):
    __slots__ = ("is_task_step", "process")

    def __init__(
        self, when: float, callback: Callable[..., Any], args: Any, loop: SimLoop, context: Context | None
    ) -> None:
        # Most of what a simulation does is to make these: what both classes above would set, without calls.
        self._context = context = copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None
        self._when = when
        self._scheduled = False
        self.process = context.get(PROCESS)
        self.is_task_step = getattr(callback, "__self__", None).__class__ is SimTask

    def must_run(self) -> bool:
        return not self._cancelled and (self.process is None or self.process.alive)


class SimLoop(asyncio.BaseEventLoop):
    """`shuffle=False` runs everything first in, first out; `free_turns` lets no time pass by running."""

    def __init__(
        self,
        seed: int | str = 0,
        *,
        shuffle: bool = True,
        free_turns: bool = False,
        time_limit_s: float = TIME_LIMIT_S,
    ) -> None:
        self._active = False
        super().__init__()
        self.steps = 0
        self._random = random.Random(f"loop/{seed}")
        self._shuffle = shuffle
        self._free_turns = free_turns
        self._turns_random = random.Random(f"turns/{seed}")
        self._time_limit_s = time_limit_s
        self._now = 0.0
        self._numbers = 0
        self._due: list[SimHandle] = []
        self._timers: list[tuple[float, int, SimHandle]] = []
        self._resuming: list[Process] = []
        self._failure: dict[str, Any] | None = None
        self._handler: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None = None

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    # Scheduling.

    def time(self) -> float:
        return self._now

    def spend(self, seconds: float) -> None:
        """Whatever runs now takes so long, and nothing else runs meanwhile."""
        self._now += seconds

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> SimHandle:
        self._refuse_if_closed()
        handle = SimHandle(self._now, callback, args, self, context)
        self._due.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> SimHandle:
        return self.call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> SimHandle:
        self._refuse_if_closed()
        handle = SimHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, self.next_number(), handle))
        return handle

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> SimHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def create_future(self) -> SimFuture:
        return SimFuture(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        self._refuse_if_closed()
        assert asyncio.iscoroutine(coro)
        return SimTask(coro, loop=self, name=None if name is None else str(name), context=context)

    def resume(self, process: Process) -> None:
        """It goes on with all that became due while it was paused, before what becomes due now."""
        self._resuming.append(process)
        self.call_soon(lambda: None)

    def _refuse_if_closed(self) -> None:
        if self.is_closed():
            raise RuntimeError("Event loop is closed")

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled timers stay in the heap and are passed over: `_next_timer` decides."""

    # Running.

    def run_until_complete(self, future: Generator[Any, None, T] | Awaitable[T]) -> T:
        self._refuse_if_closed()
        if self._active:
            raise RuntimeError("This event loop is already running")
        assert isinstance(future, Awaitable)
        main = asyncio.ensure_future(future, loop=self)
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(finalizer=self._finalize_generator)
        asyncio._set_running_loop(self)
        self._active = True
        try:
            self._run_rounds(main)
        finally:
            self._active = False
            asyncio._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)
        return main.result()

    def _run_rounds(self, main: asyncio.Future[Any]) -> None:
        rounds = 0
        while not main.done():
            rounds += 1
            if rounds > ROUNDS_WITHOUT_REST_MAX:
                raise Livelock(f"nothing ever waits at t={self._now:.6f}; pending:{self._pending()}")
            if not self._due and self._advance_time():
                rounds = 0
            while self._resuming:
                resumed = self._resuming.pop()
                resumed.paused = False
                self._due[:0] = resumed.held
                resumed.held.clear()
            batch, self._due = self._due + self._take_timers(), []
            for handle in self._ordered(batch):
                process = handle.process
                if handle._cancelled or (process is not None and not process.alive):
                    continue
                if process is not None and process.paused:
                    process.held.append(handle)
                    continue
                self.steps += 1
                handle._run()
                if not self._free_turns:
                    self._now += TURN.draw_s(self._turns_random)
                if self._failure is not None:
                    self._raise_failure()

    def _finalize_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        # When all is over nobody waits for its `finally` blocks any more.
        if not self.is_closed():
            self.call_soon(lambda: self.create_task(generator.aclose(), name="aclose"))

    def _ordered(self, batch: list[SimHandle]) -> list[SimHandle]:
        if not self._shuffle or len(batch) < 2:
            return batch
        plain = iter([handle for handle in batch if not handle.is_task_step])
        shuffled = list(batch)
        self._random.shuffle(shuffled)
        return [handle if handle.is_task_step else next(plain) for handle in shuffled]

    def _next_timer(self) -> float | None:
        while self._timers and not self._timers[0][2].must_run():
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def _take_timers(self) -> list[SimHandle]:
        taken = []
        timers = self._timers
        while timers and timers[0][0] <= self._now:
            handle = heapq.heappop(timers)[2]
            if handle.must_run():
                taken.append(handle)
        return taken

    def _advance_time(self) -> bool:
        when = self._next_timer()
        if when is None:
            raise Deadlock("nothing can ever run again; pending:" + self._pending())
        if when > self._time_limit_s:
            raise TimeLimitReached(f"{self._time_limit_s:.0f} virtual seconds; pending:{self._pending()}")
        before, self._now = self._now, max(self._now, when)
        return self._now > before

    def _pending(self) -> str:
        tasks = [task for task in self.unfinished() if task.process is None or task.process.alive]
        return "".join(f"\n  {task.get_name()}: {_where(task.get_coro())}" for task in tasks)

    def unfinished(self) -> list[SimTask]:
        tasks = [task for task in asyncio.all_tasks(self) if isinstance(task, SimTask)]
        return sorted(tasks, key=lambda task: task.number)

    def is_running(self) -> bool:
        return self._active

    def close(self) -> None:
        """Abandon what is left. Their `finally` blocks run here and not at the collector's whim."""
        if self.is_closed():
            return
        abandoned: set[SimTask] = set()
        asyncio._set_running_loop(self)
        try:
            # What they await on their way out goes nowhere, and what they start is abandoned in turn.
            while remaining := [task for task in self.unfinished() if task not in abandoned]:
                abandoned.update(remaining)
                for task in remaining:
                    _abandon(task)
        finally:
            asyncio._set_running_loop(None)
            super().close()
        self._due.clear()
        self._timers.clear()

    # Failures.

    def set_exception_handler(
        self, handler: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None
    ) -> None:
        self._handler = handler

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        source = context.get("handle") or context.get("task") or context.get("future")
        process: Process | None = getattr(source, "process", None)
        if process is not None and not process.alive:
            return
        if self._handler is not None:
            self._handler(self, context)
        elif self._failure is None:
            self._failure = context

    def _raise_failure(self) -> NoReturn:
        context, self._failure = self._failure or {}, None
        error = context.get("exception")
        raise UnhandledFailure(f"{context.get('message')}: {error!r}") from error

    # The doors that stay shut.

    def run_in_executor(self, executor: object, func: Callable[[*Ts], object], *args: *Ts) -> NoReturn:
        raise RuntimeError("no threads in the simulation; use runtime.offload")

    async def create_server(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError("no sockets in the simulation; use runtime.net")

    async def create_connection(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError("no sockets in the simulation; use runtime.net")


def _abandon(task: SimTask) -> None:
    """Unwind its coroutine: every `await` on the way out fails like the first."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    coroutine = task.get_coro()
    # Not close(): where an inner coroutine awaits again, that ends the outer one alone.
    with contextlib.suppress(BaseException):
        for _ in range(UNWINDINGS_MAX):
            coroutine.throw(ProcessDied("the simulation is over"))


def _where(awaited: Any) -> str:
    """The chain of coroutines down to the one that waits."""
    places = []
    while isinstance(awaited, CoroutineType) and awaited.cr_frame is not None:
        places.append(f"{awaited.__qualname__}:{awaited.cr_frame.f_lineno}")
        awaited = awaited.cr_await
    return " > ".join(places) or repr(awaited)


def run(
    main: Coroutine[Any, Any, T], *, seed: int | str = 0, shuffle: bool = True, free_turns: bool = False
) -> T:
    """`asyncio.run` in virtual time: what `main` leaves running is cancelled and waited for."""
    loop = SimLoop(seed, shuffle=shuffle, free_turns=free_turns)
    try:
        try:
            return loop.run_until_complete(main)
        finally:
            leftover = loop.unfinished()
            for task in leftover:
                task.cancel()
            if leftover:
                loop.run_until_complete(asyncio.gather(*leftover, return_exceptions=True))
    finally:
        loop.close()
