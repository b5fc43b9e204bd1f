"""How far groups have read, and how much they have still to read.

A broker knows the offsets of the groups that it coordinates, and the ends of the partitions that it has a
replica of. Of others it asks the brokers that lead them; who does not answer is left out.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import NamedTuple

from ottla.coordinator.transactions.other_brokers import AskBroker
from ottla.handlers.context import Broker
from ottla.replication.partition import Role
from ottla.wire.api import ApiKey
from ottla.wire.errors import NetworkException

_GROUPS_AT_ONCE = 50
_ASK_SECONDS = 2.0
_LATEST = -1


class GroupPosition(NamedTuple):
    group: str
    topic: str
    partition: int
    offset: int
    lag: int | None
    """None where the end of the partition is not known."""


class GroupLag(NamedTuple):
    members: dict[str, int]
    positions: list[GroupPosition]


async def read_group_lag(broker: Broker, ask: AskBroker) -> GroupLag:
    members: dict[str, int] = {}
    committed: list[tuple[str, str, int, int]] = []
    ends: dict[tuple[str, int], int] = {}
    far: defaultdict[int, set[tuple[str, int]]] = defaultdict(set)
    for position, (group, count, topics) in enumerate(broker.groups.positions()):
        if position % _GROUPS_AT_ONCE == 0:
            await asyncio.sleep(0)
        members[group] = count
        # It may be gone, or be another by now: what is there is read at one moment.
        for topic, partitions in tuple(topics.items()):
            for index, value in tuple(partitions.items()):
                committed.append((group, topic, index, value.offset))
                if (topic, index) in ends:
                    continue
                end, leader = _end(broker, topic, index)
                if end is not None:
                    ends[topic, index] = end
                elif leader >= 0:
                    far[leader].add((topic, index))
    for found in await asyncio.gather(*(_ends_at(ask, leader, wanted) for leader, wanted in far.items())):
        ends |= found
    return GroupLag(
        members,
        [
            GroupPosition(group, topic, index, offset, _lag(ends.get((topic, index)), offset))
            for group, topic, index, offset in committed
        ],
    )


def _lag(end: int | None, offset: int) -> int | None:
    return None if end is None else max(end - offset, 0)


def _end(broker: Broker, topic: str, index: int) -> tuple[int | None, int]:
    """Where consumers find nothing more, and the broker to ask where this one does not know."""
    partition = broker.replicas.find(topic, index)
    if partition is not None and partition.role is not Role.OFFLINE:
        return partition.high_watermark, -1
    known = broker.metadata.image.topics.get(topic)
    state = None if known is None else known.partition(index)
    return None, -1 if state is None else state.leader


async def _ends_at(ask: AskBroker, leader: int, wanted: set[tuple[str, int]]) -> dict[tuple[str, int], int]:
    topics: defaultdict[str, list[int]] = defaultdict(list)
    for topic, index in sorted(wanted):
        topics[topic].append(index)
    asked = {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [
            {
                "name": topic,
                "partitions": [
                    {"partition_index": index, "current_leader_epoch": -1, "timestamp": _LATEST}
                    for index in indexes
                ],
            }
            for topic, indexes in topics.items()
        ],
    }
    try:
        async with asyncio.timeout(_ASK_SECONDS):
            answer = await ask(leader, ApiKey.LIST_OFFSETS, asked)
    except (NetworkException, TimeoutError):
        return {}
    return {
        (topic.name, partition.partition_index): partition.offset
        for topic in answer.topics
        for partition in topic.partitions
        if not partition.error_code and partition.offset >= 0
    }
