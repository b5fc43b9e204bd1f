"""OffsetForLeaderEpoch, versions 2 to 4: where a leader's reign ended in the log.

Consumers ask it after a leader change to notice that what they read was truncated (KIP-320), followers to
find where their log diverges. The answer is the largest known epoch not above the one asked for and the
offset after its last record; -1 and -1 if there is none.

v2 current leader epoch for fencing, throttle time · v3 replica id · v4 flexible
"""

from __future__ import annotations

from kio.schema.offset_for_leader_epoch.v4.request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
)
from kio.schema.offset_for_leader_epoch.v4.response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from kio.static.primitive import i32, i64

from ottla.handlers.authorized import may
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.registry import handles
from ottla.runtime.turns import in_turns
from ottla.wire.acls import AclResource, Operation
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError


@handles(ApiKey.OFFSET_FOR_LEADER_EPOCH)
async def offset_for_leader_epoch(
    broker: Broker, context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    topics = []
    is_broker = may(context, Operation.CLUSTER_ACTION, AclResource.CLUSTER, quietly=True)
    async for topic in in_turns(request.topics):
        if is_broker or may(context, Operation.DESCRIBE, AclResource.TOPIC, topic.topic):
            partitions = [_answer(broker, topic.topic, asked) async for asked in in_turns(topic.partitions)]
        else:
            partitions = [
                EpochEndOffset(error_code=ErrorCode.topic_authorization_failed, partition=asked.partition)
                async for asked in in_turns(topic.partitions)
            ]
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=tuple(partitions)))
    return OffsetForLeaderEpochResponse(throttle_time=context.session.throttle_time, topics=tuple(topics))


def _answer(broker: Broker, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = broker.replicas.leading(topic, asked.partition, asked.current_leader_epoch)
        epoch, end_offset = partition.log.end_offset_for_epoch(asked.leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(error_code=error.code, partition=asked.partition)
    return EpochEndOffset(
        error_code=ErrorCode.none,
        partition=asked.partition,
        leader_epoch=i32(epoch),
        end_offset=i64(end_offset),
    )
