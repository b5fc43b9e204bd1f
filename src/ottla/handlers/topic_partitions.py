"""DescribeTopicPartitions, version 0: partitions page by page, for tools on large clusters (KIP-966).

Topics come in the order of their names, starting at the cursor, until the limit (the smaller of the request's
and max.request.partition.size.limit) is reached; `next_cursor` says where to go on. Without names every topic
is described. A cursor at a topic that is not asked for, or at a negative partition, is refused.
"""

from __future__ import annotations

from kio.schema.describe_topic_partitions.v0.request import DescribeTopicPartitionsRequest
from kio.schema.describe_topic_partitions.v0.response import (
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i32

from ottla.controller.topic_names import check_name
from ottla.handlers.authorized import NOT_ASKED, may, operations_on
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.nodes import Node, nodes_on
from ottla.handlers.registry import handles
from ottla.metadata.image import PartitionImage, TopicImage
from ottla.metadata.internal_topics import INTERNAL_TOPICS
from ottla.runtime.turns import in_turns
from ottla.wire.acls import AclResource, Operation
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode, InvalidTopic

NO_LEADER = -1


@handles(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
async def describe_topic_partitions(
    broker: Broker, context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    image = broker.metadata.image
    cursor = request.cursor
    asked = {topic.name for topic in request.topics}
    if cursor is not None and (cursor.partition_index < 0 or (asked and cursor.topic_name not in asked)):
        refused = [_failed_topic(name, ErrorCode.invalid_request) async for name in in_turns(sorted(asked))]
        return DescribeTopicPartitionsResponse(
            throttle_time=context.session.throttle_time, topics=tuple(refused)
        )
    first_topic, first_partition = ("", 0) if cursor is None else (cursor.topic_name, cursor.partition_index)
    limit = broker.config.integer("max.request.partition.size.limit")
    left = max(min(limit, request.response_partition_limit), 1)
    nodes = nodes_on(image, context.session.listener)
    wanted: list[str] = []
    hidden: list[str] = []
    async for name in in_turns(sorted(name for name in asked or image.topics if name >= first_topic)):
        is_known = may(context, Operation.DESCRIBE, AclResource.TOPIC, name, quietly=not asked)
        (wanted if is_known else hidden).append(name)
    topics = []
    next_cursor = None
    async for name in in_turns(wanted):
        operations = operations_on(context, AclResource.TOPIC, name)
        if left == 0:
            next_cursor = Cursor(topic_name=TopicName(name), partition_index=i32(0))
            break
        topic = image.topics.get(name)
        if topic is None:
            topics.append(_failed_topic(name, _why_missing(name), operations))
            continue
        start = first_partition if name == first_topic else 0
        end = min(start + left, len(topic.partitions))
        hosted = broker.replicas.by_id.get(topic.id.bytes)
        offline = {} if hosted is None else dict.fromkeys(hosted.offline, broker.node_id)
        topics.append(_topic(topic, start, end, nodes, offline, operations))
        if end < len(topic.partitions):
            next_cursor = Cursor(topic_name=TopicName(name), partition_index=i32(end))
            break
        left -= max(end - start, 0)
    if asked:
        topics += [_failed_topic(name, ErrorCode.topic_authorization_failed) for name in hidden]
    return DescribeTopicPartitionsResponse(
        throttle_time=context.session.throttle_time, topics=tuple(topics), next_cursor=next_cursor
    )


def _why_missing(name: str) -> ErrorCode:
    try:
        check_name(name)
    except InvalidTopic as error:
        return error.code
    return ErrorCode.unknown_topic_or_partition


def _failed_topic(
    name: str, error: ErrorCode, operations: i32 = NOT_ASKED
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=error,
        name=TopicName(name),
        topic_id=None,
        is_internal=error is not ErrorCode.topic_authorization_failed and name in INTERNAL_TOPICS,
        partitions=(),
        topic_authorized_operations=operations,
    )


def _topic(
    topic: TopicImage,
    start: int,
    end: int,
    nodes: dict[int, Node],
    offline: dict[int, int],
    operations: i32,
) -> DescribeTopicPartitionsResponseTopic:
    """`offline` has the broker whose replica cannot work, by partition."""
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.none,
        name=TopicName(topic.name),
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=tuple(
            _partition(i, topic.partitions[i], nodes, offline.get(i)) for i in range(start, end)
        ),
        topic_authorized_operations=operations,
    )


def _partition(
    index: int, state: PartitionImage, nodes: dict[int, Node], offline: int | None
) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.none,
        partition_index=i32(index),
        leader_id=BrokerId(state.leader if state.leader in nodes else NO_LEADER),
        leader_epoch=i32(state.leader_epoch),
        replica_nodes=_ids(state.replicas),
        isr_nodes=_ids(state.isr),
        eligible_leader_replicas=_ids(state.eligible_leader_replicas),
        last_known_elr=_ids(state.last_known_elr),
        offline_replicas=_ids(
            tuple(
                replica
                for replica in state.replicas
                if replica not in nodes or nodes[replica].fenced or replica == offline
            )
        ),
    )


def _ids(brokers: tuple[int, ...]) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(broker) for broker in brokers)
