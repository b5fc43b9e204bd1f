"""Apache Kafka's MirrorMaker 2 as the peer of `ottla mirror`: jars through Maven, dedicated mode."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import kafka_peer
from bench.kafka_peer import LOG4J_VERSION, VERSION, KafkaDistribution
from bench.maven import CACHE, fetch_jars

ARTIFACTS = (
    f"org.apache.kafka:connect-mirror:{VERSION}",
    f"org.apache.kafka:connect-runtime:{VERSION}",
    f"org.apache.logging.log4j:log4j-slf4j-impl:{LOG4J_VERSION}",
)
HEAP = ("-Xmx1G",)
STOP_TIMEOUT_S = 30


@dataclass(slots=True)
class RunningMirrorMaker:
    process: subprocess.Popen[bytes]
    output: Path

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def fetch() -> KafkaDistribution:
    """PeerUnavailable where its jars cannot be had."""
    java = kafka_peer.fetch().java
    home = CACHE / "mirror-maker" / VERSION
    fetch_jars(home, f"MirrorMaker {VERSION}", *ARTIFACTS)
    log4j = home / "server.properties"
    if not log4j.exists():
        log4j.write_text(kafka_peer.LOG4J.format(target="SYSTEM_OUT", level="INFO"))
    return KafkaDistribution(java, home)


@contextmanager
def running(
    distribution: KafkaDistribution, properties: Mapping[str, str], heap: tuple[str, ...] = HEAP
) -> Iterator[RunningMirrorMaker]:
    """As connect-mirror-maker runs it."""
    home = Path(tempfile.mkdtemp(prefix="ottla-mm2-"))
    file = home / "mm2.properties"
    file.write_text("".join(f"{name} = {value}\n" for name, value in properties.items()))
    argv = distribution.argv(
        "org.apache.kafka.connect.mirror.MirrorMaker", str(file), heap=heap, log4j="server.properties"
    )
    output = home / "output"
    with output.open("wb") as sink:
        process = subprocess.Popen(argv, stdout=sink, stderr=subprocess.STDOUT)
    try:
        yield RunningMirrorMaker(process, output)
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        shutil.rmtree(home, ignore_errors=True)
