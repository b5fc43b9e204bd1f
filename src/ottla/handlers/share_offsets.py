"""Where share groups are: DescribeShareGroupOffsets (versions 0 to 1), AlterShareGroupOffsets (0),
DeleteShareGroupOffsets (0).

Version 1 of the first tells how many records are still to be delivered (KIP-1226). Offsets can be altered and
deleted while the group is empty.
"""

from __future__ import annotations

from typing import Any

from kio.schema.alter_share_group_offsets.v0 import response as altered
from kio.schema.alter_share_group_offsets.v0.request import AlterShareGroupOffsetsRequest
from kio.schema.delete_share_group_offsets.v0 import response as deleted
from kio.schema.delete_share_group_offsets.v0.request import DeleteShareGroupOffsetsRequest
from kio.schema.describe_share_group_offsets.v1 import response as told
from kio.schema.describe_share_group_offsets.v1.request import DescribeShareGroupOffsetsRequest
from kio.schema.types import TopicName
from kio.static.primitive import i32, i64

from ottla.coordinator.groups.coordinator import SharedOffset
from ottla.handlers.authorized import may, refusal, require
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.outcome import error_code, error_message
from ottla.handlers.refusal import answer_with
from ottla.handlers.registry import handles
from ottla.handlers.share_groups import require_share_groups
from ottla.runtime.turns import in_turns
from ottla.wire.acls import AclResource, Operation
from ottla.wire.api import ApiKey
from ottla.wire.errors import CoordinatorNotAvailable, ErrorCode, KafkaError, UnknownTopicOrPartition

_NOTHING = i64(-1)


@handles(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS)
async def describe_share_group_offsets(
    broker: Broker, context: RequestContext, request: DescribeShareGroupOffsetsRequest
) -> told.DescribeShareGroupOffsetsResponse:
    async def describe(asked: Any) -> told.DescribeShareGroupOffsetsResponseGroup:
        error: KafkaError | None = None
        topics: list[told.DescribeShareGroupOffsetsResponseTopic] = []
        try:
            require_share_groups(broker)
            require(context, Operation.DESCRIBE, AclResource.GROUP, asked.group_id)
            topics = await _described(broker, context, asked)
        except KafkaError as raised:
            error = raised
        return told.DescribeShareGroupOffsetsResponseGroup(
            group_id=asked.group_id,
            topics=tuple(topics),
            error_code=error_code(error),
            error_message=error_message(error),
        )

    return told.DescribeShareGroupOffsetsResponse(
        throttle_time=context.session.throttle_time,
        groups=tuple([await describe(asked) async for asked in in_turns(request.groups)]),
    )


async def _described(
    broker: Broker, context: RequestContext, asked: Any
) -> list[told.DescribeShareGroupOffsetsResponseTopic]:
    if asked.topics is None:
        found = await broker.groups.share_offsets(asked.group_id, None)
        return [
            _topic(name, *found[name])
            for name in sorted(found)
            if may(context, Operation.DESCRIBE, AclResource.TOPIC, name, quietly=True)
        ]
    wanted = {str(topic.topic_name): tuple(topic.partitions) for topic in asked.topics}
    allowed = {
        name: partitions
        for name, partitions in wanted.items()
        if may(context, Operation.DESCRIBE, AclResource.TOPIC, name)
    }
    found = await broker.groups.share_offsets(asked.group_id, allowed)
    return [
        _topic(name, *found[name])
        if name in allowed
        else _topic(
            name,
            None,
            dict.fromkeys(partitions, refusal(Operation.DESCRIBE, AclResource.TOPIC, name)),
        )
        for name, partitions in wanted.items()
    ]


def _topic(name: str, topic_id: Any, partitions: Any) -> told.DescribeShareGroupOffsetsResponseTopic:
    return told.DescribeShareGroupOffsetsResponseTopic(
        topic_name=TopicName(name),
        topic_id=topic_id,
        partitions=tuple(_partition(index, found) for index, found in partitions.items()),
    )


