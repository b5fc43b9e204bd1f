"""The numbers of one scrape, read on the event loop: only there nothing changes while one looks."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from ottla.handlers.context import Broker
from ottla.log.cleaner import CleanerCounters
from ottla.log.manager import LogManager
from ottla.log.scrubber import ScrubCounters
from ottla.log.types import TopicPartition
from ottla.metadata.image import MetadataImage
from ottla.replication.partition import Partition, Role
from ottla.server.listener import UNLIMITED_BYTES, ConnectionLimits
from ottla.server.metrics.traffic import TrafficMeter

# About a millisecond's worth.
_PARTITIONS_AT_ONCE = 250


class PartitionNumbers(NamedTuple):
    topic: str
    number: str
    log_bytes: int
    segments: int
    start_offset: int
    end_offset: int
    high_watermark: int
    last_stable_offset: int
    is_led: bool
    """By this broker."""
    leads_as_preferred: bool
    replicas: int
    in_sync: int
    in_sync_min: int
    follower_lag: int
    """Records that the follower lacks which is farthest behind; of a partition that is led here."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    node_id: int
    cluster_id: str
    topics: int
    partitions: int
    offline_partitions: int
    offline_replicas: int
    """Of this broker: their disk failed, or their log could not be made."""
    hosted: tuple[PartitionNumbers, ...]
    under_replicated: int
    under_min_isr: int
    damaged: Mapping[TopicPartition, int]
    """Batches that the scrub found and that are still there."""
    scrub: ScrubCounters
    cleaner: CleanerCounters
    cleaner_rounds: int
    """Under way."""
    uncleanable: tuple[TopicPartition, ...]
    connections: int
    connections_admitted: int
    connections_refused: int
    request_bytes: int
    request_bytes_max: float
    """Infinite where there is no limit."""
    groups: Mapping[tuple[str, str], int]
    """By type and state."""
    transactional_ids: Mapping[str, int]
    """By state."""
    client_instances: int
    client_pushes: int
    client_pushed_bytes: int


async def read_snapshot(
    broker: Broker, limits: ConnectionLimits, meter: TrafficMeter | None = None
) -> Snapshot:
    """Lets requests be served in between: partitions are each read at one moment, but not all at the same."""
    partitions = [found for hosted in broker.replicas.by_name.values() for found in hosted.values()]
    numbers: list[PartitionNumbers] = []
    under_replicated = under_min_isr = 0
    for position, partition in enumerate(partitions):
        if position % _PARTITIONS_AT_ONCE == 0:
            await asyncio.sleep(0)
        if partition.role is Role.OFFLINE:
            continue
        numbers.append(_numbers(partition, broker.node_id))
        if meter is not None:
            meter.look(partition)
        under_replicated += len(partition.isr) < len(partition.replicas)
        under_min_isr += len(partition.isr) < partition.log.config.min_insync_replicas
    if meter is not None:
        meter.forget_others(set(partitions), {name.decode() for name in broker.replicas.by_name})
    await asyncio.sleep(0)
    image, logs = broker.metadata.image, broker.replicas.logs
    states = broker.transactions.count()
    request_bytes_max = limits.request_bytes.limit
    return Snapshot(
        node_id=broker.node_id,
        cluster_id=broker.cluster_id,
        topics=len(image.topics),
        partitions=sum(len(topic.partitions) for topic in image.topics.values()),
        offline_partitions=_offline(image),
        offline_replicas=sum(len(hosted.offline) for hosted in broker.replicas.by_name.values()),
        hosted=tuple(numbers),
        under_replicated=under_replicated,
        under_min_isr=under_min_isr,
        damaged=_damaged(logs),
        scrub=replace(logs.scrubber.counters),
        cleaner=replace(logs.cleaner.counters),
        cleaner_rounds=logs.cleaner.rounds_under_way,
        uncleanable=tuple(sorted(logs.cleaner.uncleanable)),
        connections=len(limits.connections),
        connections_admitted=limits.admitted,
        connections_refused=limits.refused,
        request_bytes=limits.request_bytes.used,
        request_bytes_max=math.inf if request_bytes_max == UNLIMITED_BYTES else request_bytes_max,
        groups=broker.groups.count(),
        transactional_ids={state.label: states[state] for state in sorted(states)},
        client_instances=broker.telemetry.instances,
        client_pushes=broker.telemetry.pushes,
        client_pushed_bytes=broker.telemetry.pushed_bytes,
    )


def _numbers(partition: Partition, node_id: int) -> PartitionNumbers:
    log = partition.log
    topic, index = partition.topic_partition
    return PartitionNumbers(
        topic,
        str(index),
        log.segments.size_bytes,
        len(log.segments),
        log.start_offset,
        log.next_offset,
        partition.high_watermark,
        partition.last_stable_offset,
        partition.role is Role.LEADER,
        partition.role is Role.LEADER and partition.replicas[0] == node_id,
        len(partition.replicas),
        len(partition.isr),
        min(log.config.min_insync_replicas, len(partition.replicas)),
        _follower_lag(partition),
    )


def _follower_lag(partition: Partition) -> int:
    leading = partition.leadership
    if leading is None:
        return 0
    end = partition.log.next_offset
    return max((end - max(each.end_offset, 0) for each in leading.followers.values()), default=0)


def _offline(image: MetadataImage) -> int:
    return sum(partition.leader < 0 for topic in image.topics.values() for partition in topic.partitions)


def _damaged(logs: LogManager) -> Counter[TopicPartition]:
    """Retention and the deletion of topics take damage away, too."""
    found = logs.scrubber.found.values()
    rotten = {TopicPartition(damaged.topic, damaged.partition) for damaged in found}
    present = {
        segment.path
        for partition in rotten
        if (log := logs.get(partition)) is not None
        for segment in log.segments
    }
    return Counter(
        TopicPartition(damaged.topic, damaged.partition) for damaged in found if damaged.path in present
    )
