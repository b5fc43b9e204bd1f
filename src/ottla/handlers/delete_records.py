"""DeleteRecords, versions 0 to 2: forget everything before an offset.

Offset -1 means the high watermark. The answer is the partition's low watermark, the smallest offset still
readable on any replica. Refused for offsets beyond the high watermark, for internal topics, and where
cleanup.policy is compact without delete. The time-out only matters once there are followers to wait for.

v1 same as v0 · v2 flexible
"""

from __future__ import annotations

from kio.schema.delete_records.v2.request import DeleteRecordsPartition, DeleteRecordsRequest
from kio.schema.delete_records.v2.response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from kio.static.primitive import i64

from ottla.handlers.authorized import may
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.registry import handles
from ottla.metadata.internal_topics import INTERNAL_TOPICS
from ottla.runtime.turns import in_turns
from ottla.wire.acls import AclResource, Operation
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode, InvalidTopic, KafkaError, OffsetOutOfRange, PolicyViolation

HIGH_WATERMARK = -1
NO_LOW_WATERMARK = i64(-1)


@handles(ApiKey.DELETE_RECORDS)
async def delete_records(
    broker: Broker, context: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    topics = []
    async for topic in in_turns(request.topics):
        if may(context, Operation.DELETE, AclResource.TOPIC, topic.name):
            partitions = [_delete(broker, topic.name, asked) async for asked in in_turns(topic.partitions)]
        else:
            partitions = [
                DeleteRecordsPartitionResult(
                    partition_index=asked.partition_index,
                    low_watermark=NO_LOW_WATERMARK,
                    error_code=ErrorCode.topic_authorization_failed,
                )
                async for asked in in_turns(topic.partitions)
            ]
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=tuple(partitions)))
    return DeleteRecordsResponse(throttle_time=context.session.throttle_time, topics=tuple(topics))


def _delete(broker: Broker, topic: str, asked: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    try:
        low_watermark = i64(_delete_before(broker, topic, asked.partition_index, asked.offset))
        error = ErrorCode.none
    except KafkaError as refused:
        low_watermark, error = NO_LOW_WATERMARK, refused.code
    return DeleteRecordsPartitionResult(
        partition_index=asked.partition_index, low_watermark=low_watermark, error_code=error
    )


def _delete_before(broker: Broker, topic: str, index: int, offset: int) -> int:
    partition = broker.replicas.leading(topic, index)
    if topic in INTERNAL_TOPICS:
        raise InvalidTopic(f"Cannot delete records of internal topic {topic}")
    config = partition.log.config
    if config.cleanup_compact and not config.cleanup_delete:
        raise PolicyViolation(f"{topic}-{index} is compacted only; add delete to its cleanup.policy first")
    if offset == HIGH_WATERMARK:
        offset = partition.high_watermark
    if not 0 <= offset <= partition.high_watermark:
        raise OffsetOutOfRange(
            f"{topic}-{index}: offset {offset} is not between 0 and the high watermark "
            f"{partition.high_watermark}"
        )
    partition.log.delete_records_before(offset)
    return partition.log_start_offset
