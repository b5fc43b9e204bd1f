"""Keeps the processes of several brokers running: starts them, starts them again, and stops them all.

A process that ends by itself is started again after a pause, which doubles while it does not stay up. One
that ends with status 0 was told to stop, and is left alone.
"""

from __future__ import annotations

import asyncio
import ctypes
import re
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

READY = re.compile(r"Ready: \S+ in [\d.]+ s")
PAUSE_FIRST_S = 0.5
PAUSE_MAX_S = 30.0
STEADY_S = 60.0
"""Who has been up for so long is not in trouble: the next pause is the first again."""
STOP_S_MAX = 60.0
TELL_EVERY_S = 10.0
_PR_SET_PDEATHSIG = 1
_CHUNK = 1 << 16


class FailedToStart(Exception):
    """A process ended before it was ever ready."""


class Command(NamedTuple):
    number: int
    """Of the broker."""
    argv: Sequence[str]


class Supervisor:
    """`run` until every process was told to stop, or one cannot start at all."""

    def __init__(self, commands: Sequence[Command], say: Callable[[str], None]) -> None:
        self._say = say
        self._stopping = asyncio.Event()
        self._children = [_Child(command, say, self._stopping) for command in commands]

    @property
    def processes(self) -> dict[int, int]:
        """Process ids by number of the broker, of those that run."""
        return {child.number: child.process.pid for child in self._children if child.process is not None}

    def stop(self) -> None:
        """Once: all finish what they have in hand. Twice: they end at once."""
        self._stopping.set()
        for child in self._children:
            child.signal(signal.SIGTERM)

    async def wait_ready(self) -> None:
        """Until all have been ready once. Says whom it waits for."""
        waiting = [asyncio.ensure_future(child.ready.wait()) for child in self._children]
        while not all(wait.done() for wait in waiting):
            await asyncio.wait(waiting, timeout=TELL_EVERY_S)
            late = [str(child.number) for child in self._children if not child.ready.is_set()]
            if late and not self._stopping.is_set():
                self._say(f"waiting for broker {', '.join(late)}")

    async def run(self) -> None:
        """FailedToStart when a process ended before it was ready even once; the others are stopped then."""
        running = [asyncio.ensure_future(child.run()) for child in self._children]
        try:
            await asyncio.wait(running, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            if not all(child.done() for child in running):
                self.stop()
            ended = await asyncio.gather(*running, return_exceptions=True)
        for failure in ended:
            if isinstance(failure, BaseException):
                raise failure


class _Child:
    def __init__(self, command: Command, say: Callable[[str], None], stopping: asyncio.Event) -> None:
        self.number = command.number
        self.ready = asyncio.Event()
        self.process: asyncio.subprocess.Process | None = None
        self._argv = command.argv
        self._say = say
        self._stopping = stopping

    def signal(self, number: signal.Signals) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(number)

    async def run(self) -> None:
        now = asyncio.get_running_loop().time
        pause_s = PAUSE_FIRST_S
        while not self._stopping.is_set():
            began = now()
            was_ready = self.ready.is_set()
            status = await self._run_once()
            if self._stopping.is_set():
                return
            if status == 0:
                self._say(f"broker {self.number} was stopped; the others go on")
                return
            if not self.ready.is_set():
                raise FailedToStart(f"broker {self.number} did not start: it {ended(status)}")
            if was_ready and now() - began < STEADY_S:
                pause_s = min(pause_s * 2, PAUSE_MAX_S)
            else:
                pause_s = PAUSE_FIRST_S
            self._say(f"broker {self.number} {ended(status)}; starting it again in {pause_s:g} s")
            try:
                await asyncio.wait_for(self._stopping.wait(), pause_s)
            except TimeoutError:
                continue

    async def _run_once(self) -> int:
        """The status the process ended with."""
        process = await asyncio.create_subprocess_exec(
            *self._argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            # Ctrl-C is for the supervisor, which tells them once; twice would end them at once.
            start_new_session=True,
            preexec_fn=end_with_parent,
        )
        self.process = process
        assert process.stdout is not None and process.stderr is not None
        try:
            if self._stopping.is_set():
                self.signal(signal.SIGTERM)
            await asyncio.gather(
                _lines(process.stdout, self._heard),
                _lines(process.stderr, self._forward),
                self._wait(process),
            )
            return process.returncode or 0
        finally:
            self.process = None

    async def _wait(self, process: asyncio.subprocess.Process) -> None:
        ended = asyncio.ensure_future(process.wait())
        stopping = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait({ended, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not ended.done():
            await asyncio.wait({ended}, timeout=STOP_S_MAX)
            if not ended.done():
                self._say(f"broker {self.number} has not stopped after {STOP_S_MAX:g} s; killing it")
                self.signal(signal.SIGKILL)
        await ended

    def _heard(self, line: str) -> None:
        if READY.match(line):
            if self.ready.is_set():
                self._say(f"broker {self.number} is up again")
            self.ready.set()

    def _forward(self, line: str) -> None:
        tell(f"[{self.number}] {line}")


def tell(line: str) -> None:
    """Whoever read it may be gone, or its disk full: no reason to stop serving."""
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)


async def _lines(stream: asyncio.StreamReader, take: Callable[[str], None]) -> None:
    """However long they are: `readline` has a limit."""
    rest = b""
    while chunk := await stream.read(_CHUNK):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            take(line.decode(errors="replace"))
    if rest:
        take(rest.decode(errors="replace"))


def ended(status: int) -> str:
    if status < 0:
        return f"was ended by {signal.Signals(-status).name}"
    return f"ended with status {status}"


def end_with_parent() -> None:
    """In the new process: nobody would stop it any more after its parent has been killed."""
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    except (AttributeError, OSError):
        return
