"""AlterReplicaLogDirs, versions 1 to 2: move replicas of this broker to other data directories of it.

Answered once the move has begun; DescribeLogDirs shows how far it is.

v2 flexible
"""

from __future__ import annotations

from kio.schema.alter_replica_log_dirs.v2.request import AlterReplicaLogDirsRequest
from kio.schema.alter_replica_log_dirs.v2.response import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from kio.schema.types import TopicName
from kio.static.primitive import i32

from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.registry import handles
from ottla.log.types import TopicPartition
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError


def _refused(
    context: RequestContext, request: AlterReplicaLogDirsRequest, error: KafkaError
) -> AlterReplicaLogDirsResponse:
    outcomes: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            outcomes.setdefault(topic.name, []).extend(
                AlterReplicaLogDirPartitionResult(partition_index=i32(index), error_code=error.code)
                for index in topic.partitions
            )
    return _response(context, outcomes)


def _response(
    context: RequestContext, outcomes: dict[str, list[AlterReplicaLogDirPartitionResult]]
) -> AlterReplicaLogDirsResponse:
    return AlterReplicaLogDirsResponse(
        throttle_time=context.session.throttle_time,
        results=tuple(
            AlterReplicaLogDirTopicResult(topic_name=TopicName(name), partitions=tuple(partitions))
            for name, partitions in outcomes.items()
        ),
    )


@handles(ApiKey.ALTER_REPLICA_LOG_DIRS, _refused)
async def alter_replica_log_dirs(
    broker: Broker, context: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    outcomes: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                code = ErrorCode.none
                try:
                    await broker.replicas.logs.move(TopicPartition(topic.name, index), directory.path)
                except KafkaError as error:
                    code = error.code
                outcomes.setdefault(topic.name, []).append(
                    AlterReplicaLogDirPartitionResult(partition_index=i32(index), error_code=code)
                )
    return _response(context, outcomes)
