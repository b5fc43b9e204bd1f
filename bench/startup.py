"""Process start to first acknowledged record, and memory while idle: `python -m bench.startup`.

Each start has a data directory of its own, empty for Ottla, formatted beforehand for Apache Kafka.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

from bench import kafka_peer
from bench.brokers import BrokerFailed, BrokerKind, ottla, running
from bench.kafka_peer import ApacheKafka
from bench.maven import PeerUnavailable
from bench.replay import MB

IDLE_S = 2.0


def start_seconds(kind: BrokerKind, runs: int, work_dir: str | None) -> list[float]:
    times = []
    for _ in range(runs):
        with running(kind, work_dir) as broker:
            times.append(broker.first_ack_s)
    return times


def idle_mb(kind: BrokerKind, work_dir: str | None) -> float:
    with running(kind, work_dir) as broker:
        time.sleep(IDLE_S)
        return broker.memory().resident / MB


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.startup", description=__doc__)
    parser.add_argument("--broker", choices=("ottla", "kafka"), default="ottla")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--work-dir", help="where data directories are created and removed")
    parser.add_argument("--ottla-command", help="another command instead of `ottla start …`; {port}, {dir}")
    options = parser.parse_args()
    try:
        kind: BrokerKind = ottla(options.ottla_command)
        if options.broker == "kafka":
            kind = ApacheKafka(kafka_peer.fetch())
        times = start_seconds(kind, options.runs, options.work_dir)
        resident_mb = idle_mb(kind, options.work_dir)
    except (BrokerFailed, PeerUnavailable) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{kind.name}: process start to first acknowledged record, {options.runs} starts")
    print("  each   " + "  ".join(f"{seconds:.3f}" for seconds in times) + "  s")
    print(f"  median {statistics.median(times):.3f} s   min {min(times):.3f}   max {max(times):.3f}")
    print(f"  idle memory (RSS) {resident_mb:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
