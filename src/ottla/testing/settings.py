"""Settings for brokers that live for seconds, given as Python values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

SettingValue: TypeAlias = str | int | float | bool | list[str] | tuple[str, ...]

# One broker cannot have three replicas, and no test wants to wait for more consumers to turn up.
_DEFAULTS: Mapping[str, str] = {
    "group.consumer.assignment.interval.ms": "0",
    "group.share.assignment.interval.ms": "0",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
}


# A broker that is killed should be missed soon, and many partitions take long to fail over to others.
_CLUSTER_DEFAULTS: Mapping[str, str] = {
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": "2000",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
    "group.consumer.assignment.interval.ms": "0",
    "group.share.assignment.interval.ms": "0",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "share.coordinator.state.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}


def cluster_properties(settings: Mapping[str, SettingValue] | None) -> dict[str, str]:
    """For each of several brokers, as a properties file would have them."""
    return {**_CLUSTER_DEFAULTS, **{name: setting_text(value) for name, value in (settings or {}).items()}}


def properties(settings: Mapping[str, SettingValue] | None) -> dict[str, str]:
    """As a properties file would have them."""
    return {**_DEFAULTS, **{name: setting_text(value) for name, value in (settings or {}).items()}}


def setting_text(value: SettingValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(value)
    return str(value)
