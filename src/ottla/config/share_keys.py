"""Broker keys of share groups: the topic of their states, their members, and how records are given out."""

from __future__ import annotations

from ottla.config.key import ConfigKey, ConfigType

_HOUR_MS = 3_600_000


def _count(
    name: str, default: int, doc: str, minimum: int, maximum: int | None = None, *, cluster_wide: bool = False
) -> ConfigKey:
    return ConfigKey(
        name,
        ConfigType.INT,
        default,
        doc,
        minimum=minimum,
        maximum=maximum,
        dynamic="cluster-wide" if cluster_wide else "read-only",
    )


SHARE_KEYS = (
    ConfigKey(
        "share.coordinator.state.topic.num.partitions",
        ConfigType.INT,
        50,
        "Partitions of the topic of share-group states; fixed once it exists.",
        minimum=1,
        importance="high",
    ),
    ConfigKey(
        "share.coordinator.state.topic.replication.factor",
        ConfigType.SHORT,
        3,
        "Replicas of the topic of share-group states.",
        minimum=1,
        importance="high",
    ),
    ConfigKey(
        "share.coordinator.state.topic.min.isr",
        ConfigType.SHORT,
        2,
        "min.insync.replicas of the topic of share-group states.",
        minimum=1,
        importance="high",
    ),
    ConfigKey(
        "share.coordinator.state.topic.segment.bytes",
        ConfigType.INT,
        100 * 1024 * 1024,
        "Segment size of the topic of share-group states.",
        minimum=1,
        importance="high",
    ),
    ConfigKey(
        "share.coordinator.state.topic.compression.codec",
        ConfigType.INT,
        0,
        "Codec number of the topic of share-group states; 0 is none.",
        importance="high",
    ),
    _count(
        "share.coordinator.snapshot.update.records.per.snapshot",
        500,
        "Changes of a partition's state that are stored one by one before all of it is stored anew.",
        0,
        500,
    ),
    ConfigKey(
        "share.coordinator.state.topic.prune.interval.ms",
        ConfigType.INT,
        5 * 60 * 1000,
        "How often what is superseded is removed from the topic of share-group states. For tests.",
        minimum=1,
        importance="low",
        internal=True,
    ),
    _count("group.share.session.timeout.ms", 45_000, "Session time-out of members of a share group.", 1),
    _count(
        "group.share.min.session.timeout.ms",
        45_000,
        "Shortest session time-out a share group may be given.",
        1,
    ),
    _count(
        "group.share.max.session.timeout.ms",
        60_000,
        "Longest session time-out a share group may be given.",
        1,
    ),
    _count("group.share.heartbeat.interval.ms", 5000, "Heartbeat interval of members of a share group.", 1),
    _count(
        "group.share.min.heartbeat.interval.ms",
        5000,
        "Shortest heartbeat interval a share group may be given.",
        1,
    ),
    _count(
        "group.share.max.heartbeat.interval.ms",
        15_000,
        "Longest heartbeat interval a share group may be given.",
        1,
    ),
    _count(
        "group.share.assignment.interval.ms",
        1000,
        "Least time between two assignments of partitions to the members of a share group.",
        0,
        cluster_wide=True,
    ),
    _count(
        "group.share.min.assignment.interval.ms",
        0,
        "Shortest assignment interval a share group may be given.",
        0,
    ),
    _count(
        "group.share.max.assignment.interval.ms",
        15_000,
        "Longest assignment interval a share group may be given.",
        0,
    ),
    _count("group.share.max.size", 200, "Most members of a share group.", 1, 1000),
    ConfigKey(
        "group.share.assignors",
        ConfigType.LIST,
        ("simple",),
        "Assignors of share groups. There is one.",
        required=True,
        effective=False,
    ),
    _count(
        "group.share.delivery.count.limit",
        5,
        "How often a record is delivered to a share group at most.",
        2,
        10,
    ),
    _count(
        "group.share.min.delivery.count.limit",
        2,
        "Smallest limit of deliveries a share group may be given.",
        2,
        5,
    ),
    _count(
        "group.share.max.delivery.count.limit",
        10,
        "Largest limit of deliveries a share group may be given.",
        5,
        25,
    ),
    _count(
        "group.share.record.lock.duration.ms",
        30_000,
        "Time for which a member of a share group has a record to itself.",
        1000,
        _HOUR_MS,
    ),
    _count(
        "group.share.min.record.lock.duration.ms",
        15_000,
        "Shortest time a share group may be given to work on a record.",
        1000,
        30_000,
    ),
    _count(
        "group.share.max.record.lock.duration.ms",
        60_000,
        "Longest time a share group may be given to work on a record.",
        30_000,
        _HOUR_MS,
    ),
    _count(
        "group.share.partition.max.record.locks",
        2000,
        "Records of a partition that a share group may be working on at a time.",
        100,
        10_000,
    ),
    _count(
        "group.share.min.partition.max.record.locks",
        100,
        "Smallest number of records under way that a share group may be given.",
        100,
        2000,
    ),
    _count(
        "group.share.max.partition.max.record.locks",
        4000,
        "Largest number of records under way that a share group may be given.",
        2000,
        10_000,
    ),
    ConfigKey(
        "group.share.max.share.sessions",
        ConfigType.INT,
        2000,
        "Most share sessions of a broker.",
        minimum=1,
    ),
    ConfigKey(
        "ottla.share.sessions.max.partitions",
        ConfigType.INT,
        100_000,
        "Most partitions that all share sessions of a broker remember together. A request that would add "
        "more is refused.",
        minimum=1,
    ),
)
