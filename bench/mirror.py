"""MB per second that a mirror copies from one broker to another, as ratios to Apache Kafka's MirrorMaker 2.

    python -m bench.mirror                              # between two Ottla brokers
    python -m bench.mirror --source kafka --target kafka
    python -m bench.mirror --compression none --batch-kib 16

`ottla mirror` and MirrorMaker 2 take turns, each between two fresh brokers, with the same records: values of
1 KiB in batches of a producer with the given size and compression. MirrorMaker has its default settings, by
which it copies at least once, and in a second form `exactly.once.source.support`; ours is always exactly
once. The topic is full when a mirror starts. What counts is the time from a tenth of the records to all of
them, so that starting up is not in it; that is told apart, with processor time and memory of the mirror's
process.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from bench import kafka_peer, mirror_maker_peer
from bench.admin import create_topic
from bench.brokers import BrokerKind, ottla, running
from bench.filling import fill
from bench.kafka_peer import ApacheKafka
from bench.maven import PeerUnavailable
from bench.process import cpu_seconds, memory
from ottla.client.cluster import LATEST, ClusterClient
from ottla.runtime.net import AsyncioNetwork
from ottla.wire.errors import KafkaError

TOPIC = "filled"
VALUE_BYTES = 1024
TIMEOUT_S = 600
OURS = "ottla mirror"
THEIRS = "MirrorMaker 2"
THEIRS_ONCE = "MirrorMaker 2, exactly once"
FACTORS = ("heartbeats.topic", "checkpoints.topic", "offset-syncs.topic", "offset.storage", "status.storage",
           "config.storage")  # fmt: skip


class Measured(NamedTuple):
    mb_per_s: float
    first_s: float
    """From its start to the first records in the target."""
    cpu_s: float
    memory_mb: float


def main() -> None:
    parser = argparse.ArgumentParser(description="MB per second that a mirror copies.")
    parser.add_argument("--source", choices=("ottla", "kafka"), default="ottla")
    parser.add_argument("--target", choices=("ottla", "kafka"), default="ottla")
    parser.add_argument("--mb", type=int, default=500, help="to copy, before compression (%(default)s)")
    parser.add_argument("--partitions", type=int, default=4, help="of the topic (%(default)s)")
    parser.add_argument("--compression", default="none", help="of the producer (%(default)s)")
    parser.add_argument("--batch-kib", type=int, default=64, help="of the producer (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each mirror (%(default)s)")
    given = parser.parse_args()
    mirrors = [OURS, THEIRS, THEIRS_ONCE]
    try:
        mirror_maker_peer.fetch()
    except PeerUnavailable as reason:
        print(f"no peer: {reason}")
        mirrors = [OURS]
    found: dict[str, list[Measured]] = {name: [] for name in mirrors}
    for turn in range(given.rounds):
        # There and back, so that a machine that gets slower meanwhile slows all alike.
        for name in mirrors[:: -1 if turn % 2 else 1]:
            measured = measure(name, given)
            found[name].append(measured)
            print(
                f"{name:28} {measured.mb_per_s:7.1f} MB/s, first record after {measured.first_s:5.1f} s, "
                f"{measured.cpu_s:6.1f} s of CPU, {measured.memory_mb:6.0f} MB",
                flush=True,
            )
    for name in mirrors[1:]:
        ours, theirs = (statistics.median(each.mb_per_s for each in found[key]) for key in (OURS, name))
        cpu, their_cpu = (statistics.median(each.cpu_s for each in found[key]) for key in (OURS, name))
        print(f"{OURS}: {ours / theirs:.2f} times as fast as {name}, with {cpu / their_cpu:.3f} of its CPU")


def measure(name: str, given: argparse.Namespace) -> Measured:
    with running(_kind(given.source)) as source, running(_kind(given.target)) as target:
        create_topic(source.port, TOPIC, given.partitions)
        count = _fill(source.port, given)
        properties = _properties(name, source.port, target.port)
        started = time.monotonic()
        with _mirror(name, properties) as pid:
            first_s, seconds = asyncio.run(_watch(target.port, count, started))
            return Measured(0.9 * given.mb / seconds, first_s, cpu_seconds(pid), memory(pid).private / 2**20)


async def _watch(port: int, count: int, started: float) -> tuple[float, float]:
    """Seconds to the first records, and from a tenth to all."""
    first = tenth = 0.0
    async with ClusterClient(AsyncioNetwork(), f"127.0.0.1:{port}") as cluster:
        while time.monotonic() < started + TIMEOUT_S:
            now = time.monotonic()
            copied = await _copied(cluster)
            if copied and not first:
                first = now - started
            if copied >= count / 10 and not tenth:
                tenth = now
            if copied >= count:
                return first, now - tenth
            await asyncio.sleep(0.02)
    raise TimeoutError(f"not copied in {TIMEOUT_S} s")


async def _copied(cluster: ClusterClient) -> int:
    name = f"a.{TOPIC}"
    try:
        topics = await cluster.topics([name])
        if name not in topics:
            return 0
        wanted = {(name, number): LATEST for number in topics[name].partitions}
        return sum(each.offset for each in (await cluster.list_offsets(wanted)).values())
    except KafkaError:
        return 0


def _fill(port: int, given: argparse.Namespace) -> int:
    """How many records there are then. Half of each value is random, so that compression has something to
    do."""
    settings: dict[str, str | int] = {
        "bootstrap.servers": f"127.0.0.1:{port}",
        "compression.type": given.compression,
        "batch.size": given.batch_kib * 1024,
    }
    half = VALUE_BYTES // 2
    rows = (
        (TOPIC, os.urandom(half) + b"x" * half, b"", number % given.partitions)
        for number in range(given.mb * 1_000_000 // VALUE_BYTES)
    )
    return fill(settings, rows)


def _kind(name: str) -> BrokerKind:
    return ottla() if name == "ottla" else ApacheKafka(kafka_peer.fetch())


def _properties(name: str, source: int, target: int) -> dict[str, str]:
    properties = {
        "clusters": "a, b",
        "a.bootstrap.servers": f"127.0.0.1:{source}",
        "b.bootstrap.servers": f"127.0.0.1:{target}",
        "a->b.enabled": "true",
        "topics": TOPIC,
        "replication.factor": "1",
    }
    properties |= {f"{factor}.replication.factor": "1" for factor in FACTORS}
    if name != OURS:
        # As many as ours has; with the default of one it would have a single producer.
        properties["tasks.max"] = "4"
    if name == THEIRS_ONCE:
        properties |= {
            "exactly.once.source.support": "enabled",
            "a.consumer.isolation.level": "read_committed",
        }
    return properties


@contextlib.contextmanager
def _mirror(name: str, properties: Mapping[str, str]) -> Iterator[int]:
    """Its process."""
    if name != OURS:
        with mirror_maker_peer.running(mirror_maker_peer.fetch(), properties) as maker:
            yield maker.process.pid
        return
    with tempfile.TemporaryDirectory() as home:
        file = Path(home, "mm2.properties")
        file.write_text("".join(f"{key} = {value}\n" for key, value in properties.items()))
        argv = [sys.executable, "-m", "ottla.cli.main", "mirror", str(file), "--log-level", "warning"]
        process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
        try:
            yield process.pid
        finally:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    main()
