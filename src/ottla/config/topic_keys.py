"""Settings of a topic, and the broker keys that give them their defaults.

Each pair (`retention.bytes` of a topic, `log.retention.bytes` of a broker) is one setting and is declared
once, here: the broker key is derived from the topic key. Names, defaults and bounds are Apache Kafka 4's.
"""

from __future__ import annotations

from dataclasses import replace

from ottla.config.key import LONG_MAX, ConfigKey, ConfigType, Importance, Synonym, Value, by_name

_HOUR_MS = 3_600_000
_MINUTE_MS = 60_000
_WEEK_MS = 7 * 24 * _HOUR_MS


def _topic(
    name: str,
    broker: str,
    type_: ConfigType,
    default: Value,
    doc: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    also: tuple[int, ...] = (),
    choices: tuple[str, ...] = (),
    importance: Importance = "medium",
    fallbacks: tuple[Synonym, ...] = (),
    effective: bool = True,
) -> ConfigKey:
    return ConfigKey(
        name,
        type_,
        default,
        doc,
        minimum=minimum,
        maximum=maximum,
        also=also,
        choices=choices,
        importance=importance,
        dynamic="cluster-wide",
        synonyms=(Synonym(broker), *fallbacks),
        effective=effective,
    )


_INTERNAL_SEGMENT_BYTES = ConfigKey(
    "internal.segment.bytes",
    ConfigType.INT,
    None,
    "Size at which a segment is rolled, free of the lower bound of segment.bytes. For tests.",
    minimum=1,
    internal=True,
)


def _unused(name: str, type_: ConfigType, default: Value, doc: str) -> ConfigKey:
    """A setting that no broker key gives a default, and that is taken so that tools of Kafka work."""
    return ConfigKey(name, type_, default, doc, dynamic="cluster-wide", effective=False)


def _throttled(name: str, doc: str) -> ConfigKey:
    """A list of replicas, which no broker key gives a default."""
    return ConfigKey(name, ConfigType.LIST, (), doc, replicas=True, dynamic="cluster-wide")


