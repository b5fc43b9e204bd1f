"""Who is to push what, and when, with a clock that only the test moves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any
from uuid import UUID

import pytest

from ottla.config import ConfigError
from ottla.config.client_metrics import client_metrics_subscription
from ottla.metadata.change import between
from ottla.metadata.image import MetadataImage, ResourceType
from ottla.metadata.records import ConfigRecord
from ottla.metadata.uuids import uuid_text
from ottla.telemetry import clients
from ottla.telemetry.clients import ClientTelemetry, Instance
from ottla.wire.errors import (
    InvalidRequest,
    KafkaError,
    TelemetryTooLarge,
    ThrottlingQuotaExceeded,
    UnknownSubscriptionId,
    UnsupportedCompressionType,
)

ADDRESS = "10.0.0.1:4000"
BYTES_MAX = 1000


class Clock:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def now_ms(self) -> int:
        return int(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds


@dataclass(frozen=True)
class Client:
    address: str = ADDRESS
    client_id: str | None = "app-1"
    software_name: str | None = None
    software_version: str | None = None


class Kit:
    def __init__(self, **subscriptions: Mapping[str, str]) -> None:
        self.client = Client()
        self.clock = Clock()
        self.telemetry = ClientTelemetry(self.clock, Random(1), BYTES_MAX)
        self.image = MetadataImage()
        for name, values in subscriptions.items():
            self.set(name, values)

    def set(self, name: str, values: Mapping[str, str | None]) -> None:
        records = [
            ConfigRecord(resource_type=ResourceType.CLIENT_METRICS, resource_name=name, name=key, value=value)
            for key, value in values.items()
        ]
        before, self.image = self.image, self.image.apply_all(records, self.image.offset + 1, 1)
        self.telemetry.apply(between(before, self.image))

    def ask(self, instance_id: UUID | None = None, address: str = ADDRESS) -> Instance:
        return self.telemetry.subscribe(instance_id, replace(self.client, address=address))

    def push(self, instance: Instance, **changed: Any) -> None:
        request: dict[str, Any] = {
            "subscription_id": instance.subscription_id,
            "is_terminating": False,
            "codec": 0,
            "size": 10,
        }
        self.telemetry.check_push(instance.id, self.client, **request | changed)


def test_without_a_subscription_nothing_is_asked_for() -> None:
    told = Kit().ask()
    assert (told.metrics, told.interval_ms) == ((), 300_000)
    assert told.id.int > 99


def test_overlapping_subscriptions_are_one() -> None:
    kit = Kit(
        a={"metrics": "x.,y.", "interval.ms": "5000"},
        b={"metrics": "y.,z.", "interval.ms": "1000"},
        c={"metrics": "never", "interval.ms": "100", "match": "client_id=other"},
    )
    told = kit.ask()
    assert (told.metrics, told.interval_ms) == (("x.", "y.", "z."), 1000)
    kit.set("d", {"metrics": "*"})
    assert kit.ask(told.id).metrics == ("*",)


@pytest.mark.parametrize(
    ("match", "matches"),
    [
        ("client_id=app-.*", True),
        ("client_id=app", False),
        ("client_software_name=librdkafka,client_software_version=2\\..*", True),
        ("client_software_name=librdkafka,client_software_version=1.*", False),
        ("client_source_address=10\\.0\\.0\\..*,client_source_port=4000", True),
        ("client_source_port=4001", False),
    ],
)
def test_who_is_meant(match: str, matches: bool) -> None:
    kit = Kit(a={"metrics": "x", "match": match})
    kit.client = replace(kit.client, software_name="librdkafka", software_version="2.5.0")
    assert kit.ask().metrics == (("x",) if matches else ())


def test_one_instance_can_be_meant() -> None:
    kit = Kit()
    told = kit.ask()
    kit.set("a", {"metrics": "x", "match": f"client_instance_id={uuid_text(told.id)}"})
    assert kit.ask(told.id).metrics == ("x",)
    assert kit.ask(address="10.0.0.1:1").metrics == ()


def test_what_is_not_known_of_a_client_matches_nothing() -> None:
    assert Kit(a={"metrics": "x", "match": "client_software_name=.*"}).ask().metrics == ()


def test_the_id_of_a_subscription_changes_with_it() -> None:
    kit = Kit(a={"metrics": "x"})
    told = kit.ask()
    before = told.subscription_id
    kit.set("b", {"metrics": "never", "match": "client_id=other"})
    assert kit.ask(told.id).subscription_id == before
    kit.set("a", {"interval.ms": "1000"})
    with pytest.raises(UnknownSubscriptionId):
        kit.push(told)
    # Who was told so may ask at once.
    told = kit.ask(told.id)
    assert told.subscription_id != before
    assert -(1 << 31) <= told.subscription_id < 1 << 31
    kit.clock.seconds += 1
    kit.push(told)


def test_pushes_and_questions_that_come_early_wait() -> None:
    kit = Kit(a={"metrics": "x", "interval.ms": "1000"})
    told = kit.ask()
    with pytest.raises(ThrottlingQuotaExceeded):
        kit.ask(told.id)
    kit.clock.seconds += 0.1
    kit.push(told)
    kit.clock.seconds += 0.9
    with pytest.raises(ThrottlingQuotaExceeded):
        kit.push(told)
    with pytest.raises(ThrottlingQuotaExceeded):
        kit.ask(told.id)
    kit.clock.seconds += 0.2
    kit.push(told)
    assert kit.telemetry.pushes == 2


def test_the_last_push_may_come_early_and_none_after_it() -> None:
    kit = Kit(a={"metrics": "x", "interval.ms": "1000"})
    told = kit.ask()
    kit.push(told)
    kit.push(told, is_terminating=True)
    with pytest.raises(InvalidRequest):
        kit.push(told)


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"codec": 5}, UnsupportedCompressionType),
        ({"codec": -1}, UnsupportedCompressionType),
        ({"size": BYTES_MAX + 1}, TelemetryTooLarge),
        ({"subscription_id": 1}, UnknownSubscriptionId),
    ],
)
def test_a_push_that_is_refused(changed: dict[str, Any], error: type[KafkaError]) -> None:
    kit = Kit(a={"metrics": "x"})
    with pytest.raises(error):
        kit.push(kit.ask(), **changed)
    assert kit.telemetry.pushes == 0


@pytest.mark.parametrize("instance_id", [None, UUID(int=0), UUID(int=1)])
def test_a_push_without_an_instance_is_refused(instance_id: UUID | None) -> None:
    with pytest.raises(InvalidRequest):
        Kit().telemetry.check_push(
            instance_id, Client(), subscription_id=0, is_terminating=False, codec=0, size=0
        )


def test_instances_go_with_their_connection_after_silence_or_when_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kit = Kit(a={"metrics": "x", "interval.ms": "30000"})
    kit.ask()
    kit.telemetry.forget(ADDRESS)
    assert kit.telemetry.instances == 0

    kit.ask(address="10.0.0.1:1")
    kit.clock.seconds += 89
    kit.ask(address="10.0.0.1:2")
    assert kit.telemetry.instances == 2
    kit.clock.seconds += 2
    kit.ask(address="10.0.0.1:3")
    assert kit.telemetry.instances == 2

    monkeypatch.setattr(clients, "INSTANCES_MAX", 5)
    for port in range(10):
        kit.ask(address=f"10.0.0.1:{port}")
    assert kit.telemetry.instances == 5


def test_a_subscription_of_another_version_is_left_alone() -> None:
    kit = Kit(bad={"metrics": "x", "match": "client_id=(?=lookahead)"}, good={"metrics": "y"})
    assert kit.ask().metrics == ("y",)


@pytest.mark.parametrize(
    "match", ["client_id", "client_id=", "=x", "client_name=x", "client_id=a=b", "client_id=(", "a,a"]
)
def test_criteria_that_cannot_be_used_are_refused(match: str) -> None:
    with pytest.raises(ConfigError, match="match="):
        client_metrics_subscription({"match": match})
