"""Arrow columns against the record iterator, for every codec and shape of record."""

from __future__ import annotations

import struct
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="needs the extra ottla[spark]")

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.records.arrow import SCHEMA, SCHEMA_WITH_HEADERS, ArrowDecoder, find_spans
from ottla.records.arrow_fields import record_starts, record_starts_side_by_side
from ottla.records.arrow_lanes import cut_into_lanes
from ottla.records.batch import ATTRIBUTES_AT, CRC_AT, HEADER_BYTES
from ottla.records.compression import CorruptRecords
from ottla.records.markers import Marker, encode_marker
from ottla.records.records import Record, encode_batch, iter_records

nullable_bytes = st.none() | st.binary(max_size=200) | st.integers(0, 20_000).map(bytes)
header_names = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
records = st.builds(
    Record,
    nullable_bytes,
    nullable_bytes,
    st.integers(-1, 2**41),
    st.lists(st.tuples(header_names, nullable_bytes), max_size=4).map(tuple),
)
batches = st.tuples(st.lists(records, min_size=1, max_size=40), st.integers(0, 4), st.booleans())


def expected(batch: bytes, is_append_time: bool) -> list[tuple[Any, ...]]:
    return [
        (
            *(record.key, record.value, "t", 3, record.offset, record.timestamp_ms, int(is_append_time)),
            [{"key": name, "value": value} for name, value in record.headers] or None,
        )
        for record in iter_records(batch)
    ]


