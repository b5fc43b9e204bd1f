"""Clusters under faults: nothing forbidden is ever seen, and whoever plants a mistake sees it found."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator

import pytest
from cluster_bugs import BUGS, Bug

from ottla.sim.checkers import InvariantViolation
from ottla.sim.cluster.mixes import CLUSTER_MIXES
from ottla.sim.workloads import simulate

SEEDS = int(os.environ.get("SEEDS", "3"))
SEEDS_UNTIL_FOUND_MAX = 15

# Each showed something once, and must not again.
FOUND = [
    ("cluster-moves", 3),  # a broker that lost its copy of the metadata did not start
    ("cluster-access", 132),  # a leader sent followers back to a snapshot that they had, again and again
    ("cluster-disks", 770003),  # to look for a file on a disk that fails ended the node
    ("cluster-disks", 880005),  # a power cut left a hole in a compacted replica, behind a segment's end
    ("cluster-disks", 992014),  # a log whose topic a power cut had hidden lay in two directories: no start
    ("cluster-disks", 993032),  # a new min.insync.replicas took the last that could lead a partition
    ("cluster", 1),  # a follower was held back by the answer to a question of an earlier epoch
]


@pytest.fixture(autouse=True)
def _silence() -> Iterator[None]:
    """Everything goes wrong here, and is said."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("workload", sorted(CLUSTER_MIXES))
def test_nothing_forbidden_is_seen(workload: str) -> None:
    counts: Counter[str] = Counter()
    for seed in range(SEEDS):
        try:
            counts += simulate(workload, seed).counts
        except Exception as error:
            raise AssertionError(f"seed {seed} of {workload}: {error}") from error
    assert counts["path: leader elected"] > 0 and counts["path: ISR shrunk"] > 0


@pytest.mark.parametrize(("workload", "seed"), FOUND)
def test_what_was_found_is_not_seen_again(workload: str, seed: int) -> None:
    simulate(workload, seed)


def test_a_run_is_a_function_of_its_seed_in_every_process() -> None:
    program = (
        "import logging; logging.disable(logging.CRITICAL);"
        "from ottla.sim.workloads import simulate; print(simulate('cluster', 2).digest)"
    )
    digests = {simulate("cluster", 2).digest}
    for hash_seed in ("0", "1"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        digests.add(done.stdout.strip())
    assert len(digests) == 1


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.plant.__name__)
def test_a_planted_bug_is_found(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.plant(monkeypatch)
    for seed in (bug.first_seed, *range(SEEDS_UNTIL_FOUND_MAX)):
        try:
            simulate(bug.workload, seed)
        except InvariantViolation as violation:
            assert violation.checker in bug.checkers, violation
            return
    raise AssertionError(f"{SEEDS_UNTIL_FOUND_MAX} seeds of {bug.workload} and nothing was found")
