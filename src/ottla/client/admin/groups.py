"""Consumer groups: listed, described with their members, and their offsets read, set and deleted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ottla.client.admin.topics import Partition
from ottla.client.cluster import GROUP, ClusterClient
from ottla.client.errors import error_for, raise_for_code
from ottla.client.metadata import BrokerNode
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode

CONSUMER_PROTOCOL = "consumer"
# From here on topics go by their ids, which tools do not have at hand.
_BY_NAME_MAX = 9
# A classic group is not found as a consumer group; only the other question tells whether it exists.
_MAYBE_CLASSIC = frozenset((ErrorCode.group_id_not_found, ErrorCode.unsupported_version))


class Listed(NamedTuple):
    id: str
    type: str
    state: str
    coordinator: int
    protocol: str
    """What kind of clients it is for: `consumer`, `connect`, empty for one that has only offsets."""


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
    coordinator: BrokerNode
    members: tuple[Member, ...]
    epoch: int | None = None
    target_epoch: int | None = None


class Committed(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str


async def list_groups(
    cluster: ClusterClient, states: Sequence[str] = (), types: Sequence[str] = (), *, every_kind: bool = False
) -> list[Listed]:
    """Of all brokers, in order: consumer groups, or those of other kinds (share, Connect's) as well."""
    listed: dict[str, Listed] = {}
    for node in (await cluster.cluster()).brokers:
        for group in await _listed_by(cluster, node, states, types):
            is_consumer = (
                group.protocol_type in {CONSUMER_PROTOCOL, ""} and group.group_type.lower() != "share"
            )
            if every_kind or is_consumer:
                listed[group.group_id] = Listed(
                    group.group_id, group.group_type, group.group_state, node, group.protocol_type
                )
    return [listed[name] for name in sorted(listed)]


async def _listed_by(
    cluster: ClusterClient, node: int, states: Sequence[str], types: Sequence[str]
) -> Sequence[Any]:
    answer = await cluster.ask(
        node,
        ApiKey.LIST_GROUPS,
        {"states_filter": list(states), "types_filter": list(types)},
        about=f"broker {node}",
    )
    groups: Sequence[Any] = answer.groups
    return groups


async def describe_group(cluster: ClusterClient, group: str) -> Group:
    """GROUP_ID_NOT_FOUND for one that does not exist."""
    if await cluster.serves(ApiKey.CONSUMER_GROUP_DESCRIBE):
        found = await _ask(
            cluster, group, ApiKey.CONSUMER_GROUP_DESCRIBE, {"group_ids": [group]}, _MAYBE_CLASSIC
        )
        if found.error_code not in _MAYBE_CLASSIC:
            return _consumer(found, await _coordinator(cluster, group))
    found = await _ask(cluster, group, ApiKey.DESCRIBE_GROUPS, {"groups": [group]})
    if found.group_state == "Dead":
        raise error_for(ErrorCode.group_id_not_found, f"Group {group} not found.", "")
    return _classic(found, await _coordinator(cluster, group))


async def committed_offsets(cluster: ClusterClient, group: str) -> dict[Partition, Committed]:
    wanted = {"group_id": group, "member_epoch": -1, "topics": None}
    asked = {"groups": [wanted], "require_stable": False}
    found = await _ask(cluster, group, ApiKey.OFFSET_FETCH, asked, version_max=_BY_NAME_MAX)
    return dict(sorted(_committed(found)))


async def committed_offsets_of(
    cluster: ClusterClient, groups: Iterable[Listed]
) -> dict[str, dict[Partition, Committed]]:
    """Of many groups, in one request to each coordinator; those that it refuses are left out."""
    by_node: dict[int, list[str]] = defaultdict(list)
    for group in groups:
        by_node[group.coordinator].append(group.id)
    found: dict[str, dict[Partition, Committed]] = {}
    for node, names in by_node.items():
        wanted = [{"group_id": name, "member_epoch": -1, "topics": None} for name in names]
        asked = {"groups": wanted, "require_stable": False}
        answer = await cluster.ask(node, ApiKey.OFFSET_FETCH, asked, version_max=_BY_NAME_MAX, about="")
        for group in answer.groups:
            if group.error_code == ErrorCode.none:
                found[group.group_id] = dict(sorted(_committed(group)))
    return found


async def commit_offsets(
    cluster: ClusterClient, group: str, offsets: Mapping[Partition, int], metadata: str = ""
) -> None:
    def check_partitions(answer: Any) -> None:
        for topic in answer.topics:
            for item in topic.partitions:
                raise_for_code(item.error_code, None, group)

    await cluster.ask_coordinator(
        GROUP,
        group,
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
                            "committed_metadata": metadata,
                        }
                        for partition in partitions
                    ],
                }
                for topic, partitions in _by_topic(offsets).items()
            ],
        },
        check_partitions,
        version_max=_BY_NAME_MAX,
        about="",
    )


async def delete_offsets(
    cluster: ClusterClient, group: str, partitions: Iterable[Partition]
) -> dict[Partition, str]:
    """What each partition's answer was: empty for success."""
    answer = await cluster.ask_coordinator(
        GROUP,
        group,
        ApiKey.OFFSET_DELETE,
        {
            "group_id": group,
            "topics": [
                {"name": topic, "partitions": [{"partition_index": place.number} for place in places]}
                for topic, places in _by_topic(partitions).items()
            ],
        },
        about="",
    )
    return {
        Partition(topic.name, item.partition_index): ""
        if item.error_code == 0
        else item.error_code.name.upper()
        for topic in answer.topics
        for item in topic.partitions
    }


async def delete_group(cluster: ClusterClient, group: str) -> None:
    def check_group(answer: Any) -> None:
        raise_for_code(answer.results[0].error_code, None, "")

    wanted = {"groups_names": [group]}
    await cluster.ask_coordinator(GROUP, group, ApiKey.DELETE_GROUPS, wanted, check_group, about="")


async def _ask(
    cluster: ClusterClient,
    group: str,
    api: ApiKey,
    values: Mapping[str, Any],
    accepted: frozenset[ErrorCode] = frozenset(),
    *,
    version_max: int | None = None,
) -> Any:
    """What its coordinator answers about the one group it is asked about."""

    def check_group(answer: Any) -> None:
        (found,) = answer.groups
        if found.error_code not in accepted:
            raise_for_code(found.error_code, getattr(found, "error_message", None), "")

    answer = await cluster.ask_coordinator(
        GROUP, group, api, values, check_group, version_max=version_max, about=""
    )
    return answer.groups[0]


async def _coordinator(cluster: ClusterClient, group: str) -> BrokerNode:
    return await cluster.retried(lambda: cluster.coordinating_broker(GROUP, group))


def _consumer(answer: Any, node: BrokerNode) -> Group:
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


def _classic(answer: Any, node: BrokerNode) -> Group:
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
            raise_for_code(item.error_code, None, str(partition))
            if item.committed_offset >= 0:
                committed = Committed(item.committed_offset, item.committed_leader_epoch, item.metadata or "")
                found.append((partition, committed))
    return found


def _by_topic(partitions: Iterable[Partition]) -> dict[str, list[Partition]]:
    grouped: dict[str, list[Partition]] = defaultdict(list)
    for partition in sorted(partitions):
        grouped[partition.topic].append(partition)
    return grouped
