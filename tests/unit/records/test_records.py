from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.records.batch import HEADER_BYTES, crc_matches, iter_headers, read_header
from ottla.records.compression import CorruptRecords
from ottla.records.records import Record, encode_batch, iter_records

nullable_bytes = st.none() | st.binary(max_size=300)
records_strategy = st.lists(
    st.builds(
        Record,
        key=nullable_bytes,
        value=nullable_bytes,
        timestamp_ms=st.integers(-1, 2**62),
        headers=st.lists(st.tuples(st.text(max_size=20), nullable_bytes), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=20,
)


@given(records=records_strategy, codec=st.integers(0, 4), base_offset=st.integers(0, 2**60))
def test_records_survive_a_batch(records: list[Record], codec: int, base_offset: int) -> None:
    batch = encode_batch(records, base_offset=base_offset, leader_epoch=7, codec=codec)
    header = read_header(batch)
    assert header.size == len(batch)
    assert crc_matches(batch, header.crc)
    assert header.record_count == len(records)
    assert header.max_timestamp == max(record.timestamp_ms for record in records)
    expected = [record._replace(offset=base_offset + index) for index, record in enumerate(records)]
    assert list(iter_records(batch)) == expected
    assert [(at, found.base_offset) for at, found in iter_headers(batch + batch)] == [
        (0, base_offset),
        (len(batch), base_offset),
    ]


def test_a_batch_byte_by_byte() -> None:
    batch = encode_batch(
        [Record(b"k", b"v", 1000, (("h", None),)), Record(None, None, 999)],
        base_offset=5,
        leader_epoch=3,
        producer_id=9,
        producer_epoch=2,
        base_sequence=4,
        transactional=True,
    )
    header = read_header(batch)
    assert (header.attributes, header.base_timestamp, header.max_timestamp) == (0x10, 1000, 1000)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, 4)
    # Length 11, attributes, deltas 0 and 0, key "k", value "v", one header "h" without a value.
    first = bytes([22, 0, 0, 0, 2, ord("k"), 2, ord("v"), 2, 2, ord("h"), 1])
    # Length 6, attributes, timestamp delta -1, offset delta 1, no key, no value, no headers.
    second = bytes([12, 0, 1, 2, 1, 1, 0])
    assert batch[HEADER_BYTES:] == first + second


def test_log_append_time_replaces_the_timestamps_of_all_records() -> None:
    batch = encode_batch([Record(None, b"a", 10), Record(None, b"b", 20)], log_append_time_ms=77)
    assert [record.timestamp_ms for record in iter_records(batch)] == [77, 77]
    assert read_header(batch).base_timestamp == 10


def test_header_names_that_are_not_utf8_are_carried() -> None:
    name = b"\xff\x00".decode("utf-8", "surrogateescape")
    batch = encode_batch([Record(None, b"", 0, ((name, b"x"),))])
    assert next(iter_records(batch)).headers == ((name, b"x"),)


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        encode_batch([])


@given(records=records_strategy, codec=st.integers(0, 4), data=st.data())
def test_damaged_batches_never_raise_anything_else(
    records: list[Record], codec: int, data: st.DataObject
) -> None:
    batch = bytearray(encode_batch(records, codec=codec))
    at = data.draw(st.integers(HEADER_BYTES, len(batch) - 1))
    batch[at] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(CorruptRecords):
        list(iter_records(bytes(batch)))


@pytest.mark.parametrize("cut", [1, 10])
def test_a_batch_cut_short_is_told(cut: int) -> None:
    batch = encode_batch([Record(b"key", b"value" * 10, 1)])
    with pytest.raises(CorruptRecords, match="claims"):
        list(iter_records(batch[:-cut]))
    with pytest.raises(CorruptRecords, match="at least 61 bytes"):
        list(iter_records(batch[:60]))
