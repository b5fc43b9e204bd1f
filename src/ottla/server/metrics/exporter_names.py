"""Metrics under the names of kafka_exporter (danielqsj), which many dashboards for the lag of groups know.

That one program tells of the whole cluster. Here each broker tells of the partitions that it leads and of the
groups that it coordinates, so that all of them together tell of each once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from ottla.server.metrics.declared import PARTITION, Declared, Samples
from ottla.server.metrics.group_lag import GroupPosition
from ottla.server.metrics.numbers import Numbers
from ottla.server.metrics.snapshot import PartitionNumbers

_POSITION = ("consumergroup", *PARTITION)


def _each(name: str, help: str, value: Callable[[PartitionNumbers], float]) -> Declared[Numbers]:
    return Declared(
        f"kafka_topic_partition_{name}",
        f"{help} Of the partitions that this broker leads.",
        lambda found: [((each.topic, each.number), value(each)) for each in found.base.hosted if each.is_led],
        PARTITION,
    )


def _known(positions: Iterable[GroupPosition]) -> Samples:
    for each in positions:
        if each.lag is not None:
            yield (each.group, each.topic, str(each.partition)), each.lag


def _sums(samples: Samples) -> Samples:
    sums: Counter[tuple[str, str]] = Counter()
    for (group, topic, _), value in samples:
        sums[group, topic] += int(value)
    return sorted(sums.items())


def _offsets(found: Numbers) -> Samples:
    for each in found.group_lag.positions:
        yield (each.group, each.topic, str(each.partition)), each.offset


EXPORTER_METRICS: tuple[Declared[Numbers], ...] = (
    Declared(
        "kafka_brokers",
        "Brokers that are at work; told by the active controller.",
        lambda found: [((), found.active_brokers)] if found.is_active_controller else [],
    ),
    Declared(
        "kafka_topic_partitions",
        "Partitions of a topic; told by the broker that leads the first of them.",
        lambda found: [((topic,), count) for topic, count in found.led_topics.items()],
        ("topic",),
    ),
    _each("current_offset", "Offset up to which consumers may read.", lambda each: each.high_watermark),
    _each("oldest_offset", "First offset.", lambda each: each.start_offset),
    _each("replicas", "Replicas.", lambda each: each.replicas),
    _each("in_sync_replica", "Replicas in sync.", lambda each: each.in_sync),
    _each("leader_is_preferred", "1 if the first replica leads.", lambda each: each.leads_as_preferred),
    _each(
        "under_replicated_partition",
        "1 if a replica is not in sync.",
        lambda each: each.in_sync < each.replicas,
    ),
    Declared(
        "kafka_topic_partition_leader",
        "Node that leads the partition. Of the partitions that this broker leads.",
        lambda found: [
            ((each.topic, each.number), found.base.node_id) for each in found.base.hosted if each.is_led
        ],
        PARTITION,
    ),
    Declared(
        "kafka_consumergroup_members",
        "Members of a group that this broker coordinates.",
        lambda found: [((group,), count) for group, count in found.group_lag.members.items()],
        ("consumergroup",),
    ),
    Declared("kafka_consumergroup_current_offset", "Offset that a group has committed.", _offsets, _POSITION),
    Declared(
        "kafka_consumergroup_current_offset_sum",
        "Offsets that a group has committed, summed over the partitions of a topic.",
        lambda found: _sums(_offsets(found)),
        _POSITION[:2],
    ),
    Declared(
        "kafka_consumergroup_lag",
        "Records between what a group has committed and the end of the partition. Absent while the end is "
        "not known because its leader does not answer.",
        lambda found: _known(found.group_lag.positions),
        _POSITION,
    ),
    Declared(
        "kafka_consumergroup_lag_sum",
        "Records that a group has still to read, summed over the partitions of a topic.",
        lambda found: _sums(_known(found.group_lag.positions)),
        _POSITION[:2],
    ),
)
