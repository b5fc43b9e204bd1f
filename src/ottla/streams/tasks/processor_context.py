"""What a user's processor sees of the task around it: stores, timers, where its records go."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.streams.errors import StreamsError
from ottla.streams.plan.plan import ProcessorNode
from ottla.streams.processor import Cancellable, PunctuationType
from ottla.streams.records import Origin, Record
from ottla.streams.windows import Duration, milliseconds

if TYPE_CHECKING:
    from ottla.streams.tasks.task import Task


class TaskProcessorContext:
    def __init__(self, task: Task, node: ProcessorNode, *, fixed_key: bool) -> None:
        self._task = task
        self._node = node
        self._fixed_key = fixed_key
        self._scheduled = 0
        self.is_initialised = False
        self.key: Any = None

    @property
    def application_id(self) -> str:
        return self._task.application_id

    @property
    def partition(self) -> int:
        return self._task.partition

    @property
    def record_metadata(self) -> Origin:
        return self._task.record.origin

    @property
    def current_stream_time_ms(self) -> int:
        return self._task.stream_time_ms

    @property
    def current_system_time_ms(self) -> int:
        return self._task.now_ms()

    def forward(self, record: Record, child: str | None = None) -> None:
        if self._fixed_key and record.key != self.key:
            raise StreamsError(
                f"{self._node.name} changes the key {self.key!r} to {record.key!r}: "
                "process_values keeps keys; use process to change them"
            )
        self._task.send(self._node.name, record, child)

    def get_state_store(self, name: str) -> Any:
        if name not in self._node.stores:
            known = ", ".join(self._node.stores) or "none"
            raise StreamsError(
                f"{self._node.name} is not connected to a store named {name} (connected: {known}); "
                "name it in process(..., stores=[...])"
            )
        return self._task.stores[name]

    def schedule(
        self, interval: Duration, kind: PunctuationType, callback: Callable[[int], None]
    ) -> Cancellable:
        if self.is_initialised:
            raise StreamsError(
                f"{self._node.name} schedules a timer outside of init: processors are made anew for every "
                "micro-batch, and only timers that init schedules are known again"
            )
        interval_ms = milliseconds("interval", interval, minimum_ms=1)
        name = f"{self._node.name}/timer-{self._scheduled}"
        self._scheduled += 1

        def call(time_ms: int) -> None:
            try:
                callback(time_ms)
            except Exception as error:
                self._task.failed(self._node.name, None, error)

        if kind is PunctuationType.STREAM_TIME:
            return self._task.timers.add_stream_time(name, interval_ms, call)
        return self._task.timers.add_wall_clock(name, interval_ms, call, self._task.now_ms())
