"""What source and sink tasks that work record by record have in common: settings, converters, transforms."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ottla.connect.chain import chain_of
from ottla.connect.connector_settings import base_settings
from ottla.connect.plugin import Connector, SinkConnector
from ottla.connect.plugins import Kind
from ottla.connect.running.environment import Worker, converters_of
from ottla.connect.running.failures import Failures, Letter
from ottla.connect.running.task_thread import Measured, Reports, TaskThread
from ottla.connect.state.entries import TaskId


@dataclass(frozen=True, slots=True)
class Order:
    """A task that is to run."""

    task: TaskId
    kind: type[Connector]
    connector: Mapping[str, str]
    """The connector's configuration."""
    given: Mapping[str, str]
    """The task's own."""
    is_paused: bool


class RecordRunner(TaskThread):
    def __init__(
        self,
        worker: Worker,
        order: Order,
        reports: Reports,
        send: Callable[[Letter], None] | None = None,
    ) -> None:
        super().__init__(order.task, reports, is_paused=order.is_paused)
        self._worker = worker
        self._connector = order.connector
        self._given = order.given
        is_sink = issubclass(order.kind, SinkConnector)
        found = worker.plugins.find(order.connector["connector.class"], Kind.SINK if is_sink else Kind.SOURCE)
        self._values: dict[str, Any] = base_settings(worker.plugins, found, is_sink=is_sink).parse(
            order.connector
        )
        self._failures = Failures(order.task, self._values, self.wait, time.monotonic, send)
        self._records = 0
        self._lag: int | None = None

    def measured(self) -> Measured:
        return Measured(self._records, self._failures.skipped, self._lag)

    def set_up(self) -> None:
        self._converters = converters_of(self._worker, self._connector)
        self._chain = chain_of(self._worker.plugins, self._connector)
