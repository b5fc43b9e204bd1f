from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.records.batch import HEADER_BYTES, read_header
from ottla.records.compression import CorruptRecords
from ottla.records.filtering import body_of, keys_of, offset_deltas, select, with_records
from ottla.records.records import Record, encode_batch, iter_records

BYTES = st.binary(max_size=5) | st.integers(60, 20_000).map(bytes)
RECORDS = st.lists(
    st.builds(
        Record,
        st.none() | BYTES,
        st.none() | BYTES,
        st.integers(0, 2**40),
        st.sampled_from([(), (("name", b"value"),)]),
    ),
    min_size=1,
    max_size=200,
)


@given(RECORDS, st.integers(0, 4))
def test_keys_are_those_that_full_decoding_finds(records: list[Record], codec: int) -> None:
    batch = encode_batch(records, codec=codec)
    header = read_header(batch)
    body = body_of(batch, header)
    keys, tombstones = keys_of(body, header.record_count)
    assert keys == [record.key for record in records]
    assert tombstones == [index for index, record in enumerate(records) if record.value is None]
    assert offset_deltas(body, len(records)) == list(range(len(records)))


@given(RECORDS, st.data(), st.integers(0, 4), st.none() | st.integers(0, 2**40))
def test_records_that_stay_are_unchanged(
    records: list[Record], data: st.DataObject, codec: int, horizon_ms: int | None
) -> None:
    wanted = bytes(data.draw(st.lists(st.integers(0, 2), min_size=len(records), max_size=len(records))))
    batch = encode_batch(records, base_offset=100, codec=codec)
    header = read_header(batch)
    body = body_of(batch, header)
    kept = select(body, wanted)
    assert len(kept) == len(wanted) - wanted.count(0)
    if kept:
        found = list(iter_records(with_records(header, body, kept, horizon_ms)))
        expected = [
            record for record, is_wanted in zip(iter_records(batch), wanted, strict=True) if is_wanted
        ]
        assert found == expected


@given(RECORDS, st.data())
def test_a_damaged_body_is_refused_or_read_but_nothing_else(
    records: list[Record], data: st.DataObject
) -> None:
    body = bytearray(encode_batch(records)[HEADER_BYTES:])
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] ^= data.draw(st.integers(1, 255))
    for count in (len(records), len(records) + 1):
        try:
            keys, tombstones = keys_of(bytes(body), count)
        except CorruptRecords:
            continue
        assert len(keys) == count
        assert all(0 <= index < count for index in tombstones)
        assert len(select(bytes(body), bytes([1]) * count)) == count


@pytest.mark.parametrize("cut", [0, 1, 5, 20])
def test_a_body_that_is_cut_off_is_refused(cut: int) -> None:
    body = encode_batch([Record(b"key", bytes(100), 0)] * 2)[HEADER_BYTES:]
    with pytest.raises(CorruptRecords):
        keys_of(body[:cut], 2)
    with pytest.raises(CorruptRecords):
        select(body[:cut], b"\1\1")
    with pytest.raises(CorruptRecords):
        keys_of(body, 1)
    with pytest.raises(CorruptRecords):
        select(body, b"\1")
