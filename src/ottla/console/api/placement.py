"""Who leads and where replicas are: elections, plans of moves, and moves under way."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from ottla.client.admin import replicas
from ottla.client.admin.placement import TooFewBrokers, propose, propose_fewest_moves
from ottla.client.admin.topics import Partition
from ottla.console.api.typed import check_typed
from ottla.console.clusters import Cluster, Sizes
from ottla.console.endpoints import endpoint
from ottla.console.problems import Refused, problem_of
from ottla.wire.errors import ErrorCode

LISTED_MAX = 500
CONFIRM_UNCLEAN = "lose records"
ALL_MOVES = "all"


@dataclass(frozen=True, slots=True)
class NoParameters:
    pass


@dataclass(frozen=True, slots=True)
class Elect:
    topics: Annotated[list[str], "of these; of all without"] = field(default_factory=list)
    kind: Annotated[Literal["preferred", "unclean"], "the first replica, or any that is left"] = "preferred"
    confirm: Annotated[str, f"with unclean: {CONFIRM_UNCLEAN}, as typed by whoever is sure"] = ""


@dataclass(frozen=True, slots=True)
class Plan:
    brokers: Annotated[list[int], "where replicas may be"]
    topics: Annotated[list[str], "whose; of all topics without"] = field(default_factory=list)
    how: Annotated[
        Literal["keep", "spread"], "keep what is on these brokers, or spread everything evenly over them"
    ] = "keep"


@dataclass(frozen=True, slots=True)
class Move:
    plan: Annotated[dict[str, list[int]], "brokers by partition, such as orders-0"]


@dataclass(frozen=True, slots=True)
class CallOff:
    confirm: Annotated[str, f"them once more, or {ALL_MOVES}, as typed by whoever is sure"]
    partitions: Annotated[list[str], "such as orders-0; all without"] = field(default_factory=list)


@endpoint("GET", "/leaders", "Partitions that are not led by their first replica")
async def leaders(cluster: Cluster, asked: NoParameters) -> Any:
    topics = (await cluster.topics.get()).by_name
    others = [
        {
            "topic": name,
            "partition": each.number,
            "leader": each.leader,
            "preferred": each.replicas[0],
            "canLead": each.replicas[0] in each.isr,
        }
        for name, topic in sorted(topics.items())
        for each in topic.partitions
        if each.replicas and each.leader != each.replicas[0]
    ]
    return {"total": len(others), "partitions": others[:LISTED_MAX]}


@endpoint("POST", "/leaders", "Elect leaders: the preferred ones, or any where no replica in sync is left")
async def elect_leaders(cluster: Cluster, asked: Elect) -> Any:
    if asked.kind == "unclean" and asked.confirm != CONFIRM_UNCLEAN:
        raise Refused(f"an unclean election loses what only others have; type {CONFIRM_UNCLEAN} to confirm")
    wanted = None
    if asked.topics:
        known = (await cluster.topics.fresh()).by_name
        wanted = [
            Partition(name, each.number) for name in asked.topics for each in _topic(known, name).partitions
        ]
    kind = replicas.PREFERRED if asked.kind == "preferred" else replicas.UNCLEAN
    results = await replicas.elect_leaders(cluster.client, kind, wanted)
    return {
        "elected": [str(place) for place, error in results.items() if error is None],
        "failed": {
            str(place): problem_of(error).text
            for place, error in results.items()
            if error is not None and error.code != ErrorCode.election_not_needed
        },
    }


@endpoint("GET", "/reassignments", "Replicas that are being moved, and how far they are")
async def reassignments(cluster: Cluster, asked: NoParameters) -> Any:
    found = await replicas.list_reassignments(cluster.client)
    sizes, topics = await cluster.sizes.get(), (await cluster.topics.get()).by_name
    leads = {
        Partition(name, each.number): each.leader
        for name in {place.topic for place in found}
        if name in topics
        for each in topics[name].partitions
    }
    return {
        "total": len(found),
        "partitions": [
            {
                "topic": place.topic,
                "partition": place.number,
                "replicas": list(moving.replicas),
                "adding": list(moving.adding),
                "removing": list(moving.removing),
                "doneBytes": sum(sizes.replicas.get((place, broker), 0) for broker in moving.adding),
                "totalBytes": sizes.replicas.get((place, leads.get(place, -1)), 0) * len(moving.adding),
            }
            for place, moving in list(found.items())[:LISTED_MAX]
        ],
    }


@endpoint("POST", "/reassignments/plan", "What a move would change; nothing is moved", only_looks=True)
async def plan_moves(cluster: Cluster, asked: Plan) -> Any:
    known, sizes = await cluster.topics.fresh(), await cluster.sizes.get()
    live = known.info.brokers
    if not asked.brokers:
        raise Refused("brokers is empty: name those that replicas may be on")
    if missing := sorted(set(asked.brokers) - set(live)):
        raise Refused(f"broker {missing[0]} is not up; there are {', '.join(map(str, live))}")
    names = asked.topics or list(known.by_name)
    current = {
        Partition(name, each.number): each.replicas
        for name in names
        for each in _topic(known.by_name, name).partitions
    }
    racks = {broker: live[broker].rack for broker in asked.brokers}
    try:
        if asked.how == "keep":
            proposed = propose_fewest_moves(current, racks)
        else:
            # The same question has the same answer, and not every topic begins with the first broker.
            proposed = propose(current, racks, zlib.crc32(",".join(sorted(names)).encode()) % len(racks))
    except TooFewBrokers as error:
        raise Refused(str(error)) from None
    moved = {place: new for place, new in proposed.items() if tuple(current[place]) != new}
    return {
        "brokers": sorted({*asked.brokers, *(broker for place in moved for broker in current[place])}),
        "unchanged": len(proposed) - len(moved),
        "bytes": sum(_copied_bytes(place, current, new, sizes) for place, new in moved.items()),
        "moves": [
            {
                "topic": place.topic,
                "partition": place.number,
                "from": list(current[place]),
                "to": list(new),
                "bytes": _copied_bytes(place, current, new, sizes),
            }
            for place, new in moved.items()
        ],
    }


@endpoint("POST", "/reassignments", "Begin to move replicas as a plan says")
async def move_replicas(cluster: Cluster, asked: Move) -> Any:
    targets = {_partition(name): brokers for name, brokers in asked.plan.items()}
    if not targets:
        raise Refused("the plan moves nothing")
    return _begun(targets, await replicas.reassign(cluster.client, targets))


@endpoint("DELETE", "/reassignments", "Call off moves that are under way")
async def call_off(cluster: Cluster, asked: CallOff) -> Any:
    check_typed("what is to be called off", ",".join(asked.partitions) or ALL_MOVES, asked.confirm)
    under_way = await replicas.list_reassignments(cluster.client)
    wanted = [_partition(name) for name in asked.partitions] or list(under_way)
    targets: dict[Partition, list[int] | None] = dict.fromkeys(wanted)
    return _begun(targets, await replicas.reassign(cluster.client, targets)) if targets else {"begun": 0}


ENDPOINTS = (leaders, elect_leaders, reassignments, plan_moves, move_replicas, call_off)


def _begun(targets: Mapping[Partition, Any], refused: Mapping[Partition, Any]) -> dict[str, Any]:
    if len(refused) == len(targets):
        raise next(iter(refused.values()))
    failed = {str(place): problem_of(error).text for place, error in refused.items()}
    return {"begun": len(targets) - len(refused), "failed": failed}


def _topic(known: Mapping[str, Any], name: str) -> Any:
    if name not in known:
        raise Refused(f"there is no topic {name}", 404)
    return known[name]


def _partition(text: str) -> Partition:
    topic, dash, number = text.rpartition("-")
    if not dash or not number.isdigit():
        raise Refused(f"{text!r} is not a partition such as orders-0")
    return Partition(topic, int(number))


def _copied_bytes(
    place: Partition, current: Mapping[Partition, Any], new: tuple[int, ...], sizes: Sizes
) -> int:
    """As large as the largest that there is, once for each broker that has none yet."""
    size = max((sizes.replicas.get((place, broker), 0) for broker in current[place]), default=0)
    return size * len(set(new) - set(current[place]))
