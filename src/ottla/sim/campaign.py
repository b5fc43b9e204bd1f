"""Many seeds, in a few processes: how many an hour, what they covered, and the first that failed."""

from __future__ import annotations

import gc
import logging
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from ottla.sim.workloads import simulate

PROCESSES_MAX = 2
SEEDS_PER_TASK = 5


class Failure(NamedTuple):
    seed: int
    reason: str
    report: str
    """The traceback, with the last events before it."""


@dataclass(slots=True)
class Tally:
    seeds: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    elapsed_s: float = 0.0

    def add(self, other: Tally) -> None:
        self.seeds += other.seeds
        self.counts += other.counts
        self.failures += other.failures

    @property
    def first_failure(self) -> Failure | None:
        return min(self.failures, default=None)

    def lines(self, mix: str) -> Iterator[str]:
        per_hour = self.seeds / self.elapsed_s * 3600 if self.elapsed_s else 0
        yield f"{self.seeds} seeds of {mix} in {self.elapsed_s:.0f} s, {per_hour:.0f} an hour"
        for name, count in sorted(self.counts.items()):
            yield f"  {count:>9}  {name}"
        failure = self.first_failure
        if failure is None:
            yield "no invariant was broken"
        else:
            yield failure.report.rstrip()
            yield f"{len(self.failures)} seeds failed, the first is {failure.seed}: {failure.reason}"
            yield f"replay it: {replay_command(failure.seed, mix)}"


def replay_command(seed: int, mix: str) -> str:
    return f"python -m ottla.sim --workload {mix} --from {seed} --seeds 1 --log"


def run_seeds(seeds: list[int], mix: str) -> Tally:
    """Here and now, one after the other."""
    tally = Tally()
    for seed in seeds:
        tally.seeds += 1
        try:
            tally.counts += simulate(mix, seed).counts
        # Whatever it is, it is what this seed found.
        except Exception as error:
            tally.failures.append(Failure(seed, f"{type(error).__name__}: {error}", traceback.format_exc()))
        # What a run leaves behind, dead tasks above all, hangs together in circles.
        gc.collect()
    return tally


def run_campaign(first: int, count: int, mix: str, *, processes: int = PROCESSES_MAX) -> Tally:
    """Until all have run, or as soon as one of them has failed."""
    started = time.monotonic()
    total = Tally()
    seeds = iter(range(first, first + count))
    with ProcessPoolExecutor(processes, initializer=_be_silent) as pool:
        running: list[Future[Tally]] = []
        while True:
            while len(running) < 2 * processes and not total.failures:
                chunk = list(islice(seeds, SEEDS_PER_TASK))
                if not chunk:
                    break
                running.append(pool.submit(run_seeds, chunk, mix))
            if not running:
                break
            # In order, so that the first failure that is reported is the first there is.
            total.add(running.pop(0).result())
    total.elapsed_s = time.monotonic() - started
    return total


def _be_silent() -> None:
    """Brokers say what is wrong, and here a lot is; a seed that fails is replayed with its log."""
    logging.disable(logging.CRITICAL)
