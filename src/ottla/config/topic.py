"""A topic's settings, resolved: its own overrides on top of the broker's defaults."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any, cast

from ottla.config.broker import BrokerConfig, unknown_key
from ottla.config.entry import ConfigEntry, ConfigSource, ConfigSynonym, describe_key, describe_unknown
from ottla.config.key import ConfigError, ConfigKey, Value
from ottla.config.rules import check_topic
from ottla.config.topic_keys import TOPIC_KEYS


def _default(name: str) -> Any:
    """The declared default; field types say what it is, so that the hot path reads plain attributes."""
    return TOPIC_KEYS[name].default


@dataclass(frozen=True, slots=True)
class LogConfig:
    """What a partition's log needs to know. Attributes are named after the keys."""

    segment_bytes: int = _default("segment.bytes")
    segment_ms: int = _default("segment.ms")
    segment_jitter_ms: int = _default("segment.jitter.ms")
    segment_index_bytes: int = _default("segment.index.bytes")
    index_interval_bytes: int = _default("index.interval.bytes")
    max_message_bytes: int = _default("max.message.bytes")
    retention_ms: int = _default("retention.ms")
    retention_bytes: int = _default("retention.bytes")
    delete_retention_ms: int = _default("delete.retention.ms")
    file_delete_delay_ms: int = _default("file.delete.delay.ms")
    flush_messages: int = _default("flush.messages")
    flush_ms: int = _default("flush.ms")
    cleanup_compact: bool = "compact" in _default("cleanup.policy")
    cleanup_delete: bool = "delete" in _default("cleanup.policy")
    compression_type: str = _default("compression.type")
    compression_gzip_level: int = _default("compression.gzip.level")
    compression_lz4_level: int = _default("compression.lz4.level")
    compression_zstd_level: int = _default("compression.zstd.level")
    message_timestamp_type: str = _default("message.timestamp.type")
    message_timestamp_before_max_ms: int = _default("message.timestamp.before.max.ms")
    message_timestamp_after_max_ms: int = _default("message.timestamp.after.max.ms")
    leader_replication_throttled_replicas: tuple[str, ...] = _default("leader.replication.throttled.replicas")
    follower_replication_throttled_replicas: tuple[str, ...] = _default(
        "follower.replication.throttled.replicas"
    )
    min_insync_replicas: int = _default("min.insync.replicas")
    min_cleanable_dirty_ratio: float = _default("min.cleanable.dirty.ratio")
    min_compaction_lag_ms: int = _default("min.compaction.lag.ms")
    max_compaction_lag_ms: int = _default("max.compaction.lag.ms")
    preallocate: bool = _default("preallocate")
    unclean_leader_election_enable: bool = _default("unclean.leader.election.enable")


_ATTRIBUTES = tuple(
    (field.name, field.name.replace("_", "."))
    for field in fields(LogConfig)
    if not field.name.startswith("cleanup_")
)


def validate_topic(
    broker: BrokerConfig, overrides: Mapping[str, str], changed: Collection[str] | None = None
) -> None:
    """ConfigError unless a topic may have these: each of them, and what they make of the broker's defaults.

    `changed` are those that are new, all by default. What was stored before may come from another version.
    """
    for name, text in overrides.items():
        if changed is None or name in changed:
            _check_remote(name, _parse(name, text))
    try:
        check_topic(_values(broker, overrides))
    except ConfigError as error:
        if overrides.keys() >= {"min.compaction.lag.ms", "max.compaction.lag.ms"}:
            raise
        # One of them is the broker's, which whoever set the other may not know.
        raise ConfigError(f"{error}, one of which is the broker's default; set both on the topic") from error


def resolve_topic(broker: BrokerConfig, overrides: Mapping[str, str]) -> LogConfig:
    """Never raises: `overrides` are in force. `topic_faults` tells what is wrong with them."""
    values = _values(broker, overrides)
    policy = cast("tuple[str, ...]", values["cleanup.policy"])
    attributes: dict[str, Any] = {attribute: values[name] for attribute, name in _ATTRIBUTES}
    if values["internal.segment.bytes"] is not None:
        attributes["segment_bytes"] = values["internal.segment.bytes"]
    return LogConfig(cleanup_compact="compact" in policy, cleanup_delete="delete" in policy, **attributes)


def topic_faults(broker: BrokerConfig, overrides: Mapping[str, str]) -> list[str]:
    """What is wrong with settings that are in force, one sentence each; none, as a rule."""
    faults = []
    for name, text in overrides.items():
        try:
            _check_remote(name, _parse(name, text))
        except ConfigError as error:
            faults.append(f"{error}; it is kept and has no effect")
    try:
        check_topic(_values(broker, overrides))
    except ConfigError as error:
        faults.append(f"{error}; both are kept as they are")
    return faults


def describe_topic(
    broker: BrokerConfig, overrides: Mapping[str, str], names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """A topic's settings, all of them or those named; unknown names are left out, as Kafka does."""
    values = _values(broker, overrides)
    known = [
        describe_key(key, values[name], _synonyms(broker, key, overrides), read_only=False)
        for name, key in TOPIC_KEYS.items()
        if (names is None or name in names) and (not key.internal or name in overrides)
    ]
    return known + [
        describe_unknown(name, ConfigSource.TOPIC)
        for name in sorted(overrides.keys() - TOPIC_KEYS.keys())
        if names is None or name in names
    ]


def _values(broker: BrokerConfig, overrides: Mapping[str, str]) -> dict[str, Value]:
    values = {name: broker.topic_value(name) for name in TOPIC_KEYS}
    for name, text in overrides.items():
        try:
            values[name] = _parse(name, text)
        except ConfigError:
            continue
    return values


def _parse(name: str, text: str) -> Value:
    key = TOPIC_KEYS.get(name)
    if key is None:
        raise unknown_key("topic", name, TOPIC_KEYS)
    return key.parse(text)


def _check_remote(name: str, value: Value) -> None:
    """Kafka refuses it too where remote.log.storage.system.enable is false, as it is here always."""
    if name == "remote.storage.enable" and value:
        raise ConfigError(f"{name}=true: this cluster has no remote storage; keep records with retention.ms")


def _synonyms(
    broker: BrokerConfig, key: ConfigKey, overrides: Mapping[str, str]
) -> tuple[ConfigSynonym, ...]:
    inherited = broker.synonyms(key.synonyms[0].name) if key.synonyms else ()
    if key.name not in overrides:
        return inherited
    return (ConfigSynonym(key.name, overrides[key.name], ConfigSource.TOPIC), *inherited)
