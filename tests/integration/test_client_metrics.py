"""Metrics that clients push: subscriptions through an admin's tools, pushes of a real client, refusals."""

from __future__ import annotations

import contextlib
import datetime
import io
import logging
import time
import uuid
from collections.abc import Iterator
from typing import Any

import cramjam
import pytest
from confluent_kafka import Producer
from kio.schema.api_versions.v4.request import ApiVersionsRequest
from kio.schema.describe_configs.v4 import request as describing
from kio.schema.get_telemetry_subscriptions.v0.request import GetTelemetrySubscriptionsRequest
from kio.schema.incremental_alter_configs.v1 import request as changing
from kio.schema.list_config_resources.v1.request import ListConfigResourcesRequest
from kio.schema.push_telemetry.v0.request import PushTelemetryRequest
from raw_client import RawConnection

from ottla.cli.main import main
from ottla.testing import InProcessBroker

API_VERSIONS, DESCRIBE, ALTER, ASK, PUSH, LIST = 18, 32, 44, 71, 72, 74
SET, DELETE = 0, 1
CLIENT_METRICS = 16
DEADLINE_S = 20
BYTES_MAX = 100_000
GZIP, ZSTD = 1, 4
# MetricsData with one metric, named "m.x".
ONE_METRIC = b"\x0a\x09\x12\x07\x12\x05\x0a\x03m.x"


@pytest.fixture(scope="module")
def broker() -> Iterator[InProcessBroker]:
    with InProcessBroker({"telemetry.max.bytes": BYTES_MAX}) as running:
        yield running


@pytest.fixture
def subscription(broker: InProcessBroker) -> Iterator[str]:
    name = f"s{uuid.uuid4().hex[:8]}"
    yield name
    alter(broker, name, *((key, DELETE, None) for key in ("metrics", "interval.ms", "match")))


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """What the logger of pushes says."""
    said: list[str] = []

    class Listening(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    handler = Listening()
    logger = logging.getLogger("ottla.client_metrics")
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    yield said
    logger.removeHandler(handler)
    logger.setLevel(level)


def alter(broker: InProcessBroker, name: str, *changes: tuple[str, int, str | None]) -> str:
    request = changing.IncrementalAlterConfigsRequest(
        resources=(
            changing.AlterConfigsResource(
                resource_type=CLIENT_METRICS,
                resource_name=name,
                configs=tuple(
                    changing.AlterableConfig(name=key, config_operation=operation, value=value)
                    for key, operation, value in changes
                ),
            ),
        ),
        validate_only=False,
    )
    with RawConnection(broker.bootstrap_servers) as connection:
        [result] = connection.call(ALTER, 1, request).responses
    return str(result.error_code.name)


def subscribe(broker: InProcessBroker, name: str, **values: str) -> str:
    return alter(broker, name, *((key.replace("_", "."), SET, value) for key, value in values.items()))


def described(broker: InProcessBroker, name: str) -> dict[str, tuple[str | None, int]]:
    resource = describing.DescribeConfigsResource(
        resource_type=CLIENT_METRICS, resource_name=name, configuration_keys=None
    )
    with RawConnection(broker.bootstrap_servers) as connection:
        request = describing.DescribeConfigsRequest(resources=(resource,))
        [result] = connection.call(DESCRIBE, 4, request).results
    assert result.error_code.name == "none", result.error_message
    return {entry.name: (entry.value, entry.config_source) for entry in result.configs}


def listed(broker: InProcessBroker, version: int) -> set[str]:
    with RawConnection(broker.bootstrap_servers) as connection:
        request: Any = ListConfigResourcesRequest(resource_types=(CLIENT_METRICS,))
        if version == 0:
            from kio.schema.list_config_resources.v0.request import (
                ListConfigResourcesRequest as OfVersion0,
            )

            request = OfVersion0()
        return {found.resource_name for found in connection.call(LIST, version, request).config_resources}


def ask(connection: RawConnection, instance: uuid.UUID | None = None) -> Any:
    return connection.call(ASK, 0, GetTelemetrySubscriptionsRequest(client_instance_id=instance))


def push(connection: RawConnection, told: Any, metrics: bytes = ONE_METRIC, **changed: Any) -> str:
    values = {
        "client_instance_id": told.client_instance_id,
        "subscription_id": told.subscription_id,
        "terminating": False,
        "compression_type": 0,
        "metrics": metrics,
    }
    return str(connection.call(PUSH, 0, PushTelemetryRequest(**values | changed)).error_code.name)


def tool(*arguments: str) -> str:
    written = io.StringIO()
    with contextlib.redirect_stdout(written):
        assert main(list(arguments)) == 0
    return written.getvalue()


def test_a_subscription_is_set_described_listed_and_removed(
    broker: InProcessBroker, subscription: str
) -> None:
    assert subscribe(broker, subscription, metrics="a.,b.", interval_ms="1000") == "none"
    assert described(broker, subscription) == {
        "metrics": ("a.,b.", 7),
        "interval.ms": ("1000", 7),
        "match": ("", 5),
    }
    assert subscription in listed(broker, 0)
    assert subscription in listed(broker, 1)
    assert alter(broker, subscription, ("metrics", DELETE, None), ("interval.ms", DELETE, None)) == "none"
    assert subscription not in listed(broker, 1)


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"interval_ms": "99"}, "invalid_request"),
        ({"interval_ms": "3600001"}, "invalid_request"),
        ({"colour": "red"}, "invalid_request"),
        ({"match": "client_name=x"}, "invalid_config"),
        ({"match": "client_id=("}, "invalid_config"),
        ({"metrics": "a,a"}, "invalid_config"),
    ],
)
def test_what_a_subscription_cannot_be_is_refused(
    broker: InProcessBroker, subscription: str, values: dict[str, str], error: str
) -> None:
    assert subscribe(broker, subscription, **values) == error
    assert subscription not in listed(broker, 1)


