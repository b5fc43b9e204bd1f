"""`kafka-replica-verification` reads every replica of a topic and finds what differs."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from crc32c import crc32c
from tests.integration.cluster.steps import DEADLINE_S, create

from ottla.records.batch import ATTRIBUTES_AT, CRC_AT, iter_headers
from ottla.testing import BrokerCluster, ClusterBroker

pytestmark = pytest.mark.timeout(240)
INTERRUPTED = 130
SEGMENT = "00000000000000000000.log"


def write(cluster: BrokerCluster, topic: str, *values: str) -> None:
    """Each in a batch of its own."""
    for value in values:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
        producer.produce(topic, value, partition=0)
        assert producer.flush(DEADLINE_S) == 0


def verify(cluster: BrokerCluster, topic: str, until: Callable[[str], bool]) -> list[str]:
    """Lines of the tool, without their times, up to the first that is waited for."""
    command = [sys.executable, "-m", "ottla.cli.main", "replica-verification", "--topics-include", topic]
    command += ["--broker-list", cluster.bootstrap_servers, "--time", "-2", "--report-interval-ms", "1"]
    command += ["--max-wait-ms", "10"]
    lines: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        for line in running.stdout:
            lines.append(line.rstrip().split(": ", 1)[1])
            if until(lines[-1]):
                break
        running.send_signal(signal.SIGINT)
    assert running.returncode == INTERRUPTED
    return lines


def change(broker: ClusterBroker, topic: str, which: int, *, with_checksum: bool) -> None:
    """The last byte but one, of a value, in one of the batches of a broker that is stopped."""
    path = Path(broker.data_dir) / f"{topic}-0" / SEGMENT
    data = bytearray(path.read_bytes())
    position, header = list(iter_headers(data))[which]
    data[position + header.size - 2] ^= 1
    if with_checksum:
        crc = crc32c(bytes(data[position + ATTRIBUTES_AT : position + header.size]))
        data[position + CRC_AT : position + CRC_AT + 4] = crc.to_bytes(4)
    path.write_bytes(data)


def test_replicas_that_differ_are_told_of() -> None:
    with BrokerCluster() as cluster:
        create(cluster, "same", [1, 2, 3])
        create(cluster, "differs", [1, 2, 3])
        for topic in "same", "differs":
            write(cluster, topic, "first", "second", "third")
        assert cluster[3].stop() == 0
        change(cluster[3], "differs", 0, with_checksum=True)
        change(cluster[3], "differs", 1, with_checksum=False)
        cluster.start()
        for topic in "same", "differs":
            cluster.wait_in_sync(topic, 3)
        read = "max lag is 0 for partition {}-0 at offset 3 among 1 partitions"
        lines = verify(cluster, "same", lambda line: line == read.format("same"))
        assert not any(line.startswith("partition") for line in lines)
        lines = verify(cluster, "differs", lambda line: line == read.format("differs"))
        first, second = (line for line in lines if line.startswith("partition"))
        assert first.startswith(
            "partition differs-0 has unmatched checksum at offset 0; replica 1's checksum "
        )
        assert "; replica 3's checksum " in first
        assert "differs-0 has different bytes at offset 1 in replica 1 and replica 3" in second
