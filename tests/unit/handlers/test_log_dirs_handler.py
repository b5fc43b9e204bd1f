from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from cluster_images import broker_with, context, image_of
from kio.schema.describe_log_dirs.v5.request import DescribableLogDirTopic, DescribeLogDirsRequest

from ottla.handlers.log_dirs import describe_log_dirs
from ottla.log.types import TopicPartition
from ottla.sim.disk import SimDisk
from ottla.wire.errors import ErrorCode


def log(topic: str, partition: int, size_bytes: int) -> Any:
    return SimpleNamespace(topic_partition=TopicPartition(topic, partition), size_bytes=size_bytes)


def described(
    *topics: DescribableLogDirTopic, every: bool = False, copies: dict[str, Any] | None = None
) -> Any:
    disk = SimDisk()
    disk.make_dirs("/one")
    disk.make_dirs("/two")
    disk.open("/two/file", create=True).append([bytes(1000)])
    logs = {
        "/one": [log("a", 0, 10), log("b", 0, 20), log("a", 1, 30)],
        "/two": [],
        "/gone": [log("c", 0, 1)],
        "/failed": [],
    }
    broker = broker_with(
        image_of(),
        runtime=SimpleNamespace(disk=disk),
        replicas=SimpleNamespace(
            logs=SimpleNamespace(
                logs_by_dir=lambda: logs,
                failure_of={"/failed": "EIO"}.get,
                moves=SimpleNamespace(copies=copies or {}),
            )
        ),
    )
    request = DescribeLogDirsRequest(topics=None if every else topics)
    response = describe_log_dirs(broker, context(5), request)
    assert response.error_code is ErrorCode.none
    return response.results


def sizes(result: Any) -> dict[str, list[tuple[int, int]]]:
    return {
        topic.name: [(p.partition_index, p.partition_size) for p in topic.partitions]
        for topic in result.topics
    }


def test_everything() -> None:
    one, two, gone, failed = described(every=True)
    assert (one.log_dir, one.error_code) == ("/one", ErrorCode.none)
    assert sizes(one) == {"a": [(0, 10), (1, 30)], "b": [(0, 20)]}
    assert not any(p.is_future_key or p.offset_lag for topic in one.topics for p in topic.partitions)
    assert (two.log_dir, two.topics) == ("/two", ())
    assert two.total_bytes - two.usable_bytes == 1000
    assert (gone.log_dir, gone.error_code, gone.topics) == ("/gone", ErrorCode.kafka_storage_error, ())
    assert (failed.log_dir, failed.error_code) == ("/failed", ErrorCode.kafka_storage_error)


def test_only_what_was_asked_for() -> None:
    one, two, *_ = described(DescribableLogDirTopic(topic="a", partitions=(1, 7)))
    assert sizes(one) == {"a": [(1, 30)]}
    assert two.topics == ()


def test_nothing_asked_for() -> None:
    assert [sizes(result) for result in described()] == [{}, {}, {}, {}]


def test_a_copy_that_is_being_moved_here() -> None:
    source, copy = log("a", 0, 10), log("a", 0, 4)
    source.next_offset, copy.next_offset, copy.dir = 100, 40, "/two/a-0.00-future"
    one, two, *_ = described(every=True, copies={"a-0": (source, copy)})
    assert not one.topics[0].partitions[0].is_future_key
    (moving,) = two.topics[0].partitions
    assert (moving.is_future_key, moving.offset_lag, moving.partition_size) == (True, 60, 4)
