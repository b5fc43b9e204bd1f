"""Who reads what in a share group: Kafka's `simple`, balanced, moving as little as it can, deterministic.

Members share partitions only where there are more of them than partitions: then each partition is read by as
many as it takes for everybody to have one.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from typing import TypeAlias

from ottla.coordinator.groups.commands import Partitions

_Partition: TypeAlias = tuple[uuid.UUID, int]


def assign_simple(
    subscriptions: Mapping[str, frozenset[uuid.UUID]],
    before: Mapping[str, Partitions],
    partitions: Mapping[uuid.UUID, frozenset[int]],
) -> dict[str, Partitions]:
    """`partitions` that can be read, of topics that members subscribe to."""
    given: dict[str, set[_Partition]] = {member_id: set() for member_id in sorted(subscriptions)}
    if len(set(subscriptions.values())) <= 1:
        _divide(list(given), sorted((t, p) for t, some in partitions.items() for p in some), before, given)
    else:
        for topic_id in sorted(partitions):
            readers = [member_id for member_id in given if topic_id in subscriptions[member_id]]
            # Who has least so far comes first, where not all can have the same.
            readers.sort(key=lambda member_id: (len(given[member_id]), member_id))
            _divide(readers, sorted((topic_id, p) for p in partitions[topic_id]), before, given)
    return {member_id: _by_topic(some) for member_id, some in given.items()}


def _divide(
    readers: Collection[str],
    partitions: Collection[_Partition],
    before: Mapping[str, Partitions],
    given: Mapping[str, set[_Partition]],
) -> None:
    if not readers or not partitions:
        return
    sharing = -(-len(readers) // len(partitions))
    slots = sharing * len(partitions)
    open_slots = dict.fromkeys(partitions, sharing)
    room: dict[str, int] = {}
    for index, member_id in enumerate(readers):
        # Rounded so that all of them come to just the number of slots.
        room[member_id] = -(-slots * (index + 1) // len(readers)) + (-slots * index // len(readers))
    for member_id in readers:
        for partition in sorted((t, p) for t, some in before.get(member_id, {}).items() for p in some):
            if room[member_id] and open_slots.get(partition):
                _give(member_id, partition, given, room, open_slots)
    # What nobody reads yet comes first.
    for partition in sorted(partitions, key=lambda each: (-open_slots[each], each)):
        for member_id in readers:
            if not open_slots[partition]:
                break
            if room[member_id] and partition not in given[member_id]:
                _give(member_id, partition, given, room, open_slots)


def _give(
    member_id: str,
    partition: _Partition,
    given: Mapping[str, set[_Partition]],
    room: dict[str, int],
    open_slots: dict[_Partition, int],
) -> None:
    given[member_id].add(partition)
    room[member_id] -= 1
    open_slots[partition] -= 1


def _by_topic(partitions: Collection[_Partition]) -> Partitions:
    found: dict[uuid.UUID, set[int]] = {}
    for topic_id, partition in sorted(partitions):
        found.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(some) for topic_id, some in found.items()}
