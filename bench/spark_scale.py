"""What a record costs as the data grows, and as Spark does: topic → Spark cluster → topic, exactly once.

    python -m bench.spark_scale                                  # 1 and 2 executors, 1 GB
    python -m bench.spark_scale --gigabytes 1 10 --executors 2   # ten times the data

Executors have one core each and are processes of their own, as are the master and the workers of the
cluster. Records have values of 500 bytes. The CPU time is that of the executors and their Python workers; it
should stay the same per record. What the broker and the driver need comes on top, on the same cores.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from pathlib import Path
from typing import Any

from bench import encoding
from bench.admin import create_topic
from bench.brokers import ottla, running
from bench.process import cpu_seconds, memory
from bench.replay import send_batches
from bench.report import print_aligned
from bench.spark_cluster import SparkCluster, spark_cluster
from ottla.spark.session import spark_session
from ottla.spark.sink import write_stream

PARTITIONS = 4
VALUE_BYTES = 500
RECORDS_PER_BATCH = 500
BATCHES_DISTINCT = 32
ROWS_PER_MICRO_BATCH = 400_000
WARM_UP_GB = 0.5
TIMEOUT_S = 1800
MIB = 1024 * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description="Cost per record as the data grows, and as Spark does.")
    parser.add_argument(
        "--gigabytes", type=float, nargs="+", default=[1.0], help="in the topic (%(default)s)"
    )
    parser.add_argument(
        "--executors", type=int, nargs="+", default=[1, 2], help="one core each (%(default)s)"
    )
    arguments = parser.parse_args()
    rows = []
    for executors in arguments.executors:
        with (
            tempfile.TemporaryDirectory(prefix="ottla-bench-", ignore_cleanup_errors=True) as home,
            spark_cluster(Path(home), executors) as cluster,
        ):
            spark = spark_session("scale", master=cluster.master, log_dir=home)
            pipe(spark, cluster, WARM_UP_GB, home)
            for gigabytes in arguments.gigabytes:
                figures = pipe(spark, cluster, gigabytes, home)
                rows.append([str(executors), f"{gigabytes:g}", *figures])
                print(*rows[-1], flush=True)
            spark.stop()
    head = ["executors", "GB", "records/s", "MB/s", "CPU µs/record", "executor MiB"]
    print(f"(cores: {os.cpu_count()})")
    print_aligned([head, *rows])


def pipe(spark: Any, cluster: SparkCluster, gigabytes: float, home: str) -> list[str]:
    """Records and megabytes per second, CPU time per record, memory of the largest executor."""
    batch_count = int(gigabytes * 1e9 / VALUE_BYTES / RECORDS_PER_BATCH)
    record_count = batch_count * RECORDS_PER_BATCH
    with running(ottla()) as broker:
        for topic in ("from", "to"):
            create_topic(broker.port, topic, PARTITIONS)
        send_batches(broker.port, frames(), batch_count)
        servers = f"127.0.0.1:{broker.port}"
        source = spark.readStream.format("ottla").option("kafka.bootstrap.servers", servers)
        source = source.option("subscribe", "from").option("startingOffsets", "earliest")
        source = source.option("maxOffsetsPerTrigger", ROWS_PER_MICRO_BATCH)
        cpu_before = _cpu(cluster)
        begin = time.monotonic()
        query = write_stream(
            source.load().select("key", "value"),
            application_id="scale",
            bootstrap_servers=servers,
            topic="to",
            checkpoint=f"{home}/checkpoint-{begin}",
            trigger={"availableNow": True},
        )
        if not query.awaitTermination(TIMEOUT_S):
            raise TimeoutError(f"{gigabytes} GB took more than {TIMEOUT_S} s")
        seconds = time.monotonic() - begin
        written = sum(step["numInputRows"] for step in query.recentProgress)
        if len(query.recentProgress) < 100 and written != record_count:
            raise ValueError(f"{written} rows of {record_count} came through")
        cpu = _cpu(cluster) - cpu_before
        memory_max = max(memory(pid).private for pid in cluster.executors())
    return [
        f"{record_count / seconds:,.0f}",
        f"{record_count * VALUE_BYTES / seconds / 1e6:.0f}",
        f"{cpu / record_count * 1e6:.2f}",
        f"{memory_max / MIB:.0f}",
    ]


def frames() -> list[bytes]:
    chance = random.Random(1)
    made = []
    for index in range(BATCHES_DISTINCT):
        values = [chance.randbytes(VALUE_BYTES // 2).hex().encode() for _ in range(RECORDS_PER_BATCH)]
        batch = encoding.record_batch(values, int(time.time() * 1000))
        made.append(encoding.produce_frame("from", index % PARTITIONS, batch, encoding.ACKS_ALL))
    return made


def _cpu(cluster: SparkCluster) -> float:
    return sum(cpu_seconds(pid) for pid in cluster.executors())


if __name__ == "__main__":
    main()
