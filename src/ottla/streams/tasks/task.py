"""A task: runs the nodes of a sub-topology for one partition, record by record, depth first.

The test driver and Spark's workers run this same code. A task does no I/O: it is given records as they lie
in topics, backends for its stores, and a function that takes what it produces. ``flush`` writes what it
remembers to the backends; a task created anew on them continues where the old one stopped.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Any

from ottla.client.schema_registry import RegistryUnreachable
from ottla.streams.errors import RecordError, StoreError, StreamsError
from ottla.streams.operators.base import BoundOperator, Directed, RecordOperator, Step
from ottla.streams.operators.custom import CustomProcessor
from ottla.streams.plan.plan import Plan, ProcessorNode, SinkNode, SourceNode
from ottla.streams.processor import Processor
from ottla.streams.records import Headers, InputBatch, InputRecord, Origin, OutputRecord, Record, new_tuple
from ottla.streams.state.backend import Backend, Log, log_nothing
from ottla.streams.state.spec import Store, open_store
from ottla.streams.tasks.counts import TaskCounts
from ottla.streams.tasks.failures import ErrorKind, ErrorPolicy, FailedRecord
from ottla.streams.tasks.processor_context import TaskProcessorContext
from ottla.streams.tasks.timers import Timers

# The store of what nodes remember besides their stores: stream times, timers, what was given out.
MEMORY = "__memory"
STREAM_TIME = "stream-time"

_NUMBER = struct.Struct(">q")
_NOWHERE = InputRecord("", -1, -1, -1, None, None)


class Memory:
    """Numbers by name, loaded when asked for and written back on ``flush``."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._numbers: dict[str, int | None] = {}
        self._dirty: set[str] = set()

    def get(self, name: str) -> int | None:
        if name not in self._numbers:
            data = self._backend.get(name.encode())
            self._numbers[name] = None if data is None else _NUMBER.unpack(data)[0]
        return self._numbers[name]

    def set(self, name: str, number: int) -> None:
        self._numbers[name] = number
        self._dirty.add(name)

    def advance(self, name: str, number: int) -> int:
        """The larger of what is remembered and what is given, from now on."""
        present = self.get(name)
        if present is not None and present >= number:
            return present
        self.set(name, number)
        return number

    def flush(self) -> None:
        for name in sorted(self._dirty):
            number = self._numbers[name]
            assert number is not None
            self._backend.put(name.encode(), _NUMBER.pack(number))
        self._dirty.clear()


