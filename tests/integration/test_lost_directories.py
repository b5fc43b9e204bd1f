"""What a broker does when a disk is not mounted, and with logs that its metadata does not know."""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from ottla.runtime.disk import PosixDisk
from ottla.testing import BrokerProcess
from ottla.testing.in_process import InProcessBroker


def produce(servers: str, count: int = 10, topic: str = "orders") -> None:
    producer = Producer({"bootstrap.servers": servers})
    for number in range(count):
        producer.produce(topic, str(number).encode(), partition=0)
    assert producer.flush(20) == 0


def end_offset(servers: str, topic: str = "orders") -> int:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "unused"})
    try:
        _, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=20)
        return high
    finally:
        consumer.close()


def test_a_broker_whose_metadata_is_not_mounted_refuses_to_start(tmp_path: Path) -> None:
    metadata = tmp_path / "metadata"
    with BrokerProcess({"metadata.log.dir": str(metadata)}) as broker:
        produce(broker.bootstrap_servers)
        broker.stop()
        metadata.rename(tmp_path / "unmounted")
        with pytest.raises(RuntimeError, match="status 1") as caught:
            broker.start()
        text = str(caught.value)
        assert f"{broker.data_dir} holds 1 partitions, such as orders-0" in text
        assert f"Is the disk of {metadata} mounted?" in text
        assert "Traceback" not in text
        shutil.rmtree(metadata, ignore_errors=True)
        (tmp_path / "unmounted").rename(metadata)
        broker.start()
        assert end_offset(broker.bootstrap_servers) == 10
        # Nothing was touched, so nothing has to be looked at.
        assert "recovered orders" not in broker.log


def test_logs_that_metadata_does_not_know_are_set_aside(tmp_path: Path) -> None:
    with BrokerProcess({"log.segment.delete.delay.ms": "0"}) as broker:
        produce(broker.bootstrap_servers)
        broker.stop()
        data = Path(broker.data_dir)
        shutil.copytree(data / "orders-0", data / "strange-7")
        before = (data / "strange-7" / f"{0:020d}.log").read_bytes()
        broker.start()
        assert "strange-7: the cluster's metadata has no such partition; its log is set aside" in broker.log
        (stray,) = data.glob("strange-7.*")
        assert len(stray.name) == len("strange-7.-stray") + 32
        assert stray.name.endswith("-stray")
        assert not (data / "strange-7").exists()
        broker.stop()
        broker.start()
        assert f"{data}: 1 directories are named *-stray" in broker.log
        assert (stray / f"{0:020d}.log").read_bytes() == before
        assert end_offset(broker.bootstrap_servers) == 10


def test_high_watermarks_are_written_down_as_kafka_does() -> None:
    with BrokerProcess({"log.flush.offset.checkpoint.interval.ms": "1000000"}) as broker:
        produce(broker.bootstrap_servers, 7)
        broker.stop()
        text = (Path(broker.data_dir) / "replication-offset-checkpoint").read_text()
        assert text == "0\n1\norders 0 7\n"


@pytest.fixture
def two_dirs(tmp_path: Path) -> Iterator[tuple[BrokerProcess, Path, Path]]:
    """A broker that was stopped, with a log in each of its directories."""
    first, second = tmp_path / "first", tmp_path / "second"
    with BrokerProcess(data_dir=f"{first},{second}") as broker:
        produce(broker.bootstrap_servers, topic="a")
        produce(broker.bootstrap_servers, topic="b")
        broker.stop()
        assert {path.name for path in (*first.glob("?-0"), *second.glob("?-0"))} == {"a-0", "b-0"}
        assert list(second.glob("?-0"))
        yield broker, first, second


def refusal(broker: BrokerProcess) -> str:
    """The one line with which a start ends."""
    earlier = broker.log
    with pytest.raises(RuntimeError, match="status 1"):
        broker.start()
    text = broker.log.removeprefix(earlier)
    assert "Traceback" not in text
    (line,) = (line for line in text.splitlines() if line.startswith("ottla: "))
    return line


def test_a_bare_mount_point_is_not_made_a_data_directory(
    two_dirs: tuple[BrokerProcess, Path, Path], tmp_path: Path
) -> None:
    broker, _, second = two_dirs
    second.rename(tmp_path / "unmounted")
    second.mkdir()
    line = refusal(broker)
    assert line.startswith(f"ottla: {second}: has no meta.properties")
    assert "is its disk mounted?" in line
    assert "kafka-storage format" in line
    assert not (second / "meta.properties").exists()
    shutil.rmtree(second)
    (tmp_path / "unmounted").rename(second)
    broker.start()
    assert end_offset(broker.bootstrap_servers, "a") == end_offset(broker.bootstrap_servers, "b") == 10


def test_a_lost_directory_is_given_up_on_purpose(two_dirs: tuple[BrokerProcess, Path, Path]) -> None:
    broker, first, second = two_dirs
    shutil.rmtree(second)
    line = refusal(broker)
    command = line.rpartition("kafka-storage ")[2].split()
    properties = first.parent / "server.properties"
    properties.write_text(f"node.id=1\nlog.dirs={first},{second}\n")
    command[command.index("FILE")] = str(properties)
    subprocess.run([sys.executable, "-m", "ottla.cli.main", "storage", *command], check=True, timeout=60)
    broker.start()
    assert "this node had a directory (directory.id=" in broker.log
    offsets = {end_offset(broker.bootstrap_servers, topic) for topic in ("a", "b")}
    assert offsets == {0, 10}


