"""Committed offsets: who may commit, what is kept, and when it expires.

Kafka's rules of expiry: an offset is kept as long as its group has members subscribed to its topic. In an
empty group the clock starts when the group became empty, elsewhere with the last commit of that partition.

Offsets that are part of a transaction wait in `pending_offsets` for its end, and nothing expires before it.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Sequence

from ottla.config.key import LONG_MAX
from ottla.coordinator.groups.classic_group import NO_TIMESTAMP, ClassicGroup, State
from ottla.coordinator.groups.commands import (
    CommitRequest,
    FetchedTopic,
    FetchOffsetsRequest,
    TopicFetch,
)
from ottla.coordinator.groups.consumer_group import ConsumerGroup, ConsumerMember
from ottla.coordinator.groups.offset_records import NO_EXPIRY, OffsetCommitKey, OffsetCommitValue
from ottla.coordinator.groups.settings import GroupSettings
from ottla.coordinator.groups.share_group import ShareGroup
from ottla.coordinator.groups.state import Group, GroupJournal, Groups
from ottla.wire.errors import (
    ErrorCode,
    GroupIdNotFound,
    IllegalGeneration,
    KafkaError,
    NonEmptyGroup,
    RebalanceInProgress,
    StaleMemberEpoch,
    UnknownMemberId,
    UnsupportedVersion,
)

_FIRST_VERSION_WITH_EPOCHS = 9


class Offsets:
    def __init__(self, groups: Groups, journal: GroupJournal, settings: GroupSettings) -> None:
        self._groups = groups
        self._journal = journal
        self._settings = settings

    def commit(self, request: CommitRequest) -> list[list[ErrorCode]]:
        """An error code per partition, in the order of the request."""
        group = self._groups.by_id.get(request.group_id)
        zombie_check = self._check_commit(group, request)
        producer = request.producer
        now_ms = self._journal.now.wall_ms
        expire_ms = NO_EXPIRY if request.retention_ms == -1 else min(now_ms + request.retention_ms, LONG_MAX)
        if zombie_check is not None:
            for topic in request.topics:
                for partition in topic.partitions:
                    _check_assignment_epoch(zombie_check, topic.topic_id, partition.partition, request)
        results = []
        for topic in request.topics:
            errors = []
            for index, offset, leader_epoch, metadata in topic.partitions:
                if metadata and len(metadata) > self._settings.offset_metadata_max_bytes:
                    errors.append(ErrorCode.offset_metadata_too_large)
                    continue
                key = OffsetCommitKey(request.group_id, topic.name, index)
                value = OffsetCommitValue(
                    offset, leader_epoch, metadata or "", now_ms, expire_ms, topic.topic_id
                )
                if producer is None:
                    self._journal.write(key, value)
                else:
                    self._groups.replay(key, value, producer.id)
                    self._journal.persist(key, value)
                errors.append(ErrorCode.none)
            results.append(errors)
        return results

    def _check_commit(self, group: Group | None, request: CommitRequest) -> ConsumerMember | None:
        """A member to check each partition against, where its epoch is behind but may still be good."""
        match group:
            case None:
                # Without a generation this is a consumer that assigns itself, or a tool: the group is made.
                if request.generation >= 0:
                    message = f"there is no group {request.group_id}; rejoin"
                    old = request.version < _FIRST_VERSION_WITH_EPOCHS
                    raise IllegalGeneration(message) if old else GroupIdNotFound(message)
                return None
            case ClassicGroup():
                _check_classic_commit(group, request)
                return None
            case ConsumerGroup():
                return _check_consumer_commit(group, request)
            case ShareGroup():
                raise GroupIdNotFound(f"group {request.group_id} is a share group; it commits no offsets")

    def fetch(self, request: FetchOffsetsRequest) -> list[FetchedTopic]:
        group = self._groups.by_id.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            _check_consumer_fetch(group, request)
        known = self._groups.offsets.get(request.group_id, {})
        if request.topics is None:
            return [
                FetchedTopic(topic, list(offsets.items()), self._unstable(request, topic, offsets))
                for topic, offsets in known.items()
            ]
        return [
            FetchedTopic(
                topic.name,
                _fetch_topic(known.get(topic.name, {}), topic),
                self._unstable(request, topic.name, topic.partitions),
            )
            for topic in request.topics
        ]

    def _unstable(
        self, request: FetchOffsetsRequest, topic: str, partitions: Iterable[int]
    ) -> Collection[int]:
        pending = self._groups.pending
        if not request.requires_stable or not pending:
            return ()
        keys = (OffsetCommitKey(request.group_id, topic, partition) for partition in partitions)
        return frozenset(key.partition for key in keys if pending.is_open(key))

    def delete(self, group_id: str, topics: Sequence[tuple[str, Sequence[int]]]) -> list[list[ErrorCode]]:
        group = self._groups.get(group_id)
        if isinstance(group, ShareGroup):
            raise GroupIdNotFound(f"group {group_id} is a share group; it has no committed offsets")
        if isinstance(group, ClassicGroup) and not group.is_empty and not group.uses_consumer_protocol:
            raise NonEmptyGroup(f"group {group_id} has members; stop them, then delete its offsets")
        results = []
        for topic, partitions in topics:
            if is_subscribed(group, topic):
                results.append([ErrorCode.group_subscribed_to_topic] * len(partitions))
                continue
            known = self._groups.offsets.get(group_id, {}).get(topic, {})
            for partition in partitions:
                key = OffsetCommitKey(group_id, topic, partition)
                if partition in known or self._groups.pending.is_open(key):
                    self._journal.write(key, None)
            results.append([ErrorCode.none] * len(partitions))
        return results

    def delete_all(self, group_id: str) -> None:
        for topic, partitions in list(self._groups.offsets.get(group_id, {}).items()):
            for partition in list(partitions):
                self._journal.write(OffsetCommitKey(group_id, topic, partition), None)
        for key in self._groups.pending.partitions(group_id):
            self._journal.write(key, None)

    def forget_topic(self, name: str, topic_id: uuid.UUID) -> None:
        """A deleted topic's offsets mean nothing; a new topic of that name must not inherit them."""
        for group_id, topics in list(self._groups.offsets.items()):
            for partition, value in list(topics.get(name, {}).items()):
                if value.topic_id is None or value.topic_id == topic_id:
                    self._journal.write(OffsetCommitKey(group_id, name, partition), None)
        for key, value in list(self._groups.pending.of_topic(name)):
            if value.topic_id in (None, topic_id) and self._groups.pending.is_open(key):
                self._journal.write(key, None)

    def expire(self, group: Group) -> bool:
        """Tombstones for what has expired. Whether nothing is left that keeps the group's name alive."""
        topics = self._groups.offsets.get(group.group_id, {})
        since = _retention_start(group)
        if topics and since is None:
            return False
        now_ms = self._journal.now.wall_ms
        expired = [
            OffsetCommitKey(group.group_id, topic, partition)
            for topic, partitions in topics.items()
            if not is_subscribed(group, topic)
            for partition, value in partitions.items()
            if _is_expired(value, since or NO_TIMESTAMP, now_ms, self._settings.offsets_retention_ms)
        ]
        for key in expired:
            if not self._groups.pending.is_open(key):
                self._journal.write(key, None)
        return not self._groups.has_offsets(group.group_id)


