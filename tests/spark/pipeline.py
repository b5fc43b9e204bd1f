"""A pipeline topic → Spark → topic, as a program: run, killed and run again by the tests.

It passes on every value that is no multiple of three, in small micro-batches, and prints a line per batch. In
every other run its tasks write, as on a cluster, even where the driver could.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from unittest.mock import patch

from ottla.spark.session import spark_session
from ottla.spark.sink import write_stream


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--bootstrap-server", "--source", "--target", "--work-dir", "--application-id", "--master"):
        parser.add_argument(name, required=True)
    parser.add_argument("--rows-per-batch", default="500")
    arguments = parser.parse_args()
    # Not even a killed parent leaves one of these behind.
    threading.Thread(target=_end_with_parent, daemon=True).start()
    spark = spark_session(
        arguments.application_id,
        master=arguments.master,
        settings={"spark.sql.shuffle.partitions": "2"},
        log_dir=f"{arguments.work_dir}/log",
    )
    source = (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", arguments.bootstrap_server)
        .option("subscribe", arguments.source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", arguments.rows_per_batch)
        .load()
    )
    with open(f"{arguments.work_dir}/starts", "a+") as starts:
        starts.write("started\n")
        starts.seek(0)
        if len(starts.readlines()) % 2 == 0:
            patch("ottla.spark.sink.spool_of", lambda *_, **__: None).start()
    query = write_stream(
        source.where("cast(cast(value as string) as bigint) % 3 != 0").select("key", "value"),
        application_id=arguments.application_id,
        bootstrap_servers=arguments.bootstrap_server,
        topic=arguments.target,
        checkpoint=f"{arguments.work_dir}/checkpoint",
    )
    last = -1
    while query.isActive:
        progress = query.lastProgress
        if progress is not None and progress["batchId"] != last:
            last = progress["batchId"]
            print("batch", last, progress["numInputRows"], flush=True)
        time.sleep(0.02)
    print("ended", query.exception(), flush=True)
    sys.exit(1)


def _end_with_parent() -> None:
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


if __name__ == "__main__":
    main()
