"""Batches from Arrow columns say, record by record, what the columns said; partitions are Kafka's."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as reference_murmur2

from ottla.records.arrow_encode import RecordColumns, encode_columns
from ottla.records.batch import crc_matches, read_header
from ottla.records.compression import CODEC_NAMES
from ottla.records.murmur import key_partitions, murmur2
from ottla.records.records import Record, iter_records
from ottla.records.stamp import stamped

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
BYTES = st.none() | st.binary(max_size=200) | st.binary(min_size=60, max_size=70)
ROWS = st.lists(
    st.tuples(
        BYTES,
        BYTES,
        st.integers(-1, 1 << 45) | st.integers(1_700_000_000_000, 1_700_000_000_300),
        st.none() | st.lists(st.tuples(st.text(max_size=8), BYTES), max_size=4),
        st.integers(0, 5),
    ),
    min_size=1,
    max_size=80,
)


def columns_of(rows: list[tuple]) -> RecordColumns:
    headers = [None if row[3] is None else [{"key": k, "value": v} for k, v in row[3]] for row in rows]
    return RecordColumns(
        pa.array([row[0] for row in rows], pa.binary()),
        pa.array([row[1] for row in rows], pa.binary()),
        np.array([row[2] for row in rows], np.int64),
        pa.array(headers, HEADERS),
    )


def expected(rows: list[tuple], target: int) -> list[Record]:
    return [Record(k, v, t, tuple(h or ())) for k, v, t, h, to in rows if to == target]


@given(ROWS, st.integers(100, 3000), st.sampled_from(range(len(CODEC_NAMES))))
@settings(max_examples=150, deadline=None)
def test_every_record_comes_back_in_order_at_its_target(
    rows: list[tuple], batch_bytes: int, codec: int
) -> None:
    targets = np.array([row[4] for row in rows])
    found: dict[int, list[Record]] = {}
    for batch in encode_columns(columns_of(rows), targets, codec=codec, batch_bytes=batch_bytes):
        sequence = len(found.get(batch.target, ()))
        sent = stamped(batch.data, 77, 5, sequence, transactional=True)
        header = read_header(sent)
        assert crc_matches(sent, header.crc)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 5, sequence)
        assert header.is_transactional
        assert (header.codec, header.record_count) == (codec, batch.record_count)
        assert header.last_offset_delta == batch.record_count - 1
        records = list(iter_records(sent))
        assert [record.offset for record in records] == list(range(batch.record_count))
        assert header.max_timestamp == max(record.timestamp_ms for record in records)
        found.setdefault(batch.target, []).extend(record._replace(offset=-1) for record in records)
    assert found == {target: expected(rows, target) for target in sorted(set(targets.tolist()))}


@given(ROWS)
@settings(max_examples=30, deadline=None)
def test_columns_that_nobody_uses_may_be_left_out(rows: list[tuple]) -> None:
    columns = columns_of(rows)
    bare = RecordColumns(None, columns.value, columns.timestamp_ms)
    (batch,) = encode_columns(bare)
    values = [(r.key, r.value, r.timestamp_ms, r.headers) for r in iter_records(batch.data)]
    assert values == [(None, row[1], row[2], ()) for row in rows]


def test_slices_of_larger_arrays_are_read_from_their_own_start() -> None:
    rows = [(b"key%d" % i, b"v" * i, i, [("h", b"%d" % i)], 0) for i in range(50)]
    part = columns_of(rows).part(10, 30)
    (batch,) = encode_columns(part)
    assert [record._replace(offset=-1) for record in iter_records(batch.data)] == expected(rows[10:30], 0)
    assert murmur2(part.key).tolist() == murmur2(pa.array([row[0] for row in rows[10:30]])).tolist()


def test_no_batch_is_larger_than_asked_unless_one_record_is() -> None:
    rows = [(None, b"v" * 90, 0, None, 0)] * 500 + [(None, b"v" * 5000, 0, None, 0)]
    batches = list(encode_columns(columns_of(rows), batch_bytes=2000))
    assert all(len(batch.data) <= 2000 for batch in batches[:-1])
    assert batches[-1].record_count == 1
    # Cut late, not early: what a batch may hold is used.
    assert len(batches) < 40


def test_no_records_make_no_batch() -> None:
    assert list(encode_columns(columns_of([]))) == []


def test_a_header_without_a_key_is_refused() -> None:
    headers = pa.array([[{"key": None, "value": b"x"}]], HEADERS)
    with pytest.raises(ValueError, match="header has no key"):
        list(encode_columns(RecordColumns(None, None, np.zeros(1, np.int64), headers)))


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=50), st.integers(1, 64))
@settings(max_examples=100, deadline=None)
def test_keys_go_where_another_client_puts_them(keys: list[bytes], partition_count: int) -> None:
    reference = [(reference_murmur2(key) & 0x7FFFFFFF) % partition_count for key in keys]
    assert key_partitions(pa.array(keys, pa.binary()), partition_count).tolist() == reference