def is_subscribed(group: Group, topic: str) -> bool:
    match group:
        case ClassicGroup():
            return group.is_subscribed_to(topic)
        case ConsumerGroup():
            return topic in group.subscribed_topics()
        case ShareGroup():
            return topic in group.subscribed_topics


def _retention_start(group: Group) -> int | None:
    """None: nothing expires now. NO_TIMESTAMP: the time of each commit counts; else this moment does."""
    match group:
        case ConsumerGroup():
            return NO_TIMESTAMP
        case ClassicGroup(protocol_type=None):
            return NO_TIMESTAMP
        case ClassicGroup(state=State.EMPTY):
            return group.state_timestamp_ms
        case ClassicGroup(state=State.STABLE) if group.subscribed_topics is not None:
            return NO_TIMESTAMP
        case _:
            return None


def _is_expired(value: OffsetCommitValue, since_ms: int, now_ms: int, retention_ms: int) -> bool:
    if value.expire_timestamp != NO_EXPIRY:
        return now_ms >= value.expire_timestamp
    start_ms = value.commit_timestamp if since_ms == NO_TIMESTAMP else since_ms
    return now_ms - start_ms >= retention_ms


def _fetch_topic(
    known: dict[int, OffsetCommitValue], topic: TopicFetch
) -> list[tuple[int, OffsetCommitValue | None]]:
    result: list[tuple[int, OffsetCommitValue | None]] = []
    for partition in topic.partitions:
        value = known.get(partition)
        if value is not None and None not in (value.topic_id, topic.topic_id):
            # Committed for a topic of that name that has been deleted since.
            value = value if value.topic_id == topic.topic_id else None
        result.append((partition, value))
    return result


