"""A group's settings: its own on top of the broker's `group.consumer.*` and `group.share.*`."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

from ottla.config.broker import BrokerConfig, unknown_key
from ottla.config.entry import ConfigEntry, ConfigSource, ConfigSynonym, describe_key, describe_unknown
from ottla.config.key import ConfigError, ConfigKey, ConfigType, Synonym, Value, by_name

_SESSION = "consumer.session.timeout.ms"
_HEARTBEAT = "consumer.heartbeat.interval.ms"
_ASSIGNMENT = "consumer.assignment.interval.ms"
_SHARE_SESSION = "share.session.timeout.ms"
_SHARE_HEARTBEAT = "share.heartbeat.interval.ms"
_SHARE_ASSIGNMENT = "share.assignment.interval.ms"
_SHARE_LOCK = "share.record.lock.duration.ms"
_SHARE_DELIVERIES = "share.delivery.count.limit"
_SHARE_LOCKS = "share.partition.max.record.locks"
_SHARE_RESET = "share.auto.offset.reset"
_SHARE_ISOLATION = "share.isolation.level"
_SHARE_RENEWAL = "share.renew.acknowledge.enable"

_DURATION = re.compile(
    r"P(?=.)(?:(?P<days>\d{1,9})D)?"
    r"(?:T(?=.)(?:(?P<hours>\d{1,9})H)?(?:(?P<minutes>\d{1,9})M)?(?:(?P<seconds>\d{1,9}(?:\.\d{1,9})?)S)?)?",
    re.IGNORECASE,
)


def _group(name: str, broker_key: str, default: int, minimum: int, doc: str) -> ConfigKey:
    return ConfigKey(
        name,
        ConfigType.INT,
        default,
        doc,
        minimum=minimum,
        dynamic="cluster-wide",
        synonyms=(Synonym(broker_key),),
    )


def _alone(name: str, kind: ConfigType, default: Value, doc: str, choices: tuple[str, ...] = ()) -> ConfigKey:
    """What brokers have no setting for."""
    return ConfigKey(name, kind, default, doc, choices=choices)


GROUP_KEYS = by_name(
    (
        _group(
            _SESSION,
            "group.consumer.session.timeout.ms",
            45_000,
            1,
            "Session time-out of the members, from their next heartbeat on.",
        ),
        _group(
            _HEARTBEAT,
            "group.consumer.heartbeat.interval.ms",
            5000,
            1,
            "How often members send heartbeats, told them with the next one.",
        ),
        _group(
            _ASSIGNMENT,
            "group.consumer.assignment.interval.ms",
            1000,
            0,
            "Least time between two assignments of partitions to the members.",
        ),
        _group(
            _SHARE_SESSION,
            "group.share.session.timeout.ms",
            45_000,
            1,
            "The same for members of a share group.",
        ),
        _group(
            _SHARE_HEARTBEAT,
            "group.share.heartbeat.interval.ms",
            5000,
            1,
            "How often members of a share group send heartbeats.",
        ),
        _group(
            _SHARE_ASSIGNMENT,
            "group.share.assignment.interval.ms",
            1000,
            0,
            "Least time between two assignments in a share group.",
        ),
        _group(
            _SHARE_LOCK,
            "group.share.record.lock.duration.ms",
            30_000,
            1000,
            "Time for which a member of a share group has a record to itself.",
        ),
        _group(
            _SHARE_DELIVERIES,
            "group.share.delivery.count.limit",
            5,
            2,
            "How often a record is delivered to the share group at most.",
        ),
        _group(
            _SHARE_LOCKS,
            "group.share.partition.max.record.locks",
            2000,
            100,
            "Records of a partition that the share group may have under way.",
        ),
        _alone(
            _SHARE_RESET,
            ConfigType.STRING,
            "latest",
            "Where a share group begins in a partition that is new to it: `earliest`, `latest`, or "
            "`by_duration:` and how long ago, as in `by_duration:PT1H30M`.",
        ),
        _alone(
            _SHARE_ISOLATION,
            ConfigType.STRING,
            "read_uncommitted",
            "Whether a share group is given records of transactions that are open or were aborted.",
            ("read_committed", "read_uncommitted"),
        ),
        _alone(
            _SHARE_RENEWAL,
            ConfigType.BOOLEAN,
            True,
            "Whether members of a share group may ask for more time to work on a record.",
        ),
    )
)
# The broker's keys between which a group's own value has to be.
_BOUNDS = {
    _SESSION: ("group.consumer.min.session.timeout.ms", "group.consumer.max.session.timeout.ms"),
    _HEARTBEAT: ("group.consumer.min.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"),
    _ASSIGNMENT: ("group.consumer.min.assignment.interval.ms", "group.consumer.max.assignment.interval.ms"),
    _SHARE_SESSION: ("group.share.min.session.timeout.ms", "group.share.max.session.timeout.ms"),
    _SHARE_HEARTBEAT: ("group.share.min.heartbeat.interval.ms", "group.share.max.heartbeat.interval.ms"),
    _SHARE_ASSIGNMENT: ("group.share.min.assignment.interval.ms", "group.share.max.assignment.interval.ms"),
    _SHARE_LOCK: ("group.share.min.record.lock.duration.ms", "group.share.max.record.lock.duration.ms"),
    _SHARE_DELIVERIES: ("group.share.min.delivery.count.limit", "group.share.max.delivery.count.limit"),
    _SHARE_LOCKS: (
        "group.share.min.partition.max.record.locks",
        "group.share.max.partition.max.record.locks",
    ),
}


class GroupTimes(NamedTuple):
    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int


class ShareGroupConfig(NamedTuple):
    """How records are given out to a share group."""

    record_lock_duration_ms: int
    delivery_count_limit: int
    partition_max_record_locks: int
    offset_reset: OffsetReset
    is_read_committed: bool
    can_renew: bool


class OffsetReset(NamedTuple):
    """Where to begin in a partition."""

    strategy: str
    """`earliest`, `latest` or `by_duration`."""
    duration_ms: int = 0


def parse_offset_reset(text: str) -> OffsetReset:
    lowered = text.strip().lower()
    if lowered in ("earliest", "latest"):
        return OffsetReset(lowered)
    strategy, _, duration = lowered.partition(":")
    found = _DURATION.fullmatch(duration)
    if strategy != "by_duration" or found is None:
        raise ConfigError(
            f"{_SHARE_RESET}={text}: must be earliest, latest or by_duration: and PnDTnHnMn.nS, such as "
            "by_duration:PT1H30M"
        )
    days, hours, minutes, seconds = (
        float(found[name] or 0) for name in ("days", "hours", "minutes", "seconds")
    )
    return OffsetReset("by_duration", round((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000))


def group_times(broker: BrokerConfig, overrides: Mapping[str, str]) -> GroupTimes:
    """Of a consumer group. Never raises: `overrides` are in force."""
    return _times(broker, overrides, (_SESSION, _HEARTBEAT, _ASSIGNMENT))


def share_group_times(broker: BrokerConfig, overrides: Mapping[str, str]) -> GroupTimes:
    """The same of a share group."""
    return _times(broker, overrides, (_SHARE_SESSION, _SHARE_HEARTBEAT, _SHARE_ASSIGNMENT))


def share_group_config(broker: BrokerConfig, overrides: Mapping[str, str]) -> ShareGroupConfig:
    """Never raises: `overrides` are in force."""
    return ShareGroupConfig(
        _integer(broker, overrides, _SHARE_LOCK),
        _integer(broker, overrides, _SHARE_DELIVERIES),
        _integer(broker, overrides, _SHARE_LOCKS),
        parse_offset_reset(str(_value(broker, overrides, _SHARE_RESET))),
        _value(broker, overrides, _SHARE_ISOLATION) == "read_committed",
        bool(_value(broker, overrides, _SHARE_RENEWAL)),
    )


def _times(broker: BrokerConfig, overrides: Mapping[str, str], names: tuple[str, str, str]) -> GroupTimes:
    session, heartbeat, assignment = (_integer(broker, overrides, name) for name in names)
    return GroupTimes(session, heartbeat, assignment)


def _integer(broker: BrokerConfig, overrides: Mapping[str, str], name: str) -> int:
    value = _value(broker, overrides, name)
    assert isinstance(value, int)
    return value


def _value(broker: BrokerConfig, overrides: Mapping[str, str], name: str) -> Value:
    """What counts. Values outside the broker's bounds are brought inside, those that are none are ignored."""
    key = GROUP_KEYS[name]
    default: Value = broker.integer(key.synonyms[0].name) if key.synonyms else key.default
    if name not in overrides:
        return default
    try:
        value = _parse(name, overrides[name])
    except ConfigError:
        return default
    if name not in _BOUNDS:
        return value
    low, high = _bounds(broker, name)
    assert isinstance(value, int)
    return max(low, min(value, high))


