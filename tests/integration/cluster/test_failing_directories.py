"""A broker of several loses a data directory, or a replica in it: the others take over, and give it back."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from tests.integration.cluster.steps import DEADLINE_S, create, partitions, produce, wait

from ottla.testing import BrokerCluster, ClusterBroker

pytestmark = pytest.mark.timeout(240)
SEGMENT = "00000000000000000000.log"
TOPICS = [f"topic-{number}" for number in range(6)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BrokerCluster]:
    """The first broker has two directories besides the one of the metadata."""
    directories = {
        1: {
            "log.dirs": [f"{tmp_path}/one", f"{tmp_path}/two"],
            "metadata.log.dir": f"{tmp_path}/broker-1/data",
        }
    }
    with BrokerCluster(data_dir=str(tmp_path), own_settings=directories) as running:
        yield running


def segment(broker: ClusterBroker, topic: str, directory: Path | None = None) -> Path:
    return (directory or Path(broker.data_dir)) / f"{topic}-0" / SEGMENT


def test_a_failed_directory_takes_only_its_replicas_offline(cluster: BrokerCluster, tmp_path: Path) -> None:
    for topic in TOPICS:
        create(cluster, topic, [1, 2, 3])
        assert produce(cluster, topic, 0, 10) == 10
    one, two = tmp_path / "one", tmp_path / "two"
    lost = {topic for topic in TOPICS if segment(cluster[1], topic, one).exists()}
    kept = {topic for topic in TOPICS if segment(cluster[1], topic, two).exists()}
    assert lost and kept and lost | kept == {*TOPICS}
    # As if its disk were not there any more.
    one.rename(tmp_path / "gone")
    for topic in lost:
        wait(lambda topic=topic: produce(cluster, topic, 0, 10) == 10)
    wait(lambda: all(partitions(cluster, topic)[0][0] != 1 for topic in lost))
    for topic in lost:
        assert partitions(cluster, topic)[0][2] == [2, 3]
    for topic in kept:
        assert partitions(cluster, topic)[0] == (1, [1, 2, 3], [1, 2, 3])
        assert produce(cluster, topic, 0, 10) == 10
    assert cluster[1].is_running
    # With its disk again it comes back, and into sync.
    cluster[1].kill9()
    (tmp_path / "gone").rename(one)
    cluster.start()
    for topic in TOPICS:
        cluster.wait_in_sync(topic, 3, timeout_seconds=60)


def test_a_replica_whose_log_is_missing_or_corrupt_is_restored_from_the_leader(
    cluster: BrokerCluster,
) -> None:
    topics = ("missing", "corrupt")
    for topic in topics:
        create(cluster, topic, [2, 3, 1])
        assert produce(cluster, topic, 0, 2000) == 2000
        cluster.wait_in_sync(topic, 3)
    # What it had by then is known to be on disk.
    assert cluster[3].stop() == 0
    cluster.start()
    for topic in topics:
        cluster.wait_in_sync(topic, 3, timeout_seconds=60)
        assert produce(cluster, topic, 0, 2000) == 2000
    whole = {topic: segment(cluster[2], topic).read_bytes() for topic in topics}
    assert whole == {topic: segment(cluster[3], topic).read_bytes() for topic in topics}
    cluster[3].kill9()
    shutil.rmtree(segment(cluster[3], "missing").parent)
    damaged = bytearray(whole["corrupt"])
    damaged[len(damaged) // 4] ^= 0xFF
    segment(cluster[3], "corrupt").write_bytes(damaged)
    cluster.start()
    for topic, expected in whole.items():
        cluster.wait_in_sync(topic, 3, timeout_seconds=60)
        assert segment(cluster[3], topic).read_bytes() == expected


def test_the_only_replica_in_sync_does_not_come_back_empty_without_its_directory(
    cluster: BrokerCluster, tmp_path: Path
) -> None:
    first = cluster[1]
    for topic in ("a", "b"):
        create(cluster, topic, [1, 2])
        assert produce(cluster, topic, 0, 10) == 10
    cluster[2].kill9()
    wait(lambda: all(partitions(cluster, topic)[0][2] == [1] for topic in ("a", "b")))
    assert first.stop() == 0
    whole = first.settings
    first.settings = {**whole, "log.dirs": [f"{tmp_path}/one"]}
    (lost,) = (topic for topic in ("a", "b") if segment(first, topic, tmp_path / "two").exists())
    cluster.start()
    wait(lambda: f"{lost}-0 is offline: its log was in a directory" in first.log)
    assert end_offset(cluster, "b" if lost == "a" else "a") == 10
    assert partitions(cluster, lost)[0][0] == -1
    assert first.stop() == 0
    first.settings = whole
    cluster.start()
    cluster.wait_in_sync(lost, 2, timeout_seconds=60)
    assert end_offset(cluster, lost) == 10


def test_a_removed_folder_never_leads_though_its_replica_was_in_sync(tmp_path: Path) -> None:
    settings = {"log.initial.task.delay.ms": 0, "log.flush.offset.checkpoint.interval.ms": 200}
    with BrokerCluster(settings, data_dir=str(tmp_path)) as cluster:
        create(cluster, "a", [1, 2, 3])
        assert produce(cluster, "a", 0, 100) == 100
        for broker in cluster.brokers.values():
            checkpoint = Path(broker.data_dir) / "replication-offset-checkpoint"
            wait(lambda checkpoint=checkpoint: checkpoint.exists() and "a 0 100\n" in checkpoint.read_text())
        for broker in cluster.brokers.values():
            broker.kill9()
        shutil.rmtree(segment(cluster[1], "a").parent)
        cluster.start()
        # The first replica is preferred, and comes back into sync once it has all that the others have.
        cluster.wait_in_sync("a", 3, timeout_seconds=60)
        assert end_offset(cluster, "a") == 100
        assert segment(cluster[1], "a").read_bytes() == segment(cluster[2], "a").read_bytes()
        assert "a-0 is offline: its files in" in cluster[1].log


def test_the_last_replica_in_sync_does_not_come_back_empty_without_its_folder(tmp_path: Path) -> None:
    with BrokerCluster({"min.insync.replicas": 1}, data_dir=str(tmp_path)) as cluster:
        first = cluster[1]
        create(cluster, "a", [1, 2])
        assert produce(cluster, "a", 0, 10) == 10
        assert cluster[2].stop() == 0
        wait(lambda: partitions(cluster, "a")[0][2] == [1])
        assert produce(cluster, "a", 0, 10) == 10
        assert first.stop() == 0
        folder = segment(first, "a").parent
        folder.rename(tmp_path / "kept")
        cluster.start()
        wait(lambda: "a-0 is offline: its files in" in first.log)
        wait(lambda: partitions(cluster, "a")[0][0] == -1)
        # A second start has not forgotten it.
        assert first.stop() == 0
        cluster.start()
        wait(lambda: "a-0 is offline: its files in" in first.log)
        assert partitions(cluster, "a")[0][0] == -1
        assert first.stop() == 0
        (tmp_path / "kept").rename(folder)
        cluster.start()
        cluster.wait_in_sync("a", 2, timeout_seconds=60)
        assert end_offset(cluster, "a") == 20


def end_offset(cluster: BrokerCluster, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "unused"})
    try:
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                _, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
            except KafkaException:
                # While nobody leads it, the client does not always wait.
                assert time.monotonic() < deadline
                time.sleep(0.05)
            else:
                return int(high)
    finally:
        consumer.close()
