"""The walk over the records of a batch, against what a batch can be and how consumers read it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.records.batch import HEADER_BYTES, read_header
from ottla.records.checking import FAULTS_MAX, Demands, Walked, may_hold, walk
from ottla.records.compression import CorruptRecords, compress
from ottla.records.records import Record, encode_batch, iter_records

ANY = Demands(False, -(1 << 62), 1 << 62)


def walked(batch: bytes, demands: Demands = ANY) -> Walked:
    header = read_header(batch)
    steps = walk(batch[HEADER_BYTES:], header.record_count, header.base_timestamp, demands)
    try:
        while True:
            next(steps)
    except StopIteration as ended:
        result: Walked = ended.value
        return result


def with_body(batch: bytes, body: bytes) -> bytes:
    return batch[:8] + (HEADER_BYTES - 12 + len(body)).to_bytes(4, "big") + batch[12:HEADER_BYTES] + body


some_bytes = st.none() | st.binary(max_size=300)
some_records = st.lists(
    st.builds(
        Record,
        some_bytes,
        some_bytes,
        st.integers(0, 1 << 41),
        st.lists(st.tuples(st.text(max_size=80), some_bytes), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=200,
)


@given(records=some_records)
@settings(max_examples=60, deadline=None)
def test_what_producers_send_passes(records: Sequence[Record]) -> None:
    timestamps = [record.timestamp_ms for record in records]
    low, high = sorted((timestamps[0], timestamps[-1]))
    found = walked(encode_batch(records), Demands(True, low, high))
    assert found.max_timestamp == max(timestamps)
    expected: list[tuple[int, int | None]] = []
    for index, record in enumerate(records):
        if record.key is None:
            expected.append((index, None))
        elif not low <= record.timestamp_ms <= high:
            expected.append((index, record.timestamp_ms))
    assert found.faults == expected
    assert found.fault_count == len(expected)


@given(records=some_records, at=st.floats(0, 1, exclude_max=True), change=st.integers(1, 255))
@settings(max_examples=200, deadline=None)
def test_what_passes_can_be_read(records: Sequence[Record], at: float, change: int) -> None:
    good = encode_batch(records)
    body = bytearray(good[HEADER_BYTES:])
    body[int(at * len(body))] ^= change
    changed = with_body(good, bytes(body))
    try:
        walked(changed)
    except CorruptRecords:
        return
    assert [record.offset for record in iter_records(changed)] == list(range(len(records)))


def test_many_records_are_walked_in_steps() -> None:
    batch = encode_batch([Record(None, b"v", 5 + index) for index in range(40_000)])
    steps = walk(batch[HEADER_BYTES:], 40_000, 5, Demands(True, 0, 1 << 60))
    passed = []
    try:
        while True:
            passed.append(next(steps))
    except StopIteration as ended:
        found: Walked = ended.value
    assert len(passed) > 10
    assert sum(passed) == len(batch) - HEADER_BYTES
    assert len(found.faults) == FAULTS_MAX
    assert (found.fault_count, found.max_timestamp) == (40_000, 40_004)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "cut off"),
        (bytes(1000), "ends at|is cut off"),
        (b"\xff" * 1000, "too many bytes"),
        (b"\x0e\x00\x00\x02\x01\x01\x00\x00", "offset delta 1; they must be 0, 1, 2"),
        (b"\x0c\x00\x00\x00\x03\x01\x00", "the key of record 0"),
        (b"\x0c\x00\x00\x00\x01\x03\x00", "the value of record 0"),
        (b"\x0c\x00\x00\x00\x01\x01\x00\x00", "1 bytes are left"),
        (b"\x0e\x00\x00\x00\x01\x01\x02\x00", "claims 1 headers in 1 bytes"),
        (b"\x10\x00\x00\x00\x01\x01\x02\x01\x01", "has no name"),
        (b"\x0c\x00\x00\x00\x01\x01\x01", "headers"),
        (b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", "too many bytes"),
        (b"\xfe\xff\xff\xff\x0f", "claims"),
    ],
)
def test_garbage_is_named(body: bytes, says: str) -> None:
    batch = with_body(encode_batch([Record(b"k", b"v")]), body)
    with pytest.raises(CorruptRecords, match=says):
        walked(batch)


@pytest.mark.parametrize("codec", range(5))
def test_the_bound_on_records_admits_the_best_compression(codec: int) -> None:
    body = encode_batch([Record(None, None, 1)])[HEADER_BYTES:] * 400_000
    assert may_hold(len(compress(codec, body)), codec, 400_000)
    assert not may_hold(9, codec, 2_000_000_000)
