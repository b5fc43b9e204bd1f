"""A topic's settings: overrides on top of the broker's."""

from __future__ import annotations

import dataclasses

import pytest

from ottla.config import (
    TOPIC_KEYS,
    BrokerConfig,
    ConfigError,
    ConfigSource,
    LogConfig,
    describe_topic,
    resolve_topic,
    validate_topic,
)

DEFAULTS = BrokerConfig.from_properties({})


def test_without_overrides_a_topic_has_the_declared_defaults() -> None:
    assert resolve_topic(DEFAULTS, {}) == LogConfig()


def test_every_documented_topic_key_reaches_the_log() -> None:
    attributes = {field.name.replace("_", ".") for field in dataclasses.fields(LogConfig)}
    missing = {name for name, key in TOPIC_KEYS.items() if not key.internal} - attributes
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
        ({"log.retention.ms": "1"}, "log.retention.ms: is not a topic setting"),
        (
            {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"},
            "must be at most max.compaction.lag.ms=4",
        ),
    ],
)
def test_what_a_topic_cannot_have_is_refused(overrides: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        validate_topic(overrides)
    assert message in str(refused.value)


def test_a_lag_that_conflicts_with_the_brokers_is_refused() -> None:
    broker = BrokerConfig.from_properties({"log.cleaner.max.compaction.lag.ms": "4"})
    validate_topic({"min.compaction.lag.ms": "5"})
    with pytest.raises(ConfigError, match="must be at most"):
        resolve_topic(broker, {"min.compaction.lag.ms": "5"})


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
    assert (retention.value, retention.source) == ("7200000", ConfigSource.STATIC)
    assert entries["max.message.bytes"].source == ConfigSource.CLUSTER_DEFAULT
    assert entries["preallocate"].source == ConfigSource.DEFAULT
    assert [entry.name for entry in describe_topic(broker, {}, {"preallocate", "x"})] == ["preallocate"]
