"""OffsetCommit (versions 2 to 10): store how far a group has read.

A hot handler, without a task per request: the reply is packed when the commit is in the log. Topics and
partitions that do not exist are refused one by one; the rest is the group's business. What each version added
is in `wire/offset_commit`. Thousands of partitions in one request are committed some at a time.
"""

from __future__ import annotations

import asyncio
import struct
import uuid
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from ottla.coordinator.groups.commands import CommitRequest, PartitionCommit, TopicCommit
from ottla.handlers.authorized import allowed
from ottla.handlers.context import Broker
from ottla.handlers.registry import handles
from ottla.handlers.reply import PendingReply
from ottla.handlers.session import Session
from ottla.runtime.disk import ReadableBuffer
from ottla.runtime.turns import SLICE_ITEMS_MAX, take_turn
from ottla.wire import offset_commit as codec
from ottla.wire.acls import AclResource, Operation
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.frame import MalformedFrame

COMMITTED_AT_ONCE_BYTES_MAX = 64 * 1024
_NONE = ErrorCode.none.value
_UNKNOWN_TOPIC_OR_PARTITION = ErrorCode.unknown_topic_or_partition.value

Errors: TypeAlias = dict[tuple[str, uuid.UUID | None, int], int]
"""By topic and partition; what is not in it went well."""


@handles(ApiKey.OFFSET_COMMIT)
def offset_commit(
    broker: Broker, session: Session, version: int, frame: memoryview, at: int
) -> list[ReadableBuffer] | PendingReply:
    broker.figures.commits += 1
    if len(frame) > COMMITTED_AT_ONCE_BYTES_MAX:
        # The buffer of the request is about to be reused.
        return _commit_many(broker, session, version, memoryview(bytes(frame)), at)
    request = codec.parse(frame, at, version)
    errors: Errors = {}
    commits = _commits(broker, session, request.group_id, request.topics, version, errors)
    if not commits:
        return [_encode(broker, session, version, request, errors)]
    try:
        stored = broker.groups.commit_nowait(_command(request, commits, version))
    except KafkaError as error:
        _fail(commits, version, error, errors)
        return [_encode(broker, session, version, request, errors)]

    def finished(done: asyncio.Future[list[list[ErrorCode]]]) -> None:
        if done.cancelled():
            return
        error = done.exception()
        if error is None:
            _note(commits, version, done.result(), errors)
        elif isinstance(error, KafkaError):
            _fail(commits, version, error, errors)
        else:
            reply.fail(error)
            return
        reply.complete([_encode(broker, session, version, request, errors)])

    # The commit goes on without its client.
    reply = PendingReply(on_cancel=lambda: None)
    stored.add_done_callback(finished)
    return reply


def _commit_many(broker: Broker, session: Session, version: int, frame: memoryview, at: int) -> PendingReply:
    reply = PendingReply(on_cancel=lambda: None)

    async def answer() -> None:
        try:
            reply.complete([await _commit_in_turns(broker, session, version, frame, at)])
        except Exception as error:
            reply.fail(error)

    broker.tasks.spawn(answer(), "commit of many offsets")
    return reply


async def _commit_in_turns(
    broker: Broker, session: Session, version: int, frame: memoryview, at: int
) -> bytes:
    offload = broker.runtime.offload
    try:
        request = await offload.run(codec.parse, frame, at, version)
    except (ValueError, IndexError, struct.error) as error:
        raise MalformedFrame(f"its OFFSET_COMMIT version {version} cannot be decoded: {error}") from error
    errors: Errors = {}
    for topics in _slices(request.topics):
        await take_turn()
        commits = _commits(broker, session, request.group_id, topics, version, errors)
        if not commits:
            continue
        try:
            codes = await broker.groups.commit_nowait(_command(request, commits, version))
        except KafkaError as error:
            _fail(commits, version, error, errors)
        else:
            _note(commits, version, codes, errors)
    return await offload.run(_encode, broker, session, version, request, errors)