_TOPIC = (
    _topic(
        "cleanup.policy",
        "log.cleanup.policy",
        ConfigType.LIST,
        ("delete",),
        "What happens to old segments: `delete` drops them by age and size, `compact` keeps the latest "
        "record of each key, both together do both, an empty list keeps everything.",
        choices=("compact", "delete"),
        importance="high",
    ),
    _topic(
        "compression.type",
        "compression.type",
        ConfigType.STRING,
        "producer",
        "Codec of the stored batches. `producer` stores them as they were sent; any other value makes the "
        "broker recompress batches that use a different codec.",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        importance="high",
    ),
    _topic(
        "compression.gzip.level",
        "compression.gzip.level",
        ConfigType.INT,
        -1,
        "Level used when compression.type is gzip; -1 leaves it to the codec.",
        minimum=1,
        maximum=9,
        also=(-1,),
    ),
    _topic(
        "compression.lz4.level",
        "compression.lz4.level",
        ConfigType.INT,
        9,
        "Level used when compression.type is lz4. 9, the default, is the fast compressor; others from 3 on "
        "compress more and take longer, and there is no difference above 12.",
        minimum=1,
        maximum=17,
    ),
    _topic(
        "compression.zstd.level",
        "compression.zstd.level",
        ConfigType.INT,
        3,
        "Level used when compression.type is zstd.",
        minimum=-131072,
        maximum=22,
    ),
    _topic(
        "delete.retention.ms",
        "log.cleaner.delete.retention.ms",
        ConfigType.LONG,
        24 * _HOUR_MS,
        "How long a compacted topic keeps tombstones, so that a consumer reading from the beginning within "
        "this time still learns of the deletion.",
        minimum=0,
    ),
    _topic(
        "file.delete.delay.ms",
        "log.segment.delete.delay.ms",
        ConfigType.LONG,
        60_000,
        "Time between taking a segment or partition out of service and removing its files.",
        minimum=0,
    ),
    _topic(
        "flush.messages",
        "log.flush.interval.messages",
        ConfigType.LONG,
        LONG_MAX,
        "Force a partition to disk after this many records. The default leaves it to the operating system.",
        minimum=1,
        importance="high",
    ),
    _topic(
        "flush.ms",
        "log.flush.interval.ms",
        ConfigType.LONG,
        LONG_MAX,
        "Force a partition to disk when its oldest unflushed record is this old. On a broker, "
        "log.flush.scheduler.interval.ms applies when this is not set.",
        minimum=0,
        fallbacks=(Synonym("log.flush.scheduler.interval.ms"),),
        importance="high",
    ),
    _throttled(
        "follower.replication.throttled.replicas",
        "Replicas whose copying from their leader is throttled, at the follower, to "
        "follower.replication.throttled.rate; set while partitions are reassigned.",
    ),
    _topic(
        "index.interval.bytes",
        "log.index.interval.bytes",
        ConfigType.INT,
        4096,
        "Bytes of records between two entries of a segment's offset index. Smaller is faster to seek and "
        "larger on disk.",
        minimum=0,
    ),
    _throttled(
        "leader.replication.throttled.replicas",
        "Replicas whose copying to their followers is throttled, at the leader, to "
        "leader.replication.throttled.rate; set while partitions are reassigned.",
    ),
    _topic(
        "local.retention.bytes",
        "log.local.retention.bytes",
        ConfigType.LONG,
        -2,
        "Size of a partition on the broker's disk beyond which segments that are in remote storage are "
        "deleted there; -2 stands for retention.bytes. There is no remote storage.",
        minimum=-2,
        effective=False,
    ),
    _topic(
        "local.retention.ms",
        "log.local.retention.ms",
        ConfigType.LONG,
        -2,
        "Age at which segments that are in remote storage are deleted from the broker's disk; -2 stands for "
        "retention.ms. There is no remote storage.",
        minimum=-2,
        effective=False,
    ),
    _topic(
        "max.compaction.lag.ms",
        "log.cleaner.max.compaction.lag.ms",
        ConfigType.LONG,
        LONG_MAX,
        "Longest time a record of a compacted topic may stay uncompacted.",
        minimum=1,
    ),
    _topic(
        "max.message.bytes",
        "message.max.bytes",
        ConfigType.INT,
        1024 * 1024 + 12,
        "Largest record batch accepted, after compression. Clients may need their own limits raised as well.",
        minimum=0,
        importance="high",
    ),
    _topic(
        "message.timestamp.after.max.ms",
        "log.message.timestamp.after.max.ms",
        ConfigType.LONG,
        _HOUR_MS,
        "How far in the future a record's own timestamp may lie; later ones are refused. Not checked with "
        "LogAppendTime.",
        minimum=0,
    ),
    _topic(
        "message.timestamp.before.max.ms",
        "log.message.timestamp.before.max.ms",
        ConfigType.LONG,
        LONG_MAX,
        "How far in the past a record's own timestamp may lie; earlier ones are refused. Not checked with "
        "LogAppendTime.",
        minimum=0,
    ),
    _topic(
        "message.timestamp.type",
        "log.message.timestamp.type",
        ConfigType.STRING,
        "CreateTime",
        "Whether a record carries the time its producer gave it or the time the broker appended it.",
        choices=("CreateTime", "LogAppendTime"),
    ),
    _topic(
        "min.cleanable.dirty.ratio",
        "log.cleaner.min.cleanable.ratio",
        ConfigType.DOUBLE,
        0.5,
        "Share of a compacted log that must be uncompacted before compaction runs again.",
        minimum=0,
        maximum=1,
    ),
    _topic(
        "min.compaction.lag.ms",
        "log.cleaner.min.compaction.lag.ms",
        ConfigType.LONG,
        0,
        "Time for which every record of a compacted topic stays readable before it may be compacted away.",
        minimum=0,
    ),
    _topic(
        "min.insync.replicas",
        "min.insync.replicas",
        ConfigType.INT,
        1,
        "Replicas that must have a record before a producer with acks=all is answered; with fewer in sync, "
        "such writes are refused.",
        minimum=1,
        importance="high",
    ),
    _topic(
        "preallocate",
        "log.preallocate",
        ConfigType.BOOLEAN,
        False,
        "Reserve a new segment's space on disk when it is created.",
        effective=False,
    ),
    _unused(
        "remote.log.copy.disable",
        ConfigType.BOOLEAN,
        False,
        "Whether to copy no more segments to remote storage. There is no remote storage.",
    ),
    _unused(
        "remote.log.delete.on.disable",
        ConfigType.BOOLEAN,
        False,
        "Whether segments in remote storage are deleted when it is disabled. There is no remote storage.",
    ),
    _unused(
        "remote.storage.enable",
        ConfigType.BOOLEAN,
        False,
        "Whether segments are copied to remote storage. There is none, so true is refused.",
    ),
    _topic(
        "retention.bytes",
        "log.retention.bytes",
        ConfigType.LONG,
        -1,
        "Size of a partition beyond which its oldest segments are deleted; -1 sets no limit.",
        importance="high",
    ),
    _topic(
        "retention.ms",
        "log.retention.ms",
        ConfigType.LONG,
        _WEEK_MS,
        "Age at which records are deleted, segment by segment; -1 keeps them for ever. On a broker, "
        "log.retention.minutes and then log.retention.hours apply when this is not set.",
        minimum=-1,
        fallbacks=(
            Synonym("log.retention.minutes", _MINUTE_MS),
            Synonym("log.retention.hours", _HOUR_MS),
        ),
        importance="high",
    ),
    _topic(
        "segment.bytes",
        "log.segment.bytes",
        ConfigType.INT,
        1024**3,
        "Size at which a segment is closed and the next one begun. Retention works on whole segments.",
        minimum=1024 * 1024,
        importance="high",
    ),
    _topic(
        "segment.index.bytes",
        "log.index.size.max.bytes",
        ConfigType.INT,
        10 * 1024 * 1024,
        "Size of a segment's index at which the segment is closed.",
        minimum=4,
    ),
    _topic(
        "segment.jitter.ms",
        "log.roll.jitter.ms",
        ConfigType.LONG,
        0,
        "Random time taken off segment.ms, so that many partitions do not roll at once. On a broker, "
        "log.roll.jitter.hours applies when this is not set.",
        minimum=0,
        fallbacks=(Synonym("log.roll.jitter.hours", _HOUR_MS),),
    ),
    _topic(
        "segment.ms",
        "log.roll.ms",
        ConfigType.LONG,
        _WEEK_MS,
        "Age at which a segment is closed even though it is not full, so that retention can reach it. On a "
        "broker, log.roll.hours applies when this is not set.",
        minimum=1,
        fallbacks=(Synonym("log.roll.hours", _HOUR_MS),),
        importance="high",
    ),
    _topic(
        "unclean.leader.election.enable",
        "unclean.leader.election.enable",
        ConfigType.BOOLEAN,
        False,
        "Whether a replica that is not in sync may become leader when no other is left. Trades lost records "
        "for availability.",
        importance="high",
    ),
    _INTERNAL_SEGMENT_BYTES,
)

