"""A small world of hosts, each with its own disk, clock and process, on one seeded event loop.

    def scenario(world: SimWorld) -> Coroutine: ...
    simulate(scenario, seed=7)

A host's process is what `start` boots: everything it creates dies with `crash` and is booted again by
`restart`. When a run fails, the seed and the last events are attached to the exception.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeAlias, TypeVar

from ottla.runtime import Runtime
from ottla.runtime.turns import have_own_line
from ottla.sim.costs import Meter
from ottla.sim.disk import SimDisk
from ottla.sim.loop import PROCESS, Process, SimLoop, SimTask
from ottla.sim.net import SimNetwork

P = ParamSpec("P")
T = TypeVar("T")
Boot: TypeAlias = Callable[[Runtime], Coroutine[Any, Any, Any]]

START_MS = 1_750_000_000_000  # an arbitrary moment; the same in every run
EVENTS_KEPT_MAX = 2000
EVENTS_SHOWN_MAX = 30


class Trace:
    """The last events for people, and a digest of all of them to compare runs by."""

    def __init__(self, loop: SimLoop) -> None:
        self.events: deque[str] = deque(maxlen=EVENTS_KEPT_MAX)
        self.disk_operations: deque[str] = deque(maxlen=EVENTS_SHOWN_MAX)
        """Apart: they would drive everything else out."""
        self._loop = loop
        self._hash = hashlib.blake2b(digest_size=16)

    def record(self, source: str, event: str) -> None:
        self.events.append(self._line(source, event))

    def record_disk(self, source: str, operation: str) -> None:
        self.disk_operations.append(self._line(source, operation))

    def _line(self, source: str, event: str) -> str:
        line = f"{self._loop.time():.6f} {source}: {event}"
        self._hash.update(line.encode())
        return line

    def digest(self) -> str:
        return f"{self._hash.hexdigest()} after {self._loop.steps} steps"


class SimClock:
    def __init__(self, loop: SimLoop, skew_ms: int = 0) -> None:
        self.skew_ms = skew_ms
        self._loop = loop

    def now_ms(self) -> int:
        # By way of nanoseconds, or 0.7 s + 0.1 s would be 799 ms.
        return START_MS + self.skew_ms + round(self._loop.time() * 1e9) // 1_000_000

    def monotonic(self) -> float:
        return self._loop.time()


class SimOffload:
    """A thread pool's timing without threads: the work happens at once, some time after it was asked for,
    and is known to have happened after as long as it takes."""

    def __init__(self, chance: random.Random, meter: Meter) -> None:
        self.delay_range_s = (0.0, 0.002)
        self._random = chance
        self._meter = meter

    def _delay_s(self) -> float:
        return self._random.uniform(*self.delay_range_s)

    def _delay_after_s(self) -> float:
        return self._delay_s() + self._meter.take_thread_s()

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[T] = loop.create_future()

        def work() -> None:
            try:
                with self._meter.in_thread():
                    result = function(*args, **kwargs)
            except Exception as error:
                loop.call_later(self._delay_after_s(), settle, outcome.set_exception, error)
            else:
                loop.call_later(self._delay_after_s(), settle, outcome.set_result, result)

        def settle(setter: Callable[[Any], None], value: Any) -> None:
            if not outcome.done():
                setter(value)

        timer = loop.call_later(self._delay_s(), work)
        try:
            return await outcome
        except asyncio.CancelledError:
            # A pool drops cancelled work it has not begun, and ends what it has.
            if self._random.random() < 0.5:
                timer.cancel()
            raise

    def close(self) -> None:
        """There is no pool to shut down."""


class Host:
    """One machine, and the process on it: its disk and clock outlive the process."""

    def __init__(self, world: SimWorld, name: str) -> None:
        self.name = name
        self.clock = SimClock(world.loop)
        meter = Meter(world.loop, world.random(f"costs/{name}"))
        self.disk = SimDisk(
            f"{world.seed}/{name}",
            trace=lambda event: world.trace.record_disk(name, event),
            charge=None if world.free_turns else meter.charge,
        )
        self.offload = SimOffload(world.random(f"offload/{name}"), meter)
        self.boot: Boot | None = None
        self.processes = 0
        self.outcomes: dict[asyncio.Future[Any], SimTask] = {}
        self.process: Process
        self.died: asyncio.Event
        self.runtime: Runtime
        self.begin_process(world)

    def begin_process(self, world: SimWorld) -> None:
        self.processes += 1
        self.process = Process(self.name)
        self.died = asyncio.Event()
        chance = world.random(f"host/{self.name}/{self.processes}")
        network = world.network.host(self.name)
        self.runtime = Runtime(self.clock, self.disk, network, chance, self.offload)

    @property
    def is_running(self) -> bool:
        return self.process.alive


class SimWorld:
    """`free_turns`: only timers move time, for tests that tell what happens when to the millisecond."""

    def __init__(self, seed: int | str = 0, *, shuffle: bool = True, free_turns: bool = False) -> None:
        self.seed = seed
        self.free_turns = free_turns
        self.loop = SimLoop(seed, shuffle=shuffle, free_turns=free_turns)
        self.trace = Trace(self.loop)
        self.network = SimNetwork(self.loop, seed, trace=lambda event: self.trace.record("network", event))
        self._hosts: dict[str, Host] = {}
        # Held until the end: collected earlier, their `finally` blocks would run at an arbitrary moment.
        self._dead_tasks: list[SimTask] = []
        self._failed: list[asyncio.Future[Any]] = []

    def host(self, name: str) -> Host:
        if name not in self._hosts:
            self._hosts[name] = Host(self, name)
        return self._hosts[name]

    def runtime(self, host: str) -> Runtime:
        """Of the host's current process."""
        return self.host(host).runtime

    def random(self, purpose: str) -> random.Random:
        """A source of chance of its own, so that asking it does not shift anybody else's."""
        return random.Random(f"{purpose}/{self.seed}")

    # Processes.

    def start(self, host: str, boot: Boot) -> asyncio.Future[Any]:
        """Run `boot(runtime)` as the host's process, now and after each restart."""
        self.host(host).boot = boot
        return self.spawn(host, boot(self.runtime(host)))

    def spawn(self, host: str, coroutine: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """Run inside the host's process. The future ends with the coroutine, or cancelled by a crash."""
        machine = self.host(host)
        if not machine.is_running:
            coroutine.close()
            raise RuntimeError(f"{host} is down; restart it first")
        context = copy_context()
        context.run(PROCESS.set, machine.process)
        context.run(have_own_line, self.loop)
        name = f"{host}/{getattr(coroutine, '__qualname__', 'process')}"
        task = self.loop.create_task(coroutine, name=name, context=context)
        assert isinstance(task, SimTask)
        outcome: asyncio.Future[T] = self.loop.create_future()
        machine.outcomes[outcome] = task

        def finish(_: object) -> None:
            machine.outcomes.pop(outcome, None)
            if outcome.done():
                return
            if task.cancelled():
                outcome.cancel()
            elif (error := task.exception()) is not None:
                self.trace.record(host, f"process failed: {error!r}")
                self._failed.append(outcome)
                outcome.set_exception(error)
            else:
                outcome.set_result(task.result())

        task.add_done_callback(finish, context=copy_context())
        return outcome

    def crash(self, host: str, *, power_loss: bool) -> None:
        """The process ends between two of its steps; with a power cut, unsynced data is at stake as well."""
        machine = self.host(host)
        if not machine.is_running:
            return
        self.trace.record(host, "power is cut" if power_loss else "process is killed")
        machine.process.alive = False
        self._dead_tasks += [task for task in self.loop.unfinished() if task.process is machine.process]
        if power_loss:
            machine.disk.crash()
        else:
            machine.disk.kill()
        machine.disk.halted = True
        self.network.kill(host, power_loss=power_loss)
        for outcome in list(machine.outcomes):
            outcome.cancel()
        machine.outcomes.clear()
        machine.died.set()

    def pause(self, host: str) -> None:
        """As SIGSTOP: its kernel goes on taking connections and bytes, nothing answers."""
        self.trace.record(host, "process is paused")
        self.host(host).process.paused = True

    def resume(self, host: str) -> None:
        process = self.host(host).process
        if process.paused:
            self.trace.record(host, "process goes on")
            self.loop.resume(process)

    def crash_mid_operation(self, host: str, operations: int | None) -> None:
        """Cut the power inside a step of the process, after so many more operations on its disk."""
        self.host(host).disk.crash_after(operations, lambda: self.crash(host, power_loss=True))

    def restart(self, host: str) -> asyncio.Future[Any] | None:
        """After a crash: power on, a new process, booted as `start` said."""
        machine = self.host(host)
        if machine.is_running:
            raise RuntimeError(f"{host} is running; crash it first")
        self.trace.record(host, "restart")
        machine.disk.restart()
        machine.begin_process(self)
        self.network.power_on(host)
        return None if machine.boot is None else self.spawn(host, machine.boot(machine.runtime))

    # Running.

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """The hosts' processes stay as they are when `main` ends; a later run goes on from there.

        A process that failed without `main` looking at it fails the run.
        """
        try:
            result = self.loop.run_until_complete(main)
            for outcome in self._failed:
                if outcome._log_traceback:
                    outcome.result()
            return result
        except BaseException as error:
            error.add_note(self._report())
            raise

    def _report(self) -> str:
        lines = [f"simulation failed with seed={self.seed!r} at t={self.loop.time():.6f}"]
        lines += [f"process failed: {outcome.exception()!r}" for outcome in self._failed]
        lines += ["last events:", *list(self.trace.events)[-EVENTS_SHOWN_MAX:]]
        lines += ["last operations on disks:", *self.trace.disk_operations]
        return "\n  ".join(lines)

    def close(self) -> None:
        for name in list(self._hosts):
            self.crash(name, power_loss=False)
        self.loop.close()
        self._dead_tasks.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def simulate(
    scenario: Callable[[SimWorld], Coroutine[Any, Any, T]], *, seed: int | str = 0, free_turns: bool = False
) -> T:
    """Run a scenario in a world of its own."""
    with SimWorld(seed, free_turns=free_turns) as world:
        return world.run(scenario(world))