def _check_classic_commit(group: ClassicGroup, request: CommitRequest) -> None:
    if group.is_empty and request.generation < 0:
        return
    if _is_anonymous(request):
        if request.producer is not None:
            return  # the producer answers for it; TxnOffsetCommit did not name members at first
        raise UnknownMemberId(
            f"group {group.group_id} has members, so only they may commit; stop them or use another group"
        )
    group.validate_member(request.member_id, request.instance_id)
    if request.generation != group.generation:
        raise IllegalGeneration(
            f"group {group.group_id} is at generation {group.generation}, not {request.generation}; rejoin"
        )
    if group.state is State.COMPLETING and request.producer is None:
        # The member knows the new generation but not yet what it owns in it.
        raise RebalanceInProgress(f"group {group.group_id} is rebalancing; commit after SyncGroup")


def _check_consumer_commit(group: ConsumerGroup, request: CommitRequest) -> ConsumerMember | None:
    if request.generation < 0 and group.is_empty:
        return None
    is_transactional = request.producer is not None
    if is_transactional and _is_anonymous(request):
        return None
    member = group.member(request.member_id)
    if member.classic is None and not is_transactional and request.version < _FIRST_VERSION_WITH_EPOCHS:
        raise UnsupportedVersion("members of a consumer group commit with OffsetCommit version 9 or later")
    if request.generation == member.epoch:
        return None
    if request.generation > member.epoch:
        raise _stale(
            member,
            is_transactional,
            f"epoch {request.generation} is ahead of the member's epoch {member.epoch}",
        )
    return member


def _check_assignment_epoch(
    member: ConsumerMember, topic_id: uuid.UUID | None, partition: int, request: CommitRequest
) -> None:
    """A commit of an older epoch counts if the member has owned the partition since that epoch."""
    since = member.assignment_epoch(topic_id, partition)
    if since is None or request.generation < since:
        raise _stale(
            member,
            request.producer is not None,
            f"member {member.member_id} at epoch {request.generation} does not own partition {partition} of "
            f"topic {topic_id} (its epoch is {member.epoch})",
        )


def _check_consumer_fetch(group: ConsumerGroup, request: FetchOffsetsRequest) -> None:
    if request.member_id is None and request.member_epoch < 0:
        return
    member = group.member(request.member_id or "")
    if member.epoch != request.member_epoch:
        raise _stale(
            member, False, f"member {member.member_id} is at epoch {member.epoch}, not {request.member_epoch}"
        )


def _is_anonymous(request: CommitRequest) -> bool:
    return request.generation < 0 and not request.member_id and request.instance_id is None


def _stale(member: ConsumerMember, is_transactional: bool, message: str) -> KafkaError:
    # Producers know the older error only.
    if is_transactional or member.classic is not None:
        return IllegalGeneration(message)
    return StaleMemberEpoch(message)
