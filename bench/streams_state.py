"""What state costs: records per second, CPU time and memory of stream tasks with much state, on Spark.

    python -m bench.streams_state                                    # 200,000 records over 10,000 keys
    python -m bench.streams_state --keys 1000000 --records 1000000   # a state of a million keys

Three loads, each over an Ottla broker and on one Spark session: `reduce` adds up the values of a key with a
Python function, `window` does so in tumbling windows of a minute, and `join` looks every record up in a table
that has a row for each key. Each load first runs as long without being measured, because Java compiles code
as it runs, or longer, until the state has every key. The CPU time is that of Spark and
its Python workers, in microseconds per record; on a busy machine it says more than the rate. Memory is the
most that any single Python worker held for itself, and what Java held; the state's size is that of Spark's
checkpoint on disk.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.admin import create_topic
from bench.brokers import ottla, running
from bench.filling import ANY_PARTITION, fill
from bench.process import command_line, memory_alone, process_tree
from bench.report import print_aligned
from bench.spark_source import cpu_seconds
from ottla.spark.session import spark_session
from ottla.streams import Consumed, Materialized, Produced, StreamsBuilder, TimeWindows, Topology
from ottla.streams.run import StreamsApplication, StreamsConfig

PARTITIONS = 4
TIMEOUT_S = 600
WINDOW_MS = 60_000
SAMPLE_INTERVAL_S = 0.1
MIB = 1024 * 1024


def _add(total: int, value: int) -> int:
    return total + value


def _fold(key: str, value: int, total: int) -> int:
    return total + value


def _pair(value: int, row: int) -> str:
    return f"{value} of {row}"


def reduced(name: str) -> Topology:
    builder = StreamsBuilder()
    totals = builder.stream(f"{name}-in", Consumed.with_(str, int)).group_by_key().reduce(_add)
    totals.to_stream().to(f"{name}-out", Produced.with_(str, int))
    return builder.build()


def windowed(name: str) -> Topology:
    builder = StreamsBuilder()
    windows = TimeWindows.of_size_with_no_grace(WINDOW_MS)
    grouped = builder.stream(f"{name}-in", Consumed.with_(str, int)).group_by_key().windowed_by(windows)
    totals = grouped.aggregate(int, _fold, Materialized.with_(str, int))
    totals.to_stream(lambda key, value: key.key).to(f"{name}-out", Produced.with_(str, int))
    return builder.build()


def joined(name: str) -> Topology:
    builder = StreamsBuilder()
    table = builder.table(f"{name}-table", Consumed.with_(str, int))
    stream = builder.stream(f"{name}-in", Consumed.with_(str, int))
    stream.join(table, _pair).to(f"{name}-out", Produced.with_(str, str))
    return builder.build()


LOADS = {"reduce": reduced, "window": windowed, "join": joined}


class Peaks:
    """The most memory a Python worker, and Java, held while it watched."""

    def __init__(self, machine: int) -> None:
        self._machine = machine
        self.worker_bytes = 0
        self.java_bytes = 0

    @contextmanager
    def watching(self) -> Iterator[None]:
        done = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(done,), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()

    def _watch(self, done: threading.Event) -> None:
        while not done.wait(SAMPLE_INTERVAL_S):
            for member in process_tree(self._machine):
                if member == self._machine:
                    self.java_bytes = max(self.java_bytes, memory_alone(member).private)
                elif _is_worker(member):
                    self.worker_bytes = max(self.worker_bytes, memory_alone(member).private)


def _is_worker(pid: int) -> bool:
    return "python" in command_line(pid).partition(" ")[0]


def _send(servers: str, topic: str, keys: Iterator[int]) -> int:
    settings: dict[str, str | int] = {"bootstrap.servers": servers, "partitioner": "murmur2_random"}
    rows = (
        (topic, (number % 100).to_bytes(8, "big"), b"user-%07d" % key, ANY_PARTITION)
        for number, key in enumerate(keys, 1)
    )
    return fill(settings, rows)


def _measure(spark: Any, port: int, name: str, options: Any, work_dir: str) -> list[str]:
    servers = f"127.0.0.1:{port}"
    for topic in (f"{name}-in", f"{name}-out", f"{name}-table"):
        create_topic(port, topic, PARTITIONS)
    config = StreamsConfig(
        name, servers, state_dir=work_dir, max_offsets_per_trigger=options.batch, trigger=None
    )
    application = StreamsApplication(LOADS[name](name), config)
    machine = spark.sparkContext._gateway.proc.pid
    chosen = random.Random(1)
    if name == "join":
        _send(servers, f"{name}-table", iter(range(options.keys)))
    random_keys = (chosen.randrange(options.keys) for _ in range(options.records))
    filling = range(options.keys) if options.keys > options.records else random_keys
    _send(servers, f"{name}-in", iter(filling))
    application.start(spark)
    try:
        application.process_all_available()
        peaks = Peaks(machine)
        (query,) = application.queries
        last = query.lastProgress["batchId"]
        before = cpu_seconds(machine)
        with peaks.watching():
            _send(servers, f"{name}-in", (chosen.randrange(options.keys) for _ in range(options.records)))
            application.process_all_available()
        spent = sum(after - before.get(pid, 0) for pid, after in cpu_seconds(machine).items())
        steps = [step for step in query.recentProgress if step["batchId"] > last and step["numInputRows"]]
    finally:
        application.stop()
    seconds = sum(step["durationMs"]["triggerExecution"] for step in steps) / 1000
    read = sum(step["numInputRows"] for step in steps)
    if read != options.records:
        raise ValueError(f"{name} read {read:,} records of {options.records:,}")
    size = sum(path.stat().st_size for path in Path(config.checkpoint_dir).rglob("*") if path.is_file())
    return [
        name,
        f"{read / seconds:,.0f}",
        f"{spent / read * 1e6:.1f}",
        f"{peaks.worker_bytes / MIB:.0f}",
        f"{peaks.java_bytes / MIB:.0f}",
        f"{size / MIB:.1f}",
        f"{len(steps)}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.streams_state", description=__doc__)
    parser.add_argument("--records", type=int, default=200_000, help="measured (%(default)s)")
    parser.add_argument("--keys", type=int, default=10_000, help="in the state (%(default)s)")
    parser.add_argument("--batch", type=int, default=200_000, help="records of a micro-batch (%(default)s)")
    parser.add_argument("--only", action="append", choices=LOADS)
    parser.add_argument("--master", default="local[*]", help="of Spark (%(default)s)")
    options = parser.parse_args()
    table = [["load", "records/s", "CPU µs/record", "worker MiB", "Java MiB", "state MiB", "batches"]]
    with running(ottla()) as broker, tempfile.TemporaryDirectory(prefix="ottla-bench-") as work_dir:
        spark = spark_session("bench", master=options.master, log_dir=work_dir)
        for name in options.only or LOADS:
            table.append(_measure(spark, broker.port, name, options, work_dir))
        spark.stop()
    print(f"{options.records:,} records over {options.keys:,} keys, {os.cpu_count()} cores")
    print_aligned(table, 1)


if __name__ == "__main__":
    main()
