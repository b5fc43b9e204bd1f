"""Long work of the background, done in slices: away from the event loop, at a bounded rate.

Threads of one interpreter take turns. A slice of half a millisecond is what a request may have to wait for; a
thread that computed on would hold it up for as long as the interpreter lets it, ten times that. Another
process takes no turns, and is asked for larger slices.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from ottla.runtime import Runtime
from ottla.runtime.workers import Job, Slice, Steps, take_slice

SLICE_SECONDS = 0.0005
_SLICE_BYTES_MIN = 64 * 1024
_SLICE_BYTES_MAX = 16 * 1024 * 1024
# Simulated time stands still while code runs: then this ends a slice.
_THREAD_SLICE_BYTES_MAX = 1024 * 1024
_BURST_SECONDS = 0.1


class ThreadJob:
    """A job in another thread of this process."""

    def __init__(self, runtime: Runtime, steps: Steps) -> None:
        self._runtime = runtime
        self._steps = steps

    async def advance(self, bytes_max: int) -> Slice:
        return await self._runtime.offload.run(
            take_slice,
            self._steps,
            self._runtime.clock.monotonic,
            SLICE_SECONDS,
            min(bytes_max, _THREAD_SLICE_BYTES_MAX),
        )

    async def close(self) -> None:
        """It goes on no further when nobody asks."""


async def _ignore(_: Any) -> None:
    """For jobs without results."""


class Pace:
    """Lets jobs go on as fast as the rate allows, all of them together."""

    def __init__(self, runtime: Runtime, bytes_per_second: Callable[[], float]) -> None:
        self._runtime = runtime
        self._bytes_per_second = bytes_per_second
        self._debt_seconds = 0.0
        self._paid_at = runtime.clock.monotonic()

    async def run(self, job: Job, on_result: Callable[[Any], Awaitable[None]] = _ignore) -> None:
        """Results are handed over in their order, one after the other; an exception there ends the job."""
        try:
            ended = False
            while not ended:
                wanted = self._bytes_per_second() * _BURST_SECONDS / 2
                bytes_max = int(min(max(wanted, _SLICE_BYTES_MIN), _SLICE_BYTES_MAX))
                bytes_done, results, ended = await job.advance(bytes_max)
                for result in results:
                    await on_result(result)
                await self._rest(bytes_done)
        finally:
            await job.close()

    async def _rest(self, bytes_done: int) -> None:
        now = self._runtime.clock.monotonic()
        self._debt_seconds = max(self._debt_seconds - (now - self._paid_at), -_BURST_SECONDS)
        self._paid_at = now
        self._debt_seconds += bytes_done / self._bytes_per_second()
        await asyncio.sleep(max(self._debt_seconds, 0))
