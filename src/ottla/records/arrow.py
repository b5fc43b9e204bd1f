"""Record batches as Arrow columns, in the schema of Spark's Kafka source.

A fetch is decoded in groups of batches: NumPy finds the fields of all their records (`arrow_fields`), then
Arrow's own compiled `take` copies keys and values out of the bytes as they came. No Python object is made
per record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.records.arrow_arrays import as_text, binaries, booleans, int32s, int64s
from ottla.records.arrow_fields import (
    Bytes,
    Numbers,
    Positions,
    RecordFields,
    header_fields,
    record_fields,
    record_starts,
    record_starts_side_by_side,
    starts_equal,
)
from ottla.records.arrow_lanes import RECORDS_PER_LANE, cut_into_lanes
from ottla.records.batch import (
    HEADER_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    BatchHeader,
    crc_matches,
    iter_headers,
)
from ottla.records.compression import CorruptRecords, decompress
from ottla.records.markers import read_marker
from ottla.runtime.disk import ReadableBuffer

HEADERS_TYPE = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
    ]
)
SCHEMA_WITH_HEADERS = SCHEMA.append(pa.field("headers", HEADERS_TYPE))

# One Arrow batch at a time stands in memory, in the JVM as well; beyond these sizes larger gains nothing.
GROUP_BYTES_MAX = 16 * 1024 * 1024
GROUP_ROWS_MAX = 64 * 1024
# A step of NumPy costs as much for one batch as for a hundred; from here on it is cheaper than Python.
SIDE_BY_SIDE_MIN = 100
LANES_RECORDS_MIN = 100 * RECORDS_PER_LANE


class Span(NamedTuple):
    """One batch within the bytes of a fetch."""

    at: int
    header: BatchHeader

    @property
    def end(self) -> int:
        return self.at + self.header.size


class Body(NamedTuple):
    """The records of one batch, no longer compressed."""

    header: BatchHeader
    data: ReadableBuffer


def find_spans(records: memoryview) -> list[Span]:
    """All whole batches; what follows the last one was cut off by the broker."""
    return [Span(at, header) for at, header in iter_headers(records)]


class ArrowDecoder:
    """Of one partition. `aborted` are (producer id, first offset) as a fetch with read_committed has them."""

    def __init__(self, topic: str, partition: int, *, include_headers: bool = False) -> None:
        self._topic = topic
        self._partition = partition
        self._include_headers = include_headers
        self._schema = SCHEMA_WITH_HEADERS if include_headers else SCHEMA
        self._topics = as_text(binaries(b"", np.zeros(0, np.int64)))

    def decode(
        self,
        records: memoryview,
        spans: Sequence[Span],
        start: int,
        end: int,
        aborted: Iterable[tuple[int, int]] = (),
    ) -> Iterator[Any]:
        """Arrow record batches of the records with start ≤ offset < end, without control batches."""
        for group in self._groups(records, visible(records, spans, start, end, aborted)):
            with self._named(group[0].header, group[-1].header):
                batch = self._decode_group(group, start, end)
            if batch.num_rows:
                yield batch

    def _groups(self, records: memoryview, spans: Iterable[Span]) -> Iterator[list[Body]]:
        group: list[Body] = []
        size_bytes = rows = 0
        for span in spans:
            header = span.header
            with self._named(header, header):
                body = _body(records, span)
            is_full = size_bytes + len(body) > GROUP_BYTES_MAX or rows + header.record_count > GROUP_ROWS_MAX
            if group and is_full:
                yield group
                group, size_bytes, rows = [], 0, 0
            group.append(Body(header, body))
            size_bytes += len(body)
            rows += header.record_count
        if group:
            yield group

    @contextmanager
    def _named(self, first: BatchHeader, last: BatchHeader) -> Iterator[None]:
        try:
            yield
        except CorruptRecords as error:
            raise CorruptRecords(
                f"records of {self._topic}-{self._partition} between offsets {first.base_offset} and "
                f"{last.last_offset} are damaged: {error}"
            ) from error

    def _decode_group(self, group: list[Body], start: int, end: int) -> Any:
        body = b"".join([part.data for part in group])
        data: Bytes = np.frombuffer(body, dtype=np.uint8)
        fields = record_fields(data, _starts(group, body, data))
        offsets, timestamps, types = _batch_columns(group, fields)
        chosen = None
        if group[0].header.base_offset < start or group[-1].header.last_offset >= end:
            chosen = np.flatnonzero((offsets >= start) & (offsets < end)).astype(np.int32)
            offsets, timestamps = offsets[chosen], timestamps[chosen]
            types = types[chosen]
        count = len(offsets)
        keys, values = _take_keys_and_values(body, fields, chosen)
        columns = [
            keys,
            values,
            self._topic_column(count),
            int32s(np.full(count, self._partition, dtype=np.int32)),
            int64s(offsets),
            int64s(timestamps * 1000).view(pa.timestamp("us", "UTC")),
            int32s(types),
        ]
        if self._include_headers:
            columns.append(_take_headers(body, data, fields, chosen))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _topic_column(self, count: int) -> Any:
        if len(self._topics) < count:
            name = self._topic.encode()
            offsets = np.arange(0, (count + 1) * len(name), len(name), dtype=np.int32)
            buffers = [None, pa.py_buffer(offsets), pa.py_buffer(name * count)]
            self._topics = pa.StringArray.from_buffers(count, buffers[1], buffers[2])
        return self._topics.slice(0, count)


def visible(
    records: memoryview, spans: Iterable[Span], start: int, end: int, aborted: Iterable[tuple[int, int]]
) -> Iterator[Span]:
    """Batches with records for a reader of committed data, if `aborted` is given; never control batches."""
    pending = sorted(aborted, key=lambda transaction: transaction[1])
    aborting: set[int] = set()
    for span in spans:
        header = span.header
        while pending and pending[0][1] <= header.last_offset:
            aborting.add(pending.pop(0)[0])
        if header.is_control:
            if header.producer_id in aborting and _is_abort(records, span):
                aborting.discard(header.producer_id)
            continue
        if header.is_transactional and header.producer_id in aborting:
            continue
        if header.record_count and header.last_offset >= start and header.base_offset < end:
            yield span


def _is_abort(records: memoryview, span: Span) -> bool:
    marker = read_marker(records[span.at : span.end])
    return marker is not None and not marker.committed


def _body(records: memoryview, span: Span) -> ReadableBuffer:
    header = span.header
    if header.magic != MAGIC:
        raise CorruptRecords(f"message format {header.magic} is older than 2; produce the data anew")
    if not crc_matches(records[span.at : span.end], header.crc):
        raise CorruptRecords("the checksum is wrong")
    data = records[span.at + HEADER_BYTES : span.end]
    return decompress(header.codec, data) if header.codec else data


def _starts(group: list[Body], body: bytes, data: Bytes) -> Positions:
    sizes = np.array([len(part.data) for part in group], dtype=np.int32)
    ends = np.cumsum(sizes).astype(np.int32)
    counts = np.array([part.header.record_count for part in group], dtype=np.int32)
    if len(group) >= SIDE_BY_SIDE_MIN:
        return record_starts_side_by_side(data, ends, counts)
    is_numbered = all(part.header.last_offset_delta == part.header.record_count - 1 for part in group)
    # Records of one size are found faster one batch at a time.
    if is_numbered and counts.sum() >= LANES_RECORDS_MIN and not starts_equal(body, data, len(group[0].data)):
        try:
            return record_starts_side_by_side(data, *cut_into_lanes(data, ends - sizes, ends, counts))
        except CorruptRecords:
            # A wrong guess, or damage: the walk from the front tells which.
            pass
    runs: list[Positions] = []
    for end, size, count in zip(ends.tolist(), sizes.tolist(), counts.tolist(), strict=True):
        runs += record_starts(body, data, end - size, end, count)
    return np.concatenate(runs)


def _batch_columns(group: list[Body], fields: RecordFields) -> tuple[Numbers, Numbers, Numbers]:
    """Offsets, timestamps in ms, and timestamp types, from what the batches say for all their records."""
    counts = [span.header.record_count for span in group]
    bases = np.array([span.header.base_offset for span in group], dtype=np.int64)
    offsets = np.repeat(bases, counts) + fields.offset_delta
    is_append_time = np.array([bool(span.header.attributes & LOG_APPEND_TIME) for span in group])
    base_times = np.array(
        [
            span.header.max_timestamp if appended else span.header.base_timestamp
            for span, appended in zip(group, is_append_time, strict=True)
        ],
        dtype=np.int64,
    )
    timestamps = np.repeat(base_times, counts)
    types = np.repeat(is_append_time.astype(np.int32), counts)
    timestamps += fields.timestamp_delta if not is_append_time.any() else fields.timestamp_delta * (1 - types)
    return offsets, timestamps, types


def _take_keys_and_values(body: bytes | memoryview, fields: RecordFields, chosen: Any) -> tuple[Any, Any]:
    count = len(fields.end)
    if chosen is None:
        chosen = np.arange(count, dtype=np.int32)
        key_length, value_length = fields.key_length, fields.value_length
    else:
        key_length, value_length = fields.key_length[chosen], fields.value_length[chosen]
    pieces = _pieces(body, fields.key_start, fields.key_length, fields.value_start, fields.value_length)
    return _take(pieces, chosen * 4, key_length), _take(pieces, chosen * 4 + 2, value_length)


def _pieces(
    body: bytes | memoryview, start_a: Positions, length_a: Numbers, start_b: Positions, length_b: Numbers
) -> Any:
    """The bytes cut at the borders of two fields per record, as one array that copies nothing.

    Of every four pieces the first is field a, the third field b; the others are what lies between.
    """
    count = len(start_a)
    cuts = np.empty(4 * count + 1, dtype=np.int32)
    cuts[0:-1:4] = start_a
    cuts[1::4] = start_a + np.maximum(length_a, 0)
    cuts[2::4] = start_b
    cuts[3::4] = start_b + np.maximum(length_b, 0)
    cuts[-1] = len(body)
    return pa.Array.from_buffers(pa.binary(), 4 * count, [None, pa.py_buffer(cuts), pa.py_buffer(body)])


def _take(pieces: Any, indices: Positions, lengths: Numbers) -> Any:
    """The pieces at the indices; null where a length is -1."""
    count = len(indices)
    shortest = lengths.min(initial=0)
    if shortest < 0 and lengths.max() < 0:
        return pa.nulls(count, pa.binary())
    taken = pc.take(pieces, int32s(indices), boundscheck=False)
    if shortest >= 0:
        return taken
    validity = np.packbits(lengths >= 0, bitorder="little")
    return pa.Array.from_buffers(pa.binary(), count, [pa.py_buffer(validity), *taken.buffers()[1:]])


def _take_headers(body: bytes | memoryview, data: Bytes, fields: RecordFields, chosen: Any) -> Any:
    """Null, not empty, for records without headers, as Spark's own source has it."""
    found = header_fields(data, fields)
    pieces = _pieces(body, found.name_start, found.name_length, found.value_start, found.value_length)
    every = np.arange(len(found.name_start), dtype=np.int32)
    names = _text(_take(pieces, every * 4, found.name_length))
    values = _take(pieces, every * 4 + 2, found.value_length)
    pairs = pa.StructArray.from_arrays([names, values], ["key", "value"])
    ends = np.concatenate(([0], np.cumsum(fields.header_count))).astype(np.int32)
    lists = pa.ListArray.from_arrays(
        int32s(ends), pairs, type=HEADERS_TYPE, mask=booleans(fields.header_count == 0)
    )
    return lists if chosen is None else pc.take(lists, int32s(chosen))


def _text(names: Any) -> Any:
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        # Names need not be UTF-8 for a broker to carry them; Java's clients show what they cannot read so.
        return pa.array([name.decode("utf-8", "replace") for name in names.to_pylist()], pa.string())
