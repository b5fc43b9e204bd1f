"""The door to other processes: long computations that must not take turns with the event loop.

A job is a generator function that every process can import. It is given a disk and its arguments, yields ints
for the bytes it has handled and anything else as a result. Whoever waits for it asks for one slice after the
other, and thereby decides how fast it goes; in between nothing runs. A worker ends with the broker: it waits
for the next question on a socket, and a broker that dies closes that.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Generator
from typing import Any, NamedTuple, Protocol, TypeAlias

Steps: TypeAlias = Generator[Any, None, None]

IDLE_SECONDS = 10.0
# The longer, the fewer questions the event loop is bothered with.
SLICE_SECONDS = 0.05
# After it is killed, a process still finishes the write that it is in.
_END_SECONDS_MAX = 5.0

LENGTH = struct.Struct(">I")
BYTES_MAX = struct.Struct(">q")
RECEIVE_BYTES_MAX = 1024 * 1024


class WorkerDied(OSError):
    """The process that did the work is gone, and the work with it."""


class Slice(NamedTuple):
    """What a job has done since it was last asked."""

    bytes_done: int
    results: list[Any]
    ended: bool


def take_slice(steps: Steps, monotonic: Callable[[], float], seconds_max: float, bytes_max: int) -> Slice:
    """Let a job run until it has taken so long, handled so many bytes, or come to its end."""
    until = monotonic() + seconds_max
    bytes_done = 0
    results = []
    try:
        while bytes_done < bytes_max and monotonic() < until:
            step = next(steps)
            if isinstance(step, int):
                bytes_done += step
            else:
                results.append(step)
    except StopIteration:
        return Slice(bytes_done, results, True)
    return Slice(bytes_done, results, False)


class Job(Protocol):
    async def advance(self, bytes_max: int) -> Slice:
        """Raises what the job raises; it has ended then."""
        ...

    async def close(self) -> None:
        """To be called once, whether the job has ended or not."""
        ...


class Workers(Protocol):
    async def begin(self, steps: Callable[..., Steps], *args: object) -> Job: ...

    async def close(self) -> None: ...


class _Process:
    def __init__(self) -> None:
        self.channel, theirs = socket.socketpair()
        self.channel.setblocking(False)
        with theirs:
            # The package may have been found by a path that a new interpreter does not look at.
            package_dir = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
            paths = [package_dir, *filter(None, [os.environ.get("PYTHONPATH")])]
            self._process = subprocess.Popen(
                [sys.executable, "-m", "ottla.runtime.worker", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            )
        self.idle_timer: asyncio.TimerHandle | None = None

    async def ask(self, question: bytes) -> Any:
        loop = asyncio.get_running_loop()
        try:
            await loop.sock_sendall(self.channel, LENGTH.pack(len(question)) + question)
            (length,) = LENGTH.unpack(await self._receive(loop, LENGTH.size))
            return pickle.loads(await self._receive(loop, length))  # noqa: S301 - from its own child
        except ConnectionError as error:
            raise self._died() from error

    async def _receive(self, loop: asyncio.AbstractEventLoop, count: int) -> bytes:
        received = bytearray()
        while len(received) < count:
            part = await loop.sock_recv(self.channel, min(count - len(received), RECEIVE_BYTES_MAX))
            if not part:
                raise self._died()
            received += part
        return bytes(received)

    def _died(self) -> WorkerDied:
        status = self._process.poll()
        return WorkerDied(
            f"worker process {self._process.pid} has died"
            + (f" with status {status}; -9 is what the kernel does when memory runs out" if status else "")
        )

    @property
    def is_alive(self) -> bool:
        """Asking also makes the kernel forget a process that is not."""
        return self._process.poll() is None

    def kill(self) -> None:
        if self.idle_timer is not None:
            self.idle_timer.cancel()
        self.channel.close()
        self._process.kill()


class ProcessJob:
    def __init__(self, process: _Process, opening: bytes, release: Callable[[_Process, bool], None]) -> None:
        self._process = process
        self._opening: bytes | None = opening
        self._release = release
        self._is_between_jobs = True

    async def advance(self, bytes_max: int) -> Slice:
        opening, self._opening = self._opening or b"", None
        self._is_between_jobs = False
        answer = await self._process.ask(BYTES_MAX.pack(bytes_max) + opening)
        if isinstance(answer, Exception):
            self._is_between_jobs = True
            raise answer
        found: Slice = answer
        self._is_between_jobs = found.ended
        return found

    async def close(self) -> None:
        self._release(self._process, self._is_between_jobs)


class ProcessWorkers:
    """Processes that are started when there is work, and ended when there has been none for a while."""

    def __init__(self, idle_seconds: float = IDLE_SECONDS) -> None:
        self._idle_seconds = idle_seconds
        self._idle: list[_Process] = []
        self._ending: list[_Process] = []

    async def begin(self, steps: Callable[..., Steps], *args: object) -> Job:
        self._reap()
        opening = pickle.dumps((steps, args))
        process = None
        while self._idle and process is None:
            process = self._idle.pop()
            if not process.is_alive:
                self._end(process)
                process = None
        if process is None:
            process = _Process()
        elif process.idle_timer is not None:
            process.idle_timer.cancel()
        return ProcessJob(process, opening, self._release)

    def _release(self, process: _Process, reusable: bool) -> None:
        if not reusable or not process.is_alive:
            # Nothing else stops a computation.
            self._end(process)
            return
        self._idle.append(process)
        loop = asyncio.get_running_loop()
        process.idle_timer = loop.call_later(self._idle_seconds, self._end_idle, process)

    def _end_idle(self, process: _Process) -> None:
        self._idle.remove(process)
        self._end(process)

    def _end(self, process: _Process) -> None:
        process.kill()
        self._ending.append(process)
        asyncio.get_running_loop().call_later(1, self._reap)

    def _reap(self) -> None:
        self._ending = [process for process in self._ending if process.is_alive]

    async def close(self) -> None:
        for process in self._idle:
            process.kill()
        ending, self._idle, self._ending = [*self._idle, *self._ending], [], []
        deadline = asyncio.get_running_loop().time() + _END_SECONDS_MAX
        while any(process.is_alive for process in ending):
            if asyncio.get_running_loop().time() > deadline:
                return
            await asyncio.sleep(0.005)
