"""`python -m bench.streams_latency`: from a record in to its result out, beside Kafka Streams.

A hundred records a second go through an application that changes each, and through one that counts words;
every contender and guarantee runs alone on a fresh broker. The clock of a record starts when it is handed to
the producer, and stops when a `read_committed` reader has its result. Of Ottla the mean time of each phase of
a micro-batch is shown too.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from bench import kafka_peer
from bench.admin import create_topic
from bench.brokers import BrokerFailed, BrokerKind, ottla, running
from bench.latency import percentile
from bench.maven import PeerUnavailable
from bench.report import print_aligned
from bench.word_count.contenders import kafka_streams_command

HERE = Path(__file__).resolve().parent
SOURCE, TARGET = "in", "out"
PARTITIONS = 4
START_TIMEOUT_S = 180
DRAIN_TIMEOUT_S = 30
# Below both of them is what was aimed at: the median of stateless and stateful applications.
TARGETS_MS = {"stateless": 200, "stateful": 350, "tasks": 350}
GUARANTEES = ("exactly_once_v2", "at_least_once")
ENGINES = ("ottla", "kafka-streams")
# Of a micro-batch: Spark's names, and those of the writer inside addBatch.
PHASES = ("latestOffset", "queryPlanning", "walCommit", "addBatch", "commitOffsets", "commitBatch")
WRITER_PHASES = ("begin", "job", "produce", "commit")


class NotMeasured(Exception):
    """A contender ended, or results did not come; the text says what is known."""


@dataclass(frozen=True, slots=True)
class Result:
    waits_ns: list[int]
    phases_ms: dict[str, float]
    rows_per_batch: float


class Arrivals:
    """When the result of each record was there to be read."""

    def __init__(self, port: int) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": f"127.0.0.1:{port}",
                "group.id": "watcher",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 500,
            }
        )
        self._consumer.assign([TopicPartition(TARGET, index, 0) for index in range(PARTITIONS)])
        self.at_ns: dict[str, int] = {}
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while not self._is_closed.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                # Counts have the word as their key, changed records have it as their value.
                word = (message.key() or message.value() or b"").decode(errors="replace").lower()
                self.at_ns.setdefault(word, time.monotonic_ns())

    def close(self) -> None:
        self._is_closed.set()
        self._thread.join()
        self._consumer.close()


def command(engine: str) -> list[str]:
    if engine == "ottla":
        return [sys.executable, str(HERE / "with_ottla.py")]
    return kafka_streams_command(HERE / "Latency.java")


def measure(kind: BrokerKind, engine: str, guarantee: str, pipeline: str, options: Any) -> Result:
    begin = command(engine)
    with (
        running(kind) as broker,
        tempfile.TemporaryDirectory(prefix="ottla-bench-", ignore_cleanup_errors=True) as home,
    ):
        for topic in (SOURCE, TARGET):
            create_topic(broker.port, topic, PARTITIONS)
        argv = [*begin, f"127.0.0.1:{broker.port}", SOURCE, TARGET, f"{home}/state", guarantee, pipeline]
        if engine == "ottla":
            argv += options.conf
        output = Path(home, "output")
        with output.open("wb") as sink:
            program = subprocess.Popen(argv, stdout=sink, stderr=subprocess.STDOUT)
        arrivals = Arrivals(broker.port)
        try:
            sent = _send(broker.port, arrivals, program, options)
        except NotMeasured as error:
            raise NotMeasured(f"{error}\n{output.read_text(errors='replace')[-1500:]}") from None
        finally:
            arrivals.close()
            _stop(program)
        waits = sorted(arrivals.at_ns[word] - at_ns for word, at_ns in sent.items())
        return Result(waits, *_phases(output, time.time() - options.seconds - DRAIN_TIMEOUT_S))


def _send(port: int, arrivals: Arrivals, program: subprocess.Popen[bytes], options: Any) -> dict[str, int]:
    """The records that count, with the time of each: those after the warm-up."""
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}", "linger.ms": 0})
    _until(lambda: _probe(producer, arrivals), program, START_TIMEOUT_S, "no first result")
    sent: dict[str, int] = {}
    begin_s = time.monotonic()
    for number in range(int(options.rate * (options.warm_up + options.seconds))):
        due_s = begin_s + number / options.rate
        time.sleep(max(0.0, due_s - time.monotonic()))
        word = f"w{number}"
        if due_s - begin_s >= options.warm_up:
            sent[word] = time.monotonic_ns()
        producer.produce(SOURCE, word)
        producer.poll(0)
    _until(lambda: sent.keys() <= arrivals.at_ns.keys(), program, DRAIN_TIMEOUT_S, "results are missing")
    return sent


def _probe(producer: Producer, arrivals: Arrivals) -> bool:
    if not arrivals.at_ns:
        producer.produce(SOURCE, f"probe{time.monotonic_ns()}")
        producer.flush(1)
        time.sleep(0.5)
    return bool(arrivals.at_ns)


def _until(condition: Any, program: subprocess.Popen[bytes], timeout_s: float, missing: str) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if program.poll() is not None:
            raise NotMeasured(f"ended with status {program.returncode}: {missing}")
        if time.monotonic() > deadline:
            raise NotMeasured(f"not in time: {missing}")
        time.sleep(0.05)


def _stop(program: subprocess.Popen[bytes]) -> None:
    program.terminate()
    try:
        program.wait(20)
    except subprocess.TimeoutExpired:
        program.kill()
        program.wait()


def _phases(output: Path, since_s: float) -> tuple[dict[str, float], float]:
    """The means over the micro-batches of the measured time."""
    told: list[dict[str, Any]] = []
    for line in output.read_text(errors="replace").splitlines():
        if line.startswith('{"time_s"'):
            told.append(json.loads(line))
    told = [each for each in told if each["time_s"] >= since_s]
    sums: dict[str, float] = defaultdict(float)
    for each in told:
        for phase, milliseconds in each["phases"].items():
            sums[phase] += milliseconds / len(told)
    return dict(sums), sum(each["rows"] for each in told) / max(1, len(told))


def main() -> int:
    options = _parse()
    try:
        kind: BrokerKind = kafka_peer.ApacheKafka(kafka_peer.fetch()) if options.kafka else ottla()
    except PeerUnavailable as error:
        print(error, file=sys.stderr)
        return 1
    print(f"load of the machine before: {os.getloadavg()[0]:.2f}", file=sys.stderr)
    table = [["application", "guarantee", "engine", "p50 ms", "p99 ms", "p99/p50", "aim p50"]]
    phases = [["application", "guarantee", "rows", *PHASES, *(f"({name})" for name in WRITER_PHASES)]]
    for pipeline in options.pipeline or ("stateless", "stateful"):
        for guarantee in options.guarantee or GUARANTEES:
            for engine in options.engine or ENGINES:
                print(f"{engine}, {pipeline}, {guarantee} …", file=sys.stderr)
                try:
                    result = measure(kind, engine, guarantee, pipeline, options)
                except (BrokerFailed, NotMeasured, PeerUnavailable) as error:
                    print(f"not measured: {error}", file=sys.stderr)
                    continue
                p50, p99 = (percentile(result.waits_ns, share) / 1e6 for share in (0.5, 0.99))
                aim = f"≤ {TARGETS_MS[pipeline]}" if engine == "ottla" else ""
                table.append(
                    [pipeline, guarantee, engine, f"{p50:.0f}", f"{p99:.0f}", f"{p99 / p50:.1f}", aim]
                )
                if engine == "ottla":
                    means = [f"{result.phases_ms.get(name, 0):.0f}" for name in (*PHASES, *WRITER_PHASES)]
                    phases.append([pipeline, guarantee, f"{result.rows_per_batch:.0f}", *means])
    print_aligned(table, 3)
    print("\nmean milliseconds by phase of a micro-batch; those in brackets are within addBatch")
    print_aligned(phases, 2)
    print(f"load of the machine after: {os.getloadavg()[0]:.2f}", file=sys.stderr)
    return 0


def _parse() -> Any:
    parser = argparse.ArgumentParser(prog="python -m bench.streams_latency", description=__doc__)
    parser.add_argument("--rate", type=int, default=100, help="records per second")
    parser.add_argument("--seconds", type=float, default=60, help="of measuring")
    parser.add_argument("--warm-up", type=float, default=20, help="seconds before it")
    parser.add_argument("--engine", action="append", choices=ENGINES)
    parser.add_argument("--guarantee", action="append", choices=GUARANTEES)
    parser.add_argument(
        "--pipeline",
        action="append",
        choices=list(TARGETS_MS),
        help="tasks, which only Ottla has, count in a function instead of Spark's own aggregation",
    )
    parser.add_argument("--conf", action="append", default=[], help="a setting of Spark, KEY=VALUE")
    parser.add_argument("--kafka", action="store_true", help="over Apache Kafka instead of Ottla")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