def validate_group(broker: BrokerConfig, overrides: Mapping[str, str], changed: Collection[str]) -> None:
    """ConfigError unless a group may have these. What is not in `changed` may come from another version."""
    for name, text in overrides.items():
        if name not in changed:
            continue
        value = _parse(name, text)
        if name not in _BOUNDS:
            continue
        low, high = _bounds(broker, name)
        assert isinstance(value, int)
        if not low <= value <= high:
            raise ConfigError(f"{name} must be in the range {low} to {high} inclusive.")
    for times, session, heartbeat in (
        (group_times(broker, overrides), _SESSION, _HEARTBEAT),
        (share_group_times(broker, overrides), _SHARE_SESSION, _SHARE_HEARTBEAT),
    ):
        if (
            times.session_timeout_ms <= times.heartbeat_interval_ms
            and {session, heartbeat} & overrides.keys()
        ):
            raise ConfigError(f"{session} must be greater than {heartbeat}")


def describe_group(
    broker: BrokerConfig, overrides: Mapping[str, str], names: Collection[str] | None = None
) -> list[ConfigEntry]:
    known = [
        describe_key(key, _value(broker, overrides, name), _synonyms(broker, key, overrides), read_only=False)
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
    if key.synonyms:
        inherited = broker.synonyms(key.synonyms[0].name)
    else:
        inherited = (ConfigSynonym(key.name, key.format(key.default), ConfigSource.DEFAULT),)
    if key.name not in overrides:
        return inherited
    return (ConfigSynonym(key.name, overrides[key.name], ConfigSource.GROUP), *inherited)


def _parse(name: str, text: str) -> Value:
    key = GROUP_KEYS.get(name)
    if key is None:
        raise unknown_key("group", name, GROUP_KEYS)
    if name == _SHARE_RESET:
        parse_offset_reset(text)
    return key.parse(text)


def _bounds(broker: BrokerConfig, name: str) -> tuple[int, int]:
    low, high = _BOUNDS[name]
    return broker.integer(low), broker.integer(high)