def _partition(
    index: int, found: SharedOffset | KafkaError
) -> told.DescribeShareGroupOffsetsResponsePartition:
    if isinstance(found, SharedOffset):
        return told.DescribeShareGroupOffsetsResponsePartition(
            partition_index=i32(index),
            start_offset=i64(found.start_offset),
            leader_epoch=i32(found.leader_epoch),
            lag=i64(found.lag),
            error_code=ErrorCode.none,
        )
    return told.DescribeShareGroupOffsetsResponsePartition(
        partition_index=i32(index),
        start_offset=_NOTHING,
        leader_epoch=i32(0),
        error_code=error_code(found),
        error_message=error_message(found),
    )


@handles(ApiKey.ALTER_SHARE_GROUP_OFFSETS, answer_with(altered.AlterShareGroupOffsetsResponse, responses=()))
async def alter_share_group_offsets(
    broker: Broker, context: RequestContext, request: AlterShareGroupOffsetsRequest
) -> altered.AlterShareGroupOffsetsResponse:
    require_share_groups(broker)
    image = broker.metadata.image
    errors: dict[tuple[str, int], KafkaError | None] = {}
    wanted: dict[str, dict[int, int]] = {}
    async for topic in in_turns(request.topics):
        name = str(topic.topic_name)
        known = image.topics.get(name)
        is_allowed = may(context, Operation.READ, AclResource.TOPIC, name)
        for partition in topic.partitions:
            index = int(partition.partition_index)
            if not is_allowed:
                errors[name, index] = refusal(Operation.READ, AclResource.TOPIC, name)
            elif known is None or known.partition(index) is None:
                errors[name, index] = UnknownTopicOrPartition(f"{name}-{index} does not exist")
            else:
                wanted.setdefault(name, {})[index] = int(partition.start_offset)
    done = await broker.groups.alter_share_offsets(request.group_id, wanted) if wanted else {}
    for name, offsets in wanted.items():
        topic_image = image.topics[name]
        for index in offsets:
            is_done = index in done.get(topic_image.id, ())
            errors[name, index] = None if is_done else _not_altered(name, index)
    return altered.AlterShareGroupOffsetsResponse(
        throttle_time=context.session.throttle_time,
        error_code=ErrorCode.none,
        responses=tuple(
            altered.AlterShareGroupOffsetsResponseTopic(
                topic_name=topic.topic_name,
                topic_id=known.id if (known := image.topics.get(topic.topic_name)) is not None else None,
                partitions=tuple(
                    altered.AlterShareGroupOffsetsResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=error_code(errors[topic.topic_name, partition.partition_index]),
                        error_message=error_message(errors[topic.topic_name, partition.partition_index]),
                    )
                    for partition in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )


def _not_altered(name: str, index: int) -> KafkaError:
    return CoordinatorNotAvailable(f"the share coordinator of {name}-{index} did not answer; try again")


@handles(
    ApiKey.DELETE_SHARE_GROUP_OFFSETS, answer_with(deleted.DeleteShareGroupOffsetsResponse, responses=())
)
async def delete_share_group_offsets(
    broker: Broker, context: RequestContext, request: DeleteShareGroupOffsetsRequest
) -> deleted.DeleteShareGroupOffsetsResponse:
    require_share_groups(broker)
    names = [str(topic.topic_name) for topic in request.topics]
    allowed = [name for name in names if may(context, Operation.READ, AclResource.TOPIC, name)]
    found = await broker.groups.delete_share_states(request.group_id, allowed)

    def answer(name: str) -> deleted.DeleteShareGroupOffsetsResponseTopic:
        topic_id, error = found.get(name, (None, None))
        if name not in allowed:
            error = refusal(Operation.READ, AclResource.TOPIC, name)
        elif name not in broker.metadata.image.topics:
            error = UnknownTopicOrPartition(f"topic {name} does not exist")
        elif topic_id is None:
            error = UnknownTopicOrPartition("There is no offset information to delete.")
        return deleted.DeleteShareGroupOffsetsResponseTopic(
            topic_name=TopicName(name),
            topic_id=topic_id,
            error_code=error_code(error),
            error_message=error_message(error),
        )

    return deleted.DeleteShareGroupOffsetsResponse(
        throttle_time=context.session.throttle_time,
        error_code=ErrorCode.none,
        responses=tuple(map(answer, names)),
    )
