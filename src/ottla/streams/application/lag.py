"""How far an application is behind, hop by hop, from the offsets its queries have committed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ottla.client.cluster import EARLIEST, LATEST, ClusterClient
from ottla.client.transaction import CommittedOffset, Transactions
from ottla.spark.connection import Connection
from ottla.spark.positions import Offsets
from ottla.streams.on_spark.query_plan import Query
from ottla.streams.on_spark.subscriptions import query_subscriptions
from ottla.streams.plan.plan import Plan


@dataclass(frozen=True, slots=True)
class Reading:
    """What a query reads, with the group that shows how far it is."""

    group: str
    # Topics, and those of them whose old records it begins with.
    topics: frozenset[str]
    from_earliest: frozenset[str]
    # Where it began, if another query has read its topics before.
    begin: Offsets = field(default_factory=dict)


def reading(
    query: Query, group: str, offset_reset: str, counts: Mapping[str, int], begin: Offsets
) -> Reading:
    subscribed = [(each.reset, each.matching(counts)) for each in query_subscriptions(query, offset_reset)]
    topics = {topic for _, names in subscribed for topic in names}
    earliest = {topic for reset, names in subscribed if reset == "earliest" for topic in names}
    return Reading(group, frozenset(topics), frozenset(earliest), begin)


def hop_topics(plan: Plan, readings: Iterable[Reading]) -> frozenset[str]:
    """Topics that one query writes and another reads."""
    written = {sink.topic for sink in plan.sinks() if isinstance(sink.topic, str)}
    return frozenset(topic for each in readings for topic in each.topics if topic in written)


async def ends_of(
    cluster: ClusterClient, topics: Iterable[str], timestamp: int = LATEST, *, read_committed: bool = False
) -> Offsets:
    found = await cluster.topics(topics)
    places = [(name, index) for name, topic in found.items() for index in topic.partitions]
    offsets = await cluster.list_offsets(dict.fromkeys(places, timestamp), read_committed=read_committed)
    return {place: at.offset for place, at in offsets.items()}


async def committed(cluster: ClusterClient, group: str) -> dict[tuple[str, int], CommittedOffset]:
    return await Transactions(cluster, group).committed_offsets(group)


class CatchUp:
    """Whether all was worked on that was in the topics to begin with, and all that followed from it."""

    def __init__(self, connection: Connection, readings: Sequence[Reading], hops: frozenset[str]) -> None:
        self._connection = connection
        self._readings = readings
        self._hops = hops
        topics = {topic for each in readings for topic in each.topics} - hops
        self._targets = connection.run(ends_of(connection.cluster, topics, read_committed=True))

    def lag(self) -> int:
        """Records up to the ends of then, and up to the present ends of topics between queries, that are not
        done."""
        return self._connection.run(self._lag(self._connection.cluster))

    async def _lag(self, cluster: ClusterClient) -> int:
        # Before the ends: whoever has committed an offset has written what follows from it. It may not be
        # readable yet, which is why the ends are those of open transactions too.
        done = {each.group: await committed(cluster, each.group) for each in self._readings}
        ends = {**self._targets, **await ends_of(cluster, self._hops)}
        begins = await ends_of(cluster, {topic for topic, _ in ends}, EARLIEST)
        lag = 0
        for each in self._readings:
            for place, end in ends.items():
                if place[0] in each.topics:
                    offset = done[each.group].get(place)
                    # Nothing is done yet, or nothing had to be.
                    begin = begins[place] if place[0] in each.from_earliest else end
                    begin = max(begin, each.begin.get(place, begin))
                    lag += max(0, end - (begin if offset is None else max(begin, offset.offset)))
        return lag
