"""Who shall own what: Kafka's two server-side assignors, deterministic so that every broker decides alike.

`uniform` balances the number of partitions per member and moves as few as it can; `range` gives each member a
contiguous range of every topic, which puts equal keys of equally partitioned topics on the same member.
"""

from __future__ import annotations

import heapq
import uuid
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from ottla.coordinator.groups.commands import Partitions

_ROUNDS_MAX = 16
"""Overlapping subscriptions may never balance perfectly; each round roughly halves what is left to gain."""


class MemberSpec(NamedTuple):
    topics: frozenset[uuid.UUID]
    """Subscribed and existing."""
    assigned: Partitions
    """What the last target assignment gave it."""
    instance_id: str | None = None


Assignor: TypeAlias = Callable[[Mapping[str, MemberSpec], Mapping[uuid.UUID, int]], dict[str, Partitions]]
"""Members, and the number of partitions of each topic that any of them is subscribed to."""


def assign_range(
    members: Mapping[str, MemberSpec], partition_counts: Mapping[uuid.UUID, int]
) -> dict[str, Partitions]:
    # Static members come first, by instance id: a rolling restart then leaves every range where it was.
    order = sorted(members, key=lambda m: (members[m].instance_id is None, members[m].instance_id or m, m))
    result: dict[str, dict[uuid.UUID, frozenset[int]]] = {member_id: {} for member_id in sorted(members)}
    for topic_id, count in sorted(partition_counts.items()):
        subscribers = [member_id for member_id in order if topic_id in members[member_id].topics]
        start = 0
        for index, member_id in enumerate(subscribers):
            size = count // len(subscribers) + (index < count % len(subscribers))
            if size:
                result[member_id][topic_id] = frozenset(range(start, start + size))
            start += size
    return dict(result)


def assign_uniform(
    members: Mapping[str, MemberSpec], partition_counts: Mapping[uuid.UUID, int]
) -> dict[str, Partitions]:
    return _Uniform(members, partition_counts).assign()


class _Uniform:
    def __init__(self, members: Mapping[str, MemberSpec], partition_counts: Mapping[uuid.UUID, int]) -> None:
        self._members = members
        self._counts = partition_counts
        self._subscribers: dict[uuid.UUID, list[str]] = {}
        for member_id in sorted(members):
            for topic_id in members[member_id].topics:
                self._subscribers.setdefault(topic_id, []).append(member_id)
        # Topics with the most partitions per subscriber, and then those with the fewest subscribers, leave
        # the least choice and are dealt out first.
        self._topics = sorted(
            (topic_id for topic_id in partition_counts if topic_id in self._subscribers),
            key=lambda t: (-partition_counts[t] / len(self._subscribers[t]), len(self._subscribers[t]), t),
        )
        self._owners: dict[uuid.UUID, dict[int, str]] = {topic_id: {} for topic_id in self._topics}
        self._loads = dict.fromkeys(sorted(members), 0)

    def assign(self) -> dict[str, Partitions]:
        self._keep()
        self._fill()
        for _ in range(_ROUNDS_MAX):
            # Not any(): every topic gets its turn in a round.
            if not sum(self._balance(topic_id) for topic_id in self._topics):
                break
        result: dict[str, dict[uuid.UUID, set[int]]] = {member_id: {} for member_id in self._loads}
        for topic_id in sorted(self._owners):
            for partition, member_id in sorted(self._owners[topic_id].items()):
                result[member_id].setdefault(topic_id, set()).add(partition)
        return {
            member_id: {topic_id: frozenset(partitions) for topic_id, partitions in topics.items()}
            for member_id, topics in result.items()
        }

    def _keep(self) -> None:
        for member_id in self._loads:
            spec = self._members[member_id]
            for topic_id, partitions in spec.assigned.items():
                if topic_id not in spec.topics or topic_id not in self._owners:
                    continue
                for partition in partitions:
                    if partition < self._counts[topic_id] and partition not in self._owners[topic_id]:
                        self._owners[topic_id][partition] = member_id
                        self._loads[member_id] += 1

    def _fill(self) -> None:
        for topic_id in self._topics:
            owners = self._owners[topic_id]
            free = [partition for partition in range(self._counts[topic_id]) if partition not in owners]
            if not free:
                continue
            least_loaded = [(self._loads[member_id], member_id) for member_id in self._subscribers[topic_id]]
            heapq.heapify(least_loaded)
            for partition in free:
                load, member_id = least_loaded[0]
                owners[partition] = member_id
                self._loads[member_id] = load + 1
                heapq.heapreplace(least_loaded, (load + 1, member_id))

    def _balance(self, topic_id: uuid.UUID) -> int:
        """Move partitions of one topic from its most to its least loaded subscribers. How many moved."""
        subscribers = self._subscribers[topic_id]
        loads = [self._loads[member_id] for member_id in subscribers]
        if max(loads) - min(loads) <= 1:
            return 0
        held: dict[str, list[int]] = {}
        for partition, member_id in sorted(self._owners[topic_id].items()):
            held.setdefault(member_id, []).append(partition)
        moves = 0
        while held:
            giver = max(sorted(held), key=self._loads.__getitem__)
            taker = min(subscribers, key=self._loads.__getitem__)
            if self._loads[giver] - self._loads[taker] <= 1:
                break
            self._owners[topic_id][held[giver].pop()] = taker
            if not held[giver]:
                del held[giver]
            self._loads[giver] -= 1
            self._loads[taker] += 1
            moves += 1
        return moves


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
DEFAULT_ASSIGNOR = "uniform"
