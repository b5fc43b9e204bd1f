"""Share groups (KIP-932): ShareGroupHeartbeat (version 1), ShareGroupDescribe (1).

A heartbeat joins, keeps alive and leaves; the answer carries the assignment where it changed. Version 0 of
both was a preview, which Apache Kafka no longer answers either.
"""

from __future__ import annotations

import datetime

from kio.schema.share_group_describe.v1 import response as described
from kio.schema.share_group_describe.v1.request import ShareGroupDescribeRequest
from kio.schema.share_group_heartbeat.v1.request import ShareGroupHeartbeatRequest
from kio.schema.share_group_heartbeat.v1.response import (
    Assignment,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from kio.schema.types import TopicName
from kio.static.primitive import i32, i32Timedelta

from ottla.coordinator.groups.commands import Partitions, ShareHeartbeatRequest
from ottla.coordinator.groups.share_group import ShareMember
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
from ottla.metadata.features import SHARE_VERSION
from ottla.metadata.image import MetadataImage
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode, TopicAuthorizationFailed, UnsupportedVersion


def require_share_groups(broker: Broker) -> None:
    """Raises UnsupportedVersion where the cluster has not agreed on them."""
    if broker.metadata.image.features.get(SHARE_VERSION, 0) < 1:
        raise UnsupportedVersion(
            "share groups are off in this cluster; turn them on with kafka-features upgrade --feature "
            f"{SHARE_VERSION}=1"
        )


@handles(
    ApiKey.SHARE_GROUP_HEARTBEAT,
    answer_with(ShareGroupHeartbeatResponse, member_epoch=i32(0), heartbeat_interval=NOT_THROTTLED),
)
async def share_group_heartbeat(
    broker: Broker, context: RequestContext, request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse:
    require_share_groups(broker)
    if not describable(context, request.subscribed_topic_names or ()):
        raise TopicAuthorizationFailed
    reply = await broker.groups.share_heartbeat(
        ShareHeartbeatRequest(
            group_id=request.group_id,
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            rack_id=request.rack_id,
            topics=request.subscribed_topic_names,
            client_id=context.session.client_id or "",
            client_host=context.session.client_host,
        )
    )
    return ShareGroupHeartbeatResponse(
        throttle_time=context.session.throttle_time,
        error_code=ErrorCode.none,
        member_id=reply.member_id,
        member_epoch=i32(reply.member_epoch),
        heartbeat_interval=i32Timedelta.parse(datetime.timedelta(milliseconds=reply.heartbeat_interval_ms)),
        assignment=None
        if reply.assignment is None
        else Assignment(topic_partitions=assigned_topics(TopicPartitions, reply.assignment)),
    )


@handles(ApiKey.SHARE_GROUP_DESCRIBE)
async def share_group_describe(
    broker: Broker, context: RequestContext, request: ShareGroupDescribeRequest
) -> described.ShareGroupDescribeResponse:
    async def find(group_id: str) -> GroupWithMembers:
        require_share_groups(broker)
        group = await broker.groups.describe_share(group_id)
        members = tuple(_member(broker.metadata.image, *member) for member in group.members)
        topics = {str(t.topic_name) for m in members for t in m.assignment.topic_partitions}
        return GroupWithMembers(group, members, topics)

    return described.ShareGroupDescribeResponse(
        throttle_time=context.session.throttle_time,
        groups=await described_groups(described.DescribedGroup, context, request, find),
    )


def _member(image: MetadataImage, member: ShareMember, assigned: Partitions) -> described.Member:
    return described.Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=i32(member.epoch),
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(map(TopicName, member.topics)),
        assignment=described.Assignment(
            topic_partitions=described_topics(described.TopicPartitions, image, assigned)
        ),
    )
