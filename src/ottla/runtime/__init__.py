"""The only door to the outside world: clock, disk, network, randomness, blocking work, processes.

Everything above takes a `Runtime`; `sim/` provides another one with virtual time and faults, so whole
brokers run inside a seeded simulation. Nothing outside this package (and the simulator) may call
`time.time()`, `random`, `open()` or make sockets.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from ottla.runtime.clock import Clock, SystemClock
from ottla.runtime.disk import Disk, PosixDisk
from ottla.runtime.net import AsyncioNetwork, Network
from ottla.runtime.tasks import Offload, ThreadOffload
from ottla.runtime.workers import ProcessWorkers, Workers

__all__ = ["Clock", "Disk", "Network", "Offload", "Runtime", "Workers", "real_runtime"]


@dataclass(frozen=True, slots=True)
class Runtime:
    clock: Clock
    disk: Disk
    net: Network
    random: random.Random
    offload: Offload
    workers: Workers | None = None
    """None where there are no other processes: what they would do is then done between requests."""

    async def close(self) -> None:
        if self.workers is not None:
            await self.workers.close()
        self.offload.close()


def real_runtime() -> Runtime:
    return Runtime(
        SystemClock(),
        PosixDisk(),
        AsyncioNetwork(),
        random.SystemRandom(),
        ThreadOffload(),
        ProcessWorkers(),
    )
