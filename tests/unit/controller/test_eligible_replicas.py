"""Turning eligible leader replicas on, and what may not be changed while they are."""

from __future__ import annotations

import pytest
from small_cluster import Cluster

from ottla.controller.configs import ConfigChange, ConfigOperation, ResourceChanges, incremental_alter_configs
from ottla.controller.features import FeatureUpdate, UpgradeType, update_features
from ottla.metadata.image import ResourceType
from ottla.metadata.records import ConfigRecord
from ottla.wire.errors import ErrorCode

ISR_MIN = "min.insync.replicas"


def change(kind: int, name: str, value: str | None) -> ResourceChanges:
    operation = ConfigOperation.DELETE if value is None else ConfigOperation.SET
    return ResourceChanges(kind, name, (ConfigChange(ISR_MIN, operation, value),))


def alter(cluster: Cluster, kind: int, name: str, value: str | None) -> ErrorCode | None:
    [outcome] = cluster.run(
        incremental_alter_configs(cluster.image, cluster.config, [change(kind, name, value)])
    )
    return outcome.error and outcome.error.code


def test_with_the_feature_comes_one_minimum_for_all_brokers() -> None:
    cluster = Cluster(1, 2)
    cluster.apply(
        [ConfigRecord(resource_type=ResourceType.BROKER, resource_name="2", name=ISR_MIN, value="3")]
    )
    update = FeatureUpdate("eligible.leader.replicas.version", 1, UpgradeType.UPGRADE)
    cluster.apply(update_features(cluster.image, [update], 1, isr_min=2).records)
    assert cluster.image.keeps_eligible_replicas
    assert cluster.image.config(ResourceType.BROKER, "") == {ISR_MIN: "2"}
    assert cluster.image.config(ResourceType.BROKER, "2") == {}
    before = cluster.image
    cluster.apply(update_features(cluster.image, [update], 1, isr_min=1).records)
    assert cluster.image.config(ResourceType.BROKER, "") == before.config(ResourceType.BROKER, "")


@pytest.mark.parametrize(
    ("kind", "name", "value", "expected"),
    [
        (ResourceType.BROKER, "1", "2", ErrorCode.invalid_config),
        (ResourceType.BROKER, "", None, ErrorCode.invalid_config),
        (ResourceType.BROKER, "", "1", None),
        (ResourceType.TOPIC, "t", "1", None),
        (ResourceType.TOPIC, "u", "1", None),
    ],
)
def test_a_new_minimum_forgets_who_was_eligible(
    kind: int, name: str, value: str | None, expected: ErrorCode | None
) -> None:
    cluster = Cluster(1, 2, eligible=True)
    cluster.apply(
        [ConfigRecord(resource_type=ResourceType.BROKER, resource_name="", name=ISR_MIN, value="2")]
    )
    cluster.topic("t", (1, 2), min_insync_replicas="2")
    cluster.topic("u", (2, 1))
    cluster.heartbeat(1, fence=True)
    assert cluster.partition("t").eligible_leader_replicas == (1,)
    assert alter(cluster, kind, name, value) is expected
    forgotten = expected is None and name in ("", "t")
    assert cluster.partition("t").eligible_leader_replicas == (() if forgotten else (1,))


@pytest.mark.parametrize(("kind", "name"), [(ResourceType.BROKER, ""), (ResourceType.TOPIC, "t")])
def test_with_a_new_minimum_who_is_eligible_may_still_lead_where_nobody_does(kind: int, name: str) -> None:
    cluster = Cluster(1, 2, eligible=True)
    cluster.apply(
        [ConfigRecord(resource_type=ResourceType.BROKER, resource_name="", name=ISR_MIN, value="2")]
    )
    cluster.topic("t", (1, 2))
    for broker in (1, 2):
        cluster.heartbeat(broker, fence=True)
    before = cluster.partition("t")
    assert (before.leader, before.isr) == (-1, ()) and 2 in before.eligible_leader_replicas
    assert alter(cluster, kind, name, "1") is None
    assert cluster.partition("t").eligible_leader_replicas == before.eligible_leader_replicas
    cluster.heartbeat(2)
    assert cluster.partition("t").leader == 2


def test_without_the_feature_any_broker_may_have_its_own_minimum() -> None:
    cluster = Cluster(1)
    assert alter(cluster, ResourceType.BROKER, "1", "2") is not ErrorCode.invalid_config
