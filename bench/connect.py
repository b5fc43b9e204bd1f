"""Rows per second through Connect's workers, as ratios to Apache Kafka's own worker.

    python -m bench.connect                              # all of it, with whatever peers there are
    python -m bench.connect --only file --rounds 5

`ottla connect` and Apache Kafka's Connect worker take turns, each beside a fresh Ottla broker, with the same
data and the same connector configuration: lines of 100 bytes from a file into a topic (FileStreamSource),
from a topic into a file (FileStreamSink), and rows of a PostgreSQL table into a topic (change capture's first
read; the peer is Debezium's connector in Kafka's worker, since Maven Central has no JDBC connector). Kafka's
worker has the heap and the flags of its script. What counts is the time from a tenth of the rows to all of
them, so that starting up is not in it; that is told apart, from the start of the worker's process to the
first row, with processor time and memory of the worker.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from bench import connect_peer, postgres_peer
from bench.admin import create_topic
from bench.brokers import free_port, ottla, running
from bench.connect_peer import RunningWorker, running_worker, worker_settings, written
from bench.filling import fill
from bench.kafka_peer import KafkaDistribution
from bench.maven import PeerUnavailable
from bench.postgres_peer import PostgresServer
from bench.process import cpu_seconds, memory
from ottla.client.cluster import LATEST, ClusterClient
from ottla.runtime.net import AsyncioNetwork
from ottla.wire.errors import KafkaError

LINE_BYTES = 100
TIMEOUT_S = 280
PARTITIONS = 4
OURS = "ottla connect"
THEIRS = "Kafka Connect"
STRING = "org.apache.kafka.connect.storage.StringConverter"
LINES = {"key.converter": STRING, "value.converter": STRING, "tasks.max": "1"}


class Measured(NamedTuple):
    rows_per_s: float
    first_s: float
    """From the start of the worker's process to the first row."""
    cpu_s: float
    memory_mb: float


class Load(Protocol):
    """Data that is there when a worker starts, and how far it has come."""

    def prepare(self, port: int, directory: Path) -> dict[str, str]:
        """A connector's configuration."""

    async def count(self, cluster: ClusterClient) -> int: ...


class FileToTopic:
    def __init__(self, rows: int) -> None:
        self._rows = rows

    def prepare(self, port: int, directory: Path) -> dict[str, str]:
        source = directory / "in.txt"
        with source.open("wb") as file:
            file.writelines(_line(number) + b"\n" for number in range(self._rows))
        create_topic(port, "lines", PARTITIONS)
        return {**LINES, "connector.class": "FileStreamSource", "file": str(source), "topic": "lines"}

    async def count(self, cluster: ClusterClient) -> int:
        return await _records(cluster, "lines")


class TopicToFile:
    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._out: Path

    def prepare(self, port: int, directory: Path) -> dict[str, str]:
        self._out = directory / "out.txt"
        create_topic(port, "lines", PARTITIONS)
        rows = (("lines", _line(number), b"", number % PARTITIONS) for number in range(self._rows))
        fill({"bootstrap.servers": f"127.0.0.1:{port}"}, rows)
        return {**LINES, "connector.class": "FileStreamSink", "file": str(self._out), "topics": "lines"}

    async def count(self, cluster: ClusterClient) -> int:
        try:
            return self._out.stat().st_size // (LINE_BYTES + 1)
        except FileNotFoundError:
            return 0


class TableToTopic:
    def __init__(self, rows: int, server: PostgresServer) -> None:
        self._server = server
        self._made = 0
        with server.connect() as connection:
            connection.execute(
                "CREATE TABLE orders (id bigint PRIMARY KEY, item text, cents int, at timestamptz)"
            )
            connection.execute(
                "INSERT INTO orders SELECT n, 'item ' || n, mod(n, 99), now() FROM generate_series(1, %s) n",
                [rows],
            )

    def prepare(self, port: int, directory: Path) -> dict[str, str]:
        create_topic(port, "shop.public.orders", PARTITIONS)
        self._made += 1
        return {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "topic.prefix": "shop",
            "plugin.name": "pgoutput",
            "slot.name": f"bench_{self._made}",
            "table.include.list": "public.orders",
            "tasks.max": "1",
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
            "key.converter": connect_peer.JSON,
            "value.converter": connect_peer.JSON,
            **self._server.settings(),
        }

    async def count(self, cluster: ClusterClient) -> int:
        return await _records(cluster, "shop.public.orders")


def main() -> None:
    parser = argparse.ArgumentParser(description="Rows per second through Connect's workers.")
    parser.add_argument("--rows", type=int, default=500_000, help="of each load (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each worker (%(default)s)")
    parser.add_argument("--only", default="", help="loads whose names contain this")
    parser.add_argument("--ours", action="store_true", help="without the peer")
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        for name, load, artifacts in _loads(given, stack):
            if given.only in name:
                _compare(name, load, artifacts, given)


