from __future__ import annotations

import asyncio
from typing import Any

from cluster_images import broker_image, broker_with, context, image_of, partition_image
from kio.schema.alter_configs.v2 import request as replacing
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.incremental_alter_configs.v1 import request as changing
from kio.schema.list_config_resources.v1.request import ListConfigResourcesRequest

from ottla.config import BROKER_KEYS, TOPIC_KEYS, BrokerConfig, ConfigSource, ConfigType
from ottla.handlers.configs import (
    alter_configs,
    describe_configs,
    incremental_alter_configs,
    list_config_resources,
)
from ottla.handlers.context import Broker
from ottla.metadata.image import ResourceType
from ottla.wire.errors import ErrorCode

SET, DELETE, APPEND = 0, 1, 2
TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER


def describe(
    broker: Broker, kind: int, name: str, keys: tuple[str, ...] | None = None, **options: bool
) -> Any:
    request = DescribeConfigsRequest(
        resources=(DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys),),
        **options,
    )
    [result] = asyncio.run(describe_configs(broker, context(4), request)).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def topic_broker() -> Broker:
    image = image_of(
        {"a": [partition_image()]}, configs={(TOPIC, "a"): {"retention.ms": "1000"}, (BROKER, ""): {}}
    )
    return broker_with(image, {"log.retention.hours": "2"})


def test_describe_topic() -> None:
    result = describe(topic_broker(), TOPIC, "a")
    assert result.error_code is ErrorCode.none
    entries = {entry.name: entry for entry in result.configs}
    assert entries.keys() == {name for name, key in TOPIC_KEYS.items() if not key.internal}
    retention = entries["retention.ms"]
    assert (retention.value, retention.config_source, retention.config_type) == (
        "1000",
        ConfigSource.TOPIC,
        ConfigType.LONG,
    )
    assert (retention.read_only, retention.is_sensitive) == (False, False)
    assert (retention.synonyms, retention.documentation) == ((), None)


def test_describe_some_keys_with_everything() -> None:
    result = describe(
        topic_broker(),
        TOPIC,
        "a",
        ("retention.ms", "unheard.of"),
        include_synonyms=True,
        include_documentation=True,
    )
    [retention] = result.configs
    assert [(s.name, s.value, s.source) for s in retention.synonyms] == [
        ("retention.ms", "1000", ConfigSource.TOPIC),
    ]
    assert retention.documentation


def test_an_empty_list_of_keys_means_all() -> None:
    broker = topic_broker()
    assert describe(broker, TOPIC, "a", ()).configs == describe(broker, TOPIC, "a", None).configs


def test_describe_what_cannot_be_described() -> None:
    broker = topic_broker()
    cases = {
        (TOPIC, "absent"): ErrorCode.unknown_topic_or_partition,
        (TOPIC, "no good"): ErrorCode.invalid_topic_exception,
        (BROKER, "2"): ErrorCode.invalid_request,
        (BROKER, "one"): ErrorCode.invalid_request,
        (ResourceType.GROUP, ""): ErrorCode.invalid_request,
        (ResourceType.BROKER_LOGGER, ""): ErrorCode.invalid_request,
        (ResourceType.BROKER_LOGGER, "2"): ErrorCode.invalid_request,
        (0, ""): ErrorCode.invalid_request,
    }
    for (kind, name), error in cases.items():
        result = describe(broker, kind, name)
        assert (result.error_code, result.configs) == (error, ()), (kind, name)
        assert result.error_message


def test_describe_broker() -> None:
    result = describe(broker_with(image_of(), {"num.partitions": "4"}), BROKER, "1")
    entries = {entry.name: entry for entry in result.configs}
    assert entries.keys() == {name for name, key in BROKER_KEYS.items() if not key.internal}
    assert (entries["num.partitions"].value, entries["num.partitions"].config_source) == (
        "4",
        ConfigSource.STATIC,
    )
    assert entries["num.partitions"].read_only
    assert not entries["log.retention.ms"].read_only


