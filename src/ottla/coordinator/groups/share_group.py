"""A share group (KIP-932): members, what they read together and which partitions have a state, rebuilt from
its records alone.

Several members may read the same partition, so nothing has to be given up before somebody else gets it: each
member's epoch follows the target assignment's at its next heartbeat. Only partitions whose state the share
coordinator has begun are assigned.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ottla.coordinator.groups.commands import Partitions
from ottla.coordinator.groups.memory import MEMBER_BYTES, NAME_BYTES, names_bytes
from ottla.coordinator.groups.records import (
    DeletingTopic,
    SharedTopic,
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
    ShareKey,
    TargetPartitions,
)
from ottla.wire.errors import UnknownMemberId

_STABLE = 0


@dataclass(frozen=True, slots=True)
class ShareMember:
    member_id: str
    epoch: int = 0
    previous_epoch: int = -1
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    """Sorted, each once."""
    assigned: Partitions = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        """What it makes the broker keep. Its partitions are not of its making."""
        size = MEMBER_BYTES + len(self.member_id) + len(self.client_id) + len(self.rack_id or "")
        return size + names_bytes(self.topics)

    @property
    def stored_bytes(self) -> int:
        """At most, of the record with what it subscribes to and is called."""
        size = NAME_BYTES + 4 * (len(self.client_id) + len(self.rack_id or ""))
        return size + sum(5 + (len(topic) if topic.isascii() else 4 * len(topic)) for topic in self.topics)

    def to_metadata_record(self) -> ShareGroupMemberMetadataValue:
        return ShareGroupMemberMetadataValue(
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=self.topics,
        )

    def with_metadata(self, value: ShareGroupMemberMetadataValue) -> ShareMember:
        return replace(
            self,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topics=tuple(sorted(set(value.subscribed_topic_names))),
        )

    def to_current_record(self) -> ShareGroupCurrentMemberAssignmentValue:
        return ShareGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=_STABLE,
            assigned_partitions=_target_partitions(self.assigned),
        )

    def with_current(self, value: ShareGroupCurrentMemberAssignmentValue) -> ShareMember:
        return replace(
            self,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            assigned=_partitions(value.assigned_partitions),
        )


class TopicShare(NamedTuple):
    """A topic, and those of its partitions that something is true of."""

    name: str
    partitions: frozenset[int]


@dataclass(frozen=True, slots=True)
class StatePartitions:
    """Of which partitions the share coordinator keeps the state."""

    initializing: Mapping[uuid.UUID, TopicShare] = field(default_factory=dict)
    """It has been asked to begin, or is about to be."""
    initialized: Mapping[uuid.UUID, TopicShare] = field(default_factory=dict)
    deleting: Mapping[uuid.UUID, str] = field(default_factory=dict)
    """It has been asked to forget these topics, or is about to be; their names."""

    def to_record(self) -> ShareGroupStatePartitionMetadataValue:
        return ShareGroupStatePartitionMetadataValue(
            initializing_topics=_shared_topics(self.initializing),
            initialized_topics=_shared_topics(self.initialized),
            deleting_topics=tuple(
                DeletingTopic(topic_id=topic_id, topic_name=name)
                for topic_id, name in sorted(self.deleting.items())
            ),
        )

    @classmethod
    def from_record(cls, value: ShareGroupStatePartitionMetadataValue) -> StatePartitions:
        return cls(
            {
                t.topic_id: TopicShare(t.topic_name, frozenset(t.partitions))
                for t in value.initializing_topics
            },
            {t.topic_id: TopicShare(t.topic_name, frozenset(t.partitions)) for t in value.initialized_topics},
            {topic.topic_id: topic.topic_name for topic in value.deleting_topics},
        )

    def all_partitions(self) -> dict[uuid.UUID, TopicShare]:
        return with_more(self.initialized, self.initializing)

    def begun(self, topics: Mapping[uuid.UUID, TopicShare]) -> StatePartitions:
        """The share coordinator is to be asked to begin these."""
        return StatePartitions(
            with_more(self.initializing, topics),
            self.initialized,
            {topic_id: name for topic_id, name in self.deleting.items() if topic_id not in topics},
        )

    def done(self, topics: Mapping[uuid.UUID, TopicShare]) -> StatePartitions:
        """It has."""
        return StatePartitions(
            without(self.initializing, topics), with_more(self.initialized, topics), self.deleting
        )

    def forgetting(self, topic_ids: Collection[uuid.UUID]) -> StatePartitions:
        """The share coordinator is to be asked to forget these."""
        known = self.all_partitions()
        deleting = {topic_id: known[topic_id].name for topic_id in topic_ids if topic_id in known}
        rest = self.forgotten(topic_ids)
        return replace(rest, deleting={**self.deleting, **deleting})

    def forgotten(self, topic_ids: Collection[uuid.UUID]) -> StatePartitions:
        """It has, or there are no such topics any more."""
        return StatePartitions(
            {topic_id: topic for topic_id, topic in self.initializing.items() if topic_id not in topic_ids},
            {topic_id: topic for topic_id, topic in self.initialized.items() if topic_id not in topic_ids},
            {topic_id: name for topic_id, name in self.deleting.items() if topic_id not in topic_ids},
        )

    @property
    def topic_ids(self) -> set[uuid.UUID]:
        return {*self.initializing, *self.initialized, *self.deleting}


def with_more(
    topics: Mapping[uuid.UUID, TopicShare], more: Mapping[uuid.UUID, TopicShare]
) -> dict[uuid.UUID, TopicShare]:
    result = dict(topics)
    for topic_id, topic in more.items():
        known = result.get(topic_id)
        result[topic_id] = (
            topic if known is None else TopicShare(topic.name, known.partitions | topic.partitions)
        )
    return result


def without(
    topics: Mapping[uuid.UUID, TopicShare], fewer: Mapping[uuid.UUID, TopicShare]
) -> dict[uuid.UUID, TopicShare]:
    result = {}
    for topic_id, topic in topics.items():
        gone = fewer.get(topic_id)
        left = topic.partitions if gone is None else topic.partitions - gone.partitions
        if left:
            result[topic_id] = TopicShare(topic.name, left)
    return result


class ShareGroup:
    __slots__ = (
        "_topic_counts",
        "assignment_epoch",
        "assignment_timestamp_ms",
        "epoch",
        "group_id",
        "initializing_until_ms",
        "is_stale",
        "members",
        "metadata_hash",
        "size_bytes",
        "states",
        "target",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.assignment_timestamp_ms = 0
        self.members: dict[str, ShareMember] = {}
        self.target: dict[str, Partitions] = {}
        self.states = StatePartitions()
        self.size_bytes = 0
        """What members make the broker keep."""
        self._topic_counts: Counter[str] = Counter()
        # Not stored: a fresh coordinator looks at topics and states again on the first heartbeat.
        self.is_stale = True
        """Topics, or partitions that have a state, may have changed since the last assignment."""
        self.initializing_until_ms = 0
        """The share coordinator has until then before it is asked again."""

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def state(self) -> str:
        return "Stable" if self.members else "Empty"

    def member(self, member_id: str) -> ShareMember:
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberId(
                f"share group {self.group_id} has no member {member_id}; rejoin with epoch 0"
            )
        return member

    @property
    def subscribed_topics(self) -> list[str]:
        return sorted(self._topic_counts)

    def note_changes(self, topics: Iterable[str]) -> None:
        """These came, went or grew."""
        self.is_stale = self.is_stale or any(topic in self._topic_counts for topic in topics)

    # --- replay

    def replay(self, key: ShareKey, value: object | None) -> None:
        match key, value:
            case ShareGroupMetadataKey(), ShareGroupMetadataValue():
                self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
            case ShareGroupMemberMetadataKey(), ShareGroupMemberMetadataValue():
                old = self.members.get(key.member) or ShareMember(key.member)
                self._put(key.member, old.with_metadata(value))
            case ShareGroupMemberMetadataKey(), None:
                self._put(key.member, None)
            case ShareGroupCurrentMemberAssignmentKey(), ShareGroupCurrentMemberAssignmentValue():
                old = self.members.get(key.member) or ShareMember(key.member)
                self._put(key.member, old.with_current(value))
            case ShareGroupCurrentMemberAssignmentKey(), None:
                pass  # what it subscribed to goes next, and the member with it
            case ShareGroupTargetAssignmentMetadataKey(), ShareGroupTargetAssignmentMetadataValue():
                self.assignment_epoch = value.assignment_epoch
                self.assignment_timestamp_ms = value.assignment_timestamp
            case ShareGroupTargetAssignmentMetadataKey(), None:
                self.assignment_epoch = self.assignment_timestamp_ms = 0
            case ShareGroupTargetAssignmentMemberKey(), ShareGroupTargetAssignmentMemberValue():
                self.target[key.member] = _partitions(value.topic_partitions)
            case ShareGroupTargetAssignmentMemberKey(), None:
                self.target.pop(key.member, None)
            case ShareGroupStatePartitionMetadataKey(), ShareGroupStatePartitionMetadataValue():
                self._put_states(StatePartitions.from_record(value))
            case ShareGroupStatePartitionMetadataKey(), None:
                self._put_states(StatePartitions())
            case _:
                raise AssertionError(f"{value} does not belong to {key}")

    def _put(self, member_id: str, new: ShareMember | None) -> None:
        old = self.members.pop(member_id, None)
        if old is not None:
            self.size_bytes -= old.size_bytes
            self._topic_counts.subtract(old.topics)
        if new is not None:
            self.members[member_id] = new
            self.size_bytes += new.size_bytes
            self._topic_counts.update(new.topics)
        for topic in () if old is None else old.topics:
            if not self._topic_counts[topic]:
                del self._topic_counts[topic]

    def _put_states(self, states: StatePartitions) -> None:
        if states.initialized != self.states.initialized:
            self.is_stale = True
        self.states = states


def share_target_record(partitions: Partitions) -> ShareGroupTargetAssignmentMemberValue:
    return ShareGroupTargetAssignmentMemberValue(topic_partitions=_target_partitions(partitions))


def _target_partitions(partitions: Partitions) -> tuple[TargetPartitions, ...]:
    return tuple(
        TargetPartitions(topic_id=topic_id, partitions=tuple(sorted(partitions[topic_id])))
        for topic_id in sorted(partitions)
        if partitions[topic_id]
    )


def _partitions(items: Iterable[TargetPartitions]) -> Partitions:
    return {item.topic_id: frozenset(item.partitions) for item in items if item.topic_id is not None}


def _shared_topics(topics: Mapping[uuid.UUID, TopicShare]) -> tuple[SharedTopic, ...]:
    return tuple(
        SharedTopic(
            topic_id=topic_id,
            topic_name=topics[topic_id].name,
            partitions=tuple(sorted(topics[topic_id].partitions)),
        )
        for topic_id in sorted(topics)
    )
