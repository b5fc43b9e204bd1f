"""Rows in Spark's workers: records as they come from topics, go to tasks, and leave for the sink."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Row

from ottla.records.murmur import key_partitions
from ottla.streams.records import Headers, InputRecord, Origin, OutputRecord

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


class OutputRows:
    """What a stage produces, column by column."""

    __slots__ = ("headers", "keys", "origins", "partitions", "timestamps_ms", "topics", "values")

    def __init__(self) -> None:
        self.topics: list[str] = []
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.timestamps_ms: list[int] = []
        self.headers: list[list[dict[str, Any]] | None] = []
        self.partitions: list[int | None] = []
        self.origins: list[Origin] = []

    def add(self, output: OutputRecord) -> None:
        self.topics.append(output.topic)
        self.keys.append(output.key)
        self.values.append(output.value)
        self.timestamps_ms.append(output.timestamp_ms)
        self.headers.append(_header_rows(output.headers))
        self.partitions.append(output.partition)

    def add_pairs(
        self, topic: str, pairs: list[tuple[bytes | None, bytes | None]], record: InputRecord
    ) -> None:
        """Keys and values made of one record."""
        count = len(pairs)
        self.keys += [key for key, _ in pairs]
        self.values += [value for _, value in pairs]
        self.topics += [topic] * count
        self.timestamps_ms += [record.timestamp_ms] * count
        self.headers += [_header_rows(record.headers)] * count
        self.partitions += [None] * count

    def note_origin(self, origin: Origin) -> None:
        """Where the rows added since the last note came from."""
        self.origins += [origin] * (len(self.topics) - len(self.origins))

    def clear(self) -> None:
        for name in self.__slots__:
            getattr(self, name).clear()

    def for_sink(self) -> pa.RecordBatch:
        columns = [
            pa.array(self.topics, pa.string()),
            pa.array(self.keys, pa.binary()),
            pa.array(self.values, pa.binary()),
            pa.array(self.headers, _HEADERS),
            pa.array(self.partitions, pa.int32()),
            pa.array(np.array(self.timestamps_ms, np.int64) * 1000, pa.int64()).cast(_TIMESTAMP),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=_OUTPUT)

    def for_tasks(self, sequence: int, partitions: int) -> pa.RecordBatch:
        keys = pa.array(self.keys, pa.binary())
        columns = [
            pa.array(self.topics, pa.string()),
            pa.array(key_partitions(keys, partitions), pa.int32()),
            pa.array([origin.offset for origin in self.origins], pa.int64()),
            pa.array(np.arange(sequence, sequence + len(keys)), pa.int64()),
            pa.array(self.timestamps_ms, pa.int64()),
            keys,
            pa.array(self.values, pa.binary()),
            pa.array(self.headers, _HEADERS),
            pa.array([origin.topic for origin in self.origins], pa.string()),
            pa.array([origin.partition for origin in self.origins], pa.int32()),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=_INPUT)


def _header_rows(headers: Headers) -> list[dict[str, Any]] | None:
    return [{"key": key, "value": value} for key, value in headers] if headers else None


def _headers(rows: Any) -> Headers:
    return tuple((row["key"], None if row["value"] is None else bytes(row["value"])) for row in rows or ())


def as_row(output: OutputRecord) -> Any:
    return Row(
        topic=output.topic,
        key=output.key,
        value=output.value,
        headers=[Row(key=key, value=value) for key, value in output.headers] or None,
        partition=output.partition,
        timestamp_ms=output.timestamp_ms,
    )
