"""Arrow columns → record batches v2, a column at a time.

No loop runs over records. The numbers of all records become one matrix of varint bytes in NumPy, Arrow's
compiled string kernels put them together with keys, values and headers into one buffer, and a batch is a
slice of that buffer behind a header. Batches come without producer and checksum: `records.stamp` adds them,
because in a pipeline they are only known where the batch is sent, long after it was built.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ottla.records.arrow_arrays import binary_scalar, int32s, numbers_of
from ottla.records.batch import HEADER, HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC, NO_PRODUCER_ID
from ottla.records.compression import NONE, compress

BATCH_BYTES: Final = 512 * 1024
"""Records are gathered up to this size: below a broker's default limit, far above what one batch costs."""
# One Arrow buffer with 32-bit offsets holds the records of a call; larger inputs are cut in two.
_BUFFER_BYTES_MAX: Final = 1 << 30
_VARINT_BYTES_MAX: Final = 10
# What the numbers of a record take at most: length 5, attributes 1, timestamp 10; offset, key, value and
# count of headers 5 each.
_NUMBERS_BYTES_MAX: Final = 36

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """The records to encode, all columns of equal length."""

    key: Any
    """pa.BinaryArray, or None: no record has a key."""
    value: Any
    timestamp_ms: Integers
    headers: Any = None
    """pa.ListArray of struct(key string, value binary), or None: no record has headers."""

    def __len__(self) -> int:
        return len(self.timestamp_ms)

    def part(self, start: int, stop: int) -> RecordColumns:
        def cut(column: Any) -> Any:
            return None if column is None else column.slice(start, stop - start)

        timestamps = self.timestamp_ms[start:stop]
        return RecordColumns(cut(self.key), cut(self.value), timestamps, cut(self.headers))


@dataclass(frozen=True, slots=True)
class UnstampedBatch:
    """A whole batch but for producer id, epoch, sequence and checksum."""

    target: int
    record_count: int
    data: bytes


def encode_columns(
    columns: RecordColumns,
    targets: npt.NDArray[Any] | None = None,
    *,
    codec: int = NONE,
    compression_level: int | None = None,
    batch_bytes: int = BATCH_BYTES,
) -> Iterator[UnstampedBatch]:
    """Batches per target, in ascending order of targets; records of a target stay in their order.

    `targets` has a small number per record, the partition it goes to. A batch has at most `batch_bytes`
    before compression, unless a single record is larger.
    """
    count = len(columns)
    if count == 0:
        return
    key_lengths = _lengths(columns.key, count)
    value_lengths = _lengths(columns.value, count)
    has_headers = columns.headers is not None and len(columns.headers.flatten()) > 0
    headers = _headers(columns.headers) if has_headers else None
    header_lengths = _ones(count) if headers is None else _lengths(headers, count)
    content = np.maximum(key_lengths, 0) + np.maximum(value_lengths, 0) + header_lengths
    sizes_max = content + _NUMBERS_BYTES_MAX
    if int(sizes_max.sum()) > _BUFFER_BYTES_MAX and count > 1:
        middle = count // 2
        for start, stop in ((0, middle), (middle, count)):
            part = None if targets is None else targets[start:stop]
            yield from encode_columns(
                columns.part(start, stop),
                part,
                codec=codec,
                compression_level=compression_level,
                batch_bytes=batch_bytes,
            )
        return
    order = _order(targets)
    starts = _batch_starts(targets, order, sizes_max, batch_bytes)
    stops = np.append(starts[1:], count)
    position = np.arange(count) - np.repeat(starts, stops - starts)
    sorted_timestamps = columns.timestamp_ms if order is None else columns.timestamp_ms[order]
    base_timestamps = sorted_timestamps[starts]
    max_timestamps = np.maximum.reduceat(sorted_timestamps, starts)
    delta = sorted_timestamps - np.repeat(base_timestamps, stops - starts)
    if order is not None:
        position, delta = _scattered(position, order), _scattered(delta, order)
    records = _records(columns, headers, key_lengths, value_lengths, header_lengths, delta, position)
    if order is not None:
        records = records.take(int32s(order))
    offsets = np.frombuffer(records.buffers()[1], np.int32)
    body = memoryview(records.buffers()[2])
    for index, start in enumerate(starts.tolist()):
        stop = int(stops[index])
        data: Any = body[offsets[start] : offsets[stop]]
        if codec != NONE:
            data = compress(codec, data, compression_level)
        length = HEADER_BYTES - LOG_OVERHEAD_BYTES + len(data)
        record_count = stop - start
        timestamps = int(base_timestamps[index]), int(max_timestamps[index])
        fields = (codec, record_count - 1, *timestamps, NO_PRODUCER_ID, -1, -1, record_count)
        header = HEADER.pack(0, length, -1, MAGIC, 0, *fields)
        row = start if order is None else int(order[start])
        target = 0 if targets is None else int(targets[row])
        yield UnstampedBatch(target, record_count, b"".join((header, data)))


def _order(targets: npt.NDArray[Any] | None) -> npt.NDArray[np.int32] | None:
    """Which rows in turn give the records target by target; None when they stand so already."""
    if targets is None or bool((targets[1:] >= targets[:-1]).all()):
        return None
    # A stable sort of small integers is a radix sort, of larger ones it is several times slower.
    small = targets.astype(np.int16) if int(targets.max()) < 1 << 15 else targets
    return np.argsort(small, kind="stable").astype(np.int32)


