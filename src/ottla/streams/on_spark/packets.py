"""Packets: many records in one Spark row, between the stages of a query with tasks.

A row costs Spark's stateful operator, and its Python side, many times what a record costs a task. So records
travel to tasks as Arrow record batches inside a binary column. A packet holds
records of one partition on their way into one task, in the order of their offsets.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ottla.records.murmur import key_partitions
from ottla.spark.workers import settle
from ottla.streams.errors import StreamsError
from ottla.streams.on_spark.rows import (
    HEADERS_TYPE,
    OutputRows,
    as_list,
    header_column,
    header_list,
    read_rows,
    timestamps,
)
from ottla.streams.on_spark.slots import slot_of
from ottla.streams.records import InputBatch, InputRecord

# What Spark sees of records on their way into tasks.
PACKETS = (
    "slot bigint, task int, topic string, origin_topic string, origin_partition int, "
    "first_offset bigint, last_offset bigint, sequence bigint, records binary"
)

PACKET_BYTES = 1024 * 1024
# Each packet of a changelog touches most pages of a store: few large ones are restored faster.
RESTORED_PACKET_BYTES = 32 * 1024 * 1024
# Packets of different stages are told apart by it, so that their order does not depend on when they arrive.
_STAGE_SHIFT = 40

_PACKETS = pa.schema(
    [
        ("slot", pa.int64()),
        ("task", pa.int32()),
        ("topic", pa.string()),
        ("origin_topic", pa.string()),
        ("origin_partition", pa.int32()),
        ("first_offset", pa.int64()),
        ("last_offset", pa.int64()),
        ("sequence", pa.int64()),
        ("records", pa.binary()),
    ]
)
_RECORDS = pa.schema(
    [
        ("offset", pa.int64()),
        ("timestamp_ms", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS_TYPE),
    ]
)


class Queue(NamedTuple):
    """Records a task takes in order: of a topic, and of the partition they were read from."""

    topic: str
    origin_topic: str
    origin_partition: int


@dataclass(frozen=True, slots=True)
class PackStage:
    """For ``mapInArrow``: rows from topics as packets for so many tasks, the partition being the task, or
    the key saying which it is."""

    tasks: int
    by_key: bool = False

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        packer = Packer(0)
        for batch in batches:
            if batch.num_rows:
                columns = {name: batch.column(index) for index, name in enumerate(batch.schema.names)}
                partitions = columns["partition"].to_numpy()
                records = [
                    columns["offset"],
                    pa.array(timestamps(columns["timestamp"])),
                    columns["key"],
                    columns["value"],
                    columns["headers"].cast(HEADERS_TYPE),
                ]
                topics = columns["topic"]
                yield packer.pack(records, self._tasks(batch, partitions), topics, topics, partitions)

    def _tasks(self, batch: pa.RecordBatch, partitions: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        if self.by_key:
            keys = batch.column("key")
            without_key = keys.is_null().to_numpy(zero_copy_only=False)
            return np.where(without_key, partitions % self.tasks, key_partitions(keys, self.tasks))
        if int(partitions.max()) >= self.tasks:
            topic = batch.column("topic")[int(partitions.argmax())].as_py()
            raise StreamsError(grown(topic, self.tasks))
        return partitions


def grown(topic: str, tasks: int) -> str:
    """Said while a query runs. Its keys may be in other partitions now, where another task would not know
    them."""
    return f"{topic} has more partitions than there are tasks, which is {tasks}: start the application again"


def latest_entries(batches: Iterable[pa.RecordBatch], versioned: Collection[str] = ()) -> list[InputRecord]:
    """What partitions of changelogs hold: of a key the last record, and none if that deletes it. Of topics
    with versions the last record of each key and time."""
    latest: dict[tuple[str, int, bytes | None, int], InputRecord] = {}
    for batch in batches:
        for record in read_rows(batch):
            has_versions = record.topic in versioned
            time_ms = record.timestamp_ms if has_versions else 0
            place = (record.topic, record.partition, record.key, time_ms)
            if record.value is None and not has_versions:
                latest.pop(place, None)
            else:
                latest[place] = record
    return list(latest.values())


def restored_packets(
    batches: Iterable[pa.RecordBatch], versioned: Collection[str] = ()
) -> Iterator[pa.RecordBatch]:
    """For ``mapInArrow``: changelogs as packets for the tasks whose state they are. Of a key the last record
    only, because packets come in any order, and none if that deletes it."""
    packer = Packer(0, RESTORED_PACKET_BYTES)
    records = latest_entries(batches, versioned)
    if records:
        topics = pa.array([record.topic for record in records], pa.string())
        partitions = np.array([record.partition for record in records], np.int32)
        columns = [
            pa.array([record.offset for record in records], pa.int64()),
            pa.array([record.timestamp_ms for record in records], pa.int64()),
            pa.array([record.key for record in records], pa.binary()),
            pa.array([record.value for record in records], pa.binary()),
            pa.array([[]] * len(records), HEADERS_TYPE),
        ]
        yield packer.pack(columns, partitions, topics, topics, partitions)


class Packer:
    """Makes packets of the batches of a stage."""

    def __init__(self, stage: int, packet_bytes: int = PACKET_BYTES) -> None:
        self._sequence = stage << _STAGE_SHIFT
        self._packet_bytes = packet_bytes

    def pack_outputs(self, rows: OutputRows, partitions: int) -> pa.RecordBatch:
        """What a stage produces, for tasks of so many partitions."""
        keys = pa.array(rows.keys, pa.binary())
        columns = [
            pa.array([origin.offset for origin in rows.origins], pa.int64()),
            pa.array(rows.timestamps_ms, pa.int64()),
            keys,
            pa.array(rows.values, pa.binary()),
            header_column(rows.headers),
        ]
        return self.pack(
            columns,
            key_partitions(keys, partitions),
            pa.array(rows.topics, pa.string()),
            pa.array([origin.topic for origin in rows.origins], pa.string()),
            np.array([origin.partition for origin in rows.origins], np.int32),
        )

    def pack(
        self,
        columns: Sequence[pa.Array],
        tasks: npt.NDArray[np.int32],
        topics: pa.Array,
        origin_topics: pa.Array,
        origin_partitions: npt.NDArray[np.int32],
    ) -> pa.RecordBatch:
        """``columns`` are those of the records: offset, timestamp, key, value and headers."""
        records = pa.RecordBatch.from_arrays(columns, schema=_RECORDS)
        topic_codes, topic_names = _coded(topics)
        origin_codes, origin_names = _coded(origin_topics)
        codes = _combined(topic_codes, origin_codes, origin_partitions, tasks)
        offsets = columns[0].to_numpy()
        if (codes != codes[0]).any() or (np.diff(offsets) < 0).any():
            order = np.lexsort((offsets, codes))
            records = records.take(pa.array(order))
            codes, offsets = codes[order], offsets[order]
        else:
            order = np.arange(len(codes))
        bounds = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
        rows: list[tuple[Any, ...]] = []
        rows_max = max(1, self._packet_bytes * len(codes) // max(1, records.nbytes))
        for begin, end in pairwise(bounds):
            first = order[begin]
            queue = (
                slot_of(int(tasks[first])),
                int(tasks[first]),
                topic_names[topic_codes[first]],
                origin_names[origin_codes[first]],
                int(origin_partitions[first]),
            )
            for start in range(begin, end, rows_max):
                stop = min(end, start + rows_max)
                data = records.slice(start, stop - start).serialize()
                place = int(offsets[start]), int(offsets[stop - 1]), self._sequence
                rows.append((*queue, *place, data.to_pybytes()))
                self._sequence += 1
        arrays = [pa.array(values, field.type) for values, field in zip(zip(*rows), _PACKETS, strict=True)]  # noqa: B905
        return pa.RecordBatch.from_arrays(arrays, schema=_PACKETS)


class Run(NamedTuple):
    """Records that stand together in a batch and come right after one another."""

    batch: InputBatch
    start: int
    stop: int


def in_order(packets: Iterable[Any]) -> Iterator[Run]:
    """Records of a task in the order Kafka Streams takes them: each partition by offset, always the
    partition whose next record is the oldest."""
    queues: dict[Queue, list[Any]] = {}
    for packet in packets:
        queues.setdefault(_queue_of(packet), []).append(packet)
    # By the time of the next record: a batch, where in it that is, and the batches behind it.
    heads: list[tuple[int, Queue, InputBatch, int, Iterator[InputBatch]]] = []
    for queue, waiting in queues.items():
        batches = _of_queue(waiting)
        first = next(batches)
        heads.append((first.timestamps_ms[0], queue, first, 0, batches))
    heapq.heapify(heads)
    while len(heads) > 1:
        _, queue, batch, start, batches = heads[0]
        other_ms, other, *_ = min(heads[1:3])
        # At one time the order of queues decides.
        until_ms = other_ms + (queue < other)
        stop, times_ms = start + 1, batch.timestamps_ms
        while stop < len(times_ms) and times_ms[stop] < until_ms:
            stop += 1
        yield Run(batch, start, stop)
        following = batch if stop < len(times_ms) else next(batches, None)
        if following is None:
            heapq.heappop(heads)
        else:
            at = stop if following is batch else 0
            heapq.heapreplace(heads, (following.timestamps_ms[at], queue, following, at, batches))
    for _, _, batch, start, batches in heads:
        yield Run(batch, start, len(batch))
        for following in batches:
            yield Run(following, 0, len(following))


def _of_queue(packets: list[Any]) -> Iterator[InputBatch]:
    packets.sort(key=lambda packet: (packet.first_offset, packet.sequence))
    if any(first.last_offset > second.first_offset for first, second in pairwise(packets)):
        # Two stages have made records for one topic from one partition.
        packets.sort(key=lambda packet: packet.sequence)
        records = pa.Table.from_batches([_records_of(packet) for packet in packets])
        order = np.argsort(records["offset"].to_numpy(), kind="stable")
        (batch,) = records.take(pa.array(order)).combine_chunks().to_batches()
        yield _as_input(packets[0], batch)
    else:
        yield from map(unpacked, packets)


def _queue_of(packet: Any) -> Queue:
    return Queue(packet.topic, packet.origin_topic, packet.origin_partition)


def unpacked(packet: Any) -> InputBatch:
    """The records of one packet."""
    return _as_input(packet, _records_of(packet))


def _records_of(packet: Any) -> pa.RecordBatch:
    return pa.ipc.read_record_batch(pa.py_buffer(packet.records), _RECORDS)


def _as_input(packet: Any, records: pa.RecordBatch) -> InputBatch:
    topic, origin_topic, origin_partition = _queue_of(packet)
    offsets, times, keys, values, headers = records.columns
    is_shuffled = (origin_topic, origin_partition) != (topic, packet.task)
    return InputBatch(
        topic,
        packet.task,
        offsets.to_numpy().tolist(),
        times.to_numpy().tolist(),
        as_list(keys),
        as_list(values),
        None if not len(headers.flatten()) else list(header_list(headers)),
        (origin_topic, origin_partition) if is_shuffled else None,
    )


def _coded(names: pa.Array) -> tuple[npt.NDArray[np.int32], list[str]]:
    encoded = names.dictionary_encode()
    return encoded.indices.to_numpy(), encoded.dictionary.to_pylist()


def _combined(*parts: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """One number for each different combination."""
    combined = np.zeros(len(parts[0]), np.int64)
    for part in parts:
        combined = combined * (int(part.max()) + 1) + part
    return combined
