"""Committed offsets: OffsetFetch (versions 1 to 10), OffsetDelete (0). OffsetCommit has its own module.

OffsetFetch: v2 all partitions of a group · v7 only stable offsets · v8 many groups (KIP-709) · v9 epochs ·
v10 names topics by id, the others by name; responses here carry both, and the writer of the version asked
for takes what it knows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from kio.schema.offset_delete.v0.request import OffsetDeleteRequest
from kio.schema.offset_delete.v0.response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

from ottla.coordinator.groups.commands import (
    FetchedTopic,
    FetchOffsetsRequest,
    TopicFetch,
)
from ottla.coordinator.groups.offset_records import OffsetCommitValue
from ottla.handlers.authorized import may, require
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.refusal import answer_with
from ottla.handlers.registry import handles
from ottla.handlers.throttle import NOT_THROTTLED
from ottla.runtime.turns import in_turns, slices_in_turns
from ottla.wire.acls import AclResource, Operation
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError

FIRST_WITH_TOPIC_IDS = 10
FIRST_WITH_MANY_GROUPS = 8
FIRST_FETCH_WITH_GROUP_ERROR = 2
NO_OFFSET = -1


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    partition_index: int
    committed_offset: int = NO_OFFSET
    committed_leader_epoch: int = -1
    metadata: str = ""
    error_code: ErrorCode = ErrorCode.none


@dataclass(frozen=True, slots=True)
class FetchedTopicResponse:
    name: str
    topic_id: UUID | None
    partitions: tuple[FetchedPartition, ...]


@dataclass(frozen=True, slots=True)
class FetchedGroup:
    """One group; before version 8 the whole response."""

    group_id: str
    topics: tuple[FetchedTopicResponse, ...]
    error_code: ErrorCode = ErrorCode.none
    throttle_time: timedelta = NOT_THROTTLED


@dataclass(frozen=True, slots=True)
class FetchResponse:
    groups: tuple[FetchedGroup, ...]
    throttle_time: timedelta


async def _identified(
    broker: Broker, context: RequestContext, topics: Any
) -> list[tuple[str, UUID | None, Any, ErrorCode]]:
    """(name, id, what was asked, why not) of each topic. Names of topics that do not exist are welcome."""
    image = broker.metadata.image
    found: list[tuple[str, UUID | None, Any, ErrorCode]] = []
    async for topic in in_turns(topics):
        error = ErrorCode.none
        if context.version >= FIRST_WITH_TOPIC_IDS:
            topic_id, name = topic.topic_id, image.topic_names.get(topic.topic_id)
            if name is None:
                error = ErrorCode.unknown_topic_id
        else:
            name = topic.name
            existing = image.topics.get(name)
            topic_id = None if existing is None else existing.id
        if name is not None and not may(context, Operation.DESCRIBE, AclResource.TOPIC, name):
            error = ErrorCode.topic_authorization_failed
        found.append((name or "", topic_id, topic, error))
    return found


@handles(ApiKey.OFFSET_FETCH)
async def offset_fetch(broker: Broker, context: RequestContext, request: Any) -> FetchedGroup | FetchResponse:
    stable = bool(getattr(request, "require_stable", False))
    if context.version < FIRST_WITH_MANY_GROUPS:
        fetched = await _fetch_group(broker, context, request, stable)
        return replace(fetched, throttle_time=context.session.throttle_time)
    groups = in_turns(request.groups)
    return FetchResponse(
        tuple([await _fetch_group(broker, context, group, stable) async for group in groups]),
        context.session.throttle_time,
    )


async def _fetch_group(broker: Broker, context: RequestContext, group: Any, stable: bool) -> FetchedGroup:
    version = context.version
    asked = None if group.topics is None else await _identified(broker, context, group.topics)
    wanted = None
    if asked is not None:
        wanted = [
            TopicFetch(name, topic_id, topic.partition_indexes)
            for name, topic_id, topic, error in asked
            if error is ErrorCode.none
        ]
    try:
        require(context, Operation.DESCRIBE, AclResource.GROUP, group.group_id)
        fetched: list[FetchedTopic] = []
        async for some in slices_in_turns(wanted or ()):
            fetched += await broker.groups.fetch(
                FetchOffsetsRequest(
                    group.group_id,
                    None if wanted is None else some,
                    getattr(group, "member_id", None),
                    getattr(group, "member_epoch", -1),
                    stable,
                )
            )
    except KafkaError as error:
        if version >= FIRST_FETCH_WITH_GROUP_ERROR:
            return FetchedGroup(group.group_id, (), error.code)
        return FetchedGroup(
            group.group_id,
            tuple(
                [
                    _refused(name, topic_id, topic, error.code)
                    async for name, topic_id, topic, _ in in_turns(asked or ())
                ]
            ),
        )
    names = broker.metadata.image.topics
    answers = [
        FetchedTopicResponse(
            topic.name,
            names[topic.name].id if topic.name in names else None,
            tuple(_fetched(topic, index, value) for index, value in topic.partitions),
        )
        async for topic in in_turns(fetched)
        # A deleted topic has no id to name it by.
        if (version < FIRST_WITH_TOPIC_IDS or topic.name in names)
        and (
            asked is not None or may(context, Operation.DESCRIBE, AclResource.TOPIC, topic.name, quietly=True)
        )
    ]
    answers += [
        _refused(name, topic_id, topic, error)
        async for name, topic_id, topic, error in in_turns(asked or ())
        if error is not ErrorCode.none
    ]
    return FetchedGroup(group.group_id, tuple(answers))


def _fetched(topic: FetchedTopic, index: int, value: OffsetCommitValue | None) -> FetchedPartition:
    if index in topic.unstable:
        return FetchedPartition(index, error_code=ErrorCode.unstable_offset_commit)
    if value is None:
        return FetchedPartition(index)
    return FetchedPartition(index, value.offset, value.leader_epoch, value.metadata)


def _refused(name: str, topic_id: UUID | None, topic: Any, error: ErrorCode) -> FetchedTopicResponse:
    return FetchedTopicResponse(
        name,
        topic_id,
        tuple(FetchedPartition(index, error_code=error) for index in topic.partition_indexes),
    )


@handles(ApiKey.OFFSET_DELETE, answer_with(OffsetDeleteResponse, topics=()))
async def offset_delete(
    broker: Broker, context: RequestContext, request: OffsetDeleteRequest
) -> OffsetDeleteResponse:
    known = broker.metadata.image.topics
    codes: dict[tuple[str, int], ErrorCode] = {}
    asked: list[tuple[str, list[int]]] = []
    async for topic in in_turns(request.topics):
        count = len(known[topic.name].partitions) if topic.name in known else 0
        # Once each, which is all that the group needs to know.
        indexes = list(dict.fromkeys(int(partition.partition_index) for partition in topic.partitions))
        if not may(context, Operation.READ, AclResource.TOPIC, topic.name):
            codes.update({(topic.name, index): ErrorCode.topic_authorization_failed for index in indexes})
            continue
        asked.append((topic.name, [index for index in indexes if 0 <= index < count]))
        codes.update({(topic.name, index): ErrorCode.unknown_topic_or_partition for index in indexes})
    errors = await broker.groups.delete_offsets(request.group_id, asked)
    for (name, indexes), results in zip(asked, errors, strict=True):
        codes.update({(name, index): code for index, code in zip(indexes, results, strict=True)})
    topics = []
    async for topic in in_turns(request.topics):
        rows = [
            OffsetDeleteResponsePartition(
                partition_index=partition.partition_index,
                error_code=codes[topic.name, partition.partition_index],
            )
            async for partition in in_turns(topic.partitions)
        ]
        topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=tuple(rows)))
    return OffsetDeleteResponse(
        error_code=ErrorCode.none, throttle_time=context.session.throttle_time, topics=tuple(topics)
    )