def rows(data: bytes, start: int = 0, end: int = 2**62, aborted: Any = ()) -> list[tuple[Any, ...]]:
    found = []
    view = memoryview(data)
    for batch in ArrowDecoder("t", 3, include_headers=True).decode(
        view, find_spans(view), start, end, aborted
    ):
        assert batch.schema == SCHEMA_WITH_HEADERS
        batch.validate(full=True)
        columns = [column.to_pylist() for column in batch.columns]
        columns[5] = [stamp // 1000 for stamp in batch.column(5).cast("int64").to_pylist()]
        found += zip(*columns, strict=True)
    return found


@pytest.fixture(params=["side by side", "one by one", "in lanes"])
def any_walk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """All ways from record to record, whatever the number of batches."""
    monkeypatch.setattr(
        "ottla.records.arrow.SIDE_BY_SIDE_MIN", 1 if request.param == "side by side" else 1000
    )
    if request.param == "in lanes":
        monkeypatch.setattr("ottla.records.arrow.LANES_RECORDS_MIN", 1)
        monkeypatch.setattr("ottla.records.arrow.starts_equal", lambda *_: False)
        monkeypatch.setattr("ottla.records.arrow_lanes.RECORDS_PER_LANE", 3)


any_walk_and_input = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@any_walk_and_input
@pytest.mark.usefixtures("any_walk")
@given(st.lists(batches, min_size=1, max_size=5), st.integers(0, 200), st.integers(0, 200))
def test_columns_hold_what_the_iterator_reads(given_batches: Any, start: int, length: int) -> None:
    data = b""
    want: list[tuple[Any, ...]] = []
    offset = 7
    for items, codec, is_append_time in given_batches:
        appended = 123_456 if is_append_time else None
        batch = encode_batch(items, base_offset=offset, codec=codec, log_append_time_ms=appended)
        want += expected(batch, is_append_time)
        data += batch
        offset += len(items) + 3
    assert rows(data) == want
    assert rows(data, start, start + length) == [row for row in want if start <= row[4] < start + length]
    assert rows(data + data[: HEADER_BYTES + 1]) == want


@pytest.mark.parametrize("size", [0, 40, 61, 62, 63, 64, 8_000, 8_190, 1_100_000])
def test_equal_records_are_found_at_every_width_of_their_lengths(size: int) -> None:
    items = [Record(None, b"x" * size, n * 1000) for n in range(3 if size > 10_000 else 300)]
    batch = encode_batch(items)
    assert rows(batch) == expected(batch, False)


def _bodies(*given_batches: bytes) -> tuple[Any, Any, Any, Any]:
    """All records without the heads of their batches: bytes, begins, ends, counts."""
    bodies = [batch[HEADER_BYTES:] for batch in given_batches]
    ends = np.cumsum([len(body) for body in bodies]).astype(np.int32)
    counts = np.array([sum(1 for _ in iter_records(batch)) for batch in given_batches], dtype=np.int32)
    begins = np.concatenate(([0], ends[:-1])).astype(np.int32)
    return np.frombuffer(b"".join(bodies), dtype=np.uint8), begins, ends, counts


def test_large_batches_are_cut_where_records_begin() -> None:
    items = [Record(b"key-%d" % n, b"v" * (50 + n * 37 % 100), n // 10, ()) for n in range(2000)]
    data, begins, ends, counts = _bodies(encode_batch(items[:1500]), encode_batch(items[1500:]))
    lane_ends, lane_counts = cut_into_lanes(data, begins, ends, counts)
    assert len(lane_ends) > 15
    assert set(ends.tolist()) <= set(lane_ends.tolist())
    one_by_one = [
        start
        for begin, end, count in zip(begins, ends, counts, strict=True)
        for run in record_starts(data.tobytes(), data, int(begin), int(end), int(count))
        for start in run.tolist()
    ]
    assert record_starts_side_by_side(data, lane_ends, lane_counts).tolist() == one_by_one


@pytest.mark.usefixtures("any_walk")
def test_values_that_look_like_records_are_not_taken_for_them() -> None:
    fake = encode_batch([Record(b"k", b"x" * (n % 7), 0, ()) for n in range(60)])[HEADER_BYTES:]
    items = [Record(b"key", fake[: 900 + n], n, ()) for n in range(400)]
    batch = encode_batch(items)
    assert rows(batch) == expected(batch, False)


def test_without_headers_their_column_is_left_out() -> None:
    view = memoryview(encode_batch([Record(b"k", b"v", 1, (("name", b"x"),))]))
    (batch,) = ArrowDecoder("t", 3).decode(view, find_spans(view), 0, 10)
    assert batch.schema == SCHEMA
    assert batch.column(1).to_pylist() == [b"v"]


def test_header_names_that_are_not_utf8_are_shown_and_do_no_harm() -> None:
    batch = encode_batch([Record(None, b"v", 1, (("\udcff\udcfe", b"x"),))])
    assert rows(batch)[0][-1] == [{"key": "\ufffd\ufffd", "value": b"x"}]


def marker(producer_id: int, offset: int, committed: bool) -> bytes:
    batch = bytearray(encode_marker(Marker(producer_id, 0, 0, committed), 1))
    struct.pack_into(">q", batch, 0, offset)
    return bytes(batch)


def transactional(producer_id: int, offset: int, value: bytes) -> bytes:
    return encode_batch(
        [Record(None, value, 1)],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )


def test_aborted_records_and_markers_are_left_out() -> None:
    data = b"".join(
        (
            transactional(1, 0, b"aborted"),
            transactional(2, 1, b"committed"),
            encode_batch([Record(None, b"plain", 1)], base_offset=2),
            marker(1, 3, committed=False),
            transactional(1, 4, b"after the abort"),
            marker(2, 5, committed=True),
            transactional(2, 6, b"aborted too"),
            marker(1, 7, committed=True),
            marker(2, 8, committed=False),
        )
    )
    values = [row[1] for row in rows(data, aborted=[(2, 6), (1, 0)])]
    assert values == [b"committed", b"plain", b"after the abort"]
    assert len(rows(data)) == 5


def test_a_transaction_aborted_before_the_first_offset_read_stays_aborted() -> None:
    data = transactional(1, 5, b"aborted") + marker(1, 6, committed=False) + transactional(1, 7, b"kept")
    assert [row[1] for row in rows(data, start=5, aborted=[(1, 2)])] == [b"kept"]


def test_a_batch_that_compaction_emptied_gives_nothing() -> None:
    header = bytearray(encode_batch([Record(None, b"v", 1)])[:HEADER_BYTES])
    struct.pack_into(">i", header, 8, HEADER_BYTES - 12)
    struct.pack_into(">i", header, 57, 0)
    assert rows(bytes(header)) == []


@any_walk_and_input
@pytest.mark.usefixtures("any_walk")
@given(st.lists(records, min_size=1, max_size=10), st.data())
def test_damaged_records_are_refused_or_read_as_the_iterator_reads_them(items: Any, data: Any) -> None:
    """With a checksum made right again, so that what is tested is the reading itself."""
    from crc32c import crc32c

    batch = bytearray(encode_batch(items))
    at = data.draw(st.integers(HEADER_BYTES, len(batch) - 1))
    batch[at] = data.draw(st.integers(0, 255))
    struct.pack_into(">I", batch, CRC_AT, crc32c(batch[ATTRIBUTES_AT:]))
    try:
        want = expected(bytes(batch), False)
    except CorruptRecords:
        want = None
    except (ValueError, OverflowError):
        return
    try:
        got = rows(bytes(batch))
    except CorruptRecords:
        assert want is None
        return
    if want is not None:
        assert [row[:2] + row[4:5] for row in got] == [row[:2] + row[4:5] for row in want]


def test_a_wrong_checksum_is_named_with_partition_and_offsets() -> None:
    batch = bytearray(encode_batch([Record(None, b"value", 1)], base_offset=41))
    batch[-2] ^= 1
    with pytest.raises(CorruptRecords, match=r"t-3 between offsets 41 and 41.*checksum"):
        rows(bytes(batch))
