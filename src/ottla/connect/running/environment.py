"""What a task needs of its worker. Its methods may be called from any thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ottla.connect.plugin import Converter, HeaderConverter
from ottla.connect.plugins import Kind, Plugins
from ottla.connect.state.entries import Entry, TaskId
from ottla.connect.worker_settings import WorkerSettings


class Worker(Protocol):
    settings: WorkerSettings
    plugins: Plugins

    def stored_offset(self, connector: str, partition: Mapping[str, Any]) -> Mapping[str, Any] | None: ...

    def offset_entry(
        self, connector: str, partition: Mapping[str, Any], offset: Mapping[str, Any] | None
    ) -> Entry: ...

    def store_offsets(self, entries: Sequence[Entry], timeout_s: float) -> None:
        """Returns when they are stored."""

    def topic_used(self, task: TaskId, topic: str) -> None: ...

    def ensure_topic(self, connector: Mapping[str, str], topic: str) -> None:
        """Creates a topic that is missing, with the settings that the connector has for such topics."""


@dataclass(frozen=True, slots=True)
class Converters:
    key: Converter
    value: Converter
    header: HeaderConverter


def converters_of(worker: Worker, given: Mapping[str, str]) -> Converters:
    """A connector's own, else the worker's. Raises ConnectError."""
    made = [_converter(worker, given, what) for what in ("key", "value", "header")]
    return Converters(*made)


def _converter(worker: Worker, given: Mapping[str, str], what: str) -> Any:
    kind = Kind.HEADER_CONVERTER if what == "header" else Kind.CONVERTER
    own = given.get(f"{what}.converter")
    found = worker.plugins.find(own or worker.settings.converters[what], kind)
    # A connector that the worker took has converters that exist.
    assert found is not None
    prefix = f"{what}.converter."
    settings = worker.settings.converter_settings(what) if own is None else {}
    settings |= {name.removeprefix(prefix): value for name, value in given.items() if name.startswith(prefix)}
    made: Any = found.load()
    return made({**settings, "converter.type": what})