def test_kafka_configs_shows_and_changes_subscriptions(broker: InProcessBroker, subscription: str) -> None:
    common = ("configs", "--bootstrap-server", broker.bootstrap_servers, "--entity-type", "client-metrics")
    named = (*common, "--entity-name", subscription)
    added = "metrics=[a.,b.],interval.ms=2000,match=[client_id=nobody]"
    assert "Completed updating config" in tool(*named, "--alter", "--add-config", added)
    shown = tool(*named, "--describe")
    assert "interval.ms=2000" in shown
    assert "metrics=a.,b." in shown
    assert "match=client_id=nobody" in shown
    tool(*named, "--alter", "--delete-config", "metrics,interval.ms,match")
    assert subscription not in tool(*common, "--describe")


def test_a_real_client_pushes_what_it_is_asked_for(
    broker: InProcessBroker, subscription: str, lines: list[str]
) -> None:
    client_id = f"c{uuid.uuid4().hex[:8]}"
    match = f"client_id={client_id},client_software_name=confluent-kafka-python"
    assert subscribe(broker, subscription, metrics="*", interval_ms="100", match=match) == "none"
    settings = {"bootstrap.servers": broker.bootstrap_servers, "client.id": client_id}
    producer = Producer({**settings, "enable.metrics.push": True})
    deadline = time.monotonic() + DEADLINE_S

    def said() -> list[str]:
        return [line for line in lines if client_id in line and "org.apache.kafka" in line]

    while len(said()) < 2:
        assert time.monotonic() < deadline, f"no two pushes came: {lines}"
        producer.produce("pushing", b"x")
        producer.poll(0.05)
    producer.flush(10)
    assert "org.apache.kafka.producer.connection.creation" in said()[0]


def test_who_has_no_subscription_is_told_to_ask_in_five_minutes(broker: InProcessBroker) -> None:
    with RawConnection(broker.bootstrap_servers) as connection:
        told = ask(connection)
    assert told.error_code.name == "none"
    assert told.client_instance_id is not None
    assert told.requested_metrics == ()
    assert told.push_interval == datetime.timedelta(minutes=5)
    assert told.accepted_compression_types == (4, 3, 1, 2)
    assert told.telemetry_max_bytes == BYTES_MAX
    assert told.delta_temporality


def test_software_is_what_the_connection_said_it_is(broker: InProcessBroker, subscription: str) -> None:
    match = "client_software_name=mine,client_software_version=7"
    subscribe(broker, subscription, metrics="m.", interval_ms="60000", match=match)
    with RawConnection(broker.bootstrap_servers) as mine, RawConnection(broker.bootstrap_servers) as other:
        mine.call(
            API_VERSIONS, 4, ApiVersionsRequest(client_software_name="mine", client_software_version="7")
        )
        assert ask(mine).requested_metrics == ("m.",)
        assert ask(other).requested_metrics == ()


def test_pushes_that_are_refused(broker: InProcessBroker, subscription: str, lines: list[str]) -> None:
    match = "client_id=raw"
    subscribe(broker, subscription, metrics="m.", interval_ms="3600000", match=match)
    with RawConnection(broker.bootstrap_servers) as connection:
        # Each asks as another instance, since a refused push is a push.
        assert push(connection, ask(connection), subscription_id=7) == "unknown_subscription_id"
        assert push(connection, ask(connection), compression_type=9) == "unsupported_compression_type"
        assert push(connection, ask(connection), bytes(BYTES_MAX + 1)) == "telemetry_too_large"
        assert push(connection, ask(connection), b"\x0a\x7f") == "invalid_record"
        assert push(connection, ask(connection), client_instance_id=None) == "invalid_request"
        bomb = bytes(cramjam.zstd.compress(bytes(512 * 1024 * 1024)))
        assert len(bomb) < BYTES_MAX
        assert push(connection, ask(connection), bomb, compression_type=ZSTD) == "invalid_record"
        assert lines == []

        told = ask(connection)
        packed = bytes(cramjam.gzip.compress(ONE_METRIC))
        assert push(connection, told, packed, compression_type=GZIP) == "none"
        assert push(connection, told) == "throttling_quota_exceeded"
        assert ask(connection, told.client_instance_id).error_code.name == "throttling_quota_exceeded"
        assert push(connection, told, terminating=True) == "none"
        assert push(connection, told) == "invalid_request"
    assert len(lines) == 2
    assert "'raw'" in lines[0]
    assert "1 metrics: m.x" in lines[0]