_FALLBACKS = (
    ConfigKey(
        "log.flush.scheduler.interval.ms",
        ConfigType.LONG,
        LONG_MAX,
        "How often the broker looks for partitions that are due for a flush.",
        importance="high",
    ),
    ConfigKey(
        "log.retention.minutes",
        ConfigType.INT,
        None,
        "log.retention.ms in minutes; used when that is not set.",
        importance="high",
    ),
    ConfigKey(
        "log.retention.hours",
        ConfigType.INT,
        168,
        "log.retention.ms in hours; used when neither that nor log.retention.minutes is set.",
        importance="high",
    ),
    ConfigKey(
        "log.roll.hours",
        ConfigType.INT,
        168,
        "log.roll.ms in hours; used when that is not set.",
        minimum=1,
        importance="high",
    ),
    ConfigKey(
        "log.roll.jitter.hours",
        ConfigType.INT,
        0,
        "log.roll.jitter.ms in hours; used when that is not set.",
        minimum=0,
        importance="high",
    ),
)


def _broker_key(key: ConfigKey) -> ConfigKey:
    name = key.synonyms[0].name
    return replace(
        key,
        name=name,
        # With several broker keys for one setting, only the last of them has a default.
        default=key.default if len(key.synonyms) == 1 else None,
        doc=key.doc if name == key.name else f"{key.doc} Default of the topic setting {key.name}.",
        synonyms=(),
    )


TOPIC_KEYS = by_name(_TOPIC)
LOG_DEFAULT_KEYS = (*(_broker_key(key) for key in _TOPIC if key.synonyms), *_FALLBACKS)
