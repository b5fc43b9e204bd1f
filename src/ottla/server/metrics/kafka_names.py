"""Metrics under the names that public dashboards and alerts for Apache Kafka know: those of its MBeans, as
the sample configuration of Prometheus' JMX exporter (kafka-2_0_0.yml) turns them out, and Strimzi's.

Where a number has no meaning here (threads, queues between them, the JVM) there is no metric.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ottla.server.metrics.declared import PARTITION, Declared, Samples
from ottla.server.metrics.numbers import Numbers, Times
from ottla.server.metrics.snapshot import PartitionNumbers
from ottla.server.metrics.traffic import Traffic

_RUNNING = 3
_PROCESSOR = "0"
"""Of the threads that Apache Kafka has for the network; there is one here."""
_RAFT = ("kafka_server_raftmetrics", "kafka_server_raft_metrics")
"""Both are in use for kafka.server:type=raft-metrics."""


def _broker(name: str, help: str, value: Callable[[Numbers], float]) -> Declared[Numbers]:
    return Declared(name, help, lambda found: [((), value(found))] if found.is_broker else [])


def _controller(name: str, help: str, value: Callable[[Numbers], float]) -> Declared[Numbers]:
    return Declared(
        f"kafka_controller_{name}", help, lambda found: [((), value(found))] if found.is_controller else []
    )


def _traffic(name: str, help: str, value: Callable[[Traffic], int]) -> Declared[Numbers]:
    def samples(found: Numbers) -> Samples:
        if found.is_broker:
            yield ("",), value(found.all_traffic)
            for topic, traffic in found.traffic.items():
                yield (topic,), value(traffic)

    return Declared(f"kafka_server_brokertopicmetrics_{name}_total", f"{help} {_ALL}", samples, ("topic",))


def _failed(name: str, help: str, counts: Callable[[Numbers], Mapping[str, int]]) -> Declared[Numbers]:
    def samples(found: Numbers) -> Samples:
        if found.is_broker:
            counted = counts(found)
            yield ("",), sum(counted.values())
            for topic in found.traffic:
                yield (topic,), counted.get(topic, 0)

    return Declared(f"kafka_server_brokertopicmetrics_{name}_total", f"{help} {_ALL}", samples, ("topic",))


_ALL = "Without a topic: all of them."


def _each(name: str, help: str, value: Callable[[PartitionNumbers], float]) -> Declared[Numbers]:
    return Declared(
        f"kafka_{name}",
        help,
        lambda found: [((each.topic, each.number), value(each)) for each in found.base.hosted],
        PARTITION,
    )


def _times(
    name: str, help: str, times: Callable[[Numbers], Mapping[str, Times]]
) -> Iterator[Declared[Numbers]]:
    """Quantiles of the last ones, and how many there were."""
    full = f"kafka_network_requestmetrics_{name}ms"

    def quantiles(found: Numbers) -> Samples:
        for request, each in times(found).items():
            for share, value in each.quantiles.items():
                yield (request, f"{share:g}"), value

    yield Declared(
        full,
        f"{help} In milliseconds, of the last 1,024 that were timed.",
        quantiles,
        ("request", "quantile"),
    )
    yield Declared(
        f"{full}_mean",
        f"{help} In milliseconds: the mean of the last 1,024 that were timed.",
        lambda found: [((request,), each.mean) for request, each in times(found).items()],
        ("request",),
    )
    yield Declared(
        f"{full}_count",
        f"Requests that were timed for {full}; of Produce, Fetch and OffsetCommit that is a sample.",
        lambda found: [((request,), each.timed) for request, each in times(found).items()],
        ("request",),
    )


def _raft(name: str, help: str, value: Callable[[Numbers], float]) -> Iterator[Declared[Numbers]]:
    for prefix in _RAFT:
        yield Declared(f"{prefix}_{name}", help, lambda found: [((), value(found))])


def _groups(found: Numbers, state: str = "") -> int:
    return sum(count for (_, of), count in found.base.groups.items() if not state or of == state)


def _group_state(state: str) -> Declared[Numbers]:
    return _broker(
        f"kafka_coordinator_group_groupmetadatamanager_numgroups{state.lower()}",
        f"Groups that this broker coordinates and that are {state}.",
        lambda found: _groups(found, state),
    )


def _led(found: Numbers) -> Iterator[PartitionNumbers]:
    return (each for each in found.base.hosted if each.is_led)


def _purgatory(name: str, help: str) -> Declared[Numbers]:
    return Declared(
        f"kafka_server_delayedoperationpurgatory_{name}",
        help,
        lambda found: [(("Fetch",), found.waiting_fetches), (("Produce",), found.waiting_produces)],
        ("delayedOperation",),
    )


def _disk(name: str, help: str, position: int) -> Declared[Numbers]:
    return Declared(
        f"kafka_server_kafkaserver_linux_disk_{name}_bytes",
        help,
        lambda found: [((), found.disk[position])] if found.disk is not None else [],
    )


KAFKA_METRICS: tuple[Declared[Numbers], ...] = (
    # Topics.
    _traffic(
        "messagesin", "Records that producers wrote to the partitions led here.", lambda t: t.records_in
    ),
    _traffic("bytesin", "Bytes that producers wrote to the partitions led here.", lambda t: t.bytes_in),
    _traffic("bytesout", "Bytes that consumers fetched.", lambda t: t.bytes_out),
    _traffic("replicationbytesin", "Bytes that this broker fetched from leaders.", lambda t: t.replicated_in),
    _traffic("replicationbytesout", "Bytes that followers fetched from here.", lambda t: t.replicated_out),
    _traffic(
        "totalproducerequests", "Batches of records, one per partition and request.", lambda t: t.appends
    ),
    _broker(
        "kafka_server_brokertopicmetrics_totalfetchrequests_total",
        "Fetch requests.",
        lambda found: found.requests["Fetch"],
    ),
    _failed(
        "failedproducerequests",
        "Partitions of produce requests that were answered with an error.",
        lambda found: found.failed_produce,
    ),
    _failed(
        "failedfetchrequests",
        "Partitions of fetch requests that were answered with an error.",
        lambda found: found.failed_fetch,
    ),
    # Requests.
    Declared(
        "kafka_network_requestmetrics_requests_total",
        "Requests. A Fetch is also counted as FetchConsumer or FetchFollower.",
        lambda found: [((request,), count) for request, count in found.requests.items()],
        ("request",),
    ),
    Declared(
        "kafka_network_requestmetrics_errors_total",
        "Error codes in answers, of which one answer may have several. What went well is not counted.",
        lambda found: [(labels, count) for labels, count in sorted(found.errors.items())],
        ("request", "error"),
    ),
    *_times("totaltime", "From a request to its answer.", lambda found: found.total_times),
    *_times("localtime", "Of that, what the broker worked at once.", lambda found: found.local_times),
    *_times("remotetime", "Of that, what the answer waited for.", lambda found: found.remote_times),
    *_times(
        "requestqueuetime",
        "How long what is due waits for its turn of the event loop, whatever it is.",
        lambda found: dict.fromkeys(found.local_times, found.loop_lateness),
    ),
    _broker(
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
        "Share of the last minute in which the broker's event loop had nothing to do, 0 to 1.",
        lambda found: found.loop_idle,
    ),
    _broker(
        "kafka_network_socketserver_networkprocessoravgidle_percent",
        "The same: there is one event loop for requests and the network.",
        lambda found: found.loop_idle,
    ),
    _purgatory("purgatorysize", "Requests that wait: for records, or for other replicas."),
    _purgatory("numdelayedoperations", "The same."),
    Declared(
        "kafka_server_socket_server_metrics_connection_count",
        "Connections of clients that are open.",
        lambda found: [
            ((listener, _PROCESSOR), count) for listener, count in sorted(found.connections.items())
        ],
        ("listener", "networkProcessor"),
    ),
    Declared(
        "kafka_server_socket_server_metrics_connections_software",
        "Connections of clients that are open, by what the clients are.",
        lambda found: [((*labels, _PROCESSOR), count) for labels, count in sorted(found.software.items())],
        ("clientSoftwareName", "clientSoftwareVersion", "listener", "networkProcessor"),
    ),
    _broker(
        "kafka_server_fetchsessioncache_numincrementalfetchsessions",
        "Fetch sessions that are open.",
        lambda found: found.fetch_sessions,
    ),
    _broker(
        "kafka_server_sharesessioncache_sharesessionscount",
        "Sessions of members of share groups that are open.",
        lambda found: found.share_sessions,
    ),
    _broker(
        "kafka_server_sharesessioncache_sharepartitionscount",
        "Partitions in sessions of members of share groups.",
        lambda found: found.share_session_partitions,
    ),
    # Replicas.
    _broker("kafka_server_kafkaserver_brokerstate", "3: the broker is running.", lambda found: _RUNNING),
    _broker(
        "kafka_server_replicamanager_partitioncount",
        "Partitions of which this broker has a replica.",
        lambda found: len(found.base.hosted),
    ),
    _broker(
        "kafka_server_replicamanager_leadercount",
        "Partitions that this broker leads.",
        lambda found: sum(1 for _ in _led(found)),
    ),
    _broker(
        "kafka_server_replicamanager_underreplicatedpartitions",
        "Partitions led here that have a replica which is not in sync.",
        lambda found: sum(each.in_sync < each.replicas for each in _led(found)),
    ),
    _broker(
        "kafka_server_replicamanager_underminisrpartitioncount",
        "Partitions led here with fewer replicas in sync than min.insync.replicas.",
        lambda found: sum(each.in_sync < each.in_sync_min for each in _led(found)),
    ),
    _broker(
        "kafka_server_replicamanager_atminisrpartitioncount",
        "Partitions led here with as many replicas in sync as min.insync.replicas.",
        lambda found: sum(each.in_sync == each.in_sync_min for each in _led(found)),
    ),
    _broker(
        "kafka_server_replicamanager_offlinereplicacount",
        "Replicas of this broker that cannot work because their disk failed.",
        lambda found: found.base.offline_replicas,
    ),
    _broker(
        "kafka_server_replicamanager_isrshrinks_total",
        "How often a replica fell out of sync with a leader here.",
        lambda found: found.isr_shrinks,
    ),
    _broker(
        "kafka_server_replicamanager_isrexpands_total",
        "How often a replica came into sync with a leader here.",
        lambda found: found.isr_expansions,
    ),
    Declared(
        "kafka_server_replicafetchermanager_maxlag",
        "Records that the replica here lacks which is farthest behind its leader.",
        lambda found: (
            [(("Replica",), max((each.records for each in found.follower_lags), default=0))]
            if found.is_broker
            else []
        ),
        ("clientId",),
    ),
    Declared(
        "kafka_server_fetcherlagmetrics_consumerlag",
        "Records that a replica here lacks of what its leader has committed.",
        lambda found: [
            ((f"ReplicaFetcherThread-0-{each.leader}", each.topic, str(each.partition)), each.records)
            for each in found.follower_lags
        ],
        ("clientId", *PARTITION),
    ),
    _each(
        "cluster_partition_underreplicated",
        "1 for a partition led here that has a replica which is not in sync.",
        lambda each: each.is_led and each.in_sync < each.replicas,
    ),
    _each(
        "cluster_partition_underminisr",
        "1 for a partition led here with fewer replicas in sync than min.insync.replicas.",
        lambda each: each.is_led and each.in_sync < each.in_sync_min,
    ),
    _each(
        "cluster_partition_atminisr",
        "1 for a partition led here with as many replicas in sync as min.insync.replicas.",
        lambda each: each.is_led and each.in_sync == each.in_sync_min,
    ),
    _each(
        "cluster_partition_replicascount",
        "Replicas of a partition led here.",
        lambda each: each.replicas if each.is_led else 0,
    ),
    _each(
        "cluster_partition_insyncreplicascount",
        "Replicas in sync of a partition led here.",
        lambda each: each.in_sync if each.is_led else 0,
    ),
    _each(
        "cluster_partition_laststableoffsetlag",
        "Records that open transactions keep from those who read committed records.",
        lambda each: each.high_watermark - each.last_stable_offset,
    ),
    # Logs.
    _each("log_log_size", "Bytes of the partition's log.", lambda each: each.log_bytes),
    _each(
        "log_log_numlogsegments", "Files that the partition's log consists of.", lambda each: each.segments
    ),
    _each("log_log_logstartoffset", "First offset of the partition.", lambda each: each.start_offset),
    _each(
        "log_log_logendoffset",
        "Offset that the partition's next record gets.",
        lambda each: each.end_offset,
    ),
    _broker(
        "kafka_log_logmanager_offlinelogdirectorycount",
        "Data directories that are out of use because their disk failed.",
        lambda found: found.offline_directories,
    ),
    _disk("read", "Bytes that this process had read from disks.", 0),
    _disk("write", "Bytes that this process had written to disks.", 1),
    # The controller.
    _controller(
        "kafkacontroller_activecontrollercount",
        "1 on the node that is the active controller, else 0.",
        lambda found: found.is_active_controller,
    ),
    _controller(
        "kafkacontroller_offlinepartitionscount",
        "Partitions in the cluster that have no leader.",
        lambda found: found.base.offline_partitions,
    ),
    _controller(
        "kafkacontroller_globaltopiccount", "Topics in the cluster.", lambda found: found.base.topics
    ),
    _controller(
        "kafkacontroller_globalpartitioncount",
        "Partitions in the cluster.",
        lambda found: found.base.partitions,
    ),
    _controller(
        "kafkacontroller_preferredreplicaimbalancecount",
        "Partitions in the cluster that another than their first replica leads.",
        lambda found: found.not_led_by_preferred,
    ),
    _controller(
        "kafkacontroller_activebrokercount", "Brokers that are at work.", lambda found: found.active_brokers
    ),
    _controller(
        "kafkacontroller_fencedbrokercount",
        "Brokers that are registered, and of which the controller does not hear.",
        lambda found: found.fenced_brokers,
    ),
    _controller(
        "controllerstats_uncleanleaderelections_total",
        "Elections of a leader that may lack what was committed, as this node saw them.",
        lambda found: found.unclean_elections,
    ),
    _controller(
        "controllerstats_leaderelectionrateandtimems_count",
        "How often partitions got another leader, as this node saw it.",
        lambda found: found.elections,
    ),
    # The quorum.
    *(
        Declared(
            f"{prefix}_current_state",
            "Always 1; the label says what this node is in the metadata quorum.",
            lambda found: [((found.quorum.state,), 1)],
            ("current_state",),
        )
        for prefix in _RAFT
    ),
    *_raft(
        "current_leader",
        "Node that leads the metadata quorum, -1 if that is not known.",
        lambda found: -1 if found.quorum.described.leader_id is None else found.quorum.described.leader_id,
    ),
    *_raft(
        "current_vote", "Node that this one voted for, -1 for none.", lambda found: found.quorum.voted_for
    ),
    *_raft("current_epoch", "Epoch of the metadata quorum.", lambda found: found.quorum.described.epoch),
    *_raft(
        "high_watermark",
        "Offset up to which metadata is committed.",
        lambda found: found.quorum.described.high_watermark,
    ),
    *_raft(
        "log_end_offset",
        "Offset that the next record of metadata gets.",
        lambda found: found.quorum.described.log_end_offset,
    ),
    *_raft(
        "append_records_rate",
        "Records of metadata per second that this node wrote as the leader, in the last minute.",
        lambda found: found.quorum.records_per_second if found.quorum.leads else 0.0,
    ),
    *_raft(
        "fetch_records_rate",
        "Records of metadata per second that this node fetched from the leader, in the last minute.",
        lambda found: 0.0 if found.quorum.leads else found.quorum.records_per_second,
    ),
    *_raft(
        "commit_latency_avg",
        "Milliseconds until a change of metadata was committed: the mean of the last 100 made here.",
        lambda found: found.quorum.commit_milliseconds,
    ),
    *_raft(
        "number_of_voters",
        "Voters of the metadata quorum.",
        lambda found: len(found.quorum.described.voters),
    ),
    *_raft(
        "number_of_observers",
        "Nodes that follow the metadata without a vote, as the leader knows them.",
        lambda found: len(found.quorum.described.observers),
    ),
    # Coordinators.
    _broker(
        "kafka_coordinator_group_groupmetadatamanager_numgroups",
        "Groups that this broker coordinates.",
        _groups,
    ),
    *(
        _group_state(state)
        for state in ("Stable", "Empty", "Dead", "PreparingRebalance", "CompletingRebalance")
    ),
    _broker(
        "kafka_coordinator_group_groupmetadatamanager_numoffsets",
        "Offsets that groups have committed to this broker.",
        lambda found: len(found.group_lag.positions),
    ),
)
