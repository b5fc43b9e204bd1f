"""Three nodes of Ottla beside three of Apache Kafka, three replicas, acks=all: `python -m bench.cluster`.

One cluster runs at a time, each round on empty directories; rounds alternate. A part that fails leaves a dash
in the table and a line that says why, and the run goes on.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import cluster_loads, failover, kafka_peer, kafka_tools, many_partitions
from bench.cluster_loads import throw_away_topic
from bench.clusters import NodeCluster
from bench.figures import Better, Figure
from bench.kafka_peer import KafkaDistribution
from bench.maven import PeerUnavailable
from bench.report import Results, as_json, machine, print_table
from ottla.testing.cluster import BrokerCluster

OTTLA, KAFKA = "Ottla", "Kafka"
NODES = (1, 2, 3)
SHUTDOWN_MS_MAX = 100.0
MIN_IN_SYNC = "2"
Samples = dict[str, float]

FIGURES = (
    Figure("produce.1kb", "produce 1,000 B, acks=all", "MB/s", Better.HIGHER, 1.5),
    Figure("produce.100b", "produce 100 B, acks=all", "MB/s", Better.HIGHER, 1.5),
    Figure("produce.java", "produce 1,000 B, acks=all (Kafka's tool)", "MB/s", Better.HIGHER),
    Figure("cpu.1kb", "CPU of all nodes, 1,000 B", "s/GB", Better.LOWER),
    Figure("cpu.100b", "CPU of all nodes, 100 B", "s/GB", Better.LOWER),
    Figure("lag", "what followers lack under load, median", "MB", Better.LOWER),
    Figure("lag.max", "what followers lack under load, most", "MB", Better.LOWER),
    Figure("ack.p50", "acknowledgement at 1,000/s, p50", "ms", Better.LOWER),
    Figure("ack.p99", "acknowledgement at 1,000/s, p99", "ms", Better.LOWER, 1.0),
    Figure("kill.leader", "no writes after kill -9 of a leader", "ms", Better.LOWER, 0.5),
    Figure("kill.controller", "no writes after kill -9 of the controller", "ms", Better.LOWER, 0.5),
    Figure("shutdown", "controlled shutdown, per partition led", "ms", Better.LOWER),
    Figure("shutdown.gap", "no writes during controlled shutdown", "ms", Better.LOWER),
    Figure("memory", "memory of all nodes after load, without mapped files", "MB", Better.LOWER),
)
MANY = (
    Figure("many.create", "create them", "s", Better.LOWER),
    Figure("many.start", "start all nodes, until all are in sync", "s", Better.LOWER),
    Figure("many.memory", "memory of all nodes, without mapped files", "MB", Better.LOWER),
    Figure("many.failover", "kill -9 of a broker, until all have a leader", "ms", Better.LOWER),
    Figure("many.controller", "kill -9 of the controller, until all have a leader", "ms", Better.LOWER),
)


@dataclass(frozen=True, slots=True)
class Plan:
    rounds: int
    produce_bytes: dict[int, int]
    java_records: int
    warm_ups: int
    latency_s: float
    kills: int
    shutdown_partitions: int


FULL = Plan(3, {1000: 1_500_000_000, 100: 400_000_000}, 500_000, 3, 10, 3, 300)
QUICK = Plan(1, {1000: 300_000_000, 100: 80_000_000}, 100_000, 2, 3, 1, 150)


class Measuring:
    """One round of one kind of cluster: parts one after the other, each for itself."""

    def __init__(self, kind: str, results: Results) -> None:
        self._kind = kind
        self._results = results

    @contextlib.contextmanager
    def part(self, *figures: str) -> Iterator[Samples]:
        """What is put into the dictionary counts, also where the rest fails."""
        samples: Samples = {}
        print(f"{time.strftime('%H:%M:%S')} {self._kind}: {', '.join(figures)}", file=sys.stderr, flush=True)
        try:
            yield samples
        except Exception as error:
            missing = [figure for figure in figures if figure not in samples]
            # What a node said before it failed may be long.
            print(f"{self._kind}: {', '.join(missing)} failed: {error!r}", file=sys.stderr, flush=True)
            reason = next(iter(str(error).splitlines()), "")
            self._results.miss(self._kind, missing, f"{', '.join(missing)}: {type(error).__name__}: {reason}")
        self._results.add(self._kind, samples)


def measure_round(
    cluster: BrokerCluster, measuring: Measuring, plan: Plan, distribution: KafkaDistribution, only: set[str]
) -> None:
    numbers = itertools.count()

    def topic() -> str:
        return f"load-{next(numbers)}"

    if only & {"produce", "ack"}:
        with measuring.part("warm-up"):
            for _ in range(plan.warm_ups):
                for record_bytes, total_bytes in plan.produce_bytes.items():
                    with throw_away_topic(cluster, topic()) as name:
                        cluster_loads.produce(cluster, name, record_bytes, total_bytes // 2)
    if "produce" in only:
        for title, record_bytes in (("1kb", 1000), ("100b", 100)):
            os.sync()
            with (
                measuring.part(f"produce.{title}", f"cpu.{title}") as samples,
                throw_away_topic(cluster, topic()) as name,
            ):
                found = cluster_loads.produce(cluster, name, record_bytes, plan.produce_bytes[record_bytes])
                samples |= {f"produce.{title}": found.mb_per_s, f"cpu.{title}": found.cpu_s_per_gb}
                if title == "1kb":
                    samples |= {"lag": found.lag_mb, "lag.max": found.lag_mb_max}
        with measuring.part("produce.java") as samples, throw_away_topic(cluster, topic()) as name:
            port = next(iter(cluster.brokers.values())).port
            samples["produce.java"] = kafka_tools.producer_mb_per_s(
                distribution, port, name, 1000, plan.java_records, "all"
            )
    if "ack" in only:
        os.sync()
        with measuring.part("ack.p50", "ack.p99") as samples, throw_away_topic(cluster, topic()) as name:
            latency = cluster_loads.acknowledgement(cluster, name, 1000, plan.latency_s, 1.0)
            samples |= {"ack.p50": latency.p50, "ack.p99": latency.p99}
    if "produce" in only:
        with measuring.part("memory") as samples:
            samples["memory"] = many_partitions.cluster_memory_mb(cluster)
    if "kill" in only:
        chosen: tuple[tuple[str, Callable[[], object]], ...] = (
            ("kill.leader", lambda: failover.leader_that_does_not_control(cluster)),
            ("kill.controller", cluster.controller),
        )
        for figure, choose in chosen:
            for _ in range(plan.kills):
                with measuring.part(figure) as samples:
                    samples[figure] = failover.unavailability(cluster, topic(), choose) * 1000  # type: ignore[arg-type]
                cluster.start()
    if "shutdown" in only:
        with measuring.part("shutdown", "shutdown.gap") as samples:
            left = failover.controlled_shutdown(cluster, topic(), plan.shutdown_partitions)
            samples |= {"shutdown": left.exit_s * 1000 / left.led, "shutdown.gap": left.gap_s * 1000}
            if left.exit_s * 1000 / left.led > SHUTDOWN_MS_MAX:
                print(
                    f"controlled shutdown of {left.led} partitions took {left.exit_s:.1f} s", file=sys.stderr
                )


def measure_many(cluster: BrokerCluster, measuring: Measuring, partitions: int) -> None:
    with measuring.part(*(figure.id for figure in MANY)) as samples:
        found = many_partitions.measure(cluster, partitions)
        samples |= {
            "many.create": found.create_s,
            "many.start": found.start_s,
            "many.memory": found.memory_mb,
            "many.failover": found.failover_ms,
            "many.controller": found.controller_failover_ms,
        }


def make_cluster(kind: str, distribution: KafkaDistribution, settings: dict[str, str]) -> NodeCluster:
    """Settings of both as they ship, but for these."""
    return NodeCluster(distribution, NODES if kind == KAFKA else (), settings=settings)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.cluster", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--rounds", type=int, help="of each cluster")
    parser.add_argument("--kills", type=int, help="of either kind, per round")
    parser.add_argument(
        "--only", default="produce,ack,kill,shutdown", help="of these parts: %(default)s (default: all)"
    )
    parser.add_argument("--partitions", type=int, help="instead of all that: so many, as 10000")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="for all nodes")
    parser.add_argument("--ottla-only", action="store_true", help="without Apache Kafka")
    parser.add_argument("--json", type=Path, help="write all samples there")
    options = parser.parse_args(arguments)
    try:
        distribution = kafka_peer.fetch()
    except PeerUnavailable as reason:
        print(f"Apache Kafka is not to be had: {reason}", file=sys.stderr)
        return 1
    kinds = (OTTLA,) if options.ottla_only else (OTTLA, KAFKA)
    plan = QUICK if options.quick else FULL
    rounds = options.rounds or (1 if options.partitions else plan.rounds)
    if options.kills is not None:
        plan = Plan(**{**{name: getattr(plan, name) for name in Plan.__slots__}, "kills": options.kills})
    settings = {"min.insync.replicas": MIN_IN_SYNC, **dict(each.split("=", 1) for each in options.set)}
    results = Results(kinds)
    for number in range(rounds):
        for kind in kinds if number % 2 == 0 else kinds[::-1]:
            measuring = Measuring(kind, results)
            with measuring.part("start"), make_cluster(kind, distribution, settings) as cluster:
                if options.partitions:
                    measure_many(cluster, measuring, options.partitions)
                else:
                    measure_round(cluster, measuring, plan, distribution, {*options.only.split(",")})
    figures = MANY if options.partitions else FIGURES
    measured = [figure for figure in figures if any(results.of(kind, figure.id) for kind in kinds)]
    gaps = {figure for kind in kinds for figure in results.gaps.get(kind, {})}
    shown = [figure for figure in figures if figure in measured or figure.id in gaps]
    print_table(results, shown)
    print(f"controlled shutdown is to take less than {SHUTDOWN_MS_MAX:g} ms per partition")
    if options.json:
        options.json.write_text(as_json(results, shown, machine()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
