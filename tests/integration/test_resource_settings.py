"""Settings of groups and levels of loggers, through an admin client and through kafka-configs."""

from __future__ import annotations

import contextlib
import io
import logging
import time
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from kio.schema.describe_configs.v4 import request as describing
from kio.schema.incremental_alter_configs.v1 import request as changing
from raw_client import RawConnection

from ottla.cli.main import main
from ottla.testing import InProcessBroker

TIMEOUT_S = 20
DESCRIBE, ALTER, HEARTBEAT, FIND_COORDINATOR = 32, 44, 68, 10
SET, DELETE, APPEND = 0, 1, 2
BROKER_LOGGER, GROUP = 8, 32
LOGGER = "ottla.log.manager"


@pytest.fixture(scope="module")
def broker() -> Iterator[InProcessBroker]:
    with InProcessBroker({"group.consumer.min.heartbeat.interval.ms": 100}) as running:
        yield running


@pytest.fixture
def levels() -> Iterator[None]:
    before = {name: logging.getLogger(name).level for name in (LOGGER, "ottla.node", "root")}
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


def alter(
    broker: InProcessBroker, kind: int, name: str, *changes: tuple[str, int, str | None]
) -> tuple[str, str]:
    request = changing.IncrementalAlterConfigsRequest(
        resources=(
            changing.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=tuple(
                    changing.AlterableConfig(name=key, config_operation=operation, value=value)
                    for key, operation, value in changes
                ),
            ),
        ),
        validate_only=False,
    )
    [result] = RawConnection(broker.bootstrap_servers).call(ALTER, 1, request).responses
    return result.error_code.name, result.error_message or ""


def describe(broker: InProcessBroker, kind: int, name: str) -> dict[str, tuple[str | None, int]]:
    resource = describing.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    request = describing.DescribeConfigsRequest(resources=(resource,))
    [result] = RawConnection(broker.bootstrap_servers).call(DESCRIBE, 4, request).results
    assert result.error_code.name == "none", result.error_message
    return {entry.name: (entry.value, entry.config_source) for entry in result.configs}


def heartbeat(group: str, epoch: int, topics: tuple[str, ...] | None = None) -> Any:
    from kio.schema.consumer_group_heartbeat.v1.request import ConsumerGroupHeartbeatRequest

    is_joining = epoch == 0
    return ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="m",
        member_epoch=epoch,
        rebalance_timeout=timedelta(milliseconds=60_000 if is_joining else -1),
        subscribed_topic_names=topics,
        subscribed_topic_regex=None,
        topic_partitions=() if is_joining else None,
    )


def join(member: RawConnection, group: str, topic: str) -> Any:
    """The first to ask for a coordinator has its topic made, which takes a moment."""
    from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest

    deadline = time.monotonic() + TIMEOUT_S
    while True:
        member.call(FIND_COORDINATOR, 4, FindCoordinatorRequest(key_type=0, coordinator_keys=(group,)))
        joined = member.call(HEARTBEAT, 1, heartbeat(group, 0, topics=(topic,)))
        if joined.error_code.name == "none" or time.monotonic() > deadline:
            return joined
        assert joined.error_code.retriable, joined


