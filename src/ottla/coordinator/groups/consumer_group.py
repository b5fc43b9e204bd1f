"""A consumer group (KIP-848): members, what they shall own and what they own, rebuilt from its records alone.

The group epoch grows with every change of members, subscriptions or topics; the assignment epoch follows when
the target assignment has been computed for it; each member's epoch follows when it has given up what the
target takes away. Nothing here decides anything: see `consumer`, `reconciliation` and `assignors`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple, TypeAlias, cast

from ottla.coordinator.groups.commands import LEAVE_EPOCH, Partitions
from ottla.coordinator.groups.embedded import PROTOCOL_TYPE
from ottla.coordinator.groups.memory import MEMBER_BYTES, NAME_BYTES, names_bytes
from ottla.coordinator.groups.records import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupTargetAssignmentMemberValue,
    CurrentPartitions,
    TargetPartitions,
)
from ottla.wire.errors import UnknownMemberId

Epochs: TypeAlias = Mapping[uuid.UUID, Mapping[int, int]]
"""Partitions by topic, each with the epoch in which the member got it: older commits are a zombie's."""
NO_PARTITIONS: Partitions = {}
_UNCHECKED_TOPICS_MAX = 1_000
"""A group whose members are silent must not remember every topic of days."""


class MemberState(IntEnum):
    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """Must give something up before it can move to the next epoch."""
    UNRELEASED_PARTITIONS = 2
    """Waits for others to give up what it shall own."""
    UNKNOWN = 127
    """Written by a newer release."""


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    member_id: str
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    """Sorted, each once."""
    regex: str = ""
    assignor: str | None = None
    assigned: Epochs = field(default_factory=dict)
    revoking: Epochs = field(default_factory=dict)
    classic: ClassicMemberMetadata | None = None
    """Set for a member that still speaks the classic protocol."""

    @property
    def size_bytes(self) -> int:
        """What it makes the broker keep. Its partitions are not of its making."""
        size = MEMBER_BYTES + len(self.member_id) + len(self.client_id) + len(self.regex)
        size += len(self.instance_id or "") + len(self.rack_id or "") + names_bytes(self.topics)
        if self.classic is not None:
            for protocol in self.classic.supported_protocols:
                size += NAME_BYTES + len(protocol.name) + len(protocol.metadata)
        return size

    @property
    def stored_bytes(self) -> int:
        """At most, of the record with what it subscribes to and is called."""
        strings = (
            len(self.client_id) + len(self.instance_id or "") + len(self.rack_id or "") + len(self.regex)
        )
        size = NAME_BYTES + 4 * strings
        for topic in self.topics:
            size += 5 + (len(topic) if topic.isascii() else 4 * len(topic))
        if self.classic is not None:
            for protocol in self.classic.supported_protocols:
                size += NAME_BYTES + 4 * len(protocol.name) + len(protocol.metadata)
        return size

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch

    def assignment_epoch(self, topic_id: uuid.UUID | None, partition: int) -> int | None:
        if topic_id is None:
            return None
        for epochs in (self.assigned, self.revoking):
            epoch = epochs.get(topic_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None

    @property
    def held(self) -> Partitions:
        """What it may be reading: also what it has been told to give up and has not yet."""
        return {
            topic_id: frozenset((*self.assigned.get(topic_id, ()), *self.revoking.get(topic_id, ())))
            for topic_id in (*self.assigned, *self.revoking)
        }

    def to_metadata_record(self) -> ConsumerGroupMemberMetadataValue:
        return ConsumerGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=self.topics,
            subscribed_topic_regex=self.regex,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            server_assignor=self.assignor,
            classic_member_metadata=cast(ClassicMemberMetadata, self.classic),
        )

    def with_metadata(self, value: ConsumerGroupMemberMetadataValue) -> ConsumerMember:
        return replace(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topics=tuple(sorted(set(value.subscribed_topic_names))),
            regex=value.subscribed_topic_regex or "",
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            assignor=value.server_assignor,
            classic=value.classic_member_metadata,
        )

    def to_current_record(self) -> ConsumerGroupCurrentMemberAssignmentValue:
        return ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=int(self.state),
            assigned_partitions=_current_partitions(self.assigned),
            partitions_pending_revocation=_current_partitions(self.revoking),
        )

    def with_current(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> ConsumerMember:
        known = value.state in MemberState.__members__.values()
        return replace(
            self,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState(value.state) if known else MemberState.UNKNOWN,
            assigned=_epochs(value.assigned_partitions, value.member_epoch),
            revoking=_epochs(value.partitions_pending_revocation, value.member_epoch),
        )


class ResolvedRegex(NamedTuple):
    topics: frozenset[str]
    version: int
    timestamp_ms: int


class ConsumerGroup:
    __slots__ = (
        "_assignor_counts",
        "_regex_counts",
        "_topic_counts",
        "assignment_epoch",
        "assignment_timestamp_ms",
        "classic_count",
        "epoch",
        "group_id",
        "has_legacy_metadata",
        "is_metadata_stale",
        "members",
        "metadata_hash",
        "owners",
        "regexes",
        "regexes_checked_ms",
        "size_bytes",
        "static_members",
        "target",
        "unchecked_topics",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.assignment_timestamp_ms = 0
        self.members: dict[str, ConsumerMember] = {}
        self.static_members: dict[str, str] = {}
        self.target: dict[str, Partitions] = {}
        self.owners: dict[tuple[uuid.UUID, int], str] = {}
        """Who owns a partition or has still to give it up."""
        self.regexes: dict[str, ResolvedRegex] = {}
        self.size_bytes = 0
        """What members and their expressions make the broker keep."""
        self.classic_count = 0
        self.has_legacy_metadata = False
        self._topic_counts: dict[str, int] = {}
        self._regex_counts: dict[str, int] = {}
        self._assignor_counts: dict[str, int] = {}
        # Not stored: a fresh coordinator looks at topics and expressions again on the first heartbeat.
        self.is_metadata_stale = True
        self.unchecked_topics: set[str] | None = None
        """Topics that came or went since expressions were looked at; None: any may have."""
        self.regexes_checked_ms = 0

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def state(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    def member(self, member_id: str) -> ConsumerMember:
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberId(f"group {self.group_id} has no member {member_id}; rejoin with epoch 0")
        return member

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def put_member(self, new: ConsumerMember) -> None:
        old = self.members.get(new.member_id)
        self.members[new.member_id] = new
        if old is not None:
            self._forget(old)
        if new.instance_id is not None:
            self.static_members[new.instance_id] = new.member_id
        self._count(new, 1)
        for epochs in (new.assigned, new.revoking):
            for topic_id, partitions in epochs.items():
                for partition in partitions:
                    self.owners[topic_id, partition] = new.member_id

    def remove_member(self, member_id: str) -> None:
        old = self.members.pop(member_id, None)
        if old is not None:
            self._forget(old)

    def _forget(self, old: ConsumerMember) -> None:
        if old.instance_id is not None and self.static_members.get(old.instance_id) == old.member_id:
            del self.static_members[old.instance_id]
        self._count(old, -1)
        for epochs in (old.assigned, old.revoking):
            for topic_id, partitions in epochs.items():
                for partition in partitions:
                    if self.owners.get((topic_id, partition)) == old.member_id:
                        del self.owners[topic_id, partition]

    def put_regex(self, regex: str, resolved: ResolvedRegex | None) -> None:
        old = self.regexes.pop(regex, None)
        if old is not None:
            self.size_bytes -= names_bytes(old.topics)
        if resolved is not None:
            self.regexes[regex] = resolved
            self.size_bytes += names_bytes(resolved.topics)

    def _count(self, member: ConsumerMember, change: int) -> None:
        self.size_bytes += change * member.size_bytes
        for topic in member.topics:
            _add(self._topic_counts, topic, change)
        if member.regex:
            _add(self._regex_counts, member.regex, change)
        if member.assignor is not None:
            _add(self._assignor_counts, member.assignor, change)
        if member.classic is not None:
            self.classic_count += change

    @property
    def subscribed_regexes(self) -> list[str]:
        return sorted(self._regex_counts)

    def subscribed_topics(self) -> set[str]:
        topics = set(self._topic_counts)
        for regex in self._regex_counts:
            resolved = self.regexes.get(regex)
            if resolved is not None:
                topics |= resolved.topics
        return topics

    def is_subscribed_to(self, topic: str) -> bool:
        if topic in self._topic_counts:
            return True
        return any(topic in resolved.topics for resolved in self.regexes.values())

    def note_changes(self, topics: Iterable[str]) -> None:
        """These came, went or grew. Costs as much as there are of them, however many the group is about."""
        for topic in topics:
            if not self.is_metadata_stale and self.is_subscribed_to(topic):
                self.is_metadata_stale = True
            if self.unchecked_topics is not None and self._regex_counts:
                self.unchecked_topics.add(topic)
                if len(self.unchecked_topics) > _UNCHECKED_TOPICS_MAX:
                    self.unchecked_topics = None

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """An expression that is not resolved yet stands for nothing."""
        resolved = self.regexes.get(member.regex) if member.regex else None
        return frozenset(member.topics) if resolved is None else resolved.topics.union(member.topics)

    def preferred_assignor(self, default: str) -> str:
        counts = self._assignor_counts
        return max(sorted(counts), key=counts.__getitem__) if counts else default

    def target_of(self, member_id: str) -> Partitions:
        return self.target.get(member_id, NO_PARTITIONS)

    def supports_classic(self, protocol_type: str, names: set[str]) -> bool:
        """Whether a classic member fits: its protocols must overlap those of all other classic members."""
        if protocol_type != PROTOCOL_TYPE or not names:
            return False
        classic = [m.classic for m in self.members.values() if m.classic is not None]
        common = names.intersection(*({p.name for p in c.supported_protocols} for c in classic))
        return bool(common)

    def is_waiting_for_release(self, member: ConsumerMember) -> bool:
        """Whether someone else still holds what this member shall own."""
        return any(
            partition not in member.assigned.get(topic_id, {}) and (topic_id, partition) in self.owners
            for topic_id, partitions in self.target_of(member.member_id).items()
            for partition in partitions
        )


def departed(member: ConsumerMember) -> ConsumerMember:
    """A member whose current assignment has been tombstoned; its metadata goes next."""
    return replace(member, epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH, assigned={}, revoking={})


def target_record(partitions: Partitions) -> ConsumerGroupTargetAssignmentMemberValue:
    return ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=tuple(
            TargetPartitions(topic_id=topic_id, partitions=tuple(sorted(partitions[topic_id])))
            for topic_id in sorted(partitions)
            if partitions[topic_id]
        )
    )


def target_from_record(value: ConsumerGroupTargetAssignmentMemberValue) -> Partitions:
    return {
        item.topic_id: frozenset(item.partitions)
        for item in value.topic_partitions
        if item.topic_id is not None
    }


def _current_partitions(epochs: Epochs) -> tuple[CurrentPartitions, ...]:
    return tuple(
        CurrentPartitions(
            topic_id=topic_id,
            partitions=tuple(sorted(epochs[topic_id])),
            assignment_epochs=tuple(epochs[topic_id][partition] for partition in sorted(epochs[topic_id])),
        )
        for topic_id in sorted(epochs)
    )


def _epochs(items: tuple[CurrentPartitions, ...], member_epoch: int) -> Epochs:
    # Releases before assignment epochs wrote none; a departed static member's epoch is negative.
    default = max(member_epoch, 0)
    result: dict[uuid.UUID, Mapping[int, int]] = {}
    for item in items:
        epochs = item.assignment_epochs
        if item.topic_id is None:
            continue
        if epochs is None or len(epochs) != len(item.partitions):
            epochs = (default,) * len(item.partitions)
        result[item.topic_id] = dict(zip(item.partitions, epochs, strict=True))
    return result


def _add(counts: dict[str, int], key: str, change: int) -> None:
    count = counts.get(key, 0) + change
    if count:
        counts[key] = count
    else:
        del counts[key]
