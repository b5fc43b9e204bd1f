"""Topics: found, looked at, created, changed, emptied and deleted."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from ottla.client.admin import configs, topics
from ottla.client.admin.topics import Partition, TopicState
from ottla.client.cluster import EARLIEST, LATEST
from ottla.console.api.settings import changed_settings, shown_settings
from ottla.console.api.typed import check_typed
from ottla.console.clusters import Cluster
from ottla.console.endpoints import endpoint
from ottla.metadata.uuids import uuid_text
from ottla.wire.errors import KafkaError

PAGE = 50
PAGE_MAX = 500
Order = Literal["name", "partitions", "replicas", "rate", "size", "unhealthy"]


@dataclass(frozen=True, slots=True)
class FindTopics:
    q: Annotated[str, "a part of the name"] = ""
    sort: Annotated[Order, "by what"] = "name"
    down: Annotated[bool, "the largest first"] = False
    internal: Annotated[bool, "with the cluster's own topics"] = False
    page: Annotated[int, "which page, from 1 on"] = 1
    limit: Annotated[int, f"topics per page, at most {PAGE_MAX}"] = PAGE


@dataclass(frozen=True, slots=True)
class OneTopic:
    topic: Annotated[str, "its name"]


@dataclass(frozen=True, slots=True)
class CreateTopic:
    name: Annotated[str, "letters, digits, '.', '_' and '-'"]
    partitions: Annotated[int | None, "how many; the cluster's default without"] = None
    replication_factor: Annotated[int | None, "replicas of each; the cluster's default without"] = None
    settings: Annotated[dict[str, str], "settings by name"] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AlterTopic:
    topic: Annotated[str, "its name"]
    set: Annotated[dict[str, str], "new values by name"] = field(default_factory=dict)
    delete: Annotated[list[str], "names of settings that get their defaults back"] = field(
        default_factory=list
    )


@dataclass(frozen=True, slots=True)
class AddPartitions:
    topic: Annotated[str, "its name"]
    count: Annotated[int, "how many it has then, in all"]


@dataclass(frozen=True, slots=True)
class ConfirmTopic:
    topic: Annotated[str, "its name"]
    confirm: Annotated[str, "the name once more, as typed by whoever is sure"]


@endpoint("GET", "/topics", "Topics, a page at a time")
async def find_topics(cluster: Cluster, asked: FindTopics) -> Any:
    known, sizes_of = await asyncio.gather(cluster.topics.get(), cluster.sizes.get())
    sizes = sizes_of.topics
    part = asked.q.strip().lower()
    found = [
        topic
        for topic in known.by_name.values()
        if part in topic.name.lower() and (asked.internal or not is_internal(topic))
    ]
    orders = {
        "name": lambda topic: topic.name.lower(),
        "partitions": lambda topic: len(topic.partitions),
        "replicas": _factor,
        "rate": lambda topic: cluster.history.last("recordsIn", topic.name) or 0.0,
        "size": lambda topic: sizes.get(topic.name, 0),
        "unhealthy": _unhealthy,
    }
    found.sort(key=lambda topic: topic.name)
    found.sort(key=orders[asked.sort], reverse=asked.down)
    limit = min(max(asked.limit, 1), PAGE_MAX)
    pages = max(-(-len(found) // limit), 1)
    page = min(max(asked.page, 1), pages)
    shown = found[(page - 1) * limit : page * limit]
    counts = await record_counts(cluster, shown)
    return {
        "total": len(found),
        "page": page,
        "pages": pages,
        "topics": [
            {
                "name": topic.name,
                "internal": is_internal(topic),
                "partitions": len(topic.partitions),
                "replicationFactor": _factor(topic),
                "unhealthy": _unhealthy(topic),
                "sizeBytes": sizes.get(topic.name),
                "records": counts.get(topic.name),
                "recordsPerSecond": cluster.history.last("recordsIn", topic.name),
            }
            for topic in shown
        ],
    }


@endpoint("POST", "/topics", "Create a topic")
async def create_topic(cluster: Cluster, asked: CreateTopic) -> Any:
    made = await topics.create_topic(
        cluster.client,
        asked.name,
        partitions=asked.partitions,
        replication_factor=asked.replication_factor,
        configs=asked.settings,
    )
    return {"name": made.name, "partitions": made.num_partitions, "go": ["topics", made.name]}


@endpoint("GET", "/topics/{topic}", "One topic: its partitions, their replicas, offsets and sizes")
async def topic(cluster: Cluster, asked: OneTopic) -> Any:
    (state,) = await topics.describe_topics(cluster.client, [asked.topic])
    offsets, sizes = await asyncio.gather(_offsets([state], cluster), cluster.sizes.get())
    partitions = []
    for each in state.partitions:
        place = Partition(state.name, each.number)
        start, end = offsets.get(place, (None, None))
        partitions.append(
            {
                "partition": each.number,
                "leader": each.leader,
                "replicas": each.replicas,
                "isr": each.isr,
                "eligible": each.elr,
                "startOffset": start,
                "endOffset": end,
                "sizeBytes": sizes.replicas.get((place, each.leader)),
                "replicaSizes": {
                    str(broker): sizes.replicas[place, broker]
                    for broker in each.replicas
                    if (place, broker) in sizes.replicas
                },
            }
        )
    return {
        "name": state.name,
        "id": uuid_text(state.id) if state.id is not None else None,
        "internal": is_internal(state),
        "brokers": list((await cluster.topics.get()).info.brokers),
        "partitions": partitions,
    }


@endpoint("DELETE", "/topics/{topic}", "Delete a topic with all its records")
async def delete_topic(cluster: Cluster, asked: ConfirmTopic) -> Any:
    check_typed("the name of the topic", asked.topic, asked.confirm)
    await topics.delete_topics(cluster.client, [asked.topic])
    return {"deleted": asked.topic, "go": ["topics"]}


@endpoint("POST", "/topics/{topic}/empty", "Delete all records of a topic, and keep the topic")
async def empty_topic(cluster: Cluster, asked: ConfirmTopic) -> Any:
    check_typed("the name of the topic", asked.topic, asked.confirm)
    (state,) = await topics.describe_topics(cluster.client, [asked.topic])
    everything = {Partition(state.name, each.number): -1 for each in state.partitions}
    starts = await topics.delete_records(cluster.client, everything)
    for start in starts.values():
        if isinstance(start, KafkaError):
            raise start
    return {"startOffsets": {str(place.number): start for place, start in starts.items()}}


@endpoint("POST", "/topics/{topic}/partitions", "Add partitions; keys may go to others from then on")
async def add_partitions(cluster: Cluster, asked: AddPartitions) -> Any:
    await topics.add_partitions(cluster.client, [asked.topic], asked.count)
    return {"partitions": asked.count}


@endpoint("GET", "/topics/{topic}/settings", "Settings of a topic, with their sources and meaning")
async def topic_settings(cluster: Cluster, asked: OneTopic) -> Any:
    return {"settings": await shown_settings(cluster, configs.TOPIC, asked.topic)}


@endpoint("PATCH", "/topics/{topic}/settings", "Change settings of a topic")
async def alter_topic(cluster: Cluster, asked: AlterTopic) -> Any:
    return await changed_settings(cluster, configs.TOPIC, asked.topic, asked.set, asked.delete)


@endpoint("GET", "/topics/{topic}/consumers", "Groups with offsets in a topic, and how far behind each is")
async def topic_consumers(cluster: Cluster, asked: OneTopic) -> Any:
    (state,) = await topics.describe_topics(cluster.client, [asked.topic])
    offsets, groups = await asyncio.gather(_offsets([state], cluster), cluster.groups.get())
    found = []
    for name, committed in groups.committed.items():
        mine = {place: each for place, each in committed.items() if place.topic == asked.topic}
        if mine:
            found.append(
                {
                    "group": name,
                    "state": groups.listed[name].state,
                    "type": groups.listed[name].type,
                    "partitions": len(mine),
                    "lag": sum(
                        max((offsets[place][1] or 0) - each.offset, 0)
                        for place, each in mine.items()
                        if place in offsets
                    ),
                }
            )
    return {"consumers": sorted(found, key=lambda each: str(each["group"]))}


ENDPOINTS = (
    find_topics,
    create_topic,
    topic,
    delete_topic,
    empty_topic,
    add_partitions,
    topic_settings,
    alter_topic,
    topic_consumers,
)


def is_internal(state: TopicState) -> bool:
    """Some clusters say so only of their oldest two."""
    return state.internal or state.name.startswith("__")


async def record_counts(cluster: Cluster, states: Iterable[TopicState]) -> Mapping[str, int]:
    """By their offsets; compaction and transactions make it less."""
    counts: dict[str, int] = defaultdict(int)
    for place, (start, end) in (await _offsets(states, cluster)).items():
        counts[place.topic] += (end or 0) - (start or 0)
    return counts


async def _offsets(
    states: Iterable[TopicState], cluster: Cluster
) -> dict[Partition, tuple[int | None, int | None]]:
    """First and next of every partition whose leader answers."""
    leaders = {
        Partition(state.name, each.number): each.leader for state in states for each in state.partitions
    }
    starts, ends = await asyncio.gather(
        *(topics.offsets_told(cluster.client, leaders, when) for when in (EARLIEST, LATEST))
    )
    return {place: (starts.get(place), ends.get(place)) for place in {*starts, *ends}}


def _factor(state: TopicState) -> int:
    return max((len(each.replicas) for each in state.partitions), default=0)


def _unhealthy(state: TopicState) -> int:
    """Partitions without a leader, or with a replica that is not in sync."""
    return sum(each.leader < 0 or len(each.isr) < len(each.replicas) for each in state.partitions)
