"""Produce requests while somebody reads what is no longer in memory: `python -m bench.cold_read`.

A topic is filled and its files are dropped from the page cache. Then one connection writes one record at a
time to another topic, each when the one before is acknowledged, first alone and then beside a consumer that
reads the cold topic from the beginning.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from pathlib import Path

from bench import encoding, replay
from bench.admin import BrokerRefused, create_topic, end_offsets
from bench.brokers import BrokerFailed, RunningBroker, ottla, started
from bench.connection import Connection
from bench.latency import percentile
from bench.replay import MB, PARTITIONS
from bench.report import print_aligned

RECORD_BYTES = 1000
ALONE_S = 5.0
FILLED, WRITTEN = "filled", "written"


def main() -> int:
    options = _parse()
    with tempfile.TemporaryDirectory(prefix="ottla-bench-", dir=options.work_dir) as home:
        data_dir = f"{home}/data"
        try:
            with started(ottla(options.ottla_command), data_dir, Path(home) / "output") as broker:
                create_topic(broker.port, WRITTEN, 1)
                create_topic(broker.port, FILLED, PARTITIONS)
                replay.produce(broker, FILLED, RECORD_BYTES, encoding.ACKS_ALL, options.bytes)
                alone = _write(broker.port, time.monotonic() + ALONE_S)
                _drop_from_memory(data_dir)
                beside, seconds = _write_beside_reader(broker)
        except (BrokerFailed, BrokerRefused, OSError) as error:
            print(error, file=sys.stderr)
            return 1
    rows = [["produce, one at a time", "p50 ms", "p99 ms", "p99.9 ms", "longest ms", "requests"]]
    for label, waits in (("alone", alone), ("beside a cold read", beside)):
        rank = [percentile(waits, share) / 1e6 for share in (0.5, 0.99, 0.999, 1.0)]
        rows.append([label, *(f"{value:.2f}" for value in rank), f"{len(waits):,}"])
    print_aligned(rows, words=1)
    print(f"{options.bytes / MB:,.0f} MB were read in {seconds:.1f} s")
    return 0


def _write(port: int, until: float) -> list[int]:
    """Nanoseconds of each request, in order of length."""
    batch = encoding.record_batch([bytes(RECORD_BYTES)], int(time.time() * 1000))
    request = encoding.produce_frame(WRITTEN, 0, batch, encoding.ACKS_ALL)
    connection = Connection(port)
    waits = []
    while time.monotonic() < until:
        begin = time.monotonic_ns()
        connection.call(request)
        waits.append(time.monotonic_ns() - begin)
    connection.close()
    return sorted(waits)


def _write_beside_reader(broker: RunningBroker) -> tuple[list[int], float]:
    ends = end_offsets(broker.port, FILLED, PARTITIONS)
    forking = multiprocessing.get_context("fork")
    reader = forking.Process(target=replay.fetch_until, args=(broker.port, FILLED, ends))
    batch = encoding.record_batch([bytes(RECORD_BYTES)], int(time.time() * 1000))
    request = encoding.produce_frame(WRITTEN, 0, batch, encoding.ACKS_ALL)
    connection = Connection(broker.port)
    connection.call(request)
    waits = []
    begin_s = time.monotonic()
    reader.start()
    while reader.is_alive():
        begin = time.monotonic_ns()
        connection.call(request)
        waits.append(time.monotonic_ns() - begin)
    connection.close()
    if reader.exitcode:
        raise BrokerRefused(f"reading {FILLED} failed")
    return sorted(waits), time.monotonic() - begin_s


def _drop_from_memory(data_dir: str) -> None:
    os.sync()
    for path in Path(data_dir).rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.cold_read",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--bytes", type=int, default=2 * 10**9, help="to be read; default 2 GB")
    parser.add_argument("--work-dir", help="where data directories are created and removed, on a disk")
    parser.add_argument("--ottla-command", help="another command instead of `ottla start …`; {port}, {dir}")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