def _batch_starts(
    targets: npt.NDArray[Any] | None,
    order: npt.NDArray[np.int32] | None,
    sizes: Integers,
    batch_bytes: int,
) -> Integers:
    """Where batches begin, in the order of records to be written."""
    count = len(sizes)
    ends = np.cumsum(sizes if order is None else sizes[order])
    if targets is None:
        changes = [0]
    else:
        sorted_targets = targets if order is None else targets[order]
        changes = [0, *(np.flatnonzero(sorted_targets[1:] != sorted_targets[:-1]) + 1).tolist()]
    room = batch_bytes - HEADER_BYTES
    starts = []
    for start, stop in zip(changes, [*changes[1:], count], strict=True):
        at = start
        while at < stop:
            starts.append(at)
            written = int(ends[at - 1]) if at else 0
            at = max(at + 1, int(np.searchsorted(ends[:stop], written + room, side="right")))
    return np.array(starts, np.int64)


def _records(
    columns: RecordColumns,
    headers: Any,
    key_lengths: Integers,
    value_lengths: Integers,
    header_lengths: Integers,
    timestamp_delta: Integers,
    offset_delta: Integers,
) -> Any:
    """All records as one binary array, in the order of the rows."""
    numbers = [_zigzag(timestamp_delta), _zigzag(offset_delta), _zigzag(key_lengths)]
    value_number = _zigzag(value_lengths)
    length = 1 + np.maximum(key_lengths, 0) + np.maximum(value_lengths, 0) + header_lengths
    for number in (*numbers, value_number):
        length += _varint_sizes(number)
    start = _varint_rows([_zigzag(length), None, *numbers])
    nothing = binary_scalar(b"")
    parts = [start]
    if columns.key is not None:
        parts.append(columns.key)
        parts.append(_varint_rows([value_number]))
    else:
        parts[0] = _varint_rows([_zigzag(length), None, *numbers, value_number])
    if columns.value is not None:
        parts.append(columns.value)
    parts.append(binary_scalar(b"\0") if headers is None else headers)
    return pc.binary_join_element_wise(*parts, nothing, null_handling="replace", null_replacement="")


def _headers(column: Any) -> Any:
    """Per record the count of its headers and the headers, encoded."""
    column = column.cast(pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())])))
    counts = numbers_of(pc.fill_null(pc.list_value_length(column), int32s(np.zeros(1, np.int32))[0])).astype(
        np.int64
    )
    flat = column.flatten()
    keys, values = flat.field("key"), flat.field("value")
    if keys.null_count:
        raise ValueError("a header has no key; every header needs one, its value may be null")
    key_lengths, value_lengths = _lengths(keys, len(flat)), _lengths(values, len(flat))
    pairs = pc.binary_join_element_wise(
        _varint_rows([_zigzag(key_lengths)]),
        keys,
        _varint_rows([_zigzag(value_lengths)]),
        values,
        binary_scalar(b""),
        null_handling="replace",
        null_replacement="",
    )
    bounds = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    joined = pc.binary_join(pa.ListArray.from_arrays(int32s(bounds), pairs), b"")
    return pc.binary_join_element_wise(_varint_rows([_zigzag(counts)]), joined, binary_scalar(b""))


def _lengths(column: Any, count: int) -> Integers:
    """Bytes of each, -1 for null, as the format has it."""
    if column is None:
        return np.full(count, -1, np.int64)
    lengths = pc.binary_length(column)
    if lengths.null_count:
        lengths = pc.fill_null(lengths, int32s(np.full(1, -1, np.int32))[0])
    numbers: Integers = numbers_of(lengths).astype(np.int64)
    return numbers


def _ones(count: int) -> Integers:
    return np.ones(count, np.int64)


def _scattered(numbers: Integers, order: npt.NDArray[np.int32]) -> Integers:
    """Numbers given in sorted order, back in the order of the rows."""
    rows = np.empty_like(numbers)
    rows[order] = numbers
    return rows


def _zigzag(numbers: Integers) -> Integers:
    return (numbers << 1) ^ (numbers >> 63)


def _varint_sizes(zigzag: Integers) -> Integers:
    unsigned = zigzag.view(np.uint64)
    largest = int(unsigned.max())
    sizes = _ones(len(zigzag))
    for digits in range(1, _VARINT_BYTES_MAX):
        if largest < 1 << 7 * digits:
            break
        sizes += unsigned >= np.uint64(1 << 7 * digits)
    return sizes


def _varint_rows(columns: Sequence[Integers | None]) -> Any:
    """A binary array with the varints of all columns side by side; None stands for one zero byte."""
    count = next(len(column) for column in columns if column is not None)
    widths = [1 if column is None else _digits(column) for column in columns]
    width = sum(widths)
    matrix = np.zeros((count, width), np.uint8)
    present: npt.NDArray[np.bool_] | None = None
    lengths = np.full(count, len(columns), np.int32)
    at = 0
    for column, digits in zip(columns, widths, strict=True):
        if column is not None:
            rest = column.view(np.uint64)
            for digit in range(digits):
                last = digit == digits - 1
                more = rest >= 0x80
                matrix[:, at + digit] = rest if last else (rest & 0x7F) | (more.view(np.uint8) << 7)
                if not last:
                    if present is None:
                        present = np.ones((count, width), np.bool_)
                    present[:, at + digit + 1] = more
                    lengths += more
                    rest = rest >> np.uint64(7)
        at += digits
    if present is None:
        offsets = np.arange(0, count * width + 1, width, dtype=np.int32)
        data = matrix.reshape(-1)
    else:
        offsets = np.zeros(count + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        data = matrix[present]
    return pa.BinaryArray.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _digits(zigzag: Integers) -> int:
    """Bytes of the longest varint."""
    return max(1, (int(zigzag.view(np.uint64).max()).bit_length() + 6) // 7)