def test_describe_cluster_default() -> None:
    broker = broker_with(image_of())
    assert describe(broker, BROKER, "").configs == ()
    broker.config = BrokerConfig.from_properties({"node.id": "1"}).with_dynamic({"log.retention.ms": "9"}, {})
    [entry] = describe(broker, BROKER, "").configs
    assert (entry.name, entry.value, entry.config_source) == (
        "log.retention.ms",
        "9",
        ConfigSource.CLUSTER_DEFAULT,
    )


def test_incremental_changes() -> None:
    broker = topic_broker()

    def change(
        kind: int, name: str, *configs: tuple[str, int, str | None], validate_only: bool = False
    ) -> Any:
        request = changing.IncrementalAlterConfigsRequest(
            resources=(
                changing.AlterConfigsResource(
                    resource_type=kind,
                    resource_name=name,
                    configs=tuple(
                        changing.AlterableConfig(name=key, config_operation=operation, value=value)
                        for key, operation, value in configs
                    ),
                ),
            ),
            validate_only=validate_only,
        )
        [response] = asyncio.run(incremental_alter_configs(broker, context(1), request)).responses
        assert (response.resource_type, response.resource_name) == (kind, name)
        return response

    ok = change(TOPIC, "a", ("segment.bytes", SET, "2000000"), ("cleanup.policy", APPEND, "compact"))
    assert (ok.error_code, ok.error_message) == (ErrorCode.none, None)
    assert change(TOPIC, "a", ("retention.ms", DELETE, None)).error_code is ErrorCode.none
    checked = change(TOPIC, "a", ("retention.ms", SET, "5"), validate_only=True)
    assert checked.error_code is ErrorCode.none
    assert broker.metadata.image.config(TOPIC, "a") == {
        "segment.bytes": "2000000",
        "cleanup.policy": "delete,compact",
    }
    wrong = change(TOPIC, "a", ("retention.ms", SET, "soon"))
    assert wrong.error_code is ErrorCode.invalid_config
    assert "retention.ms" in wrong.error_message
    assert change(TOPIC, "absent", ("retention.ms", SET, "5")).error_code is (
        ErrorCode.unknown_topic_or_partition
    )
    assert change(BROKER, "", ("log.retention.ms", SET, "5")).error_code is ErrorCode.none
    assert broker.metadata.image.config(BROKER, "") == {"log.retention.ms": "5"}


def test_replacing_all_values() -> None:
    broker = topic_broker()
    request = replacing.AlterConfigsRequest(
        resources=(
            replacing.AlterConfigsResource(
                resource_type=TOPIC,
                resource_name="a",
                configs=(replacing.AlterableConfig(name="segment.bytes", value="2000000"),),
            ),
            replacing.AlterConfigsResource(resource_type=99, resource_name="x", configs=()),
        ),
        validate_only=False,
    )
    ok, unknown = asyncio.run(alter_configs(broker, context(2), request)).responses
    assert (ok.error_code, unknown.error_code) == (ErrorCode.none, ErrorCode.invalid_request)
    assert (unknown.resource_type, unknown.resource_name) == (99, "x")
    assert broker.metadata.image.config(TOPIC, "a") == {"segment.bytes": "2000000"}


def test_list_resources() -> None:
    image = image_of(
        {"b": [partition_image()], "a": [partition_image()]},
        [broker_image(2), broker_image(1)],
        configs={(ResourceType.GROUP, "g"): {"x": "1"}, (TOPIC, "a"): {"retention.ms": "1"}},
    )
    broker = broker_with(image)

    def resources(version: int, *kinds: int) -> Any:
        response = list_config_resources(
            broker, context(version), ListConfigResourcesRequest(resource_types=kinds)
        )
        return response.error_code, [(r.resource_type, r.resource_name) for r in response.config_resources]

    loggers = [(ResourceType.BROKER_LOGGER, "1"), (ResourceType.BROKER_LOGGER, "2")]
    brokers = [(BROKER, "1"), (BROKER, "2")]
    everything = [(TOPIC, "a"), (TOPIC, "b"), *brokers, *loggers, (ResourceType.GROUP, "g")]
    assert resources(1) == (ErrorCode.none, everything)
    assert resources(1, BROKER) == (ErrorCode.none, [(BROKER, "1"), (BROKER, "2")])
    assert resources(1, 77) == (ErrorCode.unsupported_version, [])
    assert resources(0) == (ErrorCode.none, [])