class Task:
    def __init__(
        self,
        plan: Plan,
        *,
        application_id: str,
        partition: int,
        backends: Callable[[str], Backend],
        emit: Callable[[OutputRecord], None],
        now_ms: Callable[[], int],
        errors: ErrorPolicy | None = None,
        partitions_of: Callable[[str], int] = lambda topic: 1,
        global_stores: dict[str, Store] | None = None,
        columns: Callable[[], Any] | None = None,
        log: Callable[[str], Log] = lambda store: log_nothing,
    ) -> None:
        self.plan = plan
        self.application_id = application_id
        self.partition = partition
        self.errors = errors or ErrorPolicy()
        self.emit = emit
        self.now_ms = now_ms
        self.partitions_of = partitions_of
        self.columns = columns
        self.memory = Memory(backends(MEMORY))
        shared = global_stores or {}
        self.stores: dict[str, Store] = {
            name: shared[name]
            if name in shared
            else open_store(spec, backends(name), log(name), lambda: self.stream_time_ms)
            for name, spec in plan.stores.items()
        }
        self._own_stores = [store for name, store in self.stores.items() if name not in shared]
        self.counts = TaskCounts()
        # The record that is worked on, or was last: itself, or where it is in a batch.
        self._record = _NOWHERE
        self._batch: InputBatch | None = None
        self._index = 0
        # At most the stream time, which may be one from before a restart.
        self._last_time_ms = -1
        self.timers = Timers(self.memory)
        self._steps: dict[str, Step] = {}
        self._by_topic: dict[str, tuple[SourceNode, Step]] = {}
        self._processors: list[Processor] = []
        for source in plan.sources():
            step = self._children_step(source.name)
            for topic in source.topics:
                self._by_topic[topic] = (source, step)

    @property
    def stream_time_ms(self) -> int:
        time_ms = self.memory.get(STREAM_TIME)
        return -1 if time_ms is None else time_ms

    @property
    def record(self) -> InputRecord:
        """The one that is being worked on."""
        return self._record if self._batch is None else self._batch.record(self._index)

    def process_batch(self, batch: InputBatch, start: int = 0, stop: int | None = None) -> None:
        """Take records of a batch through the topology, one after the other."""
        source, step = self._by_topic.get(batch.topic) or self._source(batch.topic)
        span = range(start, len(batch) if stop is None else stop)
        if not batch.is_decoded:
            batch.objects, batch.is_decoded = _objects(source, batch), True
        if batch.objects is None or source.timestamp_extractor is not None:
            for index in span:
                self.process(batch.record(index))
            return
        begin, end = span.start, span.stop
        keys, values = batch.objects
        headers = repeat(()) if batch.headers is None else batch.headers[begin:end]
        columns = keys[begin:end], values[begin:end], batch.timestamps_ms[begin:end], headers
        last_ms, has_timers = self._last_time_ms, bool(self.timers.by_stream_time)
        self._batch = batch
        # `self._index` says which record is meant where a step asks.
        for self._index, key, value, timestamp_ms, own_headers in zip(span, *columns, strict=False):
            if timestamp_ms > last_ms:
                last_ms = self._last_time_ms = self.memory.advance(STREAM_TIME, timestamp_ms)
            step(key, value, timestamp_ms, own_headers)
            if has_timers:
                self.timers.fire_stream_time(self.stream_time_ms)
        self.counts.records[source.name] += len(span)

    def process(self, record: InputRecord) -> None:
        """Take one record through the topology."""
        source, step = self._by_topic.get(record.topic) or self._source(record.topic)
        self._record, self._batch = record, None
        self.counts.records[source.name] += 1
        key = None
        try:
            key = source.key.deserialize(record.key)
            value = source.value.deserialize(record.value)
            timestamp_ms = record.timestamp_ms
            if source.timestamp_extractor is not None:
                timestamp_ms = source.timestamp_extractor(record, value)
            if timestamp_ms < 0:
                raise StreamsError(
                    f"its timestamp is {timestamp_ms}; use a timestamp extractor that gives one"
                )
        except Exception as error:
            self.failed(source.name, record.key if key is None else key, error, ErrorKind.DESERIALIZE)
            return
        if timestamp_ms > self._last_time_ms:
            self._last_time_ms = self.memory.advance(STREAM_TIME, timestamp_ms)
        step(key, value, timestamp_ms, record.headers)
        if self.timers.by_stream_time:
            self.timers.fire_stream_time(self.stream_time_ms)

    def process_all(self, records: Iterable[InputRecord]) -> None:
        for record in records:
            self.process(record)

    def fire_wall_clock_timers(self) -> None:
        self.timers.fire_wall_clock(self.now_ms())

    def flush(self) -> None:
        """Write everything remembered to the backends."""
        for store in self._own_stores:
            store.flush()
        self.memory.flush()

    def close(self) -> None:
        for processor in self._processors:
            processor.close()

    def failed(self, node: str, key: Any, error: Exception, kind: ErrorKind = ErrorKind.PROCESS) -> None:
        # It was dealt with already, or is no matter of this record.
        if isinstance(error, RecordError | RegistryUnreachable):
            raise error
        action = self.errors.handle(FailedRecord(kind, node, key, self.record, error), self.emit)
        self.counts.failed[node, action.value] += 1

    def send(self, node: str, record: Record, child: str | None = None) -> None:
        """Pass a record on from a node: to all children, or to one."""
        if child is None:
            self._children_step(node)(*record)
        elif child in self.plan.children.get(node, ()):
            self._step(child)(*record)
        else:
            raise StreamsError(
                f"{node} has no child named {child}: it has {list(self.plan.children.get(node, ()))}"
            )

    def _source(self, topic: str) -> tuple[SourceNode, Step]:
        """Of a topic that a pattern matches."""
        for source in self.plan.sources():
            if source.reads(topic):
                found = self._by_topic[topic] = (source, self._children_step(source.name))
                return found
        raise StreamsError(f"no source of the topology reads the topic {topic}")

    def _children_step(self, name: str) -> Step:
        steps = [self._step(child) for child in self.plan.children.get(name, ())]
        if len(steps) == 1:
            return steps[0]

        def to_all(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
            for step in steps:
                step(key, value, timestamp_ms, headers)

        return to_all

    def _step(self, name: str) -> Step:
        if name not in self._steps:
            match self.plan.nodes[name]:
                case SinkNode() as sink:
                    self._steps[name] = self._sink_step(sink)
                case ProcessorNode(operator=CustomProcessor() as custom) as node:
                    self._steps[name] = self._custom_step(node, custom)
                case ProcessorNode() as node:
                    self._steps[name] = self._operator_step(node)
                case SourceNode():
                    raise StreamsError(f"the source {name} cannot follow another node")
        return self._steps[name]

    def _operator_step(self, node: ProcessorNode) -> Step:
        context = NodeContext(self, node)
        operator = node.operator
        if isinstance(operator, BoundOperator):
            run = operator.bind(context, self._children_step(node.name))
        else:
            run = self._unbound_step(node, operator, context)
        name, records = node.name, self.counts.records

        def step(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
            records[name] += 1
            try:
                run(key, value, timestamp_ms, headers)
            except Exception as error:
                self.failed(name, key, error)

        return step

    def _unbound_step(self, node: ProcessorNode, operator: RecordOperator, context: NodeContext) -> Step:
        process = operator.process
        forward = self._children_step(node.name)
        children = {child: self._step(child) for child in self.plan.children.get(node.name, ())}

        def step(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
            for output in process(new_tuple(Record, (key, value, timestamp_ms, headers)), context):
                if type(output) is Record:
                    forward(*output)
                elif isinstance(output, Directed):
                    children[output.child](*output.record)

        return step

    def _custom_step(self, node: ProcessorNode, custom: CustomProcessor) -> Step:
        processor = custom.supplier()
        self._processors.append(processor)
        context = TaskProcessorContext(self, node, fixed_key=custom.fixed_key)
        processor.init(context)
        context.is_initialised = True
        records = self.counts.records

        def step(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
            records[node.name] += 1
            context.key = key
            try:
                processor.process(Record(key, value, timestamp_ms, headers))
            except Exception as error:
                self.failed(node.name, key, error)

        return step

    def _sink_step(self, sink: SinkNode) -> Step:
        records, emit = self.counts.records, self.emit
        name, fixed_topic = sink.name, sink.topic if isinstance(sink.topic, str) else None
        choose_topic, choose_partition = sink.topic, sink.partitioner
        write_key, write_value = sink.key.quick_writer(), sink.value.quick_writer()

        def step(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
            records[name] += 1
            try:
                topic, partition = fixed_topic, None
                if topic is None:
                    assert not isinstance(choose_topic, str)
                    topic = choose_topic(key, value, timestamp_ms)
                if choose_partition is not None:
                    partition = choose_partition(topic, key, value, self.partitions_of(topic))
                data = write_key(key), write_value(value)
            except Exception as error:
                self.failed(name, key, error, ErrorKind.PRODUCE)
                return
            emit(new_tuple(OutputRecord, (topic, *data, timestamp_ms, headers, partition)))

        return step


def _objects(source: SourceNode, batch: InputBatch) -> tuple[list[Any], list[Any]] | None:
    """All keys and values of a batch, or nothing if there is a record that cannot be taken: then each is read
    when its turn comes, which tells what is wrong with it."""
    if min(batch.timestamps_ms, default=0) < 0:
        return None
    try:
        return source.key.deserialize_all(batch.keys), source.value.deserialize_all(batch.values)
    except RegistryUnreachable:
        raise
    except Exception:
        return None


def node_time(node: str) -> str:
    """Under which a node's own stream time is remembered."""
    return f"{node}/time"


class NodeContext:
    """The surroundings of one node, as its operator sees them."""

    __slots__ = ("_node", "_stores", "_task")

    def __init__(self, task: Task, node: ProcessorNode) -> None:
        self._task = task
        self._node = node
        self._stores = {name: task.stores[name] for name in node.stores}

    @property
    def origin(self) -> Origin:
        return self._task.record.origin

    @property
    def partition(self) -> int:
        return self._task.partition

    @property
    def now_ms(self) -> int:
        return self._task.now_ms()

    def store(self, name: str) -> Any:
        try:
            return self._stores[name]
        except KeyError:
            known = ", ".join(sorted(self._stores)) or "none"
            raise StoreError(
                f"{self._node.name} is not connected to a store named {name}; connected: {known}"
            ) from None

    def observe(self, timestamp_ms: int, clock: str = "") -> int:
        return self._task.memory.advance(node_time(clock or self._node.name), timestamp_ms)

    def remember(self, name: str, number: int) -> None:
        self._task.memory.set(f"{self._node.name}/{name}", number)

    def recall(self, name: str) -> int | None:
        return self._task.memory.get(f"{self._node.name}/{name}")

    def columns(self) -> Any:
        if self._task.columns is None:
            raise StreamsError(f"{self._node.name} is a column expression, which only Spark can evaluate")
        return self._task.columns()

    def drop(self, reason: str) -> None:
        self._task.counts.dropped[self._node.name, reason] += 1
