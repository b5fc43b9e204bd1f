"""The config topic: connectors, their tasks and their target states.

A connector's tasks change as a whole: their records count once a commit record says how many there are. What
compaction left of an older set is incomplete then, and the connector is *inconsistent* until it is written
anew.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ottla.connect.state.entries import Entry, entry, read_object

Config = Mapping[str, str]

_TARGET: Final = "target-state-"
_CONNECTOR: Final = "connector-"
_TASK: Final = "task-"
_COMMIT: Final = "commit-"
_RESTART: Final = "restart-connector-"
# Of Kafka's workers, for sources that are exactly once; here nothing goes by it.
_TASK_COUNT: Final = "tasks-fencing-"
_LOGGER: Final = "logger-cluster-"
_SESSION_KEY: Final = "session-key"

_log = logging.getLogger(__name__)


class TargetState(enum.Enum):
    STARTED = "STARTED"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


# What a record may mean to those who run connectors.


class ConnectorChanged(NamedTuple):
    """Made, given another configuration, removed, or to be in another state."""

    connector: str


class TasksChanged(NamedTuple):
    connector: str


class RestartAsked(NamedTuple):
    connector: str
    include_tasks: bool
    only_failed: bool


class LoggerSet(NamedTuple):
    logger: str
    level: str


Change = ConnectorChanged | TasksChanged | RestartAsked | LoggerSet


@dataclass(slots=True)
class ConnectorEntry:
    config: Config
    target: TargetState = TargetState.STARTED
    tasks: tuple[Config, ...] = ()
    generation: int = 0
    """Grows with each set of tasks."""
    applied: Config | None = None
    """The configuration that the tasks were made from."""
    is_consistent: bool = True


@dataclass(slots=True)
class Configs:
    """`apply` each record in order."""

    connectors: dict[str, ConnectorEntry] = field(default_factory=dict)
    _targets: dict[str, TargetState] = field(default_factory=dict)
    _deferred: dict[str, dict[int, Config]] = field(default_factory=dict)

    def apply(self, record: Entry) -> Change | None:
        key = record.key.decode(errors="replace")
        value = read_object(record.value)
        if value is None and record.value is not None:
            _log.warning("a record of the config topic is ignored: %s has no JSON object", key)
            return None
        if key.startswith(_TARGET):
            return self._apply_target(key.removeprefix(_TARGET), value)
        if key.startswith(_CONNECTOR):
            return self._apply_connector(key.removeprefix(_CONNECTOR), value)
        if key.startswith(_COMMIT):
            return self._apply_commit(key.removeprefix(_COMMIT), value)
        if key.startswith(_RESTART) and value is not None:
            name = key.removeprefix(_RESTART)
            return RestartAsked(name, value.get("include-tasks") is True, value.get("only-failed") is True)
        if key.startswith(_LOGGER) and value is not None:
            return LoggerSet(key.removeprefix(_LOGGER), str(value.get("level")))
        if key.startswith(_TASK):
            self._apply_task(key, value)
        elif key != _SESSION_KEY and not key.startswith(_TASK_COUNT):
            _log.warning("a record of the config topic is ignored: its key %s is unknown", key)
        return None

    def _apply_target(self, name: str, value: Mapping[str, Any] | None) -> Change | None:
        if value is None:
            self._targets.pop(name, None)
            target = TargetState.STARTED
        else:
            try:
                target = TargetState(value.get("state.v2") or value.get("state"))
            except ValueError:
                _log.warning("%s is to be in a state that is unknown here: %s", name, value)
                return None
            self._targets[name] = target
        known = self.connectors.get(name)
        if known is None or known.target is target:
            return None
        known.target = target
        return ConnectorChanged(name)

    def _apply_connector(self, name: str, value: Mapping[str, Any] | None) -> Change | None:
        if value is None:
            self._deferred.pop(name, None)
            return None if self.connectors.pop(name, None) is None else ConnectorChanged(name)
        config = value.get("properties")
        if not isinstance(config, dict):
            _log.warning("the configuration of %s is ignored: it has no properties", name)
            return None
        known = self.connectors.get(name)
        if known is None:
            self.connectors[name] = ConnectorEntry(config, self._targets.get(name, TargetState.STARTED))
        else:
            known.config = config
        return ConnectorChanged(name)

    def _apply_task(self, key: str, value: Mapping[str, Any] | None) -> None:
        name, _, number = key.removeprefix(_TASK).rpartition("-")
        if value is None or not number.isdecimal() or not isinstance(value.get("properties"), dict):
            _log.warning("a record of the config topic is ignored: %s is no task", key)
            return
        self._deferred.setdefault(name, {})[int(number)] = value["properties"]

    def _apply_commit(self, name: str, value: Mapping[str, Any] | None) -> Change | None:
        known = self.connectors.get(name)
        if value is None or known is None:
            self._deferred.pop(name, None)
            return None
        count = int(value.get("tasks", 0))
        deferred = self._deferred.pop(name, {})
        known.is_consistent = set(deferred) == set(range(count))
        if known.is_consistent:
            known.tasks = tuple(deferred[number] for number in range(count))
            known.generation += 1
            known.applied = dict(known.config)
        return TasksChanged(name)


def connector_entries(name: str, config: Config, target: TargetState | None = None) -> list[Entry]:
    """The target state stands first, so that nobody starts what is to be created stopped."""
    rows = [] if target is None else [target_entry(name, target)]
    return [*rows, entry(_CONNECTOR + name, {"properties": dict(config)})]


def removal_entries(name: str) -> list[Entry]:
    return [entry(_CONNECTOR + name, None), entry(_TARGET + name, None)]


def target_entry(name: str, target: TargetState) -> Entry:
    # Workers of old know two states.
    older = TargetState.PAUSED if target is TargetState.STOPPED else target
    return entry(_TARGET + name, {"state": older.value, "state.v2": target.value})


def task_entries(name: str, tasks: Sequence[Config]) -> list[Entry]:
    rows = [entry(f"{_TASK}{name}-{number}", {"properties": dict(task)}) for number, task in enumerate(tasks)]
    return [*rows, entry(_COMMIT + name, {"tasks": len(tasks)})]


def restart_entry(asked: RestartAsked) -> Entry:
    value = {"include-tasks": asked.include_tasks, "only-failed": asked.only_failed}
    return entry(_RESTART + asked.connector, value)


def logger_entry(logger: str, level: str) -> Entry:
    return entry(_LOGGER + logger, {"level": level})
