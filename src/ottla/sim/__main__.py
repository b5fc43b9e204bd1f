"""`python -m ottla.sim --seeds 1000`: brokers and clusters under simulated chaos, until a seed fails."""

from __future__ import annotations

import argparse
import logging
import sys
import time

from ottla.sim.campaign import PROCESSES_MAX, Tally, run_campaign, run_seeds
from ottla.sim.workloads import NAMES


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m ottla.sim", description=__doc__)
    parser.add_argument("--workload", choices=NAMES, default="admin", help="what a run is made of")
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first of them")
    parser.add_argument(
        "--processes", type=int, default=PROCESSES_MAX, help=f"at a time, default {PROCESSES_MAX}"
    )
    parser.add_argument("--log", action="store_true", help="in this process, with what the brokers log")
    arguments = parser.parse_args()
    if arguments.seeds < 1 or arguments.processes < 1:
        parser.error("--seeds and --processes: must be at least 1")
    if arguments.log:
        tally = _run_aloud(arguments.first, arguments.seeds, arguments.workload)
    else:
        tally = run_campaign(
            arguments.first, arguments.seeds, arguments.workload, processes=arguments.processes
        )
    for line in tally.lines(arguments.workload):
        print(line)
    return 1 if tally.failures else 0


def _run_aloud(first: int, count: int, mix: str) -> Tally:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    started = time.monotonic()
    tally = run_seeds(list(range(first, first + count)), mix)
    tally.elapsed_s = time.monotonic() - started
    return tally


if __name__ == "__main__":
    sys.exit(main())
