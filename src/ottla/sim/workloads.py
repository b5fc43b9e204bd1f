"""Everything that `python -m ottla.sim` can run, by name: one broker under chaos, and clusters."""

from __future__ import annotations

from ottla.sim.chaos.mixes import MIXES
from ottla.sim.chaos.workload import Outcome, simulate_chaos
from ottla.sim.cluster.mixes import CLUSTER_MIXES
from ottla.sim.cluster.workload import simulate_cluster

NAMES = (*sorted(CLUSTER_MIXES), *sorted(MIXES))


def simulate(name: str, seed: int | str) -> Outcome:
    if name in CLUSTER_MIXES:
        return simulate_cluster(seed, CLUSTER_MIXES[name])
    return simulate_chaos(seed, MIXES[name])
