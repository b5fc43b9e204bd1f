"""Apache Kafka's KafkaShareConsumer: two members, each record once, released, rejected, held too long."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from bench.kafka_peer import fetch
from bench.maven import PeerUnavailable
from share_member import create_topic

import ottla.testing

SOURCE = Path(__file__).parent / "java" / "SharedWork.java"
JVM_FLAGS = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
LOCK_MS = 2000


@pytest.mark.maven
@pytest.mark.timeout(180)
def test_members_written_in_java(tmp_path: Path) -> None:
    try:
        kafka = fetch()
    except PeerUnavailable as error:
        pytest.skip(str(error))
    compiler = Path(kafka.java).with_name("javac")
    if not compiler.exists():
        pytest.skip("javac is not installed")
    command = [str(compiler), "-d", str(tmp_path), "-cp", f"{kafka.libs}/*", str(SOURCE)]
    subprocess.run(command, check=True, timeout=120)
    settings = {
        "group.share.record.lock.duration.ms": LOCK_MS,
        "group.share.min.record.lock.duration.ms": LOCK_MS,
        "share.coordinator.state.topic.num.partitions": 2,
        "offsets.topic.num.partitions": 2,
    }
    with ottla.testing.broker(set=settings) as broker:
        create_topic(broker.bootstrap_servers, "work")
        command = [kafka.java, *JVM_FLAGS, "-cp", f"{tmp_path}:{kafka.libs}/*", "SharedWork"]
        ran = subprocess.run(
            [*command, broker.bootstrap_servers, "work", "workers"],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
    found = [line for line in ran.stdout.splitlines() if not line.startswith(("SLF4J", "["))]
    assert found == [
        "released: hard delivered 2",
        "rejected, then: easy delivered 1",
        "each once: 200 of 200",
        "hangs: stuck, then stuck delivered 2 after its lock",
        "late: InvalidRecordStateException",
        "done",
    ], ran.stdout + ran.stderr
