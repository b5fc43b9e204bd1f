"""Levels of this process's loggers, seen and changed while it runs; a restart forgets them (KIP-412).

The names of levels are those of Apache Kafka, and so is `root` for the logger that all others inherit from.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from ottla.config import ConfigEntry, ConfigSource, ConfigType
from ottla.controller.configs import ConfigChange, ConfigOperation
from ottla.wire.errors import InvalidConfig, InvalidRequest

log = logging.getLogger(__name__)

ROOT = "root"
LEVELS = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


def describe_loggers(names: Collection[str] | None) -> list[ConfigEntry]:
    """A logger without a level of its own is shown with the one it inherits."""
    return [
        ConfigEntry(
            name=name,
            value=_level_name(logger.getEffectiveLevel()),
            source=ConfigSource.BROKER_LOGGER,
            read_only=False,
            sensitive=False,
            type=ConfigType.UNKNOWN,
            documentation="",
            synonyms=(),
        )
        for name, logger in sorted(_loggers().items())
        if names is None or name in names
    ]


def alter_loggers(changes: Collection[ConfigChange], *, validate_only: bool) -> None:
    """All of the changes or, with KafkaError, none."""
    loggers = _loggers()
    for change in changes:
        _check(change, loggers)
    if validate_only:
        return
    for change in changes:
        if change.operation == ConfigOperation.SET:
            loggers[change.name].setLevel(LEVELS[change.value or ""])
            log.warning("updated the log level of %s to %s", change.name, change.value)
        else:
            loggers[change.name].setLevel(logging.NOTSET)
            log.warning("unset the log level of %s", change.name)


def check_node(name: str, node_id: int) -> None:
    if not name.removeprefix("-").isdecimal():
        raise InvalidRequest(f"Node id must be an integer, but it is: {name}")
    if int(name) != node_id:
        raise InvalidRequest(f"Unexpected node id. Expected {node_id}, but received {name}")


def _check(change: ConfigChange, loggers: Collection[str]) -> None:
    if change.operation not in (ConfigOperation.SET, ConfigOperation.DELETE):
        known = change.operation in ConfigOperation.__members__.values()
        operation = ConfigOperation(change.operation).name if known else f"Unknown ({change.operation})"
        raise InvalidRequest(f"{operation} operation is not allowed for the BROKER_LOGGER resource")
    if change.name not in loggers:
        raise InvalidConfig(f"Logger {change.name} does not exist!")
    if change.operation == ConfigOperation.DELETE:
        if change.name == ROOT:
            raise InvalidRequest(f"Removing the log level of the {ROOT} logger is not allowed")
    elif change.value not in LEVELS:
        raise InvalidConfig(
            f"Cannot set the log level of {change.name} to {change.value} as it is not a supported log "
            f"level. Valid log levels are {', '.join(sorted(LEVELS))}"
        )


def _loggers() -> dict[str, logging.Logger]:
    """Packages that log nothing themselves are there, too: their level is that of all their modules."""
    names = list(logging.root.manager.loggerDict)
    return {ROOT: logging.root, **{name: logging.getLogger(name) for name in names}}


def _level_name(level: int) -> str:
    """The nearest at or above it."""
    return next((name for name, number in LEVELS.items() if level <= number), "FATAL")