def _loads(
    given: argparse.Namespace, stack: contextlib.ExitStack
) -> Iterator[tuple[str, Load, tuple[str, ...]]]:
    yield "file to topic", FileToTopic(given.rows), ()
    yield "topic to file", TopicToFile(given.rows), ()
    if given.only not in "table to topic":
        return
    try:
        server = stack.enter_context(postgres_peer.postgres_server())
    except PeerUnavailable as reason:
        print(f"table to topic: {reason}")
        return
    yield "table to topic", TableToTopic(given.rows, server), (connect_peer.DEBEZIUM,)


def _compare(title: str, load: Load, artifacts: tuple[str, ...], given: argparse.Namespace) -> None:
    workers = [OURS] if given.ours else [OURS, THEIRS]
    kafka: KafkaDistribution | None = None
    try:
        kafka = None if given.ours else connect_peer.fetch(*artifacts)
    except PeerUnavailable as reason:
        print(f"{title}: no peer: {reason}")
        workers = [OURS]
    found: dict[str, list[Measured]] = {name: [] for name in workers}
    for turn in range(given.rounds):
        # There and back, so that a machine that gets slower meanwhile slows all alike.
        for name in workers[:: -1 if turn % 2 else 1]:
            measured = _measure(kafka if name == THEIRS else None, load, given.rows)
            found[name].append(measured)
            print(
                f"{title}: {name:14} {measured.rows_per_s:9,.0f} rows/s, "
                f"first after {measured.first_s:5.2f} s, "
                f"{measured.cpu_s:5.1f} s of CPU, {measured.memory_mb:5.0f} MB",
                flush=True,
            )
    if len(workers) > 1:
        ratios = [
            statistics.median(each[part] for each in found[OURS])
            / statistics.median(each[part] for each in found[THEIRS])
            for part in range(len(Measured._fields))
        ]
        print(
            "{}: {:.2f} times as many rows/s as {}, first row after {:.2f} of its time, {:.2f} of its CPU, "
            "{:.2f} of its memory".format(title, ratios[0], THEIRS, *ratios[1:]),
            flush=True,
        )


def _measure(kafka: KafkaDistribution | None, load: Load, rows: int) -> Measured:
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as home, running(ottla()) as broker:
        directory = Path(home)
        config = load.prepare(broker.port, directory)
        started = time.monotonic()
        with _worker(kafka, f"127.0.0.1:{broker.port}", directory) as worker:
            _create(worker.address, config)
            first_s, seconds = asyncio.run(_watch(load, broker.port, rows, started, worker.address))
            return Measured(
                0.9 * rows / seconds, first_s, cpu_seconds(worker.pid), memory(worker.pid).private / 2**20
            )


@contextlib.contextmanager
def _worker(kafka: KafkaDistribution | None, bootstrap: str, directory: Path) -> Iterator[RunningWorker]:
    if kafka is not None:
        with connect_peer.running(kafka, bootstrap, directory) as worker:
            yield worker
        return
    port = free_port()
    properties = written(directory / "worker.properties", worker_settings(bootstrap, port))
    argv = [sys.executable, "-m", "ottla.cli.main", "connect", str(properties)]
    with running_worker(argv, directory / "worker.out", port) as worker:
        yield worker


def _create(address: str, config: dict[str, str]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        status, text = _ask(address, "PUT", "/connectors/load/config", config)
        if status < http.client.MULTIPLE_CHOICES:
            return
        # A worker that is still joining its group says so with a conflict.
        if status != http.client.CONFLICT or time.monotonic() > deadline:
            raise RuntimeError(f"{status}: {text}")
        time.sleep(0.02)


def _ask(address: str, method: str, path: str, body: Any = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection(address, timeout=60)
    headers = {"Content-Type": "application/json"}
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


async def _watch(load: Load, port: int, rows: int, started: float, address: str) -> tuple[float, float]:
    """Seconds to the first rows, and from a tenth to all."""
    first = tenth = 0.0
    async with ClusterClient(AsyncioNetwork(), f"127.0.0.1:{port}") as cluster:
        while time.monotonic() < started + TIMEOUT_S:
            done, now = await load.count(cluster), time.monotonic()
            if done and not first:
                first = now - started
            if done >= rows / 10 and not tenth:
                tenth = now
            if done >= rows:
                return first, now - tenth
            await asyncio.sleep(0.02)
    raise TimeoutError(f"{_ask(address, 'GET', '/connectors/load/status')[1]}: not done in {TIMEOUT_S} s")


async def _records(cluster: ClusterClient, topic: str) -> int:
    try:
        wanted = {(topic, number): LATEST for number in range(PARTITIONS)}
        return sum(each.offset for each in (await cluster.list_offsets(wanted)).values())
    except KafkaError:
        return 0


def _line(number: int) -> bytes:
    return f"{number:09} a line as programs write them, ".encode().ljust(LINE_BYTES, b".")


if __name__ == "__main__":
    main()