def _slices(topics: Sequence[codec.CommittedTopic]) -> Iterator[list[codec.CommittedTopic]]:
    """With so many partitions each that a commit of them is a matter of milliseconds."""
    some: list[codec.CommittedTopic] = []
    room = SLICE_ITEMS_MAX
    for topic in topics:
        at = 0
        while at < len(topic.partitions):
            partitions = topic.partitions[at : at + room]
            some.append(topic._replace(partitions=partitions))
            at += len(partitions)
            room -= len(partitions)
            if not room:
                yield some
                some, room = [], SLICE_ITEMS_MAX
    if some:
        yield some


def _command(request: codec.OffsetCommitRequest, commits: list[TopicCommit], version: int) -> CommitRequest:
    return CommitRequest(
        request.group_id,
        commits,
        request.member_id,
        request.generation,
        request.instance_id,
        request.retention_ms,
        version,
    )


def _commits(
    broker: Broker,
    session: Session,
    group_id: str,
    topics: Sequence[codec.CommittedTopic],
    version: int,
    errors: Errors,
) -> list[TopicCommit]:
    """What there is to commit to, and the client may; errors for the rest."""
    by_id = version >= codec.FIRST_WITH_TOPIC_IDS
    image = broker.metadata.image
    commits: list[TopicCommit] = []
    may_use_group = _may_read(session, AclResource.GROUP, group_id)
    for topic in topics:
        name = image.topic_names.get(topic.topic_id, "") if topic.topic_id is not None else topic.name
        if not may_use_group:
            _refuse(topic, ErrorCode.group_authorization_failed, errors)
            continue
        if name and not _may_read(session, AclResource.TOPIC, name):
            _refuse(topic, ErrorCode.topic_authorization_failed, errors)
            continue
        known = image.topics.get(name)
        if known is None:
            _refuse(
                topic,
                ErrorCode.unknown_topic_id if by_id else ErrorCode.unknown_topic_or_partition,
                errors,
            )
            continue
        count = len(known.partitions)
        partitions = []
        for item in topic.partitions:
            if 0 <= item.partition < count:
                partitions.append(PartitionCommit._make(item))
            else:
                errors[topic.name, topic.topic_id, item.partition] = _UNKNOWN_TOPIC_OR_PARTITION
        if partitions:
            commits.append(TopicCommit(name, known.id, partitions))
    return commits


def _may_read(session: Session, kind: AclResource, name: str) -> bool:
    return session.authorizer is None or allowed(session, ApiKey.OFFSET_COMMIT, Operation.READ, kind, name)


def _refuse(topic: codec.CommittedTopic, error: ErrorCode, errors: Errors) -> None:
    code = error.value
    errors.update(((topic.name, topic.topic_id, item.partition), code) for item in topic.partitions)


def _key(commit: TopicCommit, version: int, partition: int) -> tuple[str, uuid.UUID | None, int]:
    """As the request has it."""
    if version >= codec.FIRST_WITH_TOPIC_IDS:
        return "", commit.topic_id, partition
    return commit.name, None, partition


def _note(commits: list[TopicCommit], version: int, codes: list[list[ErrorCode]], errors: Errors) -> None:
    for commit, row in zip(commits, codes, strict=True):
        for item, code in zip(commit.partitions, row, strict=True):
            if code is not ErrorCode.none:
                errors[_key(commit, version, item.partition)] = code.value


def _fail(commits: list[TopicCommit], version: int, error: KafkaError, errors: Errors) -> None:
    for commit in commits:
        for item in commit.partitions:
            errors[_key(commit, version, item.partition)] = error.code.value


def _encode(
    broker: Broker, session: Session, version: int, request: codec.OffsetCommitRequest, errors: Errors
) -> bytes:
    for code in errors.values():
        if code:
            broker.figures.errors[ApiKey.OFFSET_COMMIT, code] += 1
    return codec.encode(
        version,
        [
            (
                name,
                topic_id,
                [
                    (item.partition, errors.get((name, topic_id, item.partition), _NONE))
                    for item in partitions
                ],
            )
            for name, topic_id, partitions in request.topics
        ],
        session.throttle_ms,
    )
