"""Broker keys of the cluster: the node's identity, the metadata quorum, replication."""

from __future__ import annotations

from ottla.config.key import LONG_MAX, ConfigKey, ConfigType

_WEEK_MS = 7 * 24 * 3_600_000

RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"


def _rate(name: str, doc: str) -> ConfigKey:
    return ConfigKey(name, ConfigType.LONG, LONG_MAX, doc, minimum=0, dynamic="cluster-wide")


def _windows(prefix: str, of: str) -> tuple[ConfigKey, ConfigKey]:
    """Over how long rates are averaged."""
    return (
        ConfigKey(
            f"{prefix}.quota.window.num",
            ConfigType.INT,
            11,
            f"Number of samples that the rate of {of} is averaged over.",
            minimum=1,
            importance="low",
        ),
        ConfigKey(
            f"{prefix}.quota.window.size.seconds",
            ConfigType.INT,
            1,
            f"Time span of each sample of the rate of {of}.",
            minimum=1,
            importance="low",
        ),
    )


CLUSTER_KEYS = (
    ConfigKey(
        "node.id",
        ConfigType.INT,
        1,
        "Number of this node, different on every node of a cluster. Apache Kafka has no default.",
        minimum=0,
        importance="high",
    ),
    ConfigKey(
        "broker.id",
        ConfigType.INT,
        None,
        "Old name of node.id; when both are set they must agree.",
        importance="high",
    ),
    ConfigKey(
        "process.roles",
        ConfigType.LIST,
        ("broker", "controller"),
        "What this process is: broker, controller, or both. Apache Kafka has no default.",
        choices=("broker", "controller"),
        required=True,
        importance="high",
    ),
    ConfigKey(
        "broker.rack",
        ConfigType.STRING,
        None,
        "Rack or zone of this broker; replicas are spread over them, and consumers in the same one may read "
        "from it, see replica.selector.class.",
    ),
    ConfigKey(
        "controller.listener.names",
        ConfigType.LIST,
        ("CONTROLLER",),
        "Listeners of the controller quorum. Apache Kafka has no default.",
        required=True,
        importance="high",
    ),
    ConfigKey(
        "controller.quorum.voters",
        ConfigType.LIST,
        (),
        "Members of the controller quorum, as id@host:port, the same on every node. Without any, this node "
        "is the only one.",
        importance="high",
    ),
    ConfigKey(
        "controller.quorum.bootstrap.servers",
        ConfigType.LIST,
        (),
        "Where to find the controller quorum, as host:port, where the metadata log says who its voters are.",
        importance="high",
    ),
    ConfigKey(
        "controller.quorum.auto.join.enable",
        ConfigType.BOOLEAN,
        False,
        "Whether a controller that is not among the voters of its quorum asks to become one by itself.",
        importance="low",
    ),
    ConfigKey(
        "controller.quorum.election.timeout.ms",
        ConfigType.INT,
        1000,
        "Time a candidate waits for votes before a new election.",
        minimum=0,
        importance="high",
    ),
    ConfigKey(
        "controller.quorum.fetch.timeout.ms",
        ConfigType.INT,
        2000,
        "Time without hearing from the leader after which a voter calls an election.",
        minimum=0,
        importance="high",
    ),
    ConfigKey(
        "controller.quorum.election.backoff.max.ms",
        ConfigType.INT,
        1000,
        "Longest random pause between elections.",
        minimum=0,
        importance="high",
    ),
    ConfigKey(
        "controller.quorum.append.linger.ms",
        ConfigType.INT,
        25,
        "Time the leader collects metadata records before writing them.",
        minimum=0,
        effective=False,
    ),
    ConfigKey(
        "controller.quorum.request.timeout.ms",
        ConfigType.INT,
        2000,
        "Time a voter waits for an answer of another.",
        minimum=0,
    ),
    ConfigKey(
        "controller.quorum.retry.backoff.ms",
        ConfigType.INT,
        20,
        "Pause before a failed quorum request is repeated.",
        minimum=0,
        importance="low",
    ),
    ConfigKey(
        "metadata.log.dir",
        ConfigType.STRING,
        None,
        "Directory of the metadata log; the first data directory when not set.",
        importance="high",
    ),
    ConfigKey(
        "metadata.log.max.record.bytes.between.snapshots",
        ConfigType.LONG,
        20 * 1024 * 1024,
        "Bytes of metadata records after which a snapshot is written.",
        minimum=1,
        importance="high",
    ),
    ConfigKey(
        "metadata.log.max.snapshot.interval.ms",
        ConfigType.LONG,
        3_600_000,
        "Time after which a snapshot is written if there are new metadata records; 0 turns this off.",
        minimum=0,
        importance="high",
        effective=False,
    ),
    ConfigKey(
        "metadata.log.segment.bytes",
        ConfigType.INT,
        1024**3,
        "Size of a metadata log segment.",
        minimum=8 * 1024 * 1024,
        importance="high",
    ),
    ConfigKey(
        "metadata.log.segment.ms",
        ConfigType.LONG,
        _WEEK_MS,
        "Age at which a metadata log segment is closed.",
        importance="high",
    ),
    ConfigKey(
        "metadata.max.retention.bytes",
        ConfigType.LONG,
        100 * 1024 * 1024,
        "Size of the metadata log and its snapshots beyond which the oldest are deleted.",
        importance="high",
    ),
    ConfigKey(
        "metadata.max.retention.ms",
        ConfigType.LONG,
        _WEEK_MS,
        "Age at which metadata segments and snapshots are deleted.",
        importance="high",
        effective=False,
    ),
    ConfigKey(
        "metadata.max.idle.interval.ms",
        ConfigType.INT,
        500,
        "How often an idle quorum leader writes a no-op record; 0 turns this off.",
        minimum=0,
        importance="low",
        effective=False,
    ),
    ConfigKey(
        "broker.heartbeat.interval.ms",
        ConfigType.INT,
        2000,
        "Time between two heartbeats of a broker to the controller.",
    ),
    ConfigKey(
        "broker.session.timeout.ms",
        ConfigType.INT,
        9000,
        "Time without heartbeats after which the controller fences a broker. One whose connection to the "
        "controller is gone, as when its process dies, is fenced when it does not come back at once.",
    ),
    ConfigKey(
        "initial.broker.registration.timeout.ms",
        ConfigType.INT,
        60_000,
        "Time a starting broker tries to register before it gives up.",
    ),
    ConfigKey(
        "default.replication.factor",
        ConfigType.INT,
        1,
        "Replicas of a topic that is created without saying how many.",
        minimum=1,
    ),
    ConfigKey(
        "controlled.shutdown.enable",
        ConfigType.BOOLEAN,
        True,
        "Whether a broker moves its leaderships away before it stops.",
    ),
    ConfigKey(
        "auto.leader.rebalance.enable",
        ConfigType.BOOLEAN,
        True,
        "Whether leadership is moved back to the preferred replicas in the background.",
        importance="high",
    ),
    ConfigKey(
        "leader.imbalance.check.interval.seconds",
        ConfigType.LONG,
        300,
        "How often preferred leaders are checked.",
        minimum=1,
        importance="high",
    ),
    ConfigKey(
        "replica.lag.time.max.ms",
        ConfigType.LONG,
        30_000,
        "Time a follower may be behind before it leaves the in-sync replicas.",
        importance="high",
    ),
    ConfigKey(
        "replica.selector.class",
        ConfigType.STRING,
        None,
        "From which replica consumers read. With RackAwareReplicaSelector the leader sends those with a "
        "client.rack to a replica in sync whose broker.rack is the same; without, they read from the leader.",
        choices=(RACK_AWARE_SELECTOR, LEADER_SELECTOR),
    ),
    ConfigKey(
        "replica.fetch.max.bytes",
        ConfigType.INT,
        1024 * 1024,
        "Bytes a follower asks for per partition.",
        minimum=0,
    ),
    ConfigKey(
        "replica.fetch.response.max.bytes",
        ConfigType.INT,
        10 * 1024 * 1024,
        "Bytes a follower asks for per request.",
        minimum=0,
    ),
    ConfigKey(
        "replica.fetch.min.bytes",
        ConfigType.INT,
        1,
        "Bytes a follower waits for.",
        importance="high",
    ),
    ConfigKey(
        "replica.fetch.wait.max.ms",
        ConfigType.INT,
        500,
        "Longest time a follower's fetch waits for records.",
        importance="high",
    ),
    ConfigKey(
        "replica.fetch.backoff.ms",
        ConfigType.INT,
        1000,
        "Pause of a follower after a failed fetch.",
        minimum=0,
    ),
    ConfigKey(
        "replica.socket.timeout.ms",
        ConfigType.INT,
        30_000,
        "Time a follower waits for an answer; at least replica.fetch.wait.max.ms.",
        importance="high",
    ),
    ConfigKey(
        "replica.socket.receive.buffer.bytes",
        ConfigType.INT,
        64 * 1024,
        "Receive buffer of a follower's connection. Ottla leaves it to the operating system.",
        importance="high",
        effective=False,
    ),
    ConfigKey(
        "replica.high.watermark.checkpoint.interval.ms",
        ConfigType.LONG,
        5000,
        "How often high watermarks are written down.",
        importance="high",
        effective=False,
    ),
    ConfigKey(
        "num.replica.fetchers",
        ConfigType.INT,
        1,
        "Connections a follower fetches over, per leader.",
        minimum=1,
        importance="high",
        dynamic="cluster-wide",
        effective=False,
    ),
    _rate(
        "leader.replication.throttled.rate",
        "Bytes per second that this broker sends as a leader to followers that are not in sync, of all "
        "replicas together that topics name in leader.replication.throttled.replicas. Set it while the "
        "broker runs; kafka-reassign-partitions does, with --throttle. More than 1 MB/s is kept best.",
    ),
    _rate(
        "follower.replication.throttled.rate",
        "Bytes per second that this broker fetches for replicas that are behind, of all together that topics "
        "name in follower.replication.throttled.replicas. Set it while the broker runs.",
    ),
    _rate(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        "Bytes per second that replicas move between the data directories of this broker, all together. Set "
        "it while the broker runs.",
    ),
    *_windows("replication", "throttled replication"),
    *_windows("alter.log.dirs.replication", "moves between data directories"),
)
