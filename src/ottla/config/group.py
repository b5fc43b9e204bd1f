"""A consumer group's settings: its own on top of the broker's `group.consumer.*`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from ottla.config.broker import BrokerConfig, unknown_key
from ottla.config.entry import ConfigEntry, ConfigSource, ConfigSynonym, describe_key, describe_unknown
from ottla.config.key import ConfigError, ConfigKey, ConfigType, Synonym, by_name

_SESSION = "consumer.session.timeout.ms"
_HEARTBEAT = "consumer.heartbeat.interval.ms"
_ASSIGNMENT = "consumer.assignment.interval.ms"


def _group(name: str, default: int, minimum: int, doc: str) -> ConfigKey:
    return ConfigKey(
        name,
        ConfigType.INT,
        default,
        doc,
        minimum=minimum,
        dynamic="cluster-wide",
        synonyms=(Synonym(f"group.{name}"),),
    )


GROUP_KEYS = by_name(
    (
        _group(_SESSION, 45_000, 1, "Session time-out of the members, from their next heartbeat on."),
        _group(_HEARTBEAT, 5000, 1, "How often members send heartbeats, told them with the next one."),
        _group(_ASSIGNMENT, 1000, 0, "Least time between two assignments of partitions to the members."),
    )
)
# The broker's keys between which a group's own value has to be.
_BOUNDS = {
    _SESSION: ("group.consumer.min.session.timeout.ms", "group.consumer.max.session.timeout.ms"),
    _HEARTBEAT: ("group.consumer.min.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"),
    _ASSIGNMENT: ("group.consumer.min.assignment.interval.ms", "group.consumer.max.assignment.interval.ms"),
}


class GroupTimes(NamedTuple):
    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int


def group_times(broker: BrokerConfig, overrides: Mapping[str, str]) -> GroupTimes:
    """Never raises: `overrides` are in force. Those outside the broker's bounds are brought inside."""

    def value(name: str) -> int:
        default = broker.integer(f"group.{name}")
        if name not in overrides:
            return default
        low, high = _bounds(broker, name)
        try:
            return max(low, min(_parse(name, overrides[name]), high))
        except ConfigError:
            return default

    return GroupTimes(value(_SESSION), value(_HEARTBEAT), value(_ASSIGNMENT))


def validate_group(broker: BrokerConfig, overrides: Mapping[str, str], changed: Collection[str]) -> None:
    """ConfigError unless a group may have these. What is not in `changed` may come from another version."""
    for name, text in overrides.items():
        if name not in changed:
            continue
        low, high = _bounds(broker, name)
        if not low <= _parse(name, text) <= high:
            raise ConfigError(f"{name} must be in the range {low} to {high} inclusive.")
    times = group_times(broker, overrides)
    if times.session_timeout_ms <= times.heartbeat_interval_ms and {_SESSION, _HEARTBEAT} & overrides.keys():
        raise ConfigError(f"{_SESSION} must be greater than {_HEARTBEAT}")


def describe_group(
    broker: BrokerConfig, overrides: Mapping[str, str], names: Collection[str] | None = None
) -> list[ConfigEntry]:
    times = group_times(broker, overrides)
    values = {
        _SESSION: times.session_timeout_ms,
        _HEARTBEAT: times.heartbeat_interval_ms,
        _ASSIGNMENT: times.assignment_interval_ms,
    }
    known = [
        describe_key(key, values[name], _synonyms(broker, key, overrides), read_only=False)
        for name, key in GROUP_KEYS.items()
        if names is None or name in names
    ]
    return known + [
        describe_unknown(name, ConfigSource.GROUP)
        for name in sorted(overrides.keys() - GROUP_KEYS.keys())
        if names is None or name in names
    ]


def _synonyms(
    broker: BrokerConfig, key: ConfigKey, overrides: Mapping[str, str]
) -> tuple[ConfigSynonym, ...]:
    inherited = broker.synonyms(key.synonyms[0].name)
    if key.name not in overrides:
        return inherited
    return (ConfigSynonym(key.name, overrides[key.name], ConfigSource.GROUP), *inherited)


def _parse(name: str, text: str) -> int:
    key = GROUP_KEYS.get(name)
    if key is None:
        raise unknown_key("group", name, GROUP_KEYS)
    value = key.parse(text)
    assert isinstance(value, int)
    return value


def _bounds(broker: BrokerConfig, name: str) -> tuple[int, int]:
    if name not in _BOUNDS:
        raise unknown_key("group", name, GROUP_KEYS)
    low, high = _BOUNDS[name]
    return broker.integer(low), broker.integer(high)
