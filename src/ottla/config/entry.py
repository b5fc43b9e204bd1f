"""A described setting: what DescribeConfigs tells a client about one key."""

from __future__ import annotations

import enum
from typing import NamedTuple

from ottla.config.key import ConfigKey, ConfigType, Value


class ConfigSource(enum.IntEnum):
    """Where a value comes from. The numbers are those of DescribeConfigs."""

    TOPIC = 1
    BROKER = 2
    CLUSTER_DEFAULT = 3
    STATIC = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigSynonym(NamedTuple):
    """One of the places a value could come from, the winning one first."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    type: ConfigType
    documentation: str
    synonyms: tuple[ConfigSynonym, ...]


def describe_key(
    key: ConfigKey, value: Value, synonyms: tuple[ConfigSynonym, ...], *, read_only: bool
) -> ConfigEntry:
    return ConfigEntry(
        name=key.name,
        value=None if key.sensitive else key.format(value),
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        read_only=read_only,
        sensitive=key.sensitive,
        type=key.type,
        documentation=key.doc,
        synonyms=synonyms,
    )


def describe_unknown(name: str, source: ConfigSource) -> ConfigEntry:
    """A stored setting of another version. It could be a password, so its value is hidden, as Kafka does."""
    return ConfigEntry(
        name=name,
        value=None,
        source=source,
        read_only=False,
        sensitive=True,
        type=ConfigType.UNKNOWN,
        documentation="",
        synonyms=(ConfigSynonym(name, None, source),),
    )
