"""What the log directories of brokers hold."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from ottla.client.admin.topics import Partition
from ottla.client.cluster import ClusterClient
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode


class HeldReplica(NamedTuple):
    partition: Partition
    size_bytes: int
    offset_lag: int
    is_future: bool
    """Being moved here from another directory of the same broker."""


class LogDir(NamedTuple):
    path: str
    error_code: ErrorCode
    total_bytes: int
    """Of the volume; -1 where the broker does not say."""
    usable_bytes: int
    replicas: tuple[HeldReplica, ...]


async def describe_log_dirs(
    cluster: ClusterClient, broker: int, topics: Collection[str] | None = None
) -> list[LogDir]:
    """Of one broker; with replicas of some topics, or of all."""
    asked = None
    if topics is not None:
        found = await cluster.topics(topics)
        asked = [{"topic": name, "partitions": list(topic.partitions)} for name, topic in found.items()]
    answer = await cluster.ask(broker, ApiKey.DESCRIBE_LOG_DIRS, {"topics": asked}, about=f"broker {broker}")
    return [
        LogDir(
            result.log_dir,
            result.error_code,
            result.total_bytes,
            result.usable_bytes,
            tuple(
                HeldReplica(
                    Partition(topic.name, item.partition_index),
                    item.partition_size,
                    item.offset_lag,
                    item.is_future_key,
                )
                for topic in result.topics
                for item in topic.partitions
            ),
        )
        for result in answer.results
    ]
