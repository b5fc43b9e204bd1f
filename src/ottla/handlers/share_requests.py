"""What ShareFetch and ShareAcknowledge have in common: who asks, acknowledgements, and leaders that are
elsewhere."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from kio.static.primitive import i32Timedelta

from ottla.handlers.authorized import may
from ottla.handlers.context import Broker, RequestContext
from ottla.metadata.features import SHARE_VERSION
from ottla.replication.share.in_flight import Acknowledgement, AckType
from ottla.replication.share.sessions import Member, TopicIdPartition
from ottla.runtime.turns import in_turns, slices_in_turns
from ottla.wire.acls import AclResource, Operation
from ottla.wire.current_leader import CurrentLeader
from ottla.wire.errors import (
    ErrorCode,
    InvalidRequest,
    KafkaError,
    TopicAuthorizationFailed,
    UnknownTopicId,
    UnsupportedVersion,
)

MEMBER_ID_LENGTH_MAX = 36
FIRST_WITH_RENEWALS = 2
_OF_WRONG_BROKER = (ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch)

Acknowledgements: TypeAlias = dict[TopicIdPartition, list[Acknowledgement]]
Outcomes: TypeAlias = dict[TopicIdPartition, KafkaError | None]


def member_of(broker: Broker, request: Any) -> Member:
    if not broker.metadata.image.features.get(SHARE_VERSION, 0):
        raise UnsupportedVersion(f"this cluster has no share groups; set its feature {SHARE_VERSION} to 1")
    if request.group_id is None:
        raise InvalidRequest("group.id must not be null")
    if not request.member_id or len(request.member_id) > MEMBER_ID_LENGTH_MAX:
        raise InvalidRequest(f"a member id must have 1 to {MEMBER_ID_LENGTH_MAX} characters")
    return Member(request.group_id, request.member_id)


async def named_partitions(topics: Iterable[Any]) -> dict[TopicIdPartition, Any]:
    """What a request says of each partition."""
    named: dict[TopicIdPartition, Any] = {}
    async for topic in in_turns(topics):
        if topic.topic_id is not None:
            async for some in slices_in_turns(topic.partitions):
                named |= {TopicIdPartition(topic.topic_id, each.partition_index): each for each in some}
    return named


def acknowledgements_of(named: Mapping[TopicIdPartition, Any]) -> Acknowledgements:
    """Of those partitions that have any."""
    return {
        of: [
            Acknowledgement(batch.first_offset, batch.last_offset, batch.acknowledge_types)
            for batch in partition.acknowledgement_batches
        ]
        for of, partition in named.items()
        if partition.acknowledgement_batches
    }


def check_readable(broker: Broker, context: RequestContext, of: TopicIdPartition) -> None:
    name = broker.metadata.image.topic_names.get(of.topic_id)
    if name is None:
        raise UnknownTopicId(f"the cluster has no topic with id {of.topic_id}")
    if not may(context, Operation.READ, AclResource.TOPIC, name):
        raise TopicAuthorizationFailed(f"needs permission to READ topic {name}")


async def acknowledge(
    broker: Broker, context: RequestContext, member: Member, given: Acknowledgements, *, is_renewal: bool
) -> Outcomes:
    """Each partition for itself."""
    kinds_max = AckType.RENEW if context.version >= FIRST_WITH_RENEWALS else AckType.REJECT

    async def of_one(of: TopicIdPartition, batches: list[Acknowledgement]) -> KafkaError | None:
        try:
            _check(batches, kinds_max, is_renewal=is_renewal)
            check_readable(broker, context, of)
            await broker.share_groups.acknowledge(member, of, batches)
        except KafkaError as error:
            return error
        return None

    outcomes: Outcomes = {}
    async for some in slices_in_turns(list(given.items())):
        found = await asyncio.gather(*(of_one(of, batches) for of, batches in some))
        outcomes |= zip((of for of, _ in some), found, strict=True)
    return outcomes


def _check(batches: Iterable[Acknowledgement], kinds_max: AckType, *, is_renewal: bool) -> None:
    last_before = -1
    for first, last, types in batches:
        if not last_before <= first <= last:
            raise InvalidRequest(f"offsets {first} to {last} after {last_before}: they must be ascending")
        if len(types) not in (1, last - first + 1):
            raise InvalidRequest(f"{len(types)} types for offsets {first} to {last}; one, or one for each")
        if not all(0 <= kind <= kinds_max for kind in types):
            raise InvalidRequest(f"types of acknowledgements are 0 to {kinds_max.value}")
        if AckType.RENEW in types and not is_renewal:
            raise InvalidRequest("locks are renewed in requests that say so (IsRenewAck)")
        last_before = last


def current_leader(
    broker: Broker, context: RequestContext, of: TopicIdPartition, error: KafkaError | None
) -> CurrentLeader | None:
    """For a member that asked the wrong broker."""
    if error is None or error.code not in _OF_WRONG_BROKER:
        return None
    return broker.leaders.find(context.session.listener, of.topic_id.bytes, of.partition, by_id=True)


def milliseconds(count: int) -> i32Timedelta:
    return i32Timedelta.parse(datetime.timedelta(milliseconds=count))
