"""What the tasks of a sink do: turn rows into record batches, and send record batches.

Plain writing does both in one task. Exactly-once writing on a cluster does them in two, with a shuffle
between: a partition must have a single writer, whose sequence numbers start at 0, and shuffling batches moves
a tenth of the bytes and a thousandth of the rows that shuffling the data would.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import pyarrow as pa

from ottla.client.produce import PartitionProducer
from ottla.client.transaction import add_partitions, new_producer
from ottla.records.arrow_encode import encode_columns
from ottla.records.producer import ProducerIdentity
from ottla.records.stamp import next_sequence, stamped
from ottla.spark.connection import Connection, shared_connection
from ottla.spark.routing import Router, UnknownTarget
from ottla.spark.sink_options import SinkOptions
from ottla.spark.sink_rows import record_columns
from ottla.spark.workers import settle

BATCH_SCHEMA: Final = pa.schema(
    [
        ("writer", pa.int32()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("records", pa.int32()),
        ("data", pa.binary()),
    ]
)
BATCH_TYPES: Final = "writer int, topic string, partition int, records int, data binary"
WRITTEN_SCHEMA: Final = pa.schema(
    [
        ("stage", pa.int32()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("records", pa.int64()),
        ("bytes", pa.int64()),
    ]
)
WRITTEN_TYPES: Final = "stage int, topic string, partition int, records bigint, bytes bigint"
# Rows with encoded batches leave a task in groups of about this size.
_GROUP_BYTES: Final = 8 * 1024 * 1024
# How old numbers of partitions may be: small micro-batches would ask for them many times a second.
_COUNTS_AGE_S: Final = 5.0
_counts: Final[dict[Connection, dict[str, tuple[int, float]]]] = {}


Stage: TypeAlias = Callable[[Iterable[Any]], Iterator[Any]]
"""For `mapInArrow`."""


@dataclass(frozen=True, slots=True)
class Staged:
    """Two functions for `mapInArrow` in one worker: between two, rows would go through Java."""

    first: Stage
    second: Stage

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        return self.second(self.first(batches))


@dataclass(frozen=True, slots=True)
class Unencoded:
    """Rows for the sink that are encoded in the worker which makes them.

    `encoded` makes the data frame, of a function from rows to what is left of them, as for `mapInArrow`, and
    the types of that.
    """

    session: Any
    encoded: Callable[[Stage, str], Any]


class WriterRepeated(Exception):
    """A task that writes was started again; what its first attempt wrote stands in the transaction."""


@dataclass(frozen=True, slots=True)
class EncodeTask:
    """Rows → record batches, for `mapInArrow`."""

    options: SinkOptions
    writer_count: int

    def __call__(self, rows: Iterable[Any]) -> Iterator[Any]:
        settle()
        group: list[tuple[int, str, int, int, bytes]] = []
        group_bytes = 0
        for (topic, partition), record_count, data in encoded(rows, self.options):
            writer = (zlib.crc32(topic.encode()) + partition) % self.writer_count
            group.append((writer, topic, partition, record_count, data))
            group_bytes += len(data)
            if group_bytes >= _GROUP_BYTES:
                yield as_arrow(group, BATCH_SCHEMA)
                group, group_bytes = [], 0
        if group:
            yield as_arrow(group, BATCH_SCHEMA)


@dataclass(frozen=True, slots=True)
class TransactionalWriteTask:
    """Record batches → their partitions within one transaction, for `mapInArrow`. One task per partition.

    Spark starts a task again when it, or the machine it ran on, is lost. The second attempt cannot know how
    far the first came, nor whether its rows come in the same order, so it refuses: the transaction is
    aborted and the micro-batch is done again as a whole.
    """

    options: SinkOptions
    transactional_id: str
    producer: ProducerIdentity

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() > 0:
            raise WriterRepeated(f"attempt {context.attemptNumber()} of a writer of {self.transactional_id}")
        connection = sink_connection(self.options)
        with BatchSender(connection, self.producer, self.transactional_id) as sender:
            send_batches(sender, batches)
        rows = [(context.stageId(), *target, *sent) for target, sent in sorted(sender.sent.items())]
        yield as_arrow(rows, WRITTEN_SCHEMA)


def send_batches(sender: BatchSender, groups: Iterable[Any]) -> None:
    """What `EncodeTask` gives."""
    for group in groups:
        columns = [group.column(name) for name in ("topic", "partition", "records", "data")]
        topics, partitions, counts = (column.to_pylist() for column in columns[:3])
        sender.announce(zip(topics, partitions, strict=True))
        for index, data in enumerate(columns[3]):
            sender.send((topics[index], partitions[index]), counts[index], data.as_buffer())


def write_plainly(rows: Iterable[Any], options: SinkOptions) -> int:
    """Rows → their partitions at once; returns the number of records."""
    settle()
    connection = sink_connection(options)
    producer = connection.run(new_producer(connection.cluster))
    with BatchSender(connection, producer, None) as sender:
        for target, record_count, data in encoded(rows, options):
            sender.send(target, record_count, data)
    return sum(records for records, _ in sender.sent.values())


class BatchSender:
    """Gives batches their sequence numbers and sends them; leaving the `with` waits for all of them."""

    def __init__(
        self, connection: Connection, producer: ProducerIdentity, transactional_id: str | None
    ) -> None:
        self._connection = connection
        self._producer = producer
        self._transactional_id = transactional_id
        self._senders: dict[tuple[str, int], PartitionProducer] = {}
        self._sequences: dict[tuple[str, int], int] = {}
        self.sent: dict[tuple[str, int], tuple[int, int]] = {}
        """Records and bytes per partition."""

    def __enter__(self) -> BatchSender:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        if kind is None:
            self._connection.run(self._flush())
        else:
            self._connection.run(self._cancel())

    def announce(self, targets: Iterable[tuple[str, int]]) -> None:
        """Makes partitions part of the transaction, if there is one, before anything is sent to them."""
        if self._transactional_id is None:
            return
        fresh = sorted(set(targets) - self._senders.keys())
        if fresh:
            action = add_partitions(self._connection.cluster, self._transactional_id, self._producer, fresh)
            self._connection.run(action)

    def send(self, target: tuple[str, int], record_count: int, batch: Any) -> None:
        sequence = self._sequences.get(target, 0)
        is_transactional = self._transactional_id is not None
        data = stamped(batch, *self._producer, sequence, transactional=is_transactional)
        self._sequences[target] = next_sequence(sequence, record_count)
        records, size = self.sent.get(target, (0, 0))
        self.sent[target] = records + record_count, size + len(data)
        sender = self._senders.get(target)
        if sender is None:
            sender = PartitionProducer(
                self._connection.cluster, *target, transactional_id=self._transactional_id
            )
            self._senders[target] = sender
        self._connection.run(sender.send(data))

    async def _flush(self) -> None:
        for sender in self._senders.values():
            await sender.flush()

    async def _cancel(self) -> None:
        for sender in self._senders.values():
            sender.cancel()


def encoded(rows: Iterable[Any], options: SinkOptions) -> Iterator[tuple[tuple[str, int], int, bytes]]:
    """Target, number of records and data of each batch that the rows make."""
    from pyspark import TaskContext

    now_ms = time.time_ns() // 1_000_000
    context = TaskContext.get()
    start = context.partitionId() if context is not None else 0
    router = Router(options.topic, partition_counts(options), start + now_ms)
    for batch in rows:
        if batch.num_rows == 0:
            continue
        columns = record_columns(batch, now_ms)
        try:
            targets, meaning = router.route(batch, columns.key)
        except UnknownTarget:
            # Before it is said, the cluster is asked: what is remembered may be from before a topic grew.
            _counts.pop(sink_connection(options), None)
            router = Router(options.topic, partition_counts(options), start + now_ms)
            targets, meaning = router.route(batch, columns.key)
        made = encode_columns(columns, targets, codec=options.codec, batch_bytes=options.batch_bytes)
        for unstamped in made:
            yield meaning[unstamped.target], unstamped.record_count, unstamped.data


def partition_counts(options: SinkOptions) -> Callable[[Sequence[str]], Mapping[str, int]]:
    """Asks the cluster once per topic, unless this process has asked a moment ago."""
    known: dict[str, int] = {}

    def counts(topics: Sequence[str]) -> Mapping[str, int]:
        if all(topic in known for topic in topics):
            return known
        connection = sink_connection(options)
        remembered = _counts.setdefault(connection, {})
        now_s = time.monotonic()
        for topic in topics:
            count, until_s = remembered.get(topic, (0, 0.0))
            if now_s < until_s:
                known.setdefault(topic, count)
        missing = [topic for topic in topics if topic not in known]
        if missing:
            found = connection.run(connection.cluster.topics(missing))
            absent = [topic for topic in missing if topic not in found]
            if absent:
                raise UnknownTarget(
                    f"The topic {absent[0]} does not exist at {options.bootstrap_servers}: create it, "
                    "with as many partitions as should be written in parallel."
                )
            for name, topic_info in found.items():
                known[name] = len(topic_info.partitions)
                remembered[name] = known[name], now_s + _COUNTS_AGE_S
        return known

    return counts


def sink_connection(options: SinkOptions) -> Connection:
    return shared_connection(options.bootstrap_servers, options.client_properties)


def as_arrow(rows: Sequence[tuple[Any, ...]], schema: Any) -> Any:
    """Rows as a pa.RecordBatch."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
