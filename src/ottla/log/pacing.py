"""Long work of the background, done in slices: away from the event loop, never for long, at a bounded rate.

Threads of one interpreter take turns. A slice of half a millisecond is what a request may have to wait for; a
thread that computed on would hold it up for as long as the interpreter lets it, ten times that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Generic, TypeVar

from ottla.runtime import Runtime

T = TypeVar("T")

SLICE_SECONDS = 0.0005
# Simulated time stands still while code runs: then this ends a slice.
_SLICE_BYTES = 1024 * 1024
_BURST_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class _Done(Generic[T]):
    value: T


class Pace:
    """Runs generators that yield the bytes they have read and written since the last time."""

    def __init__(self, runtime: Runtime, bytes_per_second: Callable[[], float]) -> None:
        self._runtime = runtime
        self._bytes_per_second = bytes_per_second
        self._debt_seconds = 0.0
        self._paid_at = runtime.clock.monotonic()

    async def run(self, steps: Generator[int, None, T]) -> T:
        while True:
            bytes_done, done = await self._runtime.offload.run(self._slice, steps)
            await self._rest(bytes_done)
            if done is not None:
                return done.value

    def _slice(self, steps: Generator[int, None, T]) -> tuple[int, _Done[T] | None]:
        monotonic = self._runtime.clock.monotonic
        until = monotonic() + SLICE_SECONDS
        bytes_done = 0
        try:
            while bytes_done < _SLICE_BYTES and monotonic() < until:
                bytes_done += next(steps)
        except StopIteration as end:
            return bytes_done, _Done(end.value)
        return bytes_done, None

    async def _rest(self, bytes_done: int) -> None:
        now = self._runtime.clock.monotonic()
        self._debt_seconds = max(self._debt_seconds - (now - self._paid_at), -_BURST_SECONDS)
        self._paid_at = now
        self._debt_seconds += bytes_done / self._bytes_per_second()
        await asyncio.sleep(max(self._debt_seconds, 0))
