"""A real volume without room: writes are refused, the node stays up, and takes records again."""

from __future__ import annotations

import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.runtime.net import free_ports
from ottla.testing import BrokerProcess


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "volume"
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "ottla-test", str(path)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"a small tmpfs cannot be mounted here: {mounted.stderr.decode().strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def produce(servers: str, topic: str = "orders") -> KafkaError | None:
    """What became of one record."""
    errors: list[KafkaError | None] = []
    producer = Producer(
        {"bootstrap.servers": servers, "retries": 0, "message.timeout.ms": 5000, "log_level": 0}
    )
    producer.produce(topic, bytes(50_000), partition=0, on_delivery=lambda error, _: errors.append(error))
    producer.flush(10)
    (error,) = errors
    return error


@pytest.mark.timeout(90)
def test_a_full_disk_is_survived_and_said_and_over_when_there_is_room(volume: Path, tmp_path: Path) -> None:
    settings = {"metadata.log.dir": str(tmp_path / "metadata"), "log.initial.task.delay.ms": "0"}
    with BrokerProcess(settings, data_dir=str(volume / "data")) as broker:
        servers = broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(20)
        assert produce(servers) is None
        filler = volume / "filler"
        with pytest.raises(OSError, match="No space"), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        error = produce(servers)
        assert error is not None
        assert error.code() == KafkaError.KAFKA_STORAGE_ERROR
        # A new topic, and the first transactional producer, need room as well.
        admin.create_topics([NewTopic("more", 3, 1)])["more"].result(20)
        transactional = Producer({"bootstrap.servers": servers, "transactional.id": "t", "log_level": 0})
        with pytest.raises(KafkaException):
            transactional.init_transactions(3)
        assert produce(servers) is not None
        assert broker.log.count(f"{volume}/data has no room left") >= 1
        assert "the node cannot go on" not in broker.log
        filler.unlink()
        assert produce(servers) is None
        transactional.init_transactions(30)
        for _ in range(30):
            if (refused := produce(servers, "more")) is None:
                break
        assert refused is None
        assert broker.stop() == 0


@pytest.mark.timeout(90)
def test_a_start_without_room_tells_who_comes_and_goes_on_when_there_is_some(volume: Path) -> None:
    (port,) = free_ports("127.0.0.1", 1)
    broker = BrokerProcess(data_dir=str(volume / "data"), port=port)
    with broker:
        assert produce(broker.bootstrap_servers) is None
        # Left in good order, it would have a little room: that of the file which says so.
        broker.kill9()
        filler = volume / "filler"
        with pytest.raises(OSError, match="No space"), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(512))
        broker.launch()
        versions = {0: 0, 3: 0}
        deadline = time.monotonic() + 30
        while not all(versions.values()):
            assert time.monotonic() < deadline, broker.log
            for version in versions:
                versions[version] = refused_with(port, version)
        assert versions == {0: KafkaError.KAFKA_STORAGE_ERROR, 3: KafkaError.KAFKA_STORAGE_ERROR}
        filler.unlink()
        broker.wait_ready()
        assert "no room for the metadata of the cluster" in broker.log
        assert produce(broker.bootstrap_servers) is None


def refused_with(port: int, version: int) -> int:
    """What stands in the answer to ApiVersions; 0 where there is none."""
    header = struct.pack(">hhih", 18, version, 7, -1)
    # Flexible versions: tags of the header, two empty names, tags.
    request = header + (b"\x00\x01\x01\x00" if version >= 3 else b"")
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            answer = connection.recv(1000)
    except OSError:
        return 0
    return int(struct.unpack_from(">h", answer, 8)[0]) if len(answer) >= 10 else 0
