"""What Apache Kafka's metrics are made of, beside the snapshot: read on the event loop, too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from ottla.handlers.context import Broker
from ottla.handlers.figures import Durations, RequestFigures, name_of
from ottla.metadata.image import MetadataImage
from ottla.raft.driver import QuorumDescription
from ottla.runtime.usage import disk_bytes
from ottla.server.listener import ConnectionLimits
from ottla.server.metrics.elections import Elections
from ottla.server.metrics.group_lag import GroupLag
from ottla.server.metrics.sampling import Sampler
from ottla.server.metrics.snapshot import Snapshot
from ottla.server.metrics.traffic import Traffic, TrafficMeter
from ottla.wire.errors import ErrorCode

QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)


class Times(NamedTuple):
    """In milliseconds."""

    quantiles: Mapping[float, float]
    mean: float
    timed: int
    """How many there were since the start."""


class FollowerLag(NamedTuple):
    topic: str
    partition: int
    leader: int
    records: int


class Quorum(NamedTuple):
    described: QuorumDescription
    state: str
    voted_for: int
    commit_milliseconds: float
    records_per_second: float
    leads: bool


@dataclass(frozen=True, slots=True)
class Numbers:
    base: Snapshot
    is_broker: bool
    is_controller: bool
    is_active_controller: bool
    traffic: Mapping[str, Traffic]
    all_traffic: Traffic
    requests: Mapping[str, int]
    """By the name that Apache Kafka gives them, Fetch also by who fetched."""
    errors: Mapping[tuple[str, str], int]
    failed_produce: Mapping[str, int]
    failed_fetch: Mapping[str, int]
    """By topic, empty for those of no topic that is known."""
    total_times: Mapping[str, Times]
    local_times: Mapping[str, Times]
    remote_times: Mapping[str, Times]
    loop_lateness: Times
    loop_idle: float
    waiting_fetches: int
    waiting_produces: int
    isr_shrinks: int
    isr_expansions: int
    elections: int
    unclean_elections: int
    follower_lags: tuple[FollowerLag, ...]
    quorum: Quorum
    active_brokers: int
    fenced_brokers: int
    not_led_by_preferred: int
    offline_directories: int
    connections: Mapping[str, int]
    """By listener."""
    software: Mapping[tuple[str, str, str], int]
    """Connections by name, version and listener."""
    fetch_sessions: int
    share_sessions: int
    share_session_partitions: int
    led_topics: Mapping[str, int]
    """Partitions of the topics of which this broker leads the first one."""
    group_lag: GroupLag
    disk: tuple[int, int] | None
    """Bytes read and written; None where nobody counts."""


def read_numbers(
    broker: Broker,
    limits: ConnectionLimits,
    base: Snapshot,
    meter: TrafficMeter,
    sampler: Sampler,
    elections: Elections,
    group_lag: GroupLag,
) -> Numbers:
    image, replicas, figures = broker.metadata.image, broker.replicas, broker.figures
    share = broker.share.made
    roles = broker.config.strings("process.roles")
    described = broker.quorum.describe()
    commits = broker.quorum.commit_seconds
    connections: Counter[str] = Counter()
    software: Counter[tuple[str, str, str]] = Counter()
    waiting_fetches = 0
    for connection in limits.connections:
        session = connection.session
        connections[session.listener] += 1
        if session.software_name is not None:
            software[session.software_name, session.software_version or "", session.listener] += 1
        waiting_fetches += connection.waiting_fetches
    failed_produce: Counter[str] = Counter()
    errors: Counter[tuple[str, str]] = Counter()
    for (topic, code), count in broker.appends.failures.items():
        failed_produce[topic] += count
        errors["Produce", _error_name(code)] += count
    for (key, code), count in figures.errors.items():
        errors[name_of(key), _error_name(code)] += count
    return Numbers(
        base=base,
        is_broker="broker" in roles,
        is_controller="controller" in roles,
        is_active_controller=sampler.leads_quorum,
        traffic={topic: replace(found) for topic, found in sorted(meter.topics.items())},
        all_traffic=replace(meter.all),
        requests=_requests(figures),
        errors=errors,
        failed_produce=failed_produce,
        failed_fetch=Counter(figures.failed_fetches),
        total_times=_times(figures.total),
        local_times=_times(figures.local),
        remote_times=_times(figures.remote),
        loop_lateness=_summary(sampler.lateness),
        loop_idle=sampler.idle,
        waiting_fetches=waiting_fetches,
        waiting_produces=sum(
            len(partition.leadership.commits)
            for hosted in replicas.by_name.values()
            for partition in hosted.values()
            if partition.leadership is not None
        ),
        isr_shrinks=replicas.in_sync.shrinks,
        isr_expansions=replicas.in_sync.expansions,
        elections=elections.count,
        unclean_elections=elections.unclean,
        follower_lags=_follower_lags(broker),
        quorum=Quorum(
            described,
            broker.quorum.role.value,
            -1 if broker.quorum.voted_for is None else broker.quorum.voted_for,
            1000 * sum(commits) / len(commits) if commits else 0.0,
            sampler.metadata_records_per_second,
            sampler.leads_quorum,
        ),
        active_brokers=sum(found.active for found in image.brokers.values()),
        fenced_brokers=sum(found.fenced for found in image.brokers.values()),
        not_led_by_preferred=_not_led_by_preferred(image),
        offline_directories=replicas.logs.failed_directories,
        connections=connections,
        software=software,
        fetch_sessions=len(broker.fetch_sessions),
        share_sessions=0 if share is None else len(share.groups.sessions),
        share_session_partitions=0 if share is None else share.groups.sessions.partition_count,
        led_topics={
            name: len(topic.partitions)
            for name, topic in image.topics.items()
            if topic.partitions and topic.partitions[0].leader == broker.node_id
        },
        group_lag=group_lag,
        disk=disk_bytes(),
    )


def _requests(figures: RequestFigures) -> dict[str, int]:
    found = figures.requests()
    # Those that wait are not known to be of followers yet.
    followers = min(figures.follower_fetches, found["Fetch"])
    found |= {"FetchFollower": followers, "FetchConsumer": found["Fetch"] - followers}
    return dict(sorted(found.items()))


def _error_name(code: int) -> str:
    return ErrorCode(code).name.upper()


def _times(durations: Mapping[str, Durations]) -> dict[str, Times]:
    return {name: _summary(found) for name, found in sorted(durations.items())}


def _summary(durations: Durations) -> Times:
    recent = sorted(durations.recent)
    last = len(recent) - 1
    return Times(
        {share: 1000 * recent[round(share * last)] if recent else 0.0 for share in QUANTILES},
        1000 * sum(recent) / len(recent) if recent else 0.0,
        durations.count,
    )


def _follower_lags(broker: Broker) -> tuple[FollowerLag, ...]:
    if broker.replicas.following is None:
        return ()
    return tuple(
        FollowerLag(
            *followed.partition.topic_partition,
            leader,
            max(followed.leader_high_watermark - followed.partition.log.next_offset, 0),
        )
        for leader, followed in broker.replicas.following
    )


def _not_led_by_preferred(image: MetadataImage) -> int:
    return sum(
        partition.leader >= 0 and partition.leader != partition.replicas[0]
        for topic in image.topics.values()
        for partition in topic.partitions
    )