def test_a_directory_is_added_and_removed_on_purpose(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    with BrokerProcess(data_dir=str(first)) as broker:
        produce(broker.bootstrap_servers)
        broker.stop()
        broker.data_dir = f"{first},{second}"
        broker.start()
        assert (second / "meta.properties").exists()
        assert "this node had a directory" not in broker.log
        broker.stop()
        broker.data_dir = str(first)
        broker.start()
        assert "this node had a directory" in broker.log
        assert end_offset(broker.bootstrap_servers) == 10


def test_a_log_in_two_directories_is_refused_in_a_line(two_dirs: tuple[BrokerProcess, Path, Path]) -> None:
    broker, first, second = two_dirs
    (found,) = second.glob("?-0")
    shutil.copytree(found, first / found.name)
    line = refusal(broker)
    assert line.startswith(f"ottla: {found.name} is both in {first / found.name} and {found}")


def test_a_damaged_quorum_state_is_refused_in_a_line_and_can_be_moved_away() -> None:
    with BrokerProcess() as broker:
        produce(broker.bootstrap_servers)
        broker.stop()
        path = Path(broker.data_dir) / "__cluster_metadata-0" / "quorum-state"
        path.write_text("{}")
        line = refusal(broker)
        assert line.startswith(f"ottla: {path}: not a quorum state")
        assert "move the file away" in line
        path.unlink()
        broker.start()
        assert end_offset(broker.bootstrap_servers) == 10


def test_a_partition_whose_topic_id_is_lost_keeps_its_records() -> None:
    with BrokerProcess() as broker:
        produce(broker.bootstrap_servers)
        broker.stop()
        path = Path(broker.data_dir) / "orders-0" / "partition.metadata"
        before = path.read_bytes()
        path.unlink()
        broker.start()
        assert end_offset(broker.bootstrap_servers) == 10
        assert path.read_bytes() == before
        assert f"{path} was missing or damaged: it is written anew" in broker.log
        assert "set aside" not in broker.log


def test_a_log_of_another_topic_id_is_set_aside_and_can_be_brought_back() -> None:
    with BrokerProcess() as broker:
        produce(broker.bootstrap_servers)
        broker.stop()
        data = Path(broker.data_dir)
        (data / "orders-0" / "partition.metadata").write_text("version: 0\ntopic_id: J8aAPcfLQt2bqs1JT_rMgQ")
        broker.start()
        assert "stop the broker, put it in the place of the new orders-0, without the file" in broker.log
        assert end_offset(broker.bootstrap_servers) == 0
        broker.stop()
        (stray,) = data.glob("orders-0.*-stray")
        shutil.rmtree(data / "orders-0")
        stray.rename(data / "orders-0")
        (data / "orders-0" / "partition.metadata").unlink()
        broker.start()
        assert end_offset(broker.bootstrap_servers) == 10


@pytest.mark.parametrize("failing", ["lock", "meta.properties"])
def test_a_broker_starts_without_a_directory_whose_disk_fails(
    tmp_path: Path, failing: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    names = [f"topic{number}" for number in range(4)]
    settings = {"num.partitions": "1"}
    dirs = f"{first},{second}"
    with InProcessBroker(settings, data_dir=dirs) as broker:
        for name in names:
            produce(broker.bootstrap_servers, 3, name)
    there = {name for name in names if (second / f"{name}-0").is_dir()}
    assert 0 < len(there) < len(names)

    lock, read_file = PosixDisk.lock, PosixDisk.read_file

    def failing_lock(disk: PosixDisk, path: str) -> Any:
        if failing == "lock" and path.startswith(str(second)):
            raise OSError(errno.EIO, "Input/output error", path)
        return lock(disk, path)

    def failing_read(disk: PosixDisk, path: str) -> bytes:
        if failing in path and path.startswith(str(second)):
            raise OSError(errno.EIO, "Input/output error", path)
        return read_file(disk, path)

    with monkeypatch.context() as broken:
        broken.setattr(PosixDisk, "lock", failing_lock)
        broken.setattr(PosixDisk, "read_file", failing_read)
        with InProcessBroker(settings, data_dir=dirs) as broker:
            assert f"{second} cannot be used (Input/output error while" in caplog.text
            for name in set(names) - there:
                assert end_offset(broker.bootstrap_servers, name) == 3
            for name in there:
                # Not an empty log in its place.
                assert not (first / f"{name}-0").exists()
                assert refusal_of(broker.bootstrap_servers, name) == KafkaError.KAFKA_STORAGE_ERROR
            produce(broker.bootstrap_servers, 3, "new")
            assert (first / "new-0").is_dir()
    # With the disk comes back what is on it.
    with InProcessBroker(settings, data_dir=dirs) as broker:
        for name in names:
            assert end_offset(broker.bootstrap_servers, name) == 3


def refusal_of(servers: str, topic: str) -> int | None:
    errors: list[KafkaError | None] = []
    producer = Producer(
        {"bootstrap.servers": servers, "retries": 0, "message.timeout.ms": 5000, "log_level": 0}
    )
    producer.produce(topic, b"x", partition=0, on_delivery=lambda error, _: errors.append(error))
    producer.flush(10)
    (error,) = errors
    return None if error is None else error.code()


def test_a_broker_does_not_start_without_any_directory_or_its_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing_lock(disk: PosixDisk, path: str) -> Any:
        raise OSError(errno.EIO, "Input/output error", path)

    monkeypatch.setattr(PosixDisk, "lock", failing_lock)
    with pytest.raises(OSError, match="Input/output error"):
        InProcessBroker(data_dir=f"{tmp_path / 'first'},{tmp_path / 'second'}").start()
