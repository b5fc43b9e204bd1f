"""Groups of all kinds: who is in them, how far behind they are, and where they go on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

from ottla.client.admin import groups, share_groups
from ottla.client.admin.offset_reset import offsets_at, within_bounds
from ottla.client.admin.topics import Partition, describe_topics, offsets_told
from ottla.client.cluster import EARLIEST, LATEST, ClusterClient
from ottla.console.api.typed import check_typed
from ottla.console.clusters import Cluster, shared_as_committed
from ottla.console.endpoints import endpoint
from ottla.console.moments import moment_ms
from ottla.console.problems import Refused

PAGE = 50
PAGE_MAX = 500
Order = Literal["name", "lag", "state", "topics"]
To = Literal["earliest", "latest", "offset", "shift", "time"]


@dataclass(frozen=True, slots=True)
class FindGroups:
    q: Annotated[str, "a part of the name"] = ""
    sort: Annotated[Order, "by what"] = "name"
    down: Annotated[bool, "the largest first"] = False
    page: Annotated[int, "which page, from 1 on"] = 1
    limit: Annotated[int, f"groups per page, at most {PAGE_MAX}"] = PAGE


@dataclass(frozen=True, slots=True)
class OneGroup:
    group: Annotated[str, "its name"]


@dataclass(frozen=True, slots=True)
class ConfirmGroup:
    group: Annotated[str, "its name"]
    confirm: Annotated[str, "the name once more, as typed by whoever is sure"]


@dataclass(frozen=True, slots=True)
class ResetOffsets:
    group: Annotated[str, "its name"]
    topic: Annotated[str, "which topic"]
    to: Annotated[To, "where to"]
    partitions: Annotated[list[int], "which; all without"] = field(default_factory=list)
    offset: Annotated[
        int | None, "with to=offset: where; with to=shift: by how many, or back if negative"
    ] = None
    time: Annotated[str, "with to=time: milliseconds, or 2026-01-31T12:00:00, in UTC unless it says so"] = ""
    preview: Annotated[bool, "only say what would be"] = True


@endpoint("GET", "/groups", "Groups, a page at a time, with how far behind they are")
async def find_groups(cluster: Cluster, asked: FindGroups) -> Any:
    known = await cluster.groups.get()
    part = asked.q.strip().lower()
    wanted = [group for name, group in sorted(known.listed.items()) if part in name.lower()]
    found: list[dict[str, Any]] = []
    for group in wanted:
        committed = known.committed.get(group.id, {})
        found.append(
            {
                "name": group.id,
                "type": group.type or "Classic",
                "protocol": group.protocol,
                "state": group.state,
                "coordinator": group.coordinator,
                "topics": len({place.topic for place in committed}),
                "lag": sum(
                    max(known.ends[place] - each.offset, 0)
                    for place, each in committed.items()
                    if place in known.ends
                ),
            }
        )
    found.sort(key=lambda group: group[asked.sort], reverse=asked.down)
    limit = min(max(asked.limit, 1), PAGE_MAX)
    pages = max(-(-len(found) // limit), 1)
    page = min(max(asked.page, 1), pages)
    shown = found[(page - 1) * limit : page * limit]
    return {"total": len(found), "page": page, "pages": pages, "groups": shown}


@endpoint("GET", "/groups/{group}", "One group: its members, what each reads, and its lag")
async def group(cluster: Cluster, asked: OneGroup) -> Any:
    kind = await _kind(cluster, asked.group)
    found = await kind.describe(cluster.client, asked.group)
    committed, told_lags = await kind.offsets(cluster.client, asked.group)
    readers: dict[Partition, list[groups.Member]] = defaultdict(list)
    for member in found.members:
        for place in member.assigned:
            readers[place].append(member)
    places = sorted({*committed, *readers})
    ends = await _ends(cluster, places)
    partitions = []
    for place in places:
        offset = committed[place].offset if place in committed else None
        end = ends.get(place)
        lag = None if offset is None or end is None else max(end - offset, 0)
        reading = readers.get(place, ())
        partitions.append(
            {
                "topic": place.topic,
                "partition": place.number,
                "offset": offset,
                "endOffset": end,
                "lag": told_lags.get(place, lag),
                "members": [member.id for member in reading],
                "clients": [member.client_id for member in reading],
                "metadata": committed[place].metadata if place in committed else "",
            }
        )
    return {
        "name": found.id,
        "type": found.type,
        "state": found.state,
        "assignor": found.assignor,
        "coordinator": found.coordinator.id,
        "epoch": found.epoch,
        "members": [
            {
                "id": member.id,
                "instance": member.instance_id,
                "client": member.client_id,
                "host": member.host,
                "assigned": _shown_places(member.assigned),
            }
            for member in found.members
        ],
        "partitions": partitions,
        "lag": sum(each["lag"] or 0 for each in partitions),
    }


@endpoint("DELETE", "/groups/{group}", "Delete a group and its offsets; it must have no members")
async def delete_group(cluster: Cluster, asked: ConfirmGroup) -> Any:
    check_typed("the name of the group", asked.group, asked.confirm)
    await groups.delete_group(cluster.client, asked.group)
    return {"deleted": asked.group, "go": ["groups"]}


@endpoint("POST", "/groups/{group}/offsets", "Let a group go on elsewhere; it must have no members")
async def reset_offsets(cluster: Cluster, asked: ResetOffsets) -> Any:
    (state,) = await describe_topics(cluster.client, [asked.topic])
    present = [each.number for each in state.partitions]
    if unknown := sorted(set(asked.partitions) - set(present)):
        raise Refused(f"topic {asked.topic} has no partition {unknown[0]}", 404)
    places = [Partition(asked.topic, number) for number in asked.partitions or present]
    kind = await _kind(cluster, asked.group)
    committed, _ = await kind.offsets(cluster.client, asked.group)
    wanted = await _wanted(cluster, asked, places, {place: each.offset for place, each in committed.items()})
    if not asked.preview:
        await kind.set(cluster.client, asked.group, wanted)
    return {
        "preview": asked.preview,
        "partitions": [
            {
                "topic": place.topic,
                "partition": place.number,
                "from": committed[place].offset if place in committed else None,
                "to": offset,
            }
            for place, offset in wanted.items()
        ],
    }


ENDPOINTS = (find_groups, group, delete_group, reset_offsets)


Offsets: TypeAlias = tuple[dict[Partition, groups.Committed], dict[Partition, int]]
"""Where a group is, and how far behind where the cluster says so itself."""


class _Kind(NamedTuple):
    """How groups of a kind are asked about."""

    describe: Callable[[ClusterClient, str], Awaitable[groups.Group]]
    offsets: Callable[[ClusterClient, str], Awaitable[Offsets]]
    set: Callable[[ClusterClient, str, Mapping[Partition, int]], Awaitable[None]]


async def _committed(client: ClusterClient, group: str) -> Offsets:
    return await groups.committed_offsets(client, group), {}


async def _share_starts(client: ClusterClient, group: str) -> Offsets:
    """What members have and have not acknowledged does not lag, so the broker's number is the better one."""
    found = await share_groups.shared_offsets(client, group)
    return shared_as_committed(found), {place: at.lag for place, at in found.items() if at.lag is not None}


