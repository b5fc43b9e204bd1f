"""Where each field of each record lies, found for thousands of records at once with NumPy.

Only the hop from record to record is sequential, since a record's length stands in front of it. Many small
batches are walked side by side. In few large ones it is a short Python loop, and where records are of equal
size, which is tried now and then, not even that. Everything after the hop is columns: the n-th step reads the
n-th field of all records.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ottla.records.compression import CorruptRecords

Bytes: TypeAlias = NDArray[np.uint8]
Positions: TypeAlias = NDArray[np.int32]
Numbers: TypeAlias = NDArray[Any]

# Below this many equal records in a row, trying to find more costs more than it saves.
_RUN_MIN = 16
_STEPS_BETWEEN_TRIES_MIN = 128
_STEPS_BETWEEN_TRIES_MAX = 4096
_SHIFT_MAX = 63
# What the first of two bytes says about the size of a record, the two included; the second counts 64 each.
_TWO_BYTES_LOW = tuple(2 + ((byte & 0x7F) >> 1) for byte in range(256))


class RecordFields(NamedTuple):
    timestamp_delta: Numbers
    offset_delta: Numbers
    key_start: Positions
    key_length: Numbers
    """-1 for null, as for values."""
    value_start: Positions
    value_length: Numbers
    header_count: Numbers
    header_start: Positions
    end: Positions


def record_starts(body: bytes | memoryview, data: Bytes, at: int, end: int, count: int) -> list[Positions]:
    """The positions of `count` records between `at` and `end`; `data` is `body` as NumPy sees it."""
    starts: list[Positions] = []
    left = count
    steps = _STEPS_BETWEEN_TRIES_MIN
    try:
        while left:
            found, at = _equal_run(body, data, at, end, left)
            starts.append(found)
            left -= len(found)
            if len(found) >= _RUN_MIN:
                steps = _STEPS_BETWEEN_TRIES_MIN
            elif left:
                stepped, at = _steps(body, at, min(left, steps))
                starts.append(np.array(stepped, dtype=np.int32))
                left -= len(stepped)
                steps = min(2 * steps, _STEPS_BETWEEN_TRIES_MAX)
    except IndexError:
        raise CorruptRecords(f"the batch ends before the last of its {count} records") from None
    if at != end:
        raise CorruptRecords(f"{count} records end at byte {at} of their batch, which ends at {end}")
    return starts


def record_starts_side_by_side(data: Bytes, ends: Positions, counts: Numbers) -> Positions:
    """The same of many batches, each of which begins where the one before it ends, in their order."""
    begins = np.concatenate(([0], ends[:-1])).astype(np.int32)
    order = np.argsort(-counts, kind="stable")
    at, end, sorted_counts = begins[order], ends[order], counts[order]
    first_row = (np.cumsum(counts) - counts)[order]
    starts = np.empty(int(counts.sum()), dtype=np.int32)
    # Batches with fewer records drop out at the end of the arrays as the steps go on.
    still_there = np.searchsorted(-sorted_counts, -np.arange(int(sorted_counts[0])), side="left")
    for step, there in enumerate(still_there.tolist()):
        starts[first_row[:there] + step] = at[:there]
        length, after = read_varints(data, at[:there])
        if length.min() < 0 or (length > end[:there] - after).any():
            raise CorruptRecords("a record claims more bytes than its batch has")
        at[:there] = after + length
    if (at != end).any():
        raise CorruptRecords("a batch does not end where its last record does")
    return starts


def starts_equal(body: bytes | memoryview, data: Bytes, end: int) -> bool:
    """Whether the first batch, which ends there, begins with many records of one size."""
    run, _ = _equal_run(body, data, 0, end, _RUN_MIN)
    return len(run) == _RUN_MIN


def _equal_run(
    body: bytes | memoryview, data: Bytes, at: int, end: int, count_max: int
) -> tuple[Positions, int]:
    """As many records as repeat the length of the first, byte by byte the same, each where the last ended."""
    (size, width) = _record_size(body, at)
    fitting = min(count_max, (end - at) // size)
    if fitting < 1:
        raise CorruptRecords(f"record at byte {at} of {end} claims {size} bytes")
    same = data[at : at + size * fitting : size] == body[at]
    for n in range(1, width):
        same &= data[at + n : at + n + size * (fitting - 1) + 1 : size] == body[at + n]
    run = int(same.argmin()) or fitting  # the first is equal to itself, so 0 means that all are
    return np.arange(at, at + size * run, size, dtype=np.int32), at + size * run


def _steps(body: bytes | memoryview, at: int, count: int) -> tuple[list[int], int]:
    starts = []
    for _ in range(count):
        starts.append(at)
        byte = body[at]
        if byte < 0x80:
            at += 1 + (byte >> 1)
            continue
        second = body[at + 1]
        if second < 0x80:
            at += _TWO_BYTES_LOW[byte] + (second << 6)
        else:
            at += _record_size(body, at)[0]
    return starts, at


def _record_size(body: bytes | memoryview, at: int) -> tuple[int, int]:
    """Bytes of the record at a position including its length, and those of the length alone."""
    value = width = 0
    while True:
        byte = body[at + width]
        value |= (byte & 0x7F) << 7 * width
        width += 1
        if byte < 0x80:
            break
        if width > 4:
            raise CorruptRecords(f"the length of the record at byte {at} has more than five bytes")
    if value & 1:
        raise CorruptRecords(f"record at byte {at} claims a negative length")
    return width + (value >> 1), width


def read_varints(data: Bytes, at: Positions) -> tuple[Numbers, Positions]:
    """The zigzag numbers at many positions, and the positions after them."""
    first = data.take(at, mode="clip")
    if first.max(initial=0) < 0x80:
        return _unzigzag(first.astype(np.int32)), at + 1
    goes_on = first >> 7
    after = at + 1
    second = data.take(after, mode="clip") * goes_on
    value = (first & 0x7F).astype(np.int32) | (second & 0x7F).astype(np.int32) << 7
    after += goes_on
    if second.max() < 0x80:
        return _unzigzag(value), after
    wide = value.astype(np.int64)
    longer = np.flatnonzero(second >> 7)
    shift = 14
    while len(longer):
        if shift > _SHIFT_MAX:
            raise CorruptRecords("a number has more than ten bytes")
        byte = data.take(after[longer], mode="clip")
        wide[longer] |= (byte & 0x7F).astype(np.int64) << shift
        after[longer] += 1
        longer = longer[byte >= 0x80]
        shift += 7
    return _unzigzag(wide), after


def _unzigzag(value: Numbers) -> Numbers:
    # The shift has to bring in zeros, also where the topmost bit of a 64-bit number is set.
    unsigned: Numbers = value.view(np.uint32 if value.itemsize == 4 else np.uint64)
    halved: Numbers = (unsigned >> 1).view(value.dtype)
    number: Numbers = halved ^ -(value & 1)
    return number


def record_fields(data: Bytes, starts: Positions) -> RecordFields:
    length, at = read_varints(data, starts)
    end = (at + length).astype(np.int32)
    timestamp_delta, at = read_varints(data, at + np.int32(1))
    offset_delta, at = read_varints(data, at)
    key_length, key_start = read_varints(data, at)
    value_length, value_start = read_varints(data, _after(key_start, key_length, end, "key"))
    header_count, header_start = read_varints(data, _after(value_start, value_length, end, "value"))
    if len(end) and (header_count.min() < 0 or (header_start > end).any()):
        raise CorruptRecords("a record claims headers beyond its end")
    return RecordFields(
        timestamp_delta,
        offset_delta,
        key_start,
        key_length,
        value_start,
        value_length,
        header_count,
        header_start,
        end,
    )


def _after(start: Positions, length: Numbers, end: Positions, what: str) -> Positions:
    if len(length) and length.min() < -1:
        raise CorruptRecords(f"a {what} claims {length.min()} bytes")
    if (length > end - start).any():
        raise CorruptRecords(f"a {what} claims more bytes than its record has")
    return (start + np.maximum(length, 0)).astype(np.int32)


class HeaderFields(NamedTuple):
    name_start: Positions
    name_length: Numbers
    value_start: Positions
    value_length: Numbers


def header_fields(data: Bytes, fields: RecordFields) -> HeaderFields:
    """The headers of all records in their order; `fields.header_count` says how many each one has."""
    at = fields.header_start.copy()
    remaining = np.flatnonzero(fields.header_count)
    rounds: list[tuple[Numbers, HeaderFields]] = []
    done = 0
    while len(remaining):
        end = fields.end[remaining]
        name_length, name_start = read_varints(data, at[remaining])
        if name_length.min() < 0:
            raise CorruptRecords("a record header has no name")
        value_at = _after(name_start, name_length, end, "header name")
        value_length, value_start = read_varints(data, value_at)
        at[remaining] = _after(value_start, value_length, end, "header value")
        rounds.append((remaining, HeaderFields(name_start, name_length, value_start, value_length)))
        done += 1
        remaining = remaining[fields.header_count[remaining] > done]
    if (at != fields.end).any():
        raise CorruptRecords("a record does not end where its headers do")
    if not rounds:
        none = np.empty(0, dtype=np.int32)
        return HeaderFields(none, none, none, none)
    # Stable, so that the headers of one record keep the order of the rounds.
    order = np.argsort(np.concatenate([rows for rows, _ in rounds]), kind="stable")
    columns = zip(*(found for _, found in rounds), strict=True)
    return HeaderFields._make(np.concatenate(column)[order] for column in columns)
