"""Cost per request while something grows that should not matter: `python -m bench.scale`.

    partitions    in one topic; requests go through all of them in turn
    retained      data in the topic that is read and written
    connections   open and idle beside the busy ones
    consumers     that followed the topic with a fetch session and went away without a word

Each step prints what one produce request (one 100-byte record) and one fetch (one batch) take, in requests
per second and in CPU time of the broker, and that CPU time as a multiple of the first step's.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from bench import encoding, kafka_peer, replay
from bench.admin import BrokerRefused, create_topic, end_offsets, throw_away_topic
from bench.brokers import BrokerFailed, BrokerKind, RunningBroker, ottla, running
from bench.connection import Connection
from bench.kafka_peer import ApacheKafka
from bench.maven import PeerUnavailable
from bench.replay import MB, PARTITIONS, Measured
from bench.report import print_aligned

REPEATS = 3
FILL_RECORD_BYTES = 1000
# What the Java producer puts in a batch by default is 16 kB.
FILL_RECORDS_PER_BATCH = 16
FREE_DISK_FACTOR = 2
FETCH_PLACES = 64
UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9}


@dataclass(frozen=True, slots=True)
class Step:
    label: str
    produce: Measured
    fetch: Measured
    resident_mb: float


Places = Sequence[tuple[int, int]]
Dimension = Callable[[RunningBroker, argparse.Namespace], Iterator[Step]]


def partitions(broker: RunningBroker, options: argparse.Namespace) -> Iterator[Step]:
    for count in _tenfold(1, options.partitions_max):
        with throw_away_topic(broker.port, f"partitions-{count}", count) as topic:
            places = [(partition, 0) for partition in range(count)]
            yield _step(broker, topic, count, places, options.requests, f"{count:,}")


def retained(broker: RunningBroker, options: argparse.Namespace) -> Iterator[Step]:
    topic = "retained"
    create_topic(broker.port, topic, PARTITIONS)
    frames = replay.batch_frames(topic, FILL_RECORD_BYTES, encoding.ACKS_ALL, FILL_RECORDS_PER_BATCH)
    filled = 0
    for size in _tenfold(10 * 10**6, options.retained_max):
        missing = (size - filled) // (FILL_RECORD_BYTES * FILL_RECORDS_PER_BATCH)
        replay.send_batches(broker.port, frames, missing)
        filled = size
        ends = end_offsets(broker.port, topic, PARTITIONS)
        places = [(at % PARTITIONS, ends[at % PARTITIONS] * at // FETCH_PLACES) for at in range(FETCH_PLACES)]
        yield _step(broker, topic, PARTITIONS, places, options.requests, f"{size / MB:,.0f} MB")


def connections(broker: RunningBroker, options: argparse.Namespace) -> Iterator[Step]:
    topic = "connections"
    create_topic(broker.port, topic, PARTITIONS)
    places = [(partition, 0) for partition in range(PARTITIONS)]
    idle: list[Connection] = []
    try:
        for count in _tenfold(1, options.connections_max):
            while len(idle) < count:
                idle.append(Connection(broker.port))
                idle[-1].call(encoding.api_versions_frame())
            yield _step(broker, topic, PARTITIONS, places, options.requests, f"{count:,}")
    finally:
        for connection in idle:
            connection.close()


def consumers(broker: RunningBroker, options: argparse.Namespace) -> Iterator[Step]:
    topic = "consumers"
    create_topic(broker.port, topic, PARTITIONS)
    places = [(partition, 0) for partition in range(PARTITIONS)]
    gone = 0
    for count in (0, *_tenfold(5, options.consumers_max)):
        while gone < count:
            connection = Connection(broker.port)
            connection.call(encoding.session_frame(topic, range(PARTITIONS)))
            connection.close()
            gone += 1
        yield _step(broker, topic, PARTITIONS, places, options.requests, f"{count:,}")


DIMENSIONS: dict[str, Dimension] = {
    "partitions": partitions,
    "retained": retained,
    "connections": connections,
    "consumers": consumers,
}


def main() -> int:
    options = _parse()
    # Each idle connection is a file descriptor here and one in the broker, which inherits the limit.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    chosen = options.only or list(DIMENSIONS)
    if "retained" in chosen and (complaint := _disk_too_small(options)):
        print(complaint, file=sys.stderr)
        return 1
    try:
        kind: BrokerKind = ottla(options.ottla_command)
        if options.broker == "kafka":
            kind = ApacheKafka(kafka_peer.fetch())
        for name in chosen:
            with running(kind, options.work_dir) as broker:
                _warm_up(broker, options.requests)
                print(f"\n{kind.name}: {name}")
                print_aligned(_table(name, list(DIMENSIONS[name](broker, options))), words=1)
    except (BrokerFailed, BrokerRefused, PeerUnavailable, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _step(
    broker: RunningBroker, topic: str, partitions: int, places: Places, requests: int, label: str
) -> Step:
    produced = [replay.small_requests(broker, topic, partitions, requests) for _ in range(REPEATS)]
    fetched = [replay.fetches_at(broker, topic, places, requests) for _ in range(REPEATS)]
    return Step(label, _typical(produced), _typical(fetched), broker.memory().resident / MB)


def _typical(repeats: Sequence[Measured]) -> Measured:
    return sorted(repeats, key=lambda measured: measured.cpu_us_per_request)[len(repeats) // 2]


def _warm_up(broker: RunningBroker, requests: int) -> None:
    with throw_away_topic(broker.port, "warm-up", PARTITIONS) as topic:
        _step(broker, topic, PARTITIONS, [(0, 0)], requests, "")


def _table(name: str, steps: Sequence[Step]) -> list[list[str]]:
    header = [name, "produce/s", "CPU µs", "× first", "fetch/s", "CPU µs", "× first", "RSS MB"]
    table = [header]
    for step in steps:
        row = [step.label]
        for measured, first in ((step.produce, steps[0].produce), (step.fetch, steps[0].fetch)):
            cost = measured.cpu_us_per_request
            row += [
                f"{measured.requests_per_s:,.0f}",
                f"{cost:.1f}",
                f"{cost / first.cpu_us_per_request:.2f}",
            ]
        table.append([*row, f"{step.resident_mb:,.0f}"])
    return table


def _tenfold(first: int, last: int) -> Iterator[int]:
    value = first
    while value < last:
        yield value
        value *= 10
    yield last


def _disk_too_small(options: argparse.Namespace) -> str | None:
    where = options.work_dir or tempfile.gettempdir()
    free = shutil.disk_usage(where).free
    if free < options.retained_max * FREE_DISK_FACTOR:
        return (
            f"{where} has {free / 1e9:.1f} GB free, less than {FREE_DISK_FACTOR} times the "
            f"{options.retained_max / 1e9:.1f} GB to retain; lower --retained-max or set --work-dir"
        )
    return None


def _size(text: str) -> int:
    for unit, factor in UNITS.items():
        if text.upper().endswith(unit):
            return int(float(text[: -len(unit)]) * factor)
    return int(text)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.scale",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--broker", choices=("ottla", "kafka"), default="ottla")
    parser.add_argument(
        "--only", action="append", choices=tuple(DIMENSIONS), help="one dimension, repeatable"
    )
    parser.add_argument("--requests", type=int, default=20_000, help="per measurement")
    parser.add_argument("--partitions-max", type=int, default=1000)
    parser.add_argument("--retained-max", type=_size, default=10**9, help="such as 10GB; default 1GB")
    parser.add_argument("--connections-max", type=int, default=1000)
    parser.add_argument("--consumers-max", type=int, default=500)
    parser.add_argument("--work-dir", help="where data directories are created and removed")
    parser.add_argument("--ottla-command", help="another command instead of `ottla start …`; {port}, {dir}")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
