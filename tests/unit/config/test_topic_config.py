"""A topic's settings: overrides on top of the broker's."""

from __future__ import annotations

import dataclasses

import pytest

from ottla.config import (
    TOPIC_KEYS,
    BrokerConfig,
    ConfigError,
    ConfigSource,
    ConfigType,
    LogConfig,
    describe_topic,
    resolve_topic,
    topic_faults,
    validate_topic,
)

DEFAULTS = BrokerConfig.from_properties({})


def test_without_overrides_a_topic_has_the_declared_defaults() -> None:
    assert resolve_topic(DEFAULTS, {}) == LogConfig()


def test_every_documented_topic_key_reaches_the_log() -> None:
    attributes = {field.name.replace("_", ".") for field in dataclasses.fields(LogConfig)}
    missing = {name for name, key in TOPIC_KEYS.items() if key.effective and not key.internal} - attributes
    assert missing == {"cleanup.policy"}


def test_overrides_win_over_the_broker() -> None:
    broker = BrokerConfig.from_properties({"log.segment.bytes": "2097152", "message.max.bytes": "5"})
    resolved = resolve_topic(broker, {"segment.bytes": "1048576"})
    assert (resolved.segment_bytes, resolved.max_message_bytes) == (1048576, 5)


@pytest.mark.parametrize(
    ("policy", "compact", "delete"),
    [("delete", False, True), ("compact", True, False), ("compact,delete", True, True), ("", False, False)],
)
def test_cleanup_policy(policy: str, compact: bool, delete: bool) -> None:
    resolved = resolve_topic(DEFAULTS, {"cleanup.policy": policy})
    assert (resolved.cleanup_compact, resolved.cleanup_delete) == (compact, delete)


