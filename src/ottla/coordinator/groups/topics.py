"""What groups need to know of topics: names, ids and partition counts, out of the metadata image."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Collection, Iterable, Mapping
from typing import Protocol


class TopicView(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def id(self) -> uuid.UUID: ...

    @property
    def partitions(self) -> Collection[object]: ...


class TopicsView(Protocol):
    """`metadata.image.MetadataImage` is one."""

    @property
    def offset(self) -> int: ...

    @property
    def topics(self) -> Mapping[str, TopicView]: ...

    @property
    def topic_names(self) -> Mapping[uuid.UUID, str]: ...


def partition_counts(topics: TopicsView, names: Iterable[str]) -> dict[uuid.UUID, int]:
    """Of those topics that exist, in order of their names."""
    counts = {}
    for name in sorted(names):
        topic = topics.topics.get(name)
        if topic is not None:
            counts[topic.id] = len(topic.partitions)
    return counts


def partitions_by_id(
    topics: TopicsView, names: Mapping[str, Iterable[int]]
) -> dict[uuid.UUID, frozenset[int]]:
    """Topics that are gone are left out, and so are those without a partition."""
    return {
        topics.topics[name].id: frozenset(partitions)
        for name, partitions in sorted(names.items())
        if name in topics.topics and partitions
    }


def metadata_hash(topics: TopicsView, names: Iterable[str]) -> int:
    """Changes when any of these topics appears, vanishes or grows: the sign that a group must rebalance.

    Apache Kafka takes another hash function; a group carried across rebalances once.
    """
    digest = hashlib.blake2b(digest_size=8)
    found = False
    for name in sorted(names):
        topic = topics.topics.get(name)
        if topic is not None:
            found = True
            digest.update(topic.id.bytes)
            digest.update(len(topic.partitions).to_bytes(4, "big"))
            digest.update(name.encode() + b"\0")
    return int.from_bytes(digest.digest(), "big", signed=True) if found else 0
