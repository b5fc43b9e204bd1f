"""The consumer protocol (KIP-848): ConsumerGroupHeartbeat (versions 0 to 1), ConsumerGroupDescribe (0 to 1).

A heartbeat joins, keeps alive, reports and leaves; the answer carries the assignment where it changed.
Version 1 has regular expressions for subscriptions, and members that make up their own ids; its description
tells members of the classic protocol apart.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable

from kio.schema.consumer_group_describe.v1 import response as described
from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest
from kio.schema.consumer_group_describe.v1.response import ConsumerGroupDescribeResponse
from kio.schema.consumer_group_heartbeat.v1.request import ConsumerGroupHeartbeatRequest
from kio.schema.consumer_group_heartbeat.v1.response import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kio.schema.types import TopicName
from kio.static.primitive import i8, i32, i32Timedelta

from ottla.coordinator.groups.commands import ConsumerHeartbeatRequest, Partitions
from ottla.coordinator.groups.consumer_group import ConsumerMember
from ottla.handlers.authorized import describable
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.group_members import (
    GroupWithMembers,
    assigned_topics,
    described_groups,
    described_topics,
)
from ottla.handlers.refusal import answer_with
from ottla.handlers.registry import handles
from ottla.handlers.throttle import NOT_THROTTLED
from ottla.metadata.image import MetadataImage
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode, TopicAuthorizationFailed

FIRST_WITH_OWN_MEMBER_ID = 1
CLASSIC_MEMBER, CONSUMER_MEMBER = i8(0), i8(1)


@handles(
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    answer_with(ConsumerGroupHeartbeatResponse, member_epoch=i32(0), heartbeat_interval=NOT_THROTTLED),
)
async def consumer_group_heartbeat(
    broker: Broker, context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    if not describable(context, request.subscribed_topic_names or ()):
        raise TopicAuthorizationFailed
    owned: Partitions | None = None
    if request.topic_partitions is not None:
        owned = {
            topic.topic_id: frozenset(topic.partitions)
            for topic in request.topic_partitions
            if topic.topic_id is not None
        }
    reply = await broker.groups.consumer_heartbeat(
        ConsumerHeartbeatRequest(
            group_id=request.group_id,
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            instance_id=request.instance_id,
            rack_id=request.rack_id,
            rebalance_timeout_ms=round(request.rebalance_timeout.total_seconds() * 1000),
            topics=request.subscribed_topic_names,
            regex=request.subscribed_topic_regex,
            assignor=request.server_assignor,
            owned=owned,
            client_id=context.session.client_id or "",
            client_host=context.session.client_host,
            requires_member_id=context.version >= FIRST_WITH_OWN_MEMBER_ID,
        )
    )
    assigned = None if reply.assignment is None else _shown(broker, context, reply.assignment)
    return ConsumerGroupHeartbeatResponse(
        throttle_time=context.session.throttle_time,
        error_code=ErrorCode.none,
        member_id=reply.member_id,
        member_epoch=i32(reply.member_epoch),
        heartbeat_interval=i32Timedelta.parse(datetime.timedelta(milliseconds=reply.heartbeat_interval_ms)),
        assignment=None
        if assigned is None
        else Assignment(topic_partitions=assigned_topics(TopicPartitions, assigned)),
    )


def _shown(broker: Broker, context: RequestContext, partitions: Partitions) -> Partitions:
    """An expression may match topics that the member is not to know of; it could not read them either."""
    if context.session.authorizer is None:
        return partitions
    names = {topic_id: broker.metadata.image.topic_by_id(topic_id) for topic_id in partitions}
    return {
        topic_id: indexes
        for topic_id, indexes in partitions.items()
        if (topic := names[topic_id]) is not None and describable(context, (topic.name,))
    }


@handles(ApiKey.CONSUMER_GROUP_DESCRIBE)
async def consumer_group_describe(
    broker: Broker, context: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    async def find(group_id: str) -> GroupWithMembers:
        group = await broker.groups.describe_consumer(group_id)
        members = tuple(_member(broker.metadata.image, *member) for member in group.members)
        return GroupWithMembers(group, members, _topics_of(members))

    return ConsumerGroupDescribeResponse(
        throttle_time=context.session.throttle_time,
        groups=await described_groups(described.DescribedGroup, context, request, find),
    )


def _topics_of(members: Iterable[described.Member]) -> set[str]:
    return {
        str(topic.topic_name)
        for member in members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    }


def _member(
    image: MetadataImage, member: ConsumerMember, owned: Partitions, target: Partitions
) -> described.Member:
    return described.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=i32(member.epoch),
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(map(TopicName, member.topics)),
        subscribed_topic_regex=member.regex or None,
        assignment=_described(image, owned),
        target_assignment=_described(image, target),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _described(image: MetadataImage, partitions: Partitions) -> described.Assignment:
    return described.Assignment(
        topic_partitions=described_topics(described.TopicPartitions, image, partitions)
    )
