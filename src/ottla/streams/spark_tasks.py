"""What runs in Spark's Python workers: tasks over batches of rows, stateless or with Spark's state behind
them.

Objects here are sent to workers by pickling; they hold the plan and nothing that is open.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from ottla.records.murmur import key_partitions
from ottla.streams.failures import ErrorPolicy
from ottla.streams.fused import fuse
from ottla.streams.global_tables import GlobalTables
from ottla.streams.plan import Plan
from ottla.streams.records import Headers, InputRecord, Origin, OutputRecord
from ottla.streams.state.backend import Log, MemoryBackend, WriteBackBackend, log_nothing
from ottla.streams.task import MEMORY, Task

HEADERS = "headers array<struct<key:string,value:binary>>"
# Rows on their way into tasks. ``sequence`` orders rows made from one record.
INPUT_SCHEMA = (
    "topic string, task int, offset bigint, sequence bigint, timestamp_ms bigint, key binary, value binary, "
    f"{HEADERS}, origin_topic string, origin_partition int"
)
# Rows as the sink takes them.
OUTPUT_SCHEMA = f"topic string, key binary, value binary, {HEADERS}, partition int, timestamp timestamp"

_TIMESTAMP = pa.timestamp("us", tz="UTC")
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_OUTPUT = pa.schema(
    [
        ("topic", pa.string()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", _HEADERS),
        ("partition", pa.int32()),
        ("timestamp", _TIMESTAMP),
    ]
)
_INPUT = pa.schema(
    [
        ("topic", pa.string()),
        ("task", pa.int32()),
        ("offset", pa.int64()),
        ("sequence", pa.int64()),
        ("timestamp_ms", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", _HEADERS),
        ("origin_topic", pa.string()),
        ("origin_partition", pa.int32()),
    ]
)


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

    def partitions_of(self, topic: str) -> int:
        return self.partition_counts.get(topic, 1)


@dataclass(frozen=True, slots=True)
class StatelessStage:
    """For ``mapInArrow``: runs a stateless part on rows from topics.

    With ``shuffle_to`` the outputs are rows for tasks of that many partitions, else rows for the sink.
    ``copy_to`` are topics that get every row as it came.
    """

    plan: Plan
    settings: TaskSettings
    shuffle_to: int | None = None
    copy_to: tuple[str, ...] = ()

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        outputs: list[OutputRecord] = []
        origins: list[Origin] = []
        task = Task(
            self.plan,
            application_id=self.settings.application_id,
            partition=-1,
            backends=lambda store: MemoryBackend(),
            emit=outputs.append,
            now_ms=_now_ms,
            errors=self.settings.errors,
            partitions_of=self.settings.partitions_of,
            global_stores=GlobalTables.stores(self.plan, self.settings),
        )
        chain = fuse(self.plan)
        sequence = 0
        for batch in batches:
            for record in read_rows(batch):
                for topic in self.copy_to:
                    outputs.append(OutputRecord(topic, record.key, record.value, record.timestamp_ms))
                if chain is None or record.timestamp_ms < 0:
                    task.process(record)
                else:
                    try:
                        outputs.extend(chain.run(record))
                    except Exception:
                        # The task runs into it again, and deals with it as the application wants.
                        task.process(record)
                origins.extend([record.origin] * (len(outputs) - len(origins)))
            if outputs:
                if self.shuffle_to is None:
                    yield sink_rows(outputs)
                else:
                    yield _shuffle_rows(outputs, origins, sequence, self.shuffle_to)
                sequence += len(outputs)
                outputs.clear()
                origins.clear()
        task.close()


class TaskProcessor(StatefulProcessor):
    """Runs a stateful part: one group is one partition, one state map is one store."""

    def __init__(self, plan: Plan, settings: TaskSettings, *, with_timers: bool) -> None:
        self._plan = plan
        self._settings = settings
        self._with_timers = with_timers
        self._states: dict[str, Any] = {}
        self._handle: StatefulProcessorHandle | None = None

    def init(self, handle: StatefulProcessorHandle) -> None:
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
        records = in_order(rows)
        return self._run(key[0], timerValues, records)

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: Any,  # noqa: N803
        expiredTimerInfo: Any,  # noqa: N803
    ) -> Iterator[Any]:
        return self._run(key[0], timerValues, ())

    def close(self) -> None:
        """Nothing is open."""

    def _run(self, partition: int, timer_values: Any, records: Iterable[InputRecord]) -> Iterator[Any]:
        now_ms = timer_values.getCurrentProcessingTimeInMs() if self._with_timers else _now_ms()
        outputs: list[OutputRecord] = []
        changes = Changes(self._plan, self._settings.application_id)
        backends: dict[str, WriteBackBackend] = {
            name: WriteBackBackend(MapStateBackend(state)) for name, state in self._states.items()
        }
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
        task.process_all(records)
        task.fire_wall_clock_timers()
        task.flush()
        task.close()
        for backend in backends.values():
            backend.flush()
        if self._with_timers:
            self._schedule(task.timers.next_wall_clock_ms())
        outputs.extend(changes.records(task.stream_time_ms))
        return (_as_row(output) for output in outputs)

    def _schedule(self, due_ms: int | None) -> None:
        assert self._handle is not None
        for timer_ms in list(self._handle.listTimers()):
            if timer_ms != due_ms:
                self._handle.deleteTimer(timer_ms)
        if due_ms is not None:
            self._handle.registerTimer(due_ms)


class MapStateBackend:
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

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        if not self._state.exists():
            return iter(())
        return iter([(bytes(key[0]), bytes(value[0])) for key, value in self._state.iterator()])


class Changes:
    """Collects the changes of named stores for their changelog topics: the last of each key in a batch."""

    def __init__(self, plan: Plan, application_id: str) -> None:
        self._topics = {
            name: f"{application_id}-{spec.changelog}"
            for name, spec in plan.stores.items()
            if spec.queryable and spec.logged and name not in plan.global_stores
        }
        self._changes: dict[tuple[str, bytes], tuple[bytes | None, int]] = {}

    def log(self, store: str) -> Log:
        topic = self._topics.get(store)
        if topic is None:
            return log_nothing

        def note(key: bytes, value: bytes | None, timestamp_ms: int) -> None:
            self._changes[topic, key] = (value, timestamp_ms)

        return note

    def records(self, stream_time_ms: int) -> Iterator[OutputRecord]:
        for (topic, key), (value, timestamp_ms) in self._changes.items():
            yield OutputRecord(
                topic, key, value, timestamp_ms if timestamp_ms >= 0 else max(0, stream_time_ms)
            )


def in_order(rows: Iterable[Any]) -> Iterator[InputRecord]:
    """Records of a task in the order Kafka Streams takes them: each partition by offset, always the
    partition whose next record is the oldest."""
    queues: dict[tuple[str, str, int], list[tuple[int, int, InputRecord]]] = {}
    for row in rows:
        record = InputRecord(
            row.topic,
            row.task,
            row.offset,
            row.timestamp_ms,
            None if row.key is None else bytes(row.key),
            None if row.value is None else bytes(row.value),
            _headers(row.headers),
            Origin(row.origin_topic, row.origin_partition, row.offset),
        )
        queue = queues.setdefault((row.topic, row.origin_topic, row.origin_partition), [])
        queue.append((row.offset, row.sequence, record))
    heap: list[tuple[int, tuple[str, str, int], int]] = []
    for name, queue in queues.items():
        queue.sort(key=lambda entry: entry[:2])
        heap.append((queue[0][2].timestamp_ms, name, 0))
    heapq.heapify(heap)
    while heap:
        _, name, index = heapq.heappop(heap)
        queue = queues[name]
        yield queue[index][2]
        if index + 1 < len(queue):
            heapq.heappush(heap, (queue[index + 1][2].timestamp_ms, name, index + 1))


def read_rows(batch: pa.RecordBatch) -> Iterator[InputRecord]:
    """Rows of the source as records."""
    columns = {name: batch.column(index) for index, name in enumerate(batch.schema.names)}
    times = columns["timestamp"].cast(pa.int64()).to_numpy(zero_copy_only=False) // 1000
    nothing = [None] * batch.num_rows
    headers = columns["headers"].to_pylist() if "headers" in columns else nothing
    # Rows that went through column expressions say where they came from.
    origins = columns["origin_topic"].to_pylist() if "origin_topic" in columns else nothing
    for topic, partition, offset, timestamp_ms, key, value, header, origin in zip(
        columns["topic"].to_pylist(),
        columns["partition"].to_pylist(),
        columns["offset"].to_pylist(),
        times.tolist(),
        columns["key"].to_pylist(),
        columns["value"].to_pylist(),
        headers,
        origins,
        strict=True,
    ):
        place = None if origin is None else Origin(origin, partition, offset)
        yield InputRecord(topic, partition, offset, timestamp_ms, key, value, _headers(header), place)


def sink_rows(outputs: list[OutputRecord]) -> pa.RecordBatch:
    columns = [
        pa.array([output.topic for output in outputs], pa.string()),
        pa.array([output.key for output in outputs], pa.binary()),
        pa.array([output.value for output in outputs], pa.binary()),
        pa.array([_header_rows(output.headers) for output in outputs], _HEADERS),
        pa.array([output.partition for output in outputs], pa.int32()),
        _timestamps([output.timestamp_ms for output in outputs]),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_OUTPUT)


def _shuffle_rows(
    outputs: list[OutputRecord], origins: list[Origin], sequence: int, partitions: int
) -> pa.RecordBatch:
    keys = pa.array([output.key for output in outputs], pa.binary())
    columns = [
        pa.array([output.topic for output in outputs], pa.string()),
        pa.array(key_partitions(keys, partitions), pa.int32()),
        pa.array([origin.offset for origin in origins], pa.int64()),
        pa.array(np.arange(sequence, sequence + len(outputs)), pa.int64()),
        pa.array([output.timestamp_ms for output in outputs], pa.int64()),
        keys,
        pa.array([output.value for output in outputs], pa.binary()),
        pa.array([_header_rows(output.headers) for output in outputs], _HEADERS),
        pa.array([origin.topic for origin in origins], pa.string()),
        pa.array([origin.partition for origin in origins], pa.int32()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_INPUT)


def _timestamps(milliseconds: list[int]) -> pa.Array:
    return pa.array(np.array(milliseconds, np.int64) * 1000, pa.int64()).cast(_TIMESTAMP)


def _as_row(output: OutputRecord) -> Any:
    return Row(
        topic=output.topic,
        key=output.key,
        value=output.value,
        headers=[Row(key=key, value=value) for key, value in output.headers] or None,
        partition=output.partition,
        timestamp_ms=output.timestamp_ms,
    )


def _header_rows(headers: Headers) -> list[dict[str, Any]] | None:
    return [{"key": key, "value": value} for key, value in headers] if headers else None


def _headers(rows: Any) -> Headers:
    return tuple((row["key"], None if row["value"] is None else bytes(row["value"])) for row in rows or ())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
