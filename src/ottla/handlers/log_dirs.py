"""DescribeLogDirs, versions 1 to 5: what lies in each data directory and how full its volume is.

All partitions, or those asked for; a directory is listed even if it has none of them. `offset_lag` is how far
a partition's log is behind its high watermark, which is nothing on a leader; of a copy that is being moved to
the directory, how far it is behind the log.

v2 flexible · v3 top-level error code · v4 total and usable bytes of the volume (KIP-827)
v5 cordoned directories (KIP-1066; none are)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kio.schema.describe_log_dirs.v5.request import DescribeLogDirsRequest
from kio.schema.describe_log_dirs.v5.response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kio.schema.types import TopicName
from kio.static.primitive import i32, i64

from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.refusal import answer_with
from ottla.handlers.registry import handles
from ottla.log.log import PartitionLog
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode


@handles(ApiKey.DESCRIBE_LOG_DIRS, answer_with(DescribeLogDirsResponse, results=()))
def describe_log_dirs(
    broker: Broker, context: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    wanted: set[tuple[str, int]] | None = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    return DescribeLogDirsResponse(
        throttle_time=context.session.throttle_time,
        error_code=ErrorCode.none,
        results=tuple(
            _directory(broker, path, logs, wanted)
            for path, logs in broker.replicas.logs.logs_by_dir().items()
        ),
    )


def _directory(
    broker: Broker, path: str, logs: Sequence[PartitionLog], wanted: Collection[tuple[str, int]] | None
) -> DescribeLogDirsResult:
    if broker.replicas.logs.failure_of(path) is not None:
        return DescribeLogDirsResult(error_code=ErrorCode.kafka_storage_error, log_dir=path, topics=())
    try:
        total_bytes, usable_bytes = broker.runtime.disk.usage(path)
    except OSError:
        return DescribeLogDirsResult(error_code=ErrorCode.kafka_storage_error, log_dir=path, topics=())
    by_topic: dict[str, list[DescribeLogDirsPartition]] = {}
    replicas = [(log, 0, False) for log in logs]
    replicas += [
        (copy, max(log.next_offset - copy.next_offset, 0), True)
        for log, copy in broker.replicas.logs.moves.copies.values()
        if copy.dir.rpartition("/")[0] == path
    ]
    for log, lag, is_future in replicas:
        topic, index = log.topic_partition
        if wanted is None or (topic, index) in wanted:
            by_topic.setdefault(topic, []).append(
                DescribeLogDirsPartition(
                    partition_index=i32(index),
                    partition_size=i64(log.size_bytes),
                    offset_lag=i64(lag),
                    is_future_key=is_future,
                )
            )
    return DescribeLogDirsResult(
        error_code=ErrorCode.none,
        log_dir=path,
        topics=tuple(
            DescribeLogDirsTopic(name=TopicName(topic), partitions=tuple(partitions))
            for topic, partitions in by_topic.items()
        ),
        total_bytes=i64(total_bytes),
        usable_bytes=i64(usable_bytes),
    )
