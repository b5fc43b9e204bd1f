"""Batches that become one have the records they had."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.records.batch import crc_matches, read_header
from ottla.records.compression import CorruptRecords
from ottla.records.merging import merged
from ottla.records.records import Record, encode_batch, iter_records

blobs = st.none() | st.binary(max_size=300)
records = st.builds(
    Record,
    blobs,
    blobs,
    st.integers(0, 2**41),
    st.lists(st.tuples(st.text(max_size=9), blobs), max_size=3).map(tuple),
)


@given(
    st.lists(st.lists(records, min_size=1, max_size=5), min_size=1, max_size=8),
    st.sampled_from([0, 1, 2, 3, 4]),
)
def test_records_stay_as_they_are(parts: list[list[Record]], codec: int) -> None:
    batches = [encode_batch(part, base_offset=1000 * at, codec=codec) for at, part in enumerate(parts)]
    batch = merged(batches, codec)
    header = read_header(batch)
    flat = [record for part in parts for record in part]
    assert list(iter_records(batch)) == [record._replace(offset=at) for at, record in enumerate(flat)]
    assert crc_matches(batch, header.crc)
    assert (header.codec, header.record_count, header.last_offset_delta) == (codec, len(flat), len(flat) - 1)
    assert header.max_timestamp == max(record.timestamp_ms for record in flat)


def test_what_is_not_records_is_refused() -> None:
    batch = bytearray(encode_batch([Record(b"key", b"value", 5)]))
    batch[61] = 0x7F
    with pytest.raises(CorruptRecords):
        merged([batch, batch], 0)