def configs_tool(broker: InProcessBroker, *arguments: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(["configs", "--bootstrap-server", broker.bootstrap_servers, *arguments]) == 0
    return out.getvalue()


def test_settings_of_a_group_reach_its_members(broker: InProcessBroker) -> None:
    group, topic = f"g-{uuid.uuid4().hex[:8]}", f"t-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(timeout=TIMEOUT_S)
    entry = ConfigEntry("consumer.heartbeat.interval.ms", "150", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(timeout=TIMEOUT_S)
    assert describe(broker, GROUP, group)["consumer.heartbeat.interval.ms"] == ("150", 8)
    assert describe(broker, GROUP, group)["consumer.session.timeout.ms"] == ("45000", 5)
    member = RawConnection(broker.bootstrap_servers)
    joined = join(member, group, topic)
    assert joined.heartbeat_interval == timedelta(milliseconds=150)
    configs_tool(broker, "--alter", "--group", group, "--add-config", "consumer.heartbeat.interval.ms=250")
    told = member.call(HEARTBEAT, 1, heartbeat(group, joined.member_epoch))
    assert told.heartbeat_interval == timedelta(milliseconds=250), "the member is told without joining again"
    listed = configs_tool(broker, "--describe", "--entity-type", "groups", "--entity-name", group)
    assert "consumer.heartbeat.interval.ms=250 sensitive=false" in listed
    assert "DYNAMIC_GROUP_CONFIG:consumer.heartbeat.interval.ms=250" in listed
    configs_tool(broker, "--alter", "--group", group, "--delete-config", "consumer.heartbeat.interval.ms")
    assert describe(broker, GROUP, group)["consumer.heartbeat.interval.ms"] == ("5000", 5)


@pytest.mark.parametrize(
    ("name", "key", "value", "code"),
    [
        ("g", "consumer.session.timeout.ms", "1", "invalid_config"),
        ("g", "consumer.unheard.of", "1", "invalid_config"),
        ("", "consumer.session.timeout.ms", "50000", "invalid_request"),
    ],
)
def test_settings_that_a_group_cannot_have(
    broker: InProcessBroker, name: str, key: str, value: str, code: str
) -> None:
    assert alter(broker, GROUP, name, (key, SET, value))[0] == code


def test_levels_of_loggers_change_while_running(broker: InProcessBroker, levels: None) -> None:
    assert alter(broker, BROKER_LOGGER, "1", (LOGGER, SET, "TRACE"))[0] == "none"
    assert logging.getLogger(LOGGER).isEnabledFor(logging.DEBUG)
    described = describe(broker, BROKER_LOGGER, "1")
    assert described[LOGGER] == ("TRACE", 6)
    assert described.keys() >= {"root", "ottla", "ottla.node"}
    assert alter(broker, BROKER_LOGGER, "1", (LOGGER, DELETE, None))[0] == "none"
    assert describe(broker, BROKER_LOGGER, "1")[LOGGER] == describe(broker, BROKER_LOGGER, "1")["root"]


@pytest.mark.parametrize(
    ("node", "change", "code", "told"),
    [
        ("1", (LOGGER, APPEND, "INFO"), "invalid_request", "APPEND operation is not allowed"),
        ("1", (LOGGER, 9, "INFO"), "invalid_request", "not allowed for the BROKER_LOGGER"),
        ("1", (LOGGER, SET, "LOUD"), "invalid_config", "DEBUG, ERROR, FATAL, INFO, TRACE, WARN"),
        ("1", ("no.such", SET, "INFO"), "invalid_config", "Logger no.such does not exist!"),
        ("1", ("root", DELETE, None), "invalid_request", "Removing the log level of the root logger"),
        ("2", (LOGGER, SET, "INFO"), "invalid_request", "Expected 1, but received 2"),
        ("one", (LOGGER, SET, "INFO"), "invalid_request", "Node id must be an integer"),
    ],
)
def test_levels_that_loggers_cannot_have(
    broker: InProcessBroker,
    levels: None,
    node: str,
    change: tuple[str, int, str | None],
    code: str,
    told: str,
) -> None:
    before = describe(broker, BROKER_LOGGER, "1")
    failed, message = alter(broker, BROKER_LOGGER, node, ("ottla.node", SET, "FATAL"), change)
    assert failed == code
    assert told in message
    assert describe(broker, BROKER_LOGGER, "1") == before, "all of the changes, or none"


def test_levels_through_the_tool(broker: InProcessBroker, levels: None) -> None:
    of_broker = ("--entity-type", "broker-loggers", "--entity-name", "1")
    altered = configs_tool(broker, "--alter", *of_broker, "--add-config", f"{LOGGER}=DEBUG")
    assert altered == "Completed updating config for broker-logger 1.\n"
    assert f"  {LOGGER}=DEBUG sensitive=false synonyms={{}}" in configs_tool(broker, "--describe", *of_broker)
