"""Rows in Spark's workers: records as they come from topics, and leave for an aggregation or the sink."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ottla.streams.records import Headers, InputRecord, Origin, OutputRecord

# Rows on their way into Spark's own aggregation.
AGGREGATED_SCHEMA = "timestamp_ms bigint, key binary, value binary"
# Rows as the sink takes them.
OUTPUT_SCHEMA = (
    "topic string, key binary, value binary, headers array<struct<key:string,value:binary>>, "
    "partition int, timestamp timestamp"
)

_TIMESTAMP = pa.timestamp("us", tz="UTC")
HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
OUTPUT = pa.schema(
    [
        ("topic", pa.string()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS_TYPE),
        ("partition", pa.int32()),
        ("timestamp", _TIMESTAMP),
    ]
)
_AGGREGATED = pa.schema([("timestamp_ms", pa.int64()), ("key", pa.binary()), ("value", pa.binary())])


def read_rows(batch: pa.RecordBatch) -> Iterator[InputRecord]:
    """Rows of the source as records."""
    columns = {name: batch.column(index) for index, name in enumerate(batch.schema.names)}
    offsets = columns["offset"].to_numpy().tolist()
    partitions = columns["partition"].to_numpy().tolist()
    headers = header_list(columns["headers"]) if "headers" in columns else repeat(())
    origins: Iterable[Origin | None] = repeat(None)
    # Rows that went through column expressions say where they came from.
    if "origin_topic" in columns:
        origins = map(Origin, as_list(columns["origin_topic"]), partitions, offsets)
    return map(
        InputRecord,
        as_list(columns["topic"]),
        partitions,
        offsets,
        timestamps(columns["timestamp"]).tolist(),
        as_list(columns["key"]),
        as_list(columns["value"]),
        headers,
        origins,
    )


class OutputRows:
    """What a stage produces, column by column."""

    __slots__ = ("headers", "keys", "origins", "partitions", "timestamps_ms", "topics", "values")

    def __init__(self) -> None:
        self.topics: list[str] = []
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.timestamps_ms: list[int] = []
        self.headers: list[Headers] = []
        self.partitions: list[int | None] = []
        self.origins: list[Origin] = []

    def add(self, output: OutputRecord) -> None:
        self.topics.append(output.topic)
        self.keys.append(output.key)
        self.values.append(output.value)
        self.timestamps_ms.append(output.timestamp_ms)
        self.headers.append(output.headers)
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
        self.headers += [record.headers] * count
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
            header_column(self.headers),
            pa.array(self.partitions, pa.int32()),
            pa.array(np.array(self.timestamps_ms, np.int64) * 1000, pa.int64()).cast(_TIMESTAMP),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=OUTPUT)

    def for_aggregation(self) -> pa.RecordBatch:
        columns = [
            pa.array(self.timestamps_ms, pa.int64()),
            pa.array(self.keys, pa.binary()),
            pa.array(self.values, pa.binary()),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=_AGGREGATED)


def output_batch(outputs: Sequence[OutputRecord]) -> pa.RecordBatch:
    """At least one."""
    topics, keys, values, times_ms, headers, partitions = zip(*outputs, strict=True)
    columns = [
        pa.array(topics, pa.string()),
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        header_column(headers),
        pa.array(partitions, pa.int32()),
        pa.array(np.array(times_ms, np.int64) * 1000).cast(_TIMESTAMP),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=OUTPUT)


def header_column(rows: Sequence[Headers]) -> pa.Array:
    """Empty rather than null: of a column of null lists, Spark goes through all rows for each row."""
    if any(rows):
        lists = [[{"key": key, "value": value} for key, value in headers] for headers in rows]
        return pa.array(lists, HEADERS_TYPE)
    bounds = pa.array(np.zeros(len(rows) + 1, np.int32))
    return pa.ListArray.from_arrays(bounds, pa.array([], HEADERS_TYPE.value_type), type=HEADERS_TYPE)


def header_list(column: pa.Array) -> Iterable[Headers]:
    """Headers row by row; endless where there are none at all."""
    if not len(column.flatten()):
        return repeat(())
    return (tuple((each["key"], each["value"]) for each in row or ()) for row in column.to_pylist())


def as_list(column: pa.Array) -> list[Any]:
    """Faster than ``to_pylist``, which makes an object of Arrow's own for each element first."""
    values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return values


def timestamps(column: pa.Array) -> npt.NDArray[np.int64]:
    """In milliseconds."""
    times: npt.NDArray[np.int64] = column.cast(pa.int64()).to_numpy(zero_copy_only=False) // 1000
    return times
