"""All groups of one partition of `__consumer_offsets`: the state that replaying its records gives."""

from __future__ import annotations

from typing import TypeAlias, TypeVar

from ottla.coordinator.groups.classic_group import ClassicGroup
from ottla.coordinator.groups.consumer_group import (
    ConsumerGroup,
    ConsumerMember,
    ResolvedRegex,
    departed,
    target_from_record,
)
from ottla.coordinator.groups.offset_records import OffsetCommitKey, OffsetCommitValue
from ottla.coordinator.groups.pending_offsets import PendingOffsets
from ottla.coordinator.groups.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    Key,
    ShareGroupMetadataKey,
    ShareKey,
    Value,
)
from ottla.coordinator.groups.share_group import ShareGroup
from ottla.coordinator.host.journal import Journal
from ottla.records.batch import NO_PRODUCER_ID
from ottla.wire.errors import GroupIdNotFound

Group: TypeAlias = ClassicGroup | ConsumerGroup | ShareGroup
GroupJournal: TypeAlias = Journal[Key, Value]
TopicOffsets: TypeAlias = dict[str, dict[int, OffsetCommitValue]]
T = TypeVar("T")


class Groups:
    __slots__ = ("by_id", "offsets", "pending")

    def __init__(self) -> None:
        self.by_id: dict[str, Group] = {}
        self.offsets: dict[str, TopicOffsets] = {}
        self.pending = PendingOffsets()

    def get(self, group_id: str) -> Group:
        group = self.by_id.get(group_id)
        if group is None:
            raise GroupIdNotFound(f"there is no group {group_id}")
        return group

    @property
    def size_bytes(self) -> int:
        """What members make the broker keep; found by looking at every group."""
        return sum(group.size_bytes for group in self.by_id.values())

    def has_offsets(self, group_id: str) -> bool:
        return group_id in self.offsets or self.pending.has_group(group_id)

    def replay(self, key: Key, value: Value | None, producer_id: int = NO_PRODUCER_ID) -> None:
        """With a producer id: part of its transaction, which only offsets are."""
        match key:
            case OffsetCommitKey():
                self._replay_offset(key, _expect(value, OffsetCommitValue), producer_id)
            case GroupMetadataKey():
                self._replay_classic(key.group, _expect(value, GroupMetadataValue))
            case _ if isinstance(key, ShareKey):
                self._replay_share(key, value)
            case _:
                # A tombstone for a group that is gone changes nothing, and must not bring it back.
                group = self.by_id.get(key.group)
                if value is not None and not isinstance(group, ConsumerGroup):
                    # Whatever stood here, the newer record is right; offsets are kept apart from groups.
                    group = self.by_id[key.group] = ConsumerGroup(key.group)
                if isinstance(group, ConsumerGroup):
                    self._replay_consumer(group, key, value)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        for key, value in self.pending.end(producer_id, committed=committed):
            self._put_offset(key, value)

    def _replay_offset(self, key: OffsetCommitKey, value: OffsetCommitValue | None, producer_id: int) -> None:
        if value is None:
            self._remove_offset(key)
            self.pending.remove(key)
            return
        if key.group not in self.by_id:
            # Offsets committed by someone who never joined make a group too, without members.
            self.by_id[key.group] = ClassicGroup(key.group)
        if producer_id != NO_PRODUCER_ID:
            self.pending.add(producer_id, key, value)
            return
        if self.pending:
            self.pending.overtake(key)
        self._put_offset(key, value)

    def _put_offset(self, key: OffsetCommitKey, value: OffsetCommitValue) -> None:
        topics = self.offsets.get(key.group)
        if topics is None:
            topics = self.offsets[key.group] = {}
        partitions = topics.get(key.topic)
        if partitions is None:
            partitions = topics[key.topic] = {}
        partitions[key.partition] = value

    def _remove_offset(self, key: OffsetCommitKey) -> None:
        topics = self.offsets.get(key.group, {})
        partitions = topics.get(key.topic, {})
        partitions.pop(key.partition, None)
        if not partitions:
            topics.pop(key.topic, None)
        if not topics:
            self.offsets.pop(key.group, None)

    def _replay_classic(self, group_id: str, value: GroupMetadataValue | None) -> None:
        if value is not None:
            self.by_id[group_id] = ClassicGroup.from_record(group_id, value)
        elif isinstance(self.by_id.get(group_id), ClassicGroup):
            del self.by_id[group_id]

    def _replay_share(self, key: ShareKey, value: Value | None) -> None:
        # As for consumer groups.
        group = self.by_id.get(key.group)
        if value is not None and not isinstance(group, ShareGroup):
            group = self.by_id[key.group] = ShareGroup(key.group)
        if not isinstance(group, ShareGroup):
            return
        if value is None and isinstance(key, ShareGroupMetadataKey):
            del self.by_id[key.group]
        else:
            group.replay(key, value)

    def _replay_consumer(self, group: ConsumerGroup, key: Key, value: Value | None) -> None:
        match key:
            case ConsumerGroupMetadataKey():
                epoch = _expect(value, ConsumerGroupMetadataValue)
                if epoch is None:
                    del self.by_id[group.group_id]
                else:
                    group.epoch, group.metadata_hash = epoch.epoch, epoch.metadata_hash
            case ConsumerGroupPartitionMetadataKey():
                group.has_legacy_metadata = value is not None
            case ConsumerGroupMemberMetadataKey():
                metadata = _expect(value, ConsumerGroupMemberMetadataValue)
                if metadata is None:
                    group.remove_member(key.member)
                else:
                    old = group.members.get(key.member) or ConsumerMember(key.member)
                    group.put_member(old.with_metadata(metadata))
            case ConsumerGroupCurrentMemberAssignmentKey():
                current = _expect(value, ConsumerGroupCurrentMemberAssignmentValue)
                member = group.members.get(key.member)
                if current is not None:
                    group.put_member((member or ConsumerMember(key.member)).with_current(current))
                elif member is not None:
                    group.put_member(departed(member))
            case _:
                self._replay_target(group, key, value)

    def _replay_target(self, group: ConsumerGroup, key: Key, value: Value | None) -> None:
        match key:
            case ConsumerGroupTargetAssignmentMetadataKey():
                epoch = _expect(value, ConsumerGroupTargetAssignmentMetadataValue)
                group.assignment_epoch = 0 if epoch is None else epoch.assignment_epoch
                group.assignment_timestamp_ms = 0 if epoch is None else epoch.assignment_timestamp
            case ConsumerGroupTargetAssignmentMemberKey():
                target = _expect(value, ConsumerGroupTargetAssignmentMemberValue)
                if target is None:
                    group.target.pop(key.member, None)
                else:
                    group.target[key.member] = target_from_record(target)
            case ConsumerGroupRegularExpressionKey():
                resolved = _expect(value, ConsumerGroupRegularExpressionValue)
                group.put_regex(
                    key.regex,
                    None
                    if resolved is None
                    else ResolvedRegex(frozenset(resolved.topics), resolved.version, resolved.timestamp),
                )
            case _:
                raise AssertionError(f"no state for {key}")


def _expect(value: Value | None, kind: type[T]) -> T | None:
    if value is None or isinstance(value, kind):
        return value
    raise AssertionError(f"{value} does not belong to its key")
