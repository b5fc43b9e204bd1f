"""TopologyTestDriver: runs a topology on lists of records, without a broker and without Spark, in
milliseconds.

Every sub-topology runs as one task with one partition, and records that reach an internal topic are read
from it at once, so that the outputs of an input are there when ``pipe_input`` returns. Tasks and processors
are made anew after each input, as for each micro-batch on Spark: what must last has to be in a store. Column
expressions, if there are any, are evaluated on a local Spark session that is started when the first one is
met.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ottla.streams.errors import StreamsError
from ottla.streams.plan.plan import Plan, subtopologies
from ottla.streams.plan.topology import Topology
from ottla.streams.records import Headers, InputRecord, OutputRecord, Record
from ottla.streams.serdes import Serde, Serdes
from ottla.streams.state.backend import Backend, MemoryBackend
from ottla.streams.state.spec import Store, open_store
from ottla.streams.tasks.failures import ErrorHandlers, ErrorPolicy, OnError
from ottla.streams.tasks.task import Task
from ottla.streams.windows import Duration, milliseconds

# The state of a driver: by task, then by store.
State = dict[int, dict[str, dict[bytes, bytes]]]


class TopologyTestDriver:
    """Use it with ``with``, or call ``close``. ``state`` continues from what another driver's ``state()``
    gave."""

    def __init__(
        self,
        topology: Topology,
        *,
        application_id: str = "test",
        wall_clock_time_ms: int = 0,
        on_error: OnError | str | ErrorHandlers = OnError.FAIL,
        dead_letter_topic: str | None = None,
        state: State | None = None,
    ) -> None:
        self._plan = topology.plan.decorated(application_id)
        self._application_id = application_id
        self._now_ms = wall_clock_time_ms
        self._errors = ErrorPolicy.of(on_error, dead_letter_topic)
        self._state: State = state or {}
        self._offsets: dict[str, int] = {}
        self._pending: deque[OutputRecord] = deque()
        self._outputs: dict[str, deque[OutputRecord]] = {}
        self._global_stores: dict[str, Store] = {}
        self._dropped: Counter[str] = Counter()
        self._columns: Any = None
        self._parts = [self._plan.only(names) for names in subtopologies(self._plan)]
        self._open_global_stores()
        self._tasks = [self._task(number) for number in range(len(self._parts))]

    def __enter__(self) -> TopologyTestDriver:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def create_input_topic(
        self,
        topic: str,
        key: Serde | type = str,
        value: Serde | type = str,
        *,
        start_timestamp_ms: int | None = None,
        auto_advance: Duration = 0,
    ) -> TestInputTopic:
        """A topic to pipe records into. Without timestamps they get the start and advance, or the driver's
        clock."""
        step_ms = milliseconds("auto advance", auto_advance)
        return TestInputTopic(self, topic, Serdes.of(key), Serdes.of(value), start_timestamp_ms, step_ms)

    def create_output_topic(
        self, topic: str, key: Serde | type = str, value: Serde | type = str
    ) -> TestOutputTopic:
        """A topic to read results from."""
        return TestOutputTopic(self, topic, Serdes.of(key), Serdes.of(value))

    def advance_wall_clock_time(self, span: Duration) -> None:
        """Let time pass, which fires timers by the clock."""
        self._now_ms += milliseconds("span", span)
        for task in self._tasks:
            task.fire_wall_clock_timers()
        self._drain()
        self._renew_tasks()

    def get_state_store(self, name: str) -> Any:
        """The store of that name, with everything processed so far."""
        for number, task in enumerate(self._tasks):
            if name in task.stores:
                return _CurrentStore(self, number, name)
        known = sorted({store for task in self._tasks for store in task.stores})
        raise StreamsError(f"there is no store named {name}; there are {known}")

    def current_store(self, task: int, name: str) -> Store:
        return self._tasks[task].stores[name]

    def state(self) -> State:
        """Everything the topology remembers, as bytes: what a restart would find."""
        for task in self._tasks:
            task.flush()
        for store in self._global_stores.values():
            store.flush()
        return {
            task: {store: dict(entries) for store, entries in stores.items()}
            for task, stores in self._state.items()
        }

    @property
    def dropped(self) -> dict[str, int]:
        """How many records were skipped by the rules of operators, by reason."""
        return dict(sum((task.counts.dropped_by_reason() for task in self._tasks), self._dropped))

    @property
    def produced_topics(self) -> list[str]:
        """Topics with output that was not read yet."""
        return sorted(topic for topic, records in self._outputs.items() if records)

    def close(self) -> None:
        for task in self._tasks:
            task.close()
        if self._columns is not None:
            self._columns.close()

    def pipe(
        self, topic: str, key: bytes | None, value: bytes | None, timestamp_ms: int, headers: Headers
    ) -> None:
        """Process one record and everything that follows from it."""
        if not any(source.reads(topic) for source in self._plan.sources()):
            read = sorted({name for source in self._plan.sources() for name in source.topics})
            raise StreamsError(f"the topology does not read the topic {topic}; it reads {read}")
        self._deliver(OutputRecord(topic, key, value, timestamp_ms, headers))
        self._drain()
        self._renew_tasks()

    @property
    def now_ms(self) -> int:
        return self._now_ms

    def output(self, topic: str) -> deque[OutputRecord]:
        return self._outputs.setdefault(topic, deque())

    def _open_global_stores(self) -> None:
        for number, part in enumerate(self._parts):
            if _is_global(part):
                for name in part.global_stores:
                    self._global_stores[name] = open_store(part.stores[name], self._backend(number, name))

    def _task(self, number: int) -> Task:
        part = self._parts[number]
        return Task(
            part,
            application_id=self._application_id,
            partition=0,
            backends=lambda store: self._backend(number, store),
            emit=self._pending.append,
            now_ms=lambda: self._now_ms,
            errors=self._errors.without_dead_letters() if _is_global(part) else self._errors,
            global_stores=self._global_stores,
            columns=self._column_evaluator,
        )

    def _renew_tasks(self) -> None:
        """Those that fill global stores live on, as in Spark's workers."""
        for number, task in enumerate(self._tasks):
            if not _is_global(task.plan):
                task.flush()
                task.close()
                self._dropped += task.counts.dropped_by_reason()
                self._tasks[number] = self._task(number)

    def _backend(self, task: int, store: str) -> Backend:
        return MemoryBackend(self._state.setdefault(task, {}).setdefault(store, {}))

    def _column_evaluator(self) -> Any:
        if self._columns is None:
            from ottla.streams.on_spark.column_evaluator import ColumnEvaluator

            self._columns = ColumnEvaluator()
        return self._columns

    def _drain(self) -> None:
        while self._pending:
            record = self._pending.popleft()
            if record.topic not in self._plan.internal_topics:
                self.output(record.topic).append(record)
            self._deliver(record)

    def _deliver(self, record: OutputRecord) -> None:
        offset = self._offsets.get(record.topic, 0)
        self._offsets[record.topic] = offset + 1
        placed = InputRecord(
            record.topic, 0, offset, record.timestamp_ms, record.key, record.value, record.headers
        )
        for task in self._tasks:
            if any(source.reads(record.topic) for source in task.plan.sources()):
                task.process(placed)


