"""Rows per second that Spark reads from topics, as ratios to the source of Spark's own Kafka connector.

    python -m bench.spark_source                    # from an Ottla broker
    python -m bench.spark_source --broker kafka     # from Apache Kafka

Both sources take turns: the same topic, one session, one broker. Records have a key and a value of 50 to 150
bytes, written by librdkafka with its default settings. Three loads: `copy` hands every row to a sink that
drops it, `sum` looks into each key, value and timestamp; `stream` does so in micro-batches. Both
sources have their default settings. The CPU time is that of Spark and its Python workers, in microseconds per
row; on a busy machine it says more than the rate.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.admin import create_topic
from bench.brokers import ottla, running
from bench.filling import fill
from bench.kafka_peer import ApacheKafka
from bench.kafka_peer import fetch as fetch_kafka
from bench.maven import CACHE, PeerUnavailable, fetch_jars
from bench.process import process_tree
from bench.spark_sink import CONNECTOR, CONNECTOR_VERSION
from ottla.spark.session import spark_session

TOPIC = "rows"
VALUE_BYTES = (50, 150)
STEPS = 8
TIMEOUT_S = 600
SOURCES = {"ottla": "ottla", "kafka": "Spark's Kafka source"}
SUMS = ("count(*)", "sum(length(key))", "sum(length(value))", "max(timestamp)", "max(offset)")

Load = Callable[[Any, str, dict[str, str], int, str], float]
"""(spark, format, options, rows, work dir) → rows per second."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Rows per second read from topics into Spark.")
    parser.add_argument("--broker", choices=("ottla", "kafka"), default="ottla")
    parser.add_argument("--rows", type=int, default=4_000_000, help="in the topic (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each source (%(default)s)")
    parser.add_argument("--partitions", type=int, default=4, help="of the topic (%(default)s)")
    parser.add_argument("--codec", default="none", help="of the records (%(default)s)")
    parser.add_argument("--master", default="local[*]", help="of Spark (%(default)s)")
    arguments = parser.parse_args()
    settings = {}
    sources = list(SOURCES)
    try:
        home = CACHE / "spark-kafka" / CONNECTOR_VERSION
        libs = fetch_jars(home, "Spark's Kafka connector", *CONNECTOR, alone=True)
        settings["spark.jars"] = ",".join(str(jar) for jar in sorted(libs.iterdir()))
    except PeerUnavailable as reason:
        print(f"no peer: {reason}")
        sources.remove("kafka")
    kind = ottla() if arguments.broker == "ottla" else ApacheKafka(fetch_kafka())
    with running(kind) as broker, tempfile.TemporaryDirectory() as work_dir:
        servers = f"127.0.0.1:{broker.port}"
        create_topic(broker.port, TOPIC, arguments.partitions)
        _fill(servers, arguments.rows, arguments.partitions, arguments.codec)
        spark = spark_session("bench", master=arguments.master, settings=settings, log_dir=work_dir)
        options = {"kafka.bootstrap.servers": servers, "subscribe": TOPIC, "startingOffsets": "earliest"}
        machine = spark.sparkContext._gateway.proc.pid
        rates: dict[tuple[str, str], list[float]] = {}
        costs: dict[tuple[str, str], list[float]] = {}
        # The first round only warms up: code is compiled and Python workers are started in it.
        for turn in range(arguments.rounds + 1):
            for source in sources[:: -1 if turn % 2 else 1]:
                for name, load in LOADS.items():
                    before = cpu_seconds(machine)
                    rate = load(spark, source, options, arguments.rows, f"{work_dir}/{source}-{name}-{turn}")
                    spent = sum(after - before.get(pid, 0) for pid, after in cpu_seconds(machine).items())
                    cost = spent / arguments.rows * 1_000_000
                    if turn:
                        rates.setdefault((name, source), []).append(rate)
                        costs.setdefault((name, source), []).append(cost)
                        figures = f"{rate / 1000:8.0f} thousand rows/s{cost:8.2f} µs/row"
                        print(f"{name:8}{SOURCES[source]:24}{figures}", flush=True)
        spark.stop()
    _report(rates, costs, arguments.broker)


def cpu_seconds(pid: int) -> dict[int, float]:
    """Of a process and its descendants, each with those of its children that ended: workers come and go."""
    seconds = {}
    for member in process_tree(pid):
        try:
            fields = Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        seconds[member] = sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")
    return seconds


def _fill(servers: str, row_count: int, partitions: int, codec: str) -> None:
    chosen = random.Random(1)
    letters = bytes(chosen.choices(b"abcdefghijklmnopqrstuvwxyz    ", k=VALUE_BYTES[1]))
    rows = (
        (TOPIC, letters[: chosen.randint(*VALUE_BYTES)], b"key-%d" % n, n % partitions)
        for n in range(row_count)
    )
    fill({"bootstrap.servers": servers, "compression.type": codec}, rows)


def _copy(spark: Any, source: str, options: dict[str, str], rows: int, work_dir: str) -> float:
    begin = time.monotonic()
    spark.read.format(source).options(**options).load().write.format("noop").mode("overwrite").save()
    return rows / (time.monotonic() - begin)


def _sum(spark: Any, source: str, options: dict[str, str], rows: int, work_dir: str) -> float:
    begin = time.monotonic()
    (found,) = spark.read.format(source).options(**options).load().selectExpr(*SUMS).collect()
    seconds = time.monotonic() - begin
    if found[0] != rows:
        raise ValueError(f"{source} read {found[0]} rows of {rows}")
    return rows / seconds


def _stream(spark: Any, source: str, options: dict[str, str], rows: int, work_dir: str) -> float:
    """By the median micro-batch; what starting a query costs is not counted."""
    frame = spark.readStream.format(source).options(**options, maxOffsetsPerTrigger=rows // STEPS).load()
    query = (
        frame.selectExpr("length(key) as k", "length(value) as v", "timestamp", "offset")
        .writeStream.format("noop")
        .option("checkpointLocation", work_dir)
        .trigger(availableNow=True)
        .start()
    )
    if not query.awaitTermination(TIMEOUT_S):
        raise TimeoutError(f"the stream took more than {TIMEOUT_S} s")
    steps = [step for step in query.recentProgress if step["numInputRows"]]
    if sum(step["numInputRows"] for step in steps) != rows:
        raise ValueError(f"{source} streamed {sum(step['numInputRows'] for step in steps)} rows of {rows}")
    rates = [step["numInputRows"] / step["durationMs"]["triggerExecution"] * 1000 for step in steps[1:]]
    return statistics.median(rates)


LOADS: dict[str, Load] = {"copy": _copy, "sum": _sum, "stream": _stream}


Samples = dict[tuple[str, str], list[float]]


def _report(rates: Samples, costs: Samples, broker: str) -> None:
    print(f"\n{'from ' + broker:32}{'thousand rows/s':>16}   ratio   CPU µs/row   (cores: {os.cpu_count()})")
    for name in LOADS:
        peer = rates.get((name, "kafka"))
        for source, title in SOURCES.items():
            if samples := rates.get((name, source)):
                median = statistics.median(samples)
                ratio = f"{median / statistics.median(peer):5.2f}" if peer else "    –"
                spread = f"({min(samples) / 1000:.0f} – {max(samples) / 1000:.0f})"
                cost = statistics.median(costs[name, source])
                print(f"{name:8}{title:24}{median / 1000:16.0f}   {ratio}   {cost:10.2f}   {spread}")


if __name__ == "__main__":
    main()
