"""Changing configs of topics and brokers: operations, checks, and that a resource changes whole or not."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import pytest
from deciding import decided

from ottla.config import BrokerConfig
from ottla.controller.command import Result
from ottla.controller.configs import (
    ConfigChange,
    ConfigOperation,
    ConfigOutcome,
    ResourceChanges,
    ResourceConfigs,
    alter_configs,
    incremental_alter_configs,
)
from ottla.metadata.image import MetadataImage, ResourceType
from ottla.metadata.records import ConfigRecord, MetadataRecord, RegisterBrokerRecord, TopicRecord
from ottla.wire.errors import ErrorCode

SET, DELETE, APPEND, SUBTRACT = ConfigOperation
TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER
CONFIG = BrokerConfig.from_properties({"node.id": "1", "log.dirs": "/data"})


def cluster(configs: Mapping[tuple[ResourceType, str], Mapping[str, str]] | None = None) -> MetadataImage:
    records: list[MetadataRecord] = [
        RegisterBrokerRecord(
            broker_id=1, incarnation_id=UUID(int=9), broker_epoch=1, end_points=(), features=(), fenced=False
        ),
        TopicRecord(name="t", topic_id=UUID(int=300)),
    ]
    for (resource_type, resource), values in (configs or {}).items():
        records += (
            ConfigRecord(resource_type=resource_type, resource_name=resource, name=name, value=value)
            for name, value in values.items()
        )
    return MetadataImage().apply_all(records, len(records) - 1, 1)


def change(
    image: MetadataImage, name: str, *changes: ConfigChange, kind: int = TOPIC
) -> Result[list[ConfigOutcome]]:
    return decided(incremental_alter_configs(image, CONFIG, [ResourceChanges(kind, name, changes)]))


def values_after(
    image: MetadataImage, result: Result[list[ConfigOutcome]], kind: int, name: str
) -> dict[str, str]:
    assert [outcome.error for outcome in result.response if outcome.error] == []
    return dict(image.apply_all(result.records, image.offset + 1, 1).config(kind, name))


def error_of(result: Result[list[ConfigOutcome]]) -> tuple[ErrorCode, str]:
    assert result.records == []
    [outcome] = result.response
    assert outcome.error is not None
    return outcome.error.code, outcome.error.message


def test_keys_are_set_and_deleted_one_by_one() -> None:
    image = cluster({(TOPIC, "t"): {"retention.ms": "5", "segment.bytes": "2000000"}})
    result = change(
        image,
        "t",
        ConfigChange("retention.ms", SET, "7"),
        ConfigChange("segment.bytes", DELETE),
        ConfigChange("max.message.bytes", SET, "100"),
    )
    assert values_after(image, result, TOPIC, "t") == {"retention.ms": "7", "max.message.bytes": "100"}


def test_lists_grow_and_shrink_from_their_value_or_their_default() -> None:
    image = cluster()
    grown = change(image, "t", ConfigChange("cleanup.policy", APPEND, "compact"))
    assert values_after(image, grown, TOPIC, "t") == {"cleanup.policy": "delete,compact"}
    image = cluster({(TOPIC, "t"): {"cleanup.policy": "delete,compact"}})
    same = change(image, "t", ConfigChange("cleanup.policy", APPEND, "compact"))
    assert same.records == [] and same.response[0].error is None
    shrunk = change(image, "t", ConfigChange("cleanup.policy", SUBTRACT, "delete"))
    assert values_after(image, shrunk, TOPIC, "t") == {"cleanup.policy": "compact"}


@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
def test_only_lists_can_be_appended_to(operation: ConfigOperation) -> None:
    code, message = error_of(change(cluster(), "t", ConfigChange("retention.ms", operation, "1")))
    assert code is ErrorCode.invalid_config
    assert message == f"Can't {operation.name} to key retention.ms because its type is not LIST."


def test_a_value_that_is_already_there_writes_nothing_for_a_topic_but_reloads_a_broker() -> None:
    image = cluster({(TOPIC, "t"): {"retention.ms": "5"}, (BROKER, ""): {"log.retention.ms": "5"}})
    assert change(image, "t", ConfigChange("retention.ms", SET, "5")).records == []
    assert len(change(image, "", ConfigChange("log.retention.ms", SET, "5"), kind=BROKER).records) == 1


def test_replacing_all_drops_what_is_not_named() -> None:
    image = cluster({(TOPIC, "t"): {"retention.ms": "5", "segment.bytes": "2000000"}})
    result = decided(alter_configs(image, CONFIG, [ResourceConfigs(TOPIC, "t", (("retention.bytes", "9"),))]))
    assert values_after(image, result, TOPIC, "t") == {"retention.bytes": "9"}
    result = decided(alter_configs(image, CONFIG, [ResourceConfigs(TOPIC, "t", ())]))
    assert values_after(image, result, TOPIC, "t") == {}


@pytest.mark.parametrize("name", ["", "1"])
def test_brokers_have_defaults_and_their_own(name: str) -> None:
    image = cluster()
    result = change(image, name, ConfigChange("log.retention.ms", SET, "60000"), kind=BROKER)
    assert values_after(image, result, BROKER, name) == {"log.retention.ms": "60000"}


@pytest.mark.parametrize(
    ("kind", "name", "changes", "code", "words"),
    [
        (
            TOPIC,
            "t",
            [ConfigChange("retention.ms", SET, "soon")],
            ErrorCode.invalid_config,
            "retention.ms=soon",
        ),
        (TOPIC, "t", [ConfigChange("retention.sm", SET, "1")], ErrorCode.invalid_config, "retention.ms?"),
        (TOPIC, "t", [ConfigChange("retention.ms", SET)], ErrorCode.invalid_request, "Null value"),
        (TOPIC, "t", [ConfigChange("retention.ms", 9, "1")], ErrorCode.invalid_request, "operations type 9"),
        (
            TOPIC,
            "t",
            [ConfigChange("retention.ms", SET, "1"), ConfigChange("retention.ms", DELETE)],
            ErrorCode.invalid_request,
            "duplicate config keys",
        ),
        (
            TOPIC,
            "t",
            [ConfigChange("leader.replication.throttled.replicas", SET, "x" * 32_768)],
            ErrorCode.invalid_config,
            "32767 bytes",
        ),
        (TOPIC, "u", [ConfigChange("retention.ms", SET, "1")], ErrorCode.unknown_topic_or_partition, "'u'"),
        (TOPIC, "", [ConfigChange("retention.ms", SET, "1")], ErrorCode.invalid_request, "Default topic"),
        (TOPIC, "a b", [ConfigChange("retention.ms", SET, "1")], ErrorCode.invalid_topic_exception, "a b"),
        (BROKER, "x", [ConfigChange("log.retention.ms", SET, "1")], ErrorCode.invalid_request, "base 10"),
        (BROKER, "-1", [ConfigChange("log.retention.ms", SET, "1")], ErrorCode.invalid_request, "negative"),
        (BROKER, "2", [ConfigChange("log.retention.ms", SET, "1")], ErrorCode.broker_id_not_registered, "2"),
        (BROKER, "1", [ConfigChange("node.id", SET, "2")], ErrorCode.invalid_request, "node.id"),
        (BROKER, "", [ConfigChange("log.retention.ms", SET, "x")], ErrorCode.invalid_request, "=x"),
        (ResourceType.BROKER_LOGGER, "1", [], ErrorCode.invalid_request, "type BROKER_LOGGER are not"),
        (99, "1", [], ErrorCode.invalid_request, "Unknown resource type 99"),
    ],
)
def test_changes_that_cannot_be(
    kind: int, name: str, changes: list[ConfigChange], code: ErrorCode, words: str
) -> None:
    found, message = error_of(change(cluster(), name, *changes, kind=kind))
    assert found is code
    assert words in message


def test_one_bad_key_keeps_the_whole_resource_as_it_was_and_leaves_others_alone() -> None:
    image = cluster()
    result = decided(
        incremental_alter_configs(
            image,
            CONFIG,
            [
                ResourceChanges(
                    TOPIC, "t", (ConfigChange("retention.ms", SET, "1"), ConfigChange("segment.ms", SET, "?"))
                ),
                ResourceChanges(BROKER, "", (ConfigChange("log.retention.ms", SET, "1"),)),
            ],
        )
    )
    assert [outcome.error is None for outcome in result.response] == [False, True]
    assert [record.name for record in result.records if isinstance(record, ConfigRecord)] == [
        "log.retention.ms"
    ]


def test_a_resource_appears_once() -> None:
    changes = ResourceChanges(TOPIC, "t", (ConfigChange("retention.ms", SET, "1"),))
    result = decided(incremental_alter_configs(cluster(), CONFIG, [changes, changes]))
    assert result.records == []
    assert [outcome.error and outcome.error.code for outcome in result.response] == [
        ErrorCode.invalid_request
    ] * 2


def test_null_and_duplicate_values_of_a_replacement() -> None:
    for values in ((("retention.ms", None),), (("retention.ms", "1"), ("retention.ms", "1"))):
        result = decided(alter_configs(cluster(), CONFIG, [ResourceConfigs(TOPIC, "t", values)]))
        assert error_of(result)[0] is ErrorCode.invalid_request


def test_what_would_result_is_checked_against_the_brokers_defaults() -> None:
    lag = ConfigChange("min.compaction.lag.ms", SET, "1000")
    default = {"log.cleaner.max.compaction.lag.ms": "500"}
    for scope in ("", "1"):
        image = cluster({(BROKER, scope): default})
        code, message = error_of(change(image, "t", lag))
        assert code is ErrorCode.invalid_config
        assert "min.compaction.lag.ms=1000: must be at most max.compaction.lag.ms=500" in message
        both = (lag, ConfigChange("max.compaction.lag.ms", SET, "1000"))
        assert len(values_after(image, change(image, "t", *both), TOPIC, "t")) == 2


def test_a_brokers_default_may_contradict_what_a_topic_has() -> None:
    image = cluster({(TOPIC, "t"): {"min.compaction.lag.ms": "1000"}})
    result = change(image, "", ConfigChange("log.cleaner.max.compaction.lag.ms", SET, "500"), kind=BROKER)
    assert values_after(image, result, BROKER, "") == {"log.cleaner.max.compaction.lag.ms": "500"}


@pytest.mark.parametrize(("kind", "name"), [(TOPIC, "t"), (BROKER, ""), (BROKER, "1")])
def test_settings_of_another_version_do_not_hinder_changes(kind: ResourceType, name: str) -> None:
    key = "retention.ms" if kind == TOPIC else "log.retention.ms"
    image = cluster({(kind, name): {"tier.url": "s3"}})
    result = change(image, name, ConfigChange(key, SET, "5"), kind=kind)
    assert values_after(image, result, kind, name) == {"tier.url": "s3", key: "5"}
    removed = change(image, name, ConfigChange("tier.url", DELETE), kind=kind)
    assert values_after(image, removed, kind, name) == {}
