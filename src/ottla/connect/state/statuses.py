"""The status topic: how connectors and tasks are, and which topics they use."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.connect.state.entries import Entry, TaskId, entry, read_object

_CONNECTOR: Final = "status-connector-"
_TASK: Final = "status-task-"
_TOPIC: Final = "status-topic-"
_TOPIC_SEPARATOR: Final = ":connector-"


class State(enum.Enum):
    UNASSIGNED = "UNASSIGNED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    FAILED = "FAILED"
    DESTROYED = "DESTROYED"
    RESTARTING = "RESTARTING"
    STOPPED = "STOPPED"


@dataclass(frozen=True, slots=True)
class Status:
    state: State
    worker: str
    generation: int = 0
    trace: str | None = None
    version: str | None = None

    def shown(self) -> dict[str, Any]:
        shown: dict[str, Any] = {"state": self.state.value, "worker_id": self.worker}
        if self.trace is not None:
            shown["trace"] = self.trace
        if self.version is not None:
            shown["version"] = self.version
        return shown


@dataclass(slots=True)
class Statuses:
    connectors: dict[str, Status] = field(default_factory=dict)
    tasks: dict[TaskId, Status] = field(default_factory=dict)
    topics: dict[str, set[str]] = field(default_factory=dict)
    """The topics that a connector has written or read, by connector."""

    def apply(self, record: Entry) -> None:
        key = record.key.decode(errors="replace")
        if key.startswith(_CONNECTOR):
            _keep(self.connectors, key.removeprefix(_CONNECTOR), _read(record.value))
        elif key.startswith(_TASK):
            name, _, number = key.removeprefix(_TASK).rpartition("-")
            if number.isdecimal():
                _keep(self.tasks, TaskId(name, int(number)), _read(record.value))
        elif key.startswith(_TOPIC):
            topic, _, name = key.removeprefix(_TOPIC).partition(_TOPIC_SEPARATOR)
            used = self.topics.setdefault(name, set())
            used.discard(topic) if record.value is None else used.add(topic)

    def tasks_of(self, connector: str) -> dict[int, Status]:
        found = {place.task: status for place, status in self.tasks.items() if place.connector == connector}
        return dict(sorted(found.items()))


def _keep(statuses: dict[Any, Status], key: Any, status: Status | None) -> None:
    if status is None:
        statuses.pop(key, None)
    else:
        statuses[key] = status


def _read(value: bytes | None) -> Status | None:
    found = read_object(value)
    if found is None:
        return None
    try:
        state = State(found.get("state"))
    except ValueError:
        return None
    worker, generation = str(found.get("worker_id")), int(found.get("generation") or 0)
    return Status(state, worker, generation, found.get("trace"), found.get("version"))


def status_entry(of: str | TaskId, status: Status) -> Entry:
    key = f"{_TASK}{of}" if isinstance(of, TaskId) else f"{_CONNECTOR}{of}"
    if status.state is State.DESTROYED:
        return entry(key, None)
    value = {
        "state": status.state.value,
        "trace": status.trace,
        "worker_id": status.worker,
        "generation": status.generation,
        "version": status.version,
    }
    return entry(key, value)


def topic_entry(connector: str, topic: str, task: int | None, now_ms: int = 0) -> Entry:
    """`task` None: the topic is used no longer."""
    value = None
    if task is not None:
        value = {"topic": {"name": topic, "connector": connector, "task": task, "discoverTimestamp": now_ms}}
    return entry(f"{_TOPIC}{topic}{_TOPIC_SEPARATOR}{connector}", value)
