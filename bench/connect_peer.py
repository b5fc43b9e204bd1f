"""Apache Kafka's own Connect worker: jars through Maven, distributed mode, as its script runs it."""

from __future__ import annotations

import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import kafka_peer
from bench.brokers import free_port
from bench.kafka_peer import LOG4J_VERSION, VERSION, KafkaDistribution
from bench.maven import CACHE, fetch_jars

PARTS = ("connect-runtime", "connect-file", "connect-json", "connect-transforms")
DEBEZIUM = "io.debezium:debezium-connector-postgres:3.6.1.Final"
HEAP = ("-Xms256M", "-Xmx2G")
START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 10
JSON = "org.apache.kafka.connect.json.JsonConverter"


@dataclass(frozen=True, slots=True)
class RunningWorker:
    address: str
    pid: int


def worker_settings(bootstrap: str, port: int) -> dict[str, str]:
    """As workers of either kind read them."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": f"connect-{port}",
        "key.converter": JSON,
        "value.converter": JSON,
        "offset.storage.partitions": "1",
        "status.storage.partitions": "1",
        "offset.flush.interval.ms": "500",
        "listeners": f"HTTP://127.0.0.1:{port}",
        "rest.advertised.host.name": "127.0.0.1",
        "scheduled.rebalance.max.delay.ms": "0",
        "plugin.discovery": "service_load",
    }
    for name, topic in (("offset", "offsets"), ("config", "configs"), ("status", "status")):
        settings[f"{name}.storage.topic"] = f"connect-{topic}"
        settings[f"{name}.storage.replication.factor"] = "1"
    return settings


def fetch(*connectors: str) -> KafkaDistribution:
    """PeerUnavailable where its jars cannot be had. `connectors` are artifacts that it has besides."""
    java = kafka_peer.fetch().java
    artifacts = [f"org.apache.kafka:{part}:{VERSION}" for part in PARTS]
    artifacts.append(f"org.apache.logging.log4j:log4j-slf4j-impl:{LOG4J_VERSION}")
    home = CACHE / "kafka-connect" / "-".join([VERSION, *(each.split(":")[1] for each in connectors)])
    fetch_jars(home, "Kafka Connect", *artifacts, *connectors)
    log4j = home / "server.properties"
    if not log4j.exists():
        log4j.write_text(kafka_peer.LOG4J.format(target="SYSTEM_OUT", level="INFO"))
    return KafkaDistribution(java, home)


@contextmanager
def running(
    distribution: KafkaDistribution,
    bootstrap: str,
    directory: Path,
    *,
    heap: tuple[str, ...] = HEAP,
) -> Iterator[RunningWorker]:
    port = free_port()
    properties = written(directory / "worker.properties", worker_settings(bootstrap, port))
    main = "org.apache.kafka.connect.cli.ConnectDistributed"
    argv = distribution.argv(main, str(properties), heap=heap, log4j="server.properties")
    with running_worker(argv, directory / "worker.out", port) as worker:
        yield worker


@contextmanager
def running_worker(argv: list[str], output: Path, port: int) -> Iterator[RunningWorker]:
    """One that answers REST."""
    with output.open("wb") as sink:
        process = subprocess.Popen(argv, stdout=sink, stderr=subprocess.STDOUT)
    try:
        _wait_until_up(f"http://127.0.0.1:{port}/connectors", process)
        yield RunningWorker(f"127.0.0.1:{port}", process.pid)
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            # Debezium's may wait for a slot that is not its own any more; what was to be measured is over.
            process.kill()
            process.wait()


def written(file: Path, settings: Mapping[str, str]) -> Path:
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return file


def _wait_until_up(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            with urllib.request.urlopen(url, timeout=10):
                return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
