"""Committed offsets: OffsetCommit (versions 2 to 10), OffsetFetch (1 to 10), OffsetDelete (0).

OffsetCommit: v2 to 4 a retention time · v6 leader epochs · v7 static members · v9 member epochs (KIP-848).
OffsetFetch: v2 all partitions of a group · v7 only stable offsets · v8 many groups (KIP-709) · v9 epochs.
Both name topics by id from version 10 on, and by name before; responses here carry both, and the writer of
the version asked for takes what it knows.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from kio.schema.offset_delete.v0.request import OffsetDeleteRequest
from kio.schema.offset_delete.v0.response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

from ottla.coordinator.commands import (
    CommitRequest,
    FetchedTopic,
    FetchOffsetsRequest,
    PartitionCommit,
    TopicCommit,
    TopicFetch,
)
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.registry import handles
from ottla.handlers.throttle import NOT_THROTTLED
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError

FIRST_WITH_TOPIC_IDS = 10
FIRST_WITH_MANY_GROUPS = 8
FIRST_FETCH_WITH_GROUP_ERROR = 2
NO_OFFSET = -1


@dataclass(frozen=True, slots=True)
class CommittedPartition:
    partition_index: int
    error_code: ErrorCode


@dataclass(frozen=True, slots=True)
class CommittedTopic:
    name: str
    topic_id: UUID | None
    partitions: tuple[CommittedPartition, ...]


@dataclass(frozen=True, slots=True)
class CommitResponse:
    topics: tuple[CommittedTopic, ...]
    throttle_time: timedelta = NOT_THROTTLED


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
    throttle_time: timedelta = NOT_THROTTLED


@handles(ApiKey.OFFSET_COMMIT)
async def offset_commit(broker: Broker, context: RequestContext, request: Any) -> CommitResponse:
    topics = _identified(broker, context.version, request.topics)
    known = [
        TopicCommit(
            name,
            topic_id,
            [
                PartitionCommit(
                    partition.partition_index,
                    partition.committed_offset,
                    getattr(partition, "committed_leader_epoch", -1),
                    partition.committed_metadata,
                )
                for partition in topic.partitions
            ],
        )
        for name, topic_id, topic, error in topics
        if error is ErrorCode.none
    ]
    retention = getattr(request, "retention_time", None)
    failure = ErrorCode.none
    errors: list[list[ErrorCode]] = []
    try:
        if known:
            errors = await broker.groups.commit_nowait(
                CommitRequest(
                    group_id=request.group_id,
                    topics=known,
                    member_id=request.member_id,
                    generation=request.generation_id_or_member_epoch,
                    instance_id=getattr(request, "group_instance_id", None),
                    retention_ms=-1 if retention is None else round(retention.total_seconds() * 1000),
                    version=context.version,
                )
            )
    except KafkaError as raised:
        failure = raised.code
    committed = iter(errors)
    answers = []
    for name, topic_id, topic, error in topics:
        codes: list[ErrorCode]
        if error is not ErrorCode.none:
            codes = [error] * len(topic.partitions)
        elif failure is not ErrorCode.none:
            codes = [failure] * len(topic.partitions)
        else:
            codes = next(committed)
        answers.append(
            CommittedTopic(
                name,
                topic_id,
                tuple(
                    CommittedPartition(partition.partition_index, code)
                    for partition, code in zip(topic.partitions, codes, strict=True)
                ),
            )
        )
    return CommitResponse(tuple(answers))


def _identified(broker: Broker, version: int, topics: Any) -> list[tuple[str, UUID | None, Any, ErrorCode]]:
    """(name, id, what was asked, why not) of each topic. Names of topics that do not exist are welcome."""
    image = broker.controller.image
    found: list[tuple[str, UUID | None, Any, ErrorCode]] = []
    for topic in topics:
        if version >= FIRST_WITH_TOPIC_IDS:
            name = image.topic_names.get(topic.topic_id)
            error = ErrorCode.none if name is not None else ErrorCode.unknown_topic_id
            found.append((name or "", topic.topic_id, topic, error))
        else:
            existing = image.topics.get(topic.name)
            found.append((topic.name, None if existing is None else existing.id, topic, ErrorCode.none))
    return found


@handles(ApiKey.OFFSET_FETCH)
async def offset_fetch(broker: Broker, context: RequestContext, request: Any) -> FetchedGroup | FetchResponse:
    if context.version < FIRST_WITH_MANY_GROUPS:
        return await _fetch_group(broker, context.version, request)
    return FetchResponse(
        tuple([await _fetch_group(broker, context.version, group) for group in request.groups])
    )


async def _fetch_group(broker: Broker, version: int, group: Any) -> FetchedGroup:
    asked = None if group.topics is None else _identified(broker, version, group.topics)
    wanted = None
    if asked is not None:
        wanted = [
            TopicFetch(name, topic_id, topic.partition_indexes)
            for name, topic_id, topic, error in asked
            if error is ErrorCode.none
        ]
    try:
        fetched: list[FetchedTopic] = await broker.groups.fetch(
            FetchOffsetsRequest(
                group.group_id,
                wanted,
                getattr(group, "member_id", None),
                getattr(group, "member_epoch", -1),
            )
        )
    except KafkaError as error:
        if version >= FIRST_FETCH_WITH_GROUP_ERROR:
            return FetchedGroup(group.group_id, (), error.code)
        return FetchedGroup(
            group.group_id,
            tuple(_refused(name, topic_id, topic, error.code) for name, topic_id, topic, _ in asked or ()),
        )
    names = broker.controller.image.topics
    answers = [
        FetchedTopicResponse(
            topic.name,
            names[topic.name].id if topic.name in names else None,
            tuple(
                FetchedPartition(index)
                if value is None
                else FetchedPartition(index, value.offset, value.leader_epoch, value.metadata)
                for index, value in topic.partitions
            ),
        )
        for topic in fetched
        # A deleted topic has no id to name it by.
        if version < FIRST_WITH_TOPIC_IDS or topic.name in names
    ]
    answers += [
        _refused(name, topic_id, topic, error)
        for name, topic_id, topic, error in asked or ()
        if error is not ErrorCode.none
    ]
    return FetchedGroup(group.group_id, tuple(answers))


def _refused(name: str, topic_id: UUID | None, topic: Any, error: ErrorCode) -> FetchedTopicResponse:
    return FetchedTopicResponse(
        name,
        topic_id,
        tuple(FetchedPartition(index, error_code=error) for index in topic.partition_indexes),
    )


@handles(ApiKey.OFFSET_DELETE)
async def offset_delete(
    broker: Broker, context: RequestContext, request: OffsetDeleteRequest
) -> OffsetDeleteResponse:
    asked = [(topic.name, [p.partition_index for p in topic.partitions]) for topic in request.topics]
    try:
        errors = await broker.groups.delete_offsets(request.group_id, [(str(n), list(i)) for n, i in asked])
    except KafkaError as error:
        return OffsetDeleteResponse(error_code=error.code, throttle_time=NOT_THROTTLED, topics=())
    return OffsetDeleteResponse(
        error_code=ErrorCode.none,
        throttle_time=NOT_THROTTLED,
        topics=tuple(
            OffsetDeleteResponseTopic(
                name=name,
                partitions=tuple(
                    OffsetDeleteResponsePartition(partition_index=index, error_code=code)
                    for index, code in zip(indexes, codes, strict=True)
                ),
            )
            for (name, indexes), codes in zip(asked, errors, strict=True)
        ),
    )
