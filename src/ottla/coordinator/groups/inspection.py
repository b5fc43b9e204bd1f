"""What tools see of groups: lists, descriptions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from ottla.coordinator.groups.assignors import DEFAULT_ASSIGNOR
from ottla.coordinator.groups.classic_group import ClassicGroup, State
from ottla.coordinator.groups.commands import Partitions
from ottla.coordinator.groups.consumer_group import ConsumerGroup, ConsumerMember
from ottla.coordinator.groups.embedded import PROTOCOL_TYPE
from ottla.coordinator.groups.share import ASSIGNOR
from ottla.coordinator.groups.share_group import ShareGroup, ShareMember
from ottla.coordinator.groups.state import Group, Groups
from ottla.coordinator.groups.topics import TopicsView
from ottla.wire.errors import GroupIdNotFound


class ListedGroup(NamedTuple):
    group_id: str
    protocol_type: str
    state: str
    type: str


class DescribedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    group_id: str
    state: str
    protocol_type: str
    protocol_name: str
    members: tuple[DescribedMember, ...]


@dataclass(frozen=True, slots=True)
class DescribedConsumerGroup:
    group_id: str
    state: str
    epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[tuple[ConsumerMember, Partitions, Partitions], ...]
    """Each with what it owns (or has still to give up) and what it shall own, of topics that exist."""


@dataclass(frozen=True, slots=True)
class DescribedShareGroup:
    group_id: str
    state: str
    epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[tuple[ShareMember, Partitions], ...]
    """Each with what it reads, of topics that exist."""


def list_groups(groups: Groups, states: Collection[str], types: Collection[str]) -> list[ListedGroup]:
    """Filters are matched without regard to case; none means all."""
    wanted_states = {state.strip().lower() for state in states}
    wanted_types = {name.strip().lower() for name in types}
    listed = (_listed(group) for _, group in sorted(groups.by_id.items()))
    return [
        group
        for group in listed
        if (not wanted_states or group.state.lower() in wanted_states)
        and (not wanted_types or group.type.lower() in wanted_types)
    ]


def count_groups(groups: Groups) -> Counter[tuple[str, str]]:
    """By type and state."""
    listed = map(_listed, groups.by_id.values())
    return Counter((group.type, group.state) for group in listed)


def _listed(group: Group) -> ListedGroup:
    match group:
        case ClassicGroup():
            return ListedGroup(group.group_id, group.protocol_type or "", group.state.value, "classic")
        case ConsumerGroup():
            return ListedGroup(group.group_id, PROTOCOL_TYPE, group.state, "consumer")
        case ShareGroup():
            return ListedGroup(group.group_id, "share", group.state, "share")


def describe_classic(groups: Groups, group_id: str) -> DescribedGroup:
    """Raises GroupIdNotFound also where the group is of the other type."""
    group = groups.get(group_id)
    if not isinstance(group, ClassicGroup):
        raise GroupIdNotFound(f"group {group_id} is not a classic group; describe it as a consumer group")
    is_stable = group.state is State.STABLE
    protocol = (group.protocol_name or "") if is_stable else ""
    return DescribedGroup(
        group_id,
        group.state.value,
        group.protocol_type or "",
        protocol,
        tuple(
            DescribedMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.metadata(protocol) if is_stable else b"",
                member.assignment,
            )
            for member in group.members.values()
        ),
    )


def describe_consumer(groups: Groups, group_id: str, topics: TopicsView) -> DescribedConsumerGroup:
    group = groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        raise GroupIdNotFound(f"group {group_id} is not a consumer group; describe it as a classic group")
    return DescribedConsumerGroup(
        group_id,
        group.state,
        group.epoch,
        group.assignment_epoch,
        group.preferred_assignor(DEFAULT_ASSIGNOR),
        tuple(
            (member, _owned(member, topics), _existing(group.target_of(member.member_id), topics))
            for _, member in sorted(group.members.items())
        ),
    )


def describe_share(groups: Groups, group_id: str, topics: TopicsView) -> DescribedShareGroup:
    group = groups.get(group_id)
    if not isinstance(group, ShareGroup):
        raise GroupIdNotFound(f"group {group_id} is not a share group")
    return DescribedShareGroup(
        group_id,
        group.state,
        group.epoch,
        group.assignment_epoch,
        ASSIGNOR,
        tuple((member, _existing(member.assigned, topics)) for _, member in sorted(group.members.items())),
    )


def _owned(member: ConsumerMember, topics: TopicsView) -> Partitions:
    return _existing(
        {
            topic_id: frozenset((*member.assigned.get(topic_id, ()), *member.revoking.get(topic_id, ())))
            for topic_id in {**member.assigned, **member.revoking}
        },
        topics,
    )


def _existing(partitions: Partitions, topics: TopicsView) -> Partitions:
    return {topic_id: parts for topic_id, parts in partitions.items() if topic_id in topics.topic_names}
