"""What a metric is, and all those under our own names, each declared once: what it means, and where a
snapshot has it.

Names follow Prometheus' advice: the unit at the end, `_total` for what only grows while the broker runs.
Those that others chose are in `kafka_names` and `exporter_names`.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeAlias, TypeVar

from ottla import __version__
from ottla.server.metrics.snapshot import PartitionNumbers, Snapshot

Samples: TypeAlias = Iterable[tuple[Sequence[str], float]]
"""Values of the labels, and the number."""

PARTITION = ("topic", "partition")
S = TypeVar("S")
"""What it is read from."""


@dataclass(frozen=True, slots=True)
class Declared(Generic[S]):
    name: str
    help: str
    samples: Callable[[S], Samples]
    labels: tuple[str, ...] = ()

    @property
    def kind(self) -> Literal["counter", "gauge"]:
        return "counter" if self.name.endswith("_total") else "gauge"


def _one(name: str, help: str, value: Callable[[Snapshot], float]) -> Declared[Snapshot]:
    return Declared(name, help, lambda snapshot: [((), value(snapshot))])


def _moment(name: str, help: str, value_ms: Callable[[Snapshot], int]) -> Declared[Snapshot]:
    """Absent until it has come."""
    return Declared(name, help, lambda snapshot: [((), ms / 1000)] if (ms := value_ms(snapshot)) >= 0 else [])


def _each(name: str, help: str, value: Callable[[PartitionNumbers], int]) -> Declared[Snapshot]:
    return Declared(
        f"ottla_partition_{name}",
        help,
        lambda snapshot: [((found.topic, found.number), value(found)) for found in snapshot.hosted],
        PARTITION,
    )


METRICS: tuple[Declared[Snapshot], ...] = (
    Declared(
        "ottla_build_info",
        "Always 1; the labels say which release this broker runs.",
        lambda _: [((__version__, platform.python_version()), 1)],
        ("version", "python"),
    ),
    Declared(
        "ottla_broker_info",
        "Always 1; the labels say which broker of which cluster this is.",
        lambda snapshot: [((snapshot.cluster_id, str(snapshot.node_id)), 1)],
        ("cluster_id", "node_id"),
    ),
    # The cluster.
    _one("ottla_cluster_topics", "Topics in the cluster.", lambda found: found.topics),
    _one("ottla_cluster_partitions", "Partitions in the cluster.", lambda found: found.partitions),
    _one(
        "ottla_cluster_offline_partitions",
        "Partitions in the cluster that have no leader: nobody can produce to them or consume from them.",
        lambda found: found.offline_partitions,
    ),
    # The partitions of this broker.
    _one(
        "ottla_broker_partitions",
        "Partitions of which this broker has a replica.",
        lambda found: len(found.hosted),
    ),
    _one(
        "ottla_broker_under_replicated_partitions",
        "Partitions of this broker that have a replica which is not in sync.",
        lambda found: found.under_replicated,
    ),
    _one(
        "ottla_broker_under_min_isr_partitions",
        "Partitions of this broker with fewer replicas in sync than min.insync.replicas: producers with "
        "acks=all are refused.",
        lambda found: found.under_min_isr,
    ),
    _each("log_bytes", "Bytes of records in the partition's log.", lambda found: found.log_bytes),
    _each("log_segments", "Files that the partition's log consists of.", lambda found: found.segments),
    _each("log_start_offset", "First offset of the partition.", lambda found: found.start_offset),
    _each(
        "log_end_offset",
        "Offset that the partition's next record gets; its rate is that of records written.",
        lambda found: found.end_offset,
    ),
    _each(
        "high_watermark_offset",
        "Offset up to which consumers of the partition may read.",
        lambda found: found.high_watermark,
    ),
    _each(
        "follower_lag_records",
        "Records that the follower lacks which is farthest behind; 0 where another broker leads.",
        lambda found: found.follower_lag,
    ),
    _each(
        "last_stable_offset",
        "Offset up to which consumers with isolation.level=read_committed may read; an open transaction "
        "holds it back.",
        lambda found: found.last_stable_offset,
    ),
    # The scrub.
    _one(
        "ottla_scrub_passes_total",
        "Walks of the scrub over all segments of a data directory that were completed.",
        lambda found: found.scrub.passes,
    ),
    _one(
        "ottla_scrub_segments_total", "Segments that the scrub checked.", lambda found: found.scrub.segments
    ),
    _one("ottla_scrub_read_bytes_total", "Bytes that the scrub checked.", lambda found: found.scrub.bytes),
    _one(
        "ottla_scrub_damaged_batches_total",
        "Record batches that the scrub found damaged; the log and ottla_partition_damaged_batches say where.",
        lambda found: found.scrub.damaged_batches,
    ),
    Declared(
        "ottla_partition_damaged_batches",
        "Record batches of the partition that the scrub found damaged and that are still there. Partitions "
        "without any are absent.",
        lambda snapshot: [
            ((topic, str(partition)), count) for (topic, partition), count in sorted(snapshot.damaged.items())
        ],
        PARTITION,
    ),
    # Compaction.
    _one(
        "ottla_cleaner_rounds_total",
        "Compactions of a partition that were completed.",
        lambda found: found.cleaner.rounds,
    ),
    _one(
        "ottla_cleaner_failures_total",
        "Compactions of a partition that failed; the log says why.",
        lambda found: found.cleaner.failures,
    ),
    _one(
        "ottla_cleaner_read_bytes_total",
        "Bytes that completed compactions read.",
        lambda found: found.cleaner.bytes_read,
    ),
    _one(
        "ottla_cleaner_written_bytes_total",
        "Bytes that completed compactions kept and wrote.",
        lambda found: found.cleaner.bytes_written,
    ),
    _one(
        "ottla_cleaner_round_seconds_total",
        "Time that completed compactions took.",
        lambda found: found.cleaner.seconds,
    ),
    _one(
        "ottla_cleaner_running_rounds",
        "Compactions that are under way.",
        lambda found: found.cleaner_rounds,
    ),
    _moment(
        "ottla_cleaner_last_round_timestamp_seconds",
        "When the last compaction was completed; absent before the first.",
        lambda found: found.cleaner.round_ended_ms,
    ),
    _moment(
        "ottla_cleaner_last_check_timestamp_seconds",
        "When partitions were last looked at for one that needs compaction.",
        lambda found: found.cleaner.looked_ms,
    ),
    _one(
        "ottla_cleaner_dirty_ratio_max",
        "Largest share of a partition's bytes that were not yet compacted, of those that waited at the last "
        "look.",
        lambda found: found.cleaner.dirty_ratio_max,
    ),
    _one(
        "ottla_cleaner_uncleanable_partitions",
        "Partitions that compaction has given up because of damage.",
        lambda found: len(found.uncleanable),
    ),
    Declared(
        "ottla_partition_uncleanable",
        "1 for a partition that compaction has given up until the broker starts again; the log says why. "
        "Others are absent.",
        lambda snapshot: [((topic, str(partition)), 1) for topic, partition in snapshot.uncleanable],
        PARTITION,
    ),
    # Clients.
    _one("ottla_connections", "Connections of clients that are open.", lambda found: found.connections),
    _one(
        "ottla_connections_accepted_total",
        "Connections of clients that were accepted.",
        lambda found: found.connections_admitted,
    ),
    _one(
        "ottla_connections_refused_total",
        "Connections that were closed at once because of max.connections or max.connections.per.ip.",
        lambda found: found.connections_refused,
    ),
    _one(
        "ottla_request_memory_bytes",
        "Memory that requests and the buffers of connections take.",
        lambda found: found.request_bytes,
    ),
    _one(
        "ottla_request_memory_limit_bytes",
        "queued.max.request.bytes: when as much memory is taken, no more requests are read.",
        lambda found: found.request_bytes_max,
    ),
    _one(
        "ottla_client_metrics_instances",
        "Clients that asked this broker which metrics to push.",
        lambda found: found.client_instances,
    ),
    _one(
        "ottla_client_metrics_pushes_total",
        "Pushes of metrics that were taken; the logger ottla.client_metrics says what was in them.",
        lambda found: found.client_pushes,
    ),
    _one(
        "ottla_client_metrics_pushed_bytes_total",
        "Bytes of the pushes of metrics that were taken.",
        lambda found: found.client_pushed_bytes,
    ),
    # Coordinators.
    Declared(
        "ottla_groups",
        "Groups that this broker coordinates.",
        lambda snapshot: [(labels, count) for labels, count in sorted(snapshot.groups.items())],
        ("type", "state"),
    ),
    Declared(
        "ottla_transactional_ids",
        "Transactional ids that this broker coordinates, by the state of their last transaction.",
        lambda snapshot: [((state,), count) for state, count in snapshot.transactional_ids.items()],
        ("state",),
    ),
)