def test_tests_may_have_tiny_segments() -> None:
    assert resolve_topic(DEFAULTS, {"internal.segment.bytes": "100"}).segment_bytes == 100


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"retention.ms": "-2"}, "retention.ms=-2: must be at least -1"),
        ({"segment.bytes": "1"}, "segment.bytes=1: must be at least 1048576"),
        ({"retension.ms": "1"}, "retension.ms: is not a topic setting; did you mean retention.ms?"),
        (
            {"leader.replication.throttled.replicas": "0:1,two"},
            "leader.replication.throttled.replicas=0:1,two: must be `*` or a list of partition:broker",
        ),
        ({"follower.replication.throttled.replicas": "*,0:1"}, "must be `*` or a list"),
        ({"local.retention.ms": "-3"}, "local.retention.ms=-3: must be at least -2"),
        ({"remote.log.copy.disable": "yes"}, "must be true or false"),
        ({"remote.storage.enable": "true"}, "remote.storage.enable=true: this cluster has no remote storage"),
        ({"log.retention.ms": "1"}, "log.retention.ms: is not a topic setting"),
        (
            {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"},
            "must be at most max.compaction.lag.ms=4",
        ),
    ],
)
def test_what_a_topic_cannot_have_is_refused(overrides: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        validate_topic(DEFAULTS, overrides)
    assert message in str(refused.value)


def test_a_lag_that_conflicts_with_the_brokers_is_refused_with_the_remedy() -> None:
    broker = BrokerConfig.from_properties({"log.cleaner.max.compaction.lag.ms": "4"})
    with pytest.raises(ConfigError) as refused:
        validate_topic(broker, {"min.compaction.lag.ms": "5"})
    assert str(refused.value) == (
        "min.compaction.lag.ms=5: must be at most max.compaction.lag.ms=4, one of which is the broker's "
        "default; set both on the topic"
    )
    validate_topic(broker, {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "6"})


@pytest.mark.parametrize("replicas", ["", "*", "0:1", "0:1,1:1", "0:1, 0:1", "0:1,"])
def test_throttled_replicas_are_taken_as_kafka_takes_them(replicas: str) -> None:
    name = "leader.replication.throttled.replicas"
    validate_topic(DEFAULTS, {name: replicas})
    [entry] = describe_topic(DEFAULTS, {name: replicas}, [name])
    assert (entry.value, entry.source) == (replicas.replace(" ", ""), ConfigSource.TOPIC)


def test_remote_storage_in_force_is_told_and_left_alone() -> None:
    stored = {"remote.storage.enable": "true", "local.retention.ms": "5"}
    assert resolve_topic(DEFAULTS, stored) == LogConfig()
    assert topic_faults(DEFAULTS, stored) == [
        "remote.storage.enable=true: this cluster has no remote storage; keep records with retention.ms; "
        "it is kept and has no effect"
    ]
    validate_topic(DEFAULTS, {**stored, "flush.ms": "5"}, changed={"flush.ms"})
    described = {entry.name: entry.value for entry in describe_topic(DEFAULTS, stored)}
    assert described["remote.storage.enable"] == "true"
    assert described["remote.log.copy.disable"] == "false"
    assert described["local.retention.bytes"] == "-2"


def test_only_what_changes_must_be_known() -> None:
    stored = {"remote.tier": "cold", "retention.ms": "never"}
    validate_topic(DEFAULTS, {**stored, "flush.ms": "5"}, changed={"flush.ms"})
    with pytest.raises(ConfigError, match=r"remote\.tier: is not a topic setting"):
        validate_topic(DEFAULTS, stored, changed={"remote.tier"})


def test_settings_in_force_never_fail_to_resolve() -> None:
    broker = BrokerConfig.from_properties({"log.cleaner.max.compaction.lag.ms": "4"})
    stored = {
        "min.compaction.lag.ms": "5",
        "remote.tier": "cold",
        "retention.ms": "never",
        "segment.ms": "77",
    }
    resolved = resolve_topic(broker, stored)
    assert (resolved.min_compaction_lag_ms, resolved.max_compaction_lag_ms) == (5, 4)
    assert resolved.retention_ms == LogConfig().retention_ms
    assert resolved.segment_ms == 77
    assert topic_faults(broker, stored) == [
        "remote.tier: is not a topic setting; it is kept and has no effect",
        "retention.ms=never: must be a whole number of 64 bits; it is kept and has no effect",
        "min.compaction.lag.ms=5: must be at most max.compaction.lag.ms=4; both are kept as they are",
    ]
    assert topic_faults(broker, {"segment.ms": "77"}) == []


def test_a_setting_of_another_version_is_described_without_its_value() -> None:
    described = {entry.name: entry for entry in describe_topic(DEFAULTS, {"remote.tier": "cold"})}
    entry = described["remote.tier"]
    assert (entry.value, entry.sensitive, entry.type) == (None, True, ConfigType.UNKNOWN)
    assert entry.source is ConfigSource.TOPIC
    assert describe_topic(DEFAULTS, {"remote.tier": "cold"}, {"retention.ms"})[0].name == "retention.ms"


def test_description_names_where_a_value_comes_from() -> None:
    broker = BrokerConfig.from_properties({"log.retention.hours": "2"}).with_dynamic(
        {"message.max.bytes": "9"}, {}
    )
    entries = {entry.name: entry for entry in describe_topic(broker, {"segment.bytes": "1048576"})}
    assert list(entries) == [name for name, key in TOPIC_KEYS.items() if not key.internal]

    own = entries["segment.bytes"]
    assert (own.value, own.source, own.read_only) == ("1048576", ConfigSource.TOPIC, False)
    assert [(synonym.name, synonym.source) for synonym in own.synonyms] == [
        ("segment.bytes", ConfigSource.TOPIC),
        ("log.segment.bytes", ConfigSource.DEFAULT),
    ]
    retention = entries["retention.ms"]
    assert (retention.value, retention.source) == ("7200000", ConfigSource.DEFAULT)
    assert retention.synonyms == ()
    assert entries["max.message.bytes"].source == ConfigSource.CLUSTER_DEFAULT
    assert entries["preallocate"].source == ConfigSource.DEFAULT
    assert [entry.name for entry in describe_topic(broker, {}, {"preallocate", "x"})] == ["preallocate"]


def test_synonyms_begin_with_the_key_that_a_topic_setting_is_named_after() -> None:
    """As Kafka: where only a secondary key (log.retention.hours) is there, none is listed."""
    properties = {"log.retention.hours": "2", "log.retention.ms": "5"}
    broker = BrokerConfig.from_properties(properties)
    [retention] = describe_topic(broker, {}, {"retention.ms"})
    assert [(synonym.name, synonym.source) for synonym in retention.synonyms] == [
        ("log.retention.ms", ConfigSource.STATIC),
        ("log.retention.hours", ConfigSource.STATIC),
        ("log.retention.hours", ConfigSource.DEFAULT),
    ]
    for name in ("retention.ms", "segment.ms", "segment.jitter.ms"):
        [entry] = describe_topic(BrokerConfig.from_properties({}), {}, {name})
        assert (entry.synonyms, entry.source) == ((), ConfigSource.DEFAULT)