_CONSUMER = _Kind(groups.describe_group, _committed, groups.commit_offsets)
_SHARE = _Kind(share_groups.describe_share_group, _share_starts, share_groups.alter_shared_offsets)


async def _kind(cluster: Cluster, name: str) -> _Kind:
    listed = await groups.list_groups(cluster.client, every_kind=True)
    return _SHARE if any(each.id == name and share_groups.is_share(each) for each in listed) else _CONSUMER


async def _wanted(
    cluster: Cluster, asked: ResetOffsets, places: list[Partition], committed: dict[Partition, int]
) -> dict[Partition, int]:
    match asked.to:
        case "earliest":
            return await offsets_at(cluster.client, places, EARLIEST)
        case "latest":
            return await offsets_at(cluster.client, places, LATEST)
        case "time":
            return await offsets_at(cluster.client, places, moment_ms(asked.time))
    if asked.offset is None:
        raise Refused(f"with to={asked.to} give offset, too")
    if asked.to == "offset":
        return await within_bounds(cluster.client, dict.fromkeys(places, asked.offset))
    shifted = {place: committed[place] + asked.offset for place in places if place in committed}
    if not shifted:
        raise Refused(f"group {asked.group} has no offsets in {asked.topic} that could be shifted")
    return await within_bounds(cluster.client, shifted)


async def _ends(cluster: Cluster, places: Collection[Partition]) -> dict[Partition, int]:
    """Of partitions that still exist and have a leader."""
    leaders = (await cluster.topics.get()).leaders(places)
    return await offsets_told(cluster.client, leaders, LATEST)


def _shown_places(places: Iterable[Partition]) -> list[dict[str, Any]]:
    by_topic: dict[str, list[int]] = defaultdict(list)
    for place in sorted(places):
        by_topic[place.topic].append(place.number)
    return [{"topic": topic, "partitions": numbers} for topic, numbers in by_topic.items()]
