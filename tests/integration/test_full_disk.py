"""A real volume without room: writes are refused, the node stays up, and takes records again."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

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
