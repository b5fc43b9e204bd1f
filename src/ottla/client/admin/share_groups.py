"""Share groups: described with their members, and where they are told, set and deleted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ottla.client.admin.groups import Group, Listed, Member, list_groups
from ottla.client.admin.topics import Partition
from ottla.client.cluster import GROUP, ClusterClient
from ottla.client.errors import raise_for_code
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode

SHARE_TYPE = "share"


def is_share(group: Listed) -> bool:
    return group.type.lower() == SHARE_TYPE


class SharedOffset(NamedTuple):
    start: int | None
    """None: where the group begins is not decided yet."""
    leader_epoch: int
    lag: int | None
    """None where it is not known, as to brokers that do not count it."""


async def list_share_groups(cluster: ClusterClient, states: Iterable[str] = ()) -> list[Listed]:
    return await list_groups(cluster, list(states), [SHARE_TYPE], every_kind=True)


async def describe_share_group(cluster: ClusterClient, group: str) -> Group:
    """GROUP_ID_NOT_FOUND for one that does not exist."""

    def check(answer: Any) -> None:
        raise_for_code(answer.groups[0].error_code, answer.groups[0].error_message, "")

    answer = await cluster.ask_coordinator(
        GROUP, group, ApiKey.SHARE_GROUP_DESCRIBE, {"group_ids": [group]}, check, about=""
    )
    found = answer.groups[0]
    node = await cluster.retried(lambda: cluster.coordinating_broker(GROUP, group))
    members = tuple(
        Member(
            member.member_id,
            None,
            member.client_id,
            member.client_host,
            tuple(
                Partition(topic.topic_name, number)
                for topic in member.assignment.topic_partitions
                for number in topic.partitions
            ),
            member.member_epoch,
        )
        for member in found.members
    )
    return Group(
        group,
        "Share",
        found.group_state,
        found.assignor_name,
        node,
        members,
        found.group_epoch,
        found.assignment_epoch,
    )


async def shared_offsets(cluster: ClusterClient, group: str) -> dict[Partition, SharedOffset]:
    """Of all partitions that the group has begun."""

    def check(answer: Any) -> None:
        raise_for_code(answer.groups[0].error_code, answer.groups[0].error_message, "")

    answer = await cluster.ask_coordinator(
        GROUP,
        group,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        {"groups": [{"group_id": group, "topics": None}]},
        check,
        about="",
    )
    found = {}
    for partition, item in _told(answer.groups[0]):
        raise_for_code(item.error_code, item.error_message, str(partition))
        found[partition] = _shared(item)
    return dict(sorted(found.items()))


async def shared_offsets_of(
    cluster: ClusterClient, groups: Iterable[Listed]
) -> dict[str, dict[Partition, SharedOffset]]:
    """Of many groups, in one request to each coordinator; what it refuses is left out."""
    by_node: dict[int, list[str]] = defaultdict(list)
    for group in groups:
        by_node[group.coordinator].append(group.id)
    found: dict[str, dict[Partition, SharedOffset]] = {}
    for node, names in by_node.items():
        wanted = {"groups": [{"group_id": name, "topics": None} for name in names]}
        answer = await cluster.ask(node, ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, wanted, about="")
        for group in answer.groups:
            if group.error_code == ErrorCode.none:
                told = _told(group)
                found[group.group_id] = {
                    place: _shared(item) for place, item in told if item.error_code == ErrorCode.none
                }
    return found


def _told(group: Any) -> Iterator[tuple[Partition, Any]]:
    for topic in group.topics:
        for item in topic.partitions:
            yield Partition(topic.topic_name, item.partition_index), item


def _shared(item: Any) -> SharedOffset:
    return SharedOffset(
        item.start_offset if item.start_offset >= 0 else None,
        item.leader_epoch,
        item.lag if item.lag >= 0 else None,
    )


async def alter_shared_offsets(cluster: ClusterClient, group: str, offsets: Mapping[Partition, int]) -> None:
    topics: dict[str, list[dict[str, int]]] = defaultdict(list)
    for partition in sorted(offsets):
        topics[partition.topic].append(
            {"partition_index": partition.number, "start_offset": offsets[partition]}
        )

    def check(answer: Any) -> None:
        raise_for_code(answer.error_code, answer.error_message, "")
        for topic in answer.responses:
            for item in topic.partitions:
                raise_for_code(
                    item.error_code, item.error_message, f"{topic.topic_name}-{item.partition_index}"
                )

    wanted = {
        "group_id": group,
        "topics": [{"topic_name": name, "partitions": some} for name, some in topics.items()],
    }
    await cluster.ask_coordinator(GROUP, group, ApiKey.ALTER_SHARE_GROUP_OFFSETS, wanted, check, about="")


async def delete_shared_offsets(cluster: ClusterClient, group: str, topics: Iterable[str]) -> dict[str, str]:
    """What each topic's answer was: empty for success."""
    wanted = {"group_id": group, "topics": [{"topic_name": name} for name in topics]}
    answer = await cluster.ask_coordinator(GROUP, group, ApiKey.DELETE_SHARE_GROUP_OFFSETS, wanted, about="")
    return {
        topic.topic_name: ""
        if topic.error_code == 0
        else topic.error_message or topic.error_code.name.upper()
        for topic in answer.responses
    }
