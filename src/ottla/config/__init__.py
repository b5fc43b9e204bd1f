"""Configuration, declared once: files, DescribeConfigs, error texts and the reference page derive from it."""

from __future__ import annotations

from ottla.config.broker import BROKER_KEYS, BrokerConfig, validate_broker
from ottla.config.entry import ConfigEntry, ConfigSource, ConfigSynonym
from ottla.config.group import (
    GROUP_KEYS,
    GroupTimes,
    OffsetReset,
    ShareGroupConfig,
    describe_group,
    group_times,
    share_group_config,
    share_group_times,
    validate_group,
)
from ottla.config.key import ConfigError, ConfigKey, ConfigType
from ottla.config.listeners import Endpoint, advertise
from ottla.config.properties import decode_properties, parse_properties
from ottla.config.topic import LogConfig, describe_topic, resolve_topic, topic_faults, validate_topic
from ottla.config.topic_keys import TOPIC_KEYS

__all__ = [
    "BROKER_KEYS",
    "GROUP_KEYS",
    "TOPIC_KEYS",
    "BrokerConfig",
    "ConfigEntry",
    "ConfigError",
    "ConfigKey",
    "ConfigSource",
    "ConfigSynonym",
    "ConfigType",
    "Endpoint",
    "GroupTimes",
    "LogConfig",
    "OffsetReset",
    "ShareGroupConfig",
    "advertise",
    "decode_properties",
    "describe_group",
    "describe_topic",
    "group_times",
    "parse_properties",
    "resolve_topic",
    "share_group_config",
    "share_group_times",
    "topic_faults",
    "validate_broker",
    "validate_group",
    "validate_topic",
]
