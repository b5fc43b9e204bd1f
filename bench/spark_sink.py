"""Rows per second that Spark writes into topics, as ratios to the sink of Spark's own Kafka connector.

    python -m bench.spark_sink                    # over an Ottla broker
    python -m bench.spark_sink --broker kafka     # over Apache Kafka

Ottla's exactly-once writer, Ottla's plain sink and the connector's, which both write at least once, take
turns: the same rows, from the same source, in one session, to one broker. A row has a key and a value of
100 bytes; the source computes them, so that as little as possible but the sink is measured. The connector
has its default settings. What counts is the time of a whole micro-batch, transaction and offset log included.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

from bench.admin import create_topic, delete_topic
from bench.brokers import ottla, running
from bench.kafka_peer import ApacheKafka
from bench.kafka_peer import fetch as fetch_kafka
from bench.maven import CACHE, PeerUnavailable, fetch_jars
from ottla.spark.session import spark_session
from ottla.spark.sink import write_stream

# The newest that Maven's central repository has of each; they work with the Spark that is a release newer.
CONNECTOR_VERSION = "4.2.0"
CONNECTOR = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{CONNECTOR_VERSION}",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.1.0-preview1",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.12.1",
)
VALUE_BYTES = 100
TIMEOUT_S = 600
EXACTLY_ONCE = "ottla, exactly once"
PLAIN = "ottla, at least once"
PEER = "Spark's Kafka sink, at least once"

Start = Callable[[Any, str, str], Any]
"""(rows, topic, checkpoint) → a running query."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Rows per second written from Spark into topics.")
    parser.add_argument("--broker", choices=("ottla", "kafka"), default="ottla")
    parser.add_argument("--rows", type=int, default=500_000, help="per micro-batch (%(default)s)")
    parser.add_argument("--batches", type=int, default=4, help="measured per round (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each sink (%(default)s)")
    parser.add_argument("--partitions", type=int, default=4, help="of each topic (%(default)s)")
    parser.add_argument("--master", default="local[*]", help="of Spark (%(default)s)")
    arguments = parser.parse_args()
    jars = ""
    try:
        home = CACHE / "spark-kafka" / CONNECTOR_VERSION
        libs = fetch_jars(home, "Spark's Kafka connector", *CONNECTOR, alone=True)
        jars = ",".join(str(jar) for jar in sorted(libs.iterdir()))
    except PeerUnavailable as reason:
        print(f"no peer: {reason}")
    kind = ottla() if arguments.broker == "ottla" else ApacheKafka(fetch_kafka())
    with running(kind) as broker, tempfile.TemporaryDirectory() as work_dir:
        servers = f"127.0.0.1:{broker.port}"
        settings = {"spark.jars": jars} if jars else {}
        spark = spark_session("bench", master=arguments.master, settings=settings, log_dir=work_dir)
        sinks = _sinks(servers) if jars else {k: v for k, v in _sinks(servers).items() if k != PEER}
        rates: dict[str, list[float]] = {name: [] for name in sinks}
        for turn in range(arguments.rounds):
            # There and back, so that a machine that gets slower meanwhile slows all alike.
            for name in list(sinks)[:: -1 if turn % 2 else 1]:
                topic = f"sink-{turn}-{list(sinks).index(name)}"
                create_topic(broker.port, topic, arguments.partitions)
                rows = _rows(spark, arguments.rows)
                query = sinks[name](rows, topic, f"{work_dir}/{topic}")
                rate = _measure(query, arguments.batches, arguments.rows)
                rates[name].append(rate)
                print(f"{name:36} {rate / 1000:8.0f} thousand rows/s", flush=True)
                delete_topic(broker.port, topic)
        spark.stop()
    _report(rates, arguments.broker)


def _sinks(servers: str) -> dict[str, Start]:
    def exactly_once(rows: Any, topic: str, checkpoint: str) -> Any:
        return write_stream(
            rows, application_id=topic, bootstrap_servers=servers, topic=topic, checkpoint=checkpoint
        )

    def plain(source: str) -> Start:
        def start(rows: Any, topic: str, checkpoint: str) -> Any:
            writer = rows.writeStream.format(source).option("kafka.bootstrap.servers", servers)
            return writer.option("topic", topic).option("checkpointLocation", checkpoint).start()

        return start

    return {EXACTLY_ONCE: exactly_once, PLAIN: plain("ottla"), PEER: plain("kafka")}


def _rows(spark: Any, row_count: int) -> Any:
    cores = spark.sparkContext.defaultParallelism
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", row_count)
    numbers = source.option("numPartitions", cores).load()
    return numbers.selectExpr(
        "cast(value as string) as key",
        f"concat(repeat('x', {VALUE_BYTES - 20}), lpad(cast(value as string), 20, '0')) as value",
    )


def _measure(query: Any, batches: int, rows_per_batch: int) -> float:
    """Rows per second, by the median micro-batch; the first two only warm up."""
    deadline = time.monotonic() + TIMEOUT_S
    while query.isActive and (query.lastProgress is None or query.lastProgress["batchId"] < batches + 1):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{batches + 2} micro-batches took more than {TIMEOUT_S} s")
        time.sleep(0.1)
    progress = query.recentProgress
    failure = query.exception()
    query.stop()
    if failure is not None:
        raise failure
    done = {entry["batchId"]: entry for entry in progress if entry["numInputRows"]}
    took_ms = [
        done[batch]["durationMs"]["triggerExecution"] for batch in range(2, batches + 2) if batch in done
    ]
    return rows_per_batch / statistics.median(took_ms) * 1000


def _report(rates: dict[str, list[float]], broker: str) -> None:
    print(f"\n{'over ' + broker:36} {'thousand rows/s':>16}   ratio   (cores: {os.cpu_count()})")
    peer = statistics.median(rates[PEER]) if rates.get(PEER) else None
    for name, samples in rates.items():
        median = statistics.median(samples)
        ratio = f"{median / peer:5.2f}" if peer else "    –"
        spread = f"({min(samples) / 1000:.0f} – {max(samples) / 1000:.0f})"
        print(f"{name:36} {median / 1000:16.0f}   {ratio}   {spread}")


if __name__ == "__main__":
    main()
