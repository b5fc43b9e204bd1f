"""The comparison: the same loads against Ottla and a peer on this machine, in alternating rounds.

One broker runs at a time, freshly started on an empty data directory, so neither takes CPU or page cache
from the other; rounds alternate, so a machine that slows down in the course of a run slows both.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench import kafka_peer
from bench.admin import BrokerRefused, advertised_apis
from bench.brokers import BrokerFailed, BrokerKind, CommandBroker, ottla, running
from bench.figures import FIGURES, select
from bench.kafka_peer import ApacheKafka, KafkaDistribution
from bench.kafka_tools import ToolFailed
from bench.loads import FULL, QUICK, Load, Plan, Target, all_loads, warm_up
from bench.maven import PeerUnavailable
from bench.replay import MB
from bench.report import Results, as_json, chosen, machine, print_table
from bench.startup import IDLE_S, start_seconds

LOAD_FAILURES = (BrokerRefused, ToolFailed, OSError)
BUSY_LOAD = 1.0


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    if options.list:
        for figure in FIGURES.values():
            print(f"{figure.id:32}{figure.title} [{figure.unit}]")
        return 0
    plan = QUICK if options.quick else FULL
    plan = replace(plan, rounds=options.rounds or plan.rounds)
    try:
        wanted = select([pattern for given in options.only for pattern in given.split(",")])
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    tools = _kafka()
    kinds = _brokers(options, tools)
    load_before = os.getloadavg()[0]
    if load_before > BUSY_LOAD:
        _progress(f"this machine is busy (load average {load_before:.1f}): expect noise instead of figures")
    begin = time.monotonic()
    results = Results(tuple(kind.name for kind in kinds))
    try:
        _measure_starts(results, kinds, plan, wanted, options.work_dir)
        for number in range(plan.rounds):
            for kind in kinds if number % 2 == 0 else reversed(kinds):
                _progress(f"round {number + 1} of {plan.rounds}: {kind.name}")
                _one_round(results, kind, plan, wanted, tools, options.work_dir)
    except BrokerFailed as error:
        print(error, file=sys.stderr)
        return 1
    seconds = time.monotonic() - begin
    figures = chosen(wanted)
    print_table(results, figures)
    print(f"{plan.rounds} rounds in {seconds:.0f} s; {machine()['processor']}, {machine()['cpus']} CPUs")
    if options.json:
        about = {
            **machine(),
            "kafka": kafka_peer.VERSION,
            "load_average_before": load_before,
            "seconds": round(seconds),
            "quick": options.quick,
            "rounds": plan.rounds,
        }
        Path(options.json).write_text(as_json(results, figures, about) + "\n")
    return 0


def _one_round(
    results: Results,
    kind: BrokerKind,
    plan: Plan,
    wanted: set[str],
    tools: KafkaDistribution | None,
    work_dir: str | None,
) -> None:
    loads = [load for load in all_loads() if wanted.intersection(load.figures)]
    after_load = {"memory.loaded", "memory.private"} & wanted
    if not loads and not after_load and "memory.idle" not in wanted:
        return
    with running(kind, work_dir) as broker:
        if "memory.idle" in wanted:
            time.sleep(IDLE_S)
            results.add(kind.name, {"memory.idle": broker.memory().resident / MB})
        target = Target.of(broker, plan, tools, advertised_apis(broker.port))
        if loads or after_load:
            warm_up(target)
        for load in loads:
            _one_load(results, load, target)
        if after_load:
            after = broker.memory()
            results.add(
                kind.name, {"memory.loaded": after.resident / MB, "memory.private": after.private / MB}
            )


def _one_load(results: Results, load: Load, target: Target) -> None:
    name = target.broker.name
    obstacle = load.obstacle(target)
    if obstacle is None:
        # Otherwise the disk would write the last load back during this one.
        os.sync()
        try:
            results.add(name, load.measure(target))
            return
        except LOAD_FAILURES as error:
            obstacle = f"{load.figures[0]} failed: {error}"
            if target.broker.process.poll() is not None:
                raise BrokerFailed(f"{name} ended during {load.figures[0]}") from error
    _progress(f"  {obstacle}")
    results.miss(name, load.figures, obstacle)


def _measure_starts(
    results: Results, kinds: Sequence[BrokerKind], plan: Plan, wanted: set[str], work_dir: str | None
) -> None:
    if "start" not in wanted:
        return
    for kind in kinds:
        runs = plan.peer_starts if isinstance(kind, ApacheKafka) else plan.starts
        _progress(f"start time: {kind.name}, {runs} starts")
        times = start_seconds(kind, runs, work_dir)
        _progress(f"  median {statistics.median(times):.2f} s")
        for seconds in times:
            results.add(kind.name, {"start": seconds})


def _brokers(options: argparse.Namespace, tools: KafkaDistribution | None) -> list[BrokerKind]:
    kinds: list[BrokerKind] = [ottla(options.ottla_command)]
    if options.peer_command:
        kinds.append(CommandBroker("peer", options.peer_command))
    elif tools is not None and not options.alone:
        kinds.append(ApacheKafka(tools))
    return kinds


def _kafka() -> KafkaDistribution | None:
    try:
        return kafka_peer.fetch()
    except PeerUnavailable as reason:
        print(f"skipping Apache Kafka and its tools: {reason}", file=sys.stderr)
        return None


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round, under two minutes")
    parser.add_argument("--rounds", type=int, help="rounds per broker")
    parser.add_argument("--only", action="append", default=[], help="figures by id, part or pattern")
    parser.add_argument("--list", action="store_true", help="print the ids of all figures and stop")
    parser.add_argument("--json", metavar="FILE", help="write samples, medians and ratios there too")
    parser.add_argument("--work-dir", help="where data directories are created and removed")
    parser.add_argument("--alone", action="store_true", help="measure Ottla without a peer")
    parser.add_argument("--ottla-command", help="another command instead of `ottla start …`; {port}, {dir}")
    parser.add_argument("--peer-command", help="another peer instead of Apache Kafka; {port}, {dir}")
    return parser.parse_args(arguments)