def _is_global(part: Plan) -> bool:
    return part.nodes.keys() <= part.global_nodes


class _CurrentStore:
    """A store of the driver, whichever task has it now."""

    def __init__(self, driver: TopologyTestDriver, task: int, name: str) -> None:
        self._driver, self._task, self._name = driver, task, name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._driver.current_store(self._task, self._name), attribute)


@dataclass(slots=True)
class TestInputTopic:
    __test__ = False

    driver: TopologyTestDriver
    topic: str
    key: Serde
    value: Serde
    next_timestamp_ms: int | None
    step_ms: int

    def pipe_input(
        self, key: Any, value: Any, timestamp_ms: int | None = None, headers: Headers = ()
    ) -> None:
        """Send one record through the topology."""
        if timestamp_ms is None:
            timestamp_ms = self.driver.now_ms if self.next_timestamp_ms is None else self.next_timestamp_ms
            if self.next_timestamp_ms is not None:
                self.next_timestamp_ms += self.step_ms
        self.driver.pipe(
            self.topic, self.key.serialize(key), self.value.serialize(value), timestamp_ms, headers
        )

    def pipe_value(self, value: Any, timestamp_ms: int | None = None) -> None:
        """Send a record without a key."""
        self.pipe_input(None, value, timestamp_ms)

    def pipe_records(self, records: Iterable[Record | tuple[Any, Any] | tuple[Any, Any, int]]) -> None:
        """Send records, or tuples of key, value and optionally timestamp, one after the other."""
        for record in records:
            if isinstance(record, Record):
                self.pipe_input(record.key, record.value, record.timestamp_ms, record.headers)
            else:
                self.pipe_input(*record)

    def pipe_bytes(self, key: bytes | None, value: bytes | None, timestamp_ms: int = 0) -> None:
        """Send a record as it would lie in the topic, be it well-formed or not."""
        self.driver.pipe(self.topic, key, value, timestamp_ms, ())


@dataclass(slots=True)
class TestOutputTopic:
    __test__ = False

    driver: TopologyTestDriver
    topic: str
    key: Serde
    value: Serde

    def read_record(self) -> Record:
        """The next record; an error if there is none."""
        records = self.driver.output(self.topic)
        if not records:
            raise StreamsError(
                f"the topic {self.topic} has no unread record; others: {self.driver.produced_topics}"
            )
        record = records.popleft()
        return Record(
            self.key.deserialize(record.key),
            self.value.deserialize(record.value),
            record.timestamp_ms,
            record.headers,
        )

    def read_key_value(self) -> tuple[Any, Any]:
        record = self.read_record()
        return record.key, record.value

    def read_value(self) -> Any:
        return self.read_record().value

    def read_records(self) -> list[Record]:
        """All unread records."""
        return [self.read_record() for _ in range(self.queue_size)]

    def read_key_values(self) -> list[tuple[Any, Any]]:
        return [(record.key, record.value) for record in self.read_records()]

    def read_values(self) -> list[Any]:
        return [record.value for record in self.read_records()]

    def read_map(self) -> dict[Any, Any]:
        """The last value of each key among the unread records; deleted keys are absent."""
        rows: dict[Any, Any] = {}
        for key, value in self.read_key_values():
            rows[key] = value
        return {key: value for key, value in rows.items() if value is not None}

    @property
    def queue_size(self) -> int:
        return len(self.driver.output(self.topic))

    @property
    def is_empty(self) -> bool:
        return self.queue_size == 0
