"""Consumer groups: listed, described with their members, and their offsets read, set and deleted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ottla.cli.admin import Admin, Node
from ottla.cli.errors import Refused, check
from ottla.cli.topic_metadata import Partition
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode

CONSUMER_PROTOCOL = "consumer"
# From here on topics go by their ids, which tools do not have at hand.
_BY_NAME_MAX = 9


class Listed(NamedTuple):
    id: str
    type: str
    state: str


class Member(NamedTuple):
    id: str
    instance_id: str | None
    client_id: str
    host: str
    assigned: tuple[Partition, ...]
    epoch: int | None = None
    target: tuple[Partition, ...] = ()
    upgraded: bool | None = None


class Group(NamedTuple):
    id: str
    type: str
    state: str
    assignor: str
    coordinator: Node
    members: tuple[Member, ...]
    epoch: int | None = None
    target_epoch: int | None = None


class Committed(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str


def list_groups(admin: Admin, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[Listed]:
    """Consumer groups of all brokers, in order; groups of other kinds (Connect's, say) are left out."""
    listed: dict[str, Listed] = {}
    for node in admin.nodes():
        answer = admin.ask(
            ApiKey.LIST_GROUPS, {"states_filter": list(states), "types_filter": list(types)}, node=node
        )
        check(answer.error_code, None, f"broker {node}")
        for group in answer.groups:
            if group.protocol_type in {CONSUMER_PROTOCOL, ""} and group.group_type.lower() != "share":
                listed[group.group_id] = Listed(group.group_id, group.group_type, group.group_state)
    return [listed[name] for name in sorted(listed)]


def describe_group(admin: Admin, group: str) -> Group:
    """Refused with GROUP_ID_NOT_FOUND for one that does not exist."""

    def attempt() -> Group:
        node = admin.coordinator(group)
        if admin.serves(ApiKey.CONSUMER_GROUP_DESCRIBE):
            answer = admin.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, {"group_ids": [group]}, node=node).groups[0]
            # A classic group is not found this way; only the other question tells whether it exists.
            if answer.error_code not in {ErrorCode.group_id_not_found, ErrorCode.unsupported_version}:
                check(answer.error_code, answer.error_message)
                return _consumer(answer, admin.nodes()[node])
        answer = admin.ask(ApiKey.DESCRIBE_GROUPS, {"groups": [group]}, node=node).groups[0]
        check(answer.error_code, answer.error_message)
        if answer.group_state == "Dead":
            raise Refused(ErrorCode.group_id_not_found, f"Group {group} not found.")
        return _classic(answer, admin.nodes()[node])

    return admin.retried(attempt)


def committed_offsets(admin: Admin, group: str) -> dict[Partition, Committed]:
    def attempt() -> dict[Partition, Committed]:
        answer = admin.ask(
            ApiKey.OFFSET_FETCH,
            {"groups": [{"group_id": group, "member_epoch": -1, "topics": None}], "require_stable": False},
            node=admin.coordinator(group),
            version_max=_BY_NAME_MAX,
        ).groups[0]
        check(answer.error_code)
        return dict(sorted(_committed(answer)))

    return admin.retried(attempt)


def commit_offsets(admin: Admin, group: str, offsets: Mapping[Partition, int]) -> None:
    def attempt() -> None:
        answer = admin.ask(
            ApiKey.OFFSET_COMMIT,
            {
                "group_id": group,
                "generation_id_or_member_epoch": -1,
                "member_id": "",
                "topics": [
                    {
                        "name": topic,
                        "partitions": [
                            {
                                "partition_index": partition.number,
                                "committed_offset": offsets[partition],
                                "committed_leader_epoch": -1,
                                "committed_metadata": "",
                            }
                            for partition in partitions
                        ],
                    }
                    for topic, partitions in _by_topic(offsets).items()
                ],
            },
            node=admin.coordinator(group),
            version_max=_BY_NAME_MAX,
        )
        for topic in answer.topics:
            for item in topic.partitions:
                check(item.error_code, None, group)

    admin.retried(attempt)


def delete_offsets(admin: Admin, group: str, partitions: Iterable[Partition]) -> dict[Partition, str]:
    """What each partition's answer was: empty for success."""
    answer = admin.ask(
        ApiKey.OFFSET_DELETE,
        {
            "group_id": group,
            "topics": [
                {"name": topic, "partitions": [{"partition_index": place.number} for place in places]}
                for topic, places in _by_topic(partitions).items()
            ],
        },
        node=admin.coordinator(group),
    )
    check(answer.error_code)
    return {
        Partition(topic.name, item.partition_index): ""
        if item.error_code == 0
        else item.error_code.name.upper()
        for topic in answer.topics
        for item in topic.partitions
    }


def delete_group(admin: Admin, group: str) -> None:
    def attempt() -> None:
        answer = admin.ask(ApiKey.DELETE_GROUPS, {"groups_names": [group]}, node=admin.coordinator(group))
        check(answer.results[0].error_code)

    admin.retried(attempt)


def _consumer(answer: Any, node: Node) -> Group:
    members = tuple(
        Member(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            _partitions(member.assignment),
            member.member_epoch,
            _partitions(member.target_assignment),
            {0: False, 1: True}.get(member.member_type),
        )
        for member in answer.members
    )
    return Group(
        answer.group_id,
        "Consumer",
        answer.group_state,
        answer.assignor_name,
        node,
        members,
        answer.group_epoch,
        answer.assignment_epoch,
    )


def _classic(answer: Any, node: Node) -> Group:
    members = tuple(
        Member(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            _embedded(member.member_assignment) if answer.protocol_type == CONSUMER_PROTOCOL else (),
        )
        for member in answer.members
    )
    return Group(answer.group_id, "Classic", answer.group_state, answer.protocol_data, node, members)


def _partitions(assignment: Any) -> tuple[Partition, ...]:
    return tuple(
        Partition(topic.topic_name, number)
        for topic in assignment.topic_partitions
        for number in topic.partitions
    )


def _embedded(data: bytes) -> tuple[Partition, ...]:
    """An assignment as clients of the classic protocol write it; the first version says all we show."""
    if len(data) < 2:
        return ()
    from kio.schema.consumer_protocol_assignment.v0.data import ConsumerProtocolAssignment
    from kio.serial import entity_reader
    from kio.serial.errors import SerialError

    try:
        assignment, _ = entity_reader(ConsumerProtocolAssignment)(data, 2)
    except SerialError:
        return ()
    return tuple(
        Partition(topic.topic, number)
        for topic in assignment.assigned_partitions
        for number in topic.partitions
    )


def _committed(answer: Any) -> list[tuple[Partition, Committed]]:
    found = []
    for topic in answer.topics:
        for item in topic.partitions:
            partition = Partition(topic.name, item.partition_index)
            check(item.error_code, None, str(partition))
            if item.committed_offset >= 0:
                committed = Committed(item.committed_offset, item.committed_leader_epoch, item.metadata or "")
                found.append((partition, committed))
    return found


def _by_topic(partitions: Iterable[Partition]) -> dict[str, list[Partition]]:
    grouped: dict[str, list[Partition]] = defaultdict(list)
    for partition in sorted(partitions):
        grouped[partition.topic].append(partition)
    return grouped
