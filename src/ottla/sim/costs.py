"""What things take: every turn of the loop and every operation on a disk costs virtual time, by the seed.

Mostly little, so that a run stays short; now and then a lot, as when a process is not scheduled or a disk is
busy. Without it whatever does not wait for a timer would happen in one instant, and nothing could come
between two turns that a `sleep(0)` separates.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.sim.loop import SimLoop


@dataclass(frozen=True, slots=True)
class Cost:
    """Uniform from nothing to `usual_max_s`; in one of `long_every` cases up to `long_max_s`."""

    usual_max_s: float
    long_max_s: float
    long_every: int

    def draw_s(self, chance: random.Random) -> float:
        drawn = chance.random() * self.long_every
        if drawn >= 1:
            # What is left of the drawn number is as random as a new one.
            return drawn % 1 * self.usual_max_s
        return drawn * self.long_max_s


TURN = Cost(usual_max_s=50e-6, long_max_s=0.05, long_every=500)
OPERATION = Cost(usual_max_s=100e-6, long_max_s=0.05, long_every=500)
SYNC = Cost(usual_max_s=5e-3, long_max_s=0.5, long_every=100)


class Meter:
    """Where the operations of one machine's disk are paid: by the loop, which stands still meanwhile, or by
    the thread that they happen in."""

    def __init__(self, loop: SimLoop, chance: random.Random) -> None:
        self._loop = loop
        self._random = chance
        self._in_thread = False
        self._thread_s = 0.0

    def charge(self, cost: Cost) -> None:
        spent_s = cost.draw_s(self._random)
        if self._in_thread:
            self._thread_s += spent_s
        else:
            self._loop.spend(spent_s)

    @contextlib.contextmanager
    def in_thread(self) -> Iterator[None]:
        """What is charged inside is kept for `take_thread_s`."""
        self._in_thread = True
        try:
            yield
        finally:
            self._in_thread = False

    def take_thread_s(self) -> float:
        spent_s, self._thread_s = self._thread_s, 0.0
        return spent_s
