"""What runs in Spark's Python workers: tasks over batches of rows, stateless or with Spark's state behind
them.

Objects here are sent to workers by pickling; they hold the plan and nothing that is open.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from ottla.spark.task_writing import Stage
from ottla.spark.workers import settle
from ottla.streams.on_spark.global_tables import GlobalTables
from ottla.streams.on_spark.packets import Packer, Run, in_order, unpacked
from ottla.streams.on_spark.reports import Reports
from ottla.streams.on_spark.rows import OutputRows, output_batch, read_rows
from ottla.streams.on_spark.slots import partition_of
from ottla.streams.plan.plan import Plan
from ottla.streams.records import OutputRecord
from ottla.streams.state.backend import Log, MemoryBackend, log_nothing
from ottla.streams.state.ordered import OrderedBackend
from ottla.streams.tasks.failures import ErrorPolicy
from ottla.streams.tasks.fused import fuse
from ottla.streams.tasks.restoring import restore
from ottla.streams.tasks.task import MEMORY, Task

# Records between two looks at how much is held in memory.
_STRIDE = 2048
# Results that leave a task together.
_RESULTS_MAX = 8192
# Where records are on their way past a task; no topic can have this name.
DEAD_LETTERS = "dead letters"
# What the stores of a task hold in memory before they write it to Spark's state in the middle of a batch.
STATE_MEMORY_BYTES = 96 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """What every task of an application is told."""

    application_id: str
    errors: ErrorPolicy
    partition_counts: dict[str, int]
    bootstrap_servers: str
    client_properties: dict[str, str]
    # Parts that fill global stores.
    global_parts: tuple[Plan, ...] = ()
    # Where tasks say what they have counted, and the label of their query.
    reports: Reports | None = None
    query: str = ""

    def report(self, task: Task, store_bytes: Mapping[str, int] | None = None) -> None:
        if self.reports is not None:
            self.reports.add(self.query, task, store_bytes or {})

    def partitions_of(self, topic: str) -> int:
        return self.partition_counts.get(topic, 1)


@dataclass(frozen=True, slots=True)
class StatelessStage:
    """For ``mapInArrow``: runs a stateless part on rows from topics.

    With ``shuffle_to`` the outputs are packets for tasks of that many partitions, or, ``by_key_only``, rows
    for Spark's own aggregation; else they are rows for the sink. ``number`` tells stages of a query apart.
    ``copy_to`` are topics that get every row as it came.
    """

    plan: Plan
    settings: TaskSettings
    shuffle_to: int | None = None
    by_key_only: bool = False
    number: int = 0
    copy_to: tuple[str, ...] = ()

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        rows = OutputRows()
        task = Task(
            self.plan,
            application_id=self.settings.application_id,
            partition=-1,
            backends=lambda store: MemoryBackend(),
            emit=rows.add if self.shuffle_to is None else self._past_tasks(rows),
            now_ms=_now_ms,
            errors=self.settings.errors,
            partitions_of=self.settings.partitions_of,
            global_stores=GlobalTables.stores(self.plan, self.settings),
        )
        chain = fuse(self.plan)
        records = task.counts.records
        packer = Packer(self.number)
        for batch in batches:
            for record in read_rows(batch):
                for topic in self.copy_to:
                    partition = record.partition if record.partition >= 0 else None
                    rows.add(
                        OutputRecord(
                            topic, record.key, record.value, record.timestamp_ms, partition=partition
                        )
                    )
                if chain is None or record.timestamp_ms < 0:
                    task.process(record)
                else:
                    try:
                        pairs = chain.run(record.key, record.value)
                        rows.add_pairs(chain.topic, pairs, record)
                        records[chain.source] += 1
                        records[chain.sink] += len(pairs)
                    except Exception:
                        # The task runs into it again, and deals with it as the application wants.
                        task.process(record)
                if self.shuffle_to is not None and not self.by_key_only:
                    rows.note_origin(record.origin)
            if rows.topics:
                if self.shuffle_to is None:
                    yield rows.for_sink()
                elif self.by_key_only:
                    yield rows.for_aggregation()
                else:
                    yield packer.pack_outputs(rows, self.shuffle_to)
                rows.clear()
        task.close()
        self.settings.report(task)

    def _past_tasks(self, rows: OutputRows) -> Callable[[OutputRecord], None]:
        """Everything goes to tasks, dead letters too: they are told apart there."""
        letters = self.settings.errors.dead_letter_topic

        def emit(output: OutputRecord) -> None:
            rows.add(output._replace(topic=DEAD_LETTERS) if output.topic == letters else output)

        return emit


class TaskProcessor(StatefulProcessor):
    """Runs a stateful part: one group is one partition, one state map is one store.

    `encode` turns results, rows for the sink, into what Spark is given. It does so here because rows cost
    Spark much, and so does another function in another worker.
    """

    def __init__(self, plan: Plan, settings: TaskSettings, encode: Stage, *, with_timers: bool) -> None:
        self._plan = plan
        self._settings = settings
        self._encode = encode
        self._with_timers = with_timers
        self._states: dict[str, Any] = {}
        self._handle: StatefulProcessorHandle | None = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        settle()
        self._handle = handle
        names = [MEMORY, *(name for name in self._plan.stores if name not in self._plan.global_stores)]
        for name in names:
            self._states[name] = handle.getMapState(name, "key binary", "value binary")

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[Any],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Any]:
        outputs: list[OutputRecord] = []
        return self._run(
            partition_of(key[0]), timerValues, in_order(self._without_letters(rows, outputs)), outputs
        )

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: Any,  # noqa: N803
        expiredTimerInfo: Any,  # noqa: N803
    ) -> Iterator[Any]:
        return self._run(partition_of(key[0]), timerValues, iter(()), [])

    def handleInitialState(  # noqa: N802
        self,
        key: Any,
        initialState: Any,  # noqa: N803
        timerValues: Any,  # noqa: N803
    ) -> None:
        """Puts a packet of a changelog back into its store."""
        stores = {
            topic: store for store, topic in self._plan.changelogs(self._settings.application_id).items()
        }
        name = stores[initialState.topic]
        backend, memory = self._backend(name), self._backend(MEMORY)
        restore(self._plan, name, unpacked(initialState), backend=backend, memory_backend=memory)
        backend.flush()
        memory.flush()

    def close(self) -> None:
        """Nothing is open."""

    def _without_letters(self, packets: Iterable[Any], letters: list[OutputRecord]) -> Iterator[Any]:
        """Packets for the task. What a stage in front could not work on is taken out."""
        topic = self._settings.errors.dead_letter_topic
        for packet in packets:
            if packet.topic == DEAD_LETTERS and topic is not None:
                letters += (
                    OutputRecord(topic, each.key, each.value, each.timestamp_ms, each.headers)
                    for each in unpacked(packet).records()
                )
            else:
                yield packet

    def _run(
        self,
        partition: int,
        timer_values: Any,
        runs: Iterator[Run],
        outputs: list[OutputRecord],
    ) -> Iterator[Any]:
        """Encoded results, which Spark takes before it turns to the next group."""
        for batch in self._encode(self._results(partition, timer_values, runs, outputs)):
            for row in batch.to_pylist():
                yield Row(**row)

    def _results(
        self,
        partition: int,
        timer_values: Any,
        runs: Iterator[Run],
        outputs: list[OutputRecord],
    ) -> Iterator[pa.RecordBatch]:
        """To `outputs` they are added until they are many."""
        now_ms = timer_values.getCurrentProcessingTimeInMs() if self._with_timers else _now_ms()
        changes = Changes(self._plan, self._settings.application_id, partition)
        backends = {name: self._backend(name) for name in self._states}
        task = Task(
            self._plan,
            application_id=self._settings.application_id,
            partition=partition,
            backends=lambda store: backends[store] if store in backends else MemoryBackend(),
            emit=outputs.append,
            now_ms=lambda: now_ms,
            errors=self._settings.errors,
            partitions_of=self._settings.partitions_of,
            global_stores=GlobalTables.stores(self._plan, self._settings),
            log=changes.log,
        )
        count = 0
        for batch, start, stop in runs:
            for begin in range(start, stop, _STRIDE):
                end = min(begin + _STRIDE, stop)
                task.process_batch(batch, begin, end)
                count += end - begin
                if count < _STRIDE:
                    continue
                count = 0
                if sum(backend.memory_bytes for backend in backends.values()) > STATE_MEMORY_BYTES:
                    task.flush()
                    for backend in backends.values():
                        backend.release()
                if len(outputs) >= _RESULTS_MAX:
                    yield output_batch(outputs)
                    outputs.clear()
        task.fire_wall_clock_timers()
        task.flush()
        task.close()
        for backend in backends.values():
            backend.flush()
        if self._with_timers:
            self._schedule(task.timers.next_wall_clock_ms())
        self._settings.report(
            task, {name: backend.size_bytes for name, backend in backends.items() if name != MEMORY}
        )
        left = chain(outputs, changes.records(task.stream_time_ms))
        while results := list(islice(left, _RESULTS_MAX)):
            yield output_batch(results)

    def _backend(self, store: str) -> OrderedBackend:
        return OrderedBackend(MapStateHost(self._states[store]))

    def _schedule(self, due_ms: int | None) -> None:
        assert self._handle is not None
        for timer_ms in list(self._handle.listTimers()):
            if timer_ms != due_ms:
                self._handle.deleteTimer(timer_ms)
        if due_ms is not None:
            self._handle.registerTimer(due_ms)


class MapStateHost:
    """A store's bytes in Spark's state, under the partition of the task."""

    __slots__ = ("_state",)

    def __init__(self, state: Any) -> None:
        self._state = state

    def get(self, key: bytes) -> bytes | None:
        found = self._state.getValue((key,))
        return None if found is None else bytes(found[0])

    def put(self, key: bytes, value: bytes) -> None:
        self._state.updateValue((key,), (value,))

    def delete(self, key: bytes) -> None:
        self._state.removeKey((key,))


class Changes:
    """Collects the changes of named stores for their changelog topics: the last of each key in a batch, and
    of each time where a store has versions.

    They go to the partition of the task, because from there they are restored into it.
    """

    def __init__(self, plan: Plan, application_id: str, partition: int) -> None:
        self._topics = plan.changelogs(application_id)
        self._versioned = plan.versioned_changelogs(application_id)
        self._partition = partition
        self._changes: dict[tuple[str, bytes, int], tuple[bytes | None, int]] = {}

    def log(self, store: str) -> Log:
        topic = self._topics.get(store)
        if topic is None:
            return log_nothing

        has_versions = topic in self._versioned

        def note(key: bytes, value: bytes | None, timestamp_ms: int) -> None:
            self._changes[topic, key, timestamp_ms if has_versions else 0] = (value, timestamp_ms)

        return note

    def records(self, stream_time_ms: int) -> Iterator[OutputRecord]:
        for (topic, key, _), (value, timestamp_ms) in self._changes.items():
            time_ms = timestamp_ms if timestamp_ms >= 0 else max(0, stream_time_ms)
            yield OutputRecord(topic, key, value, time_ms, partition=self._partition)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
