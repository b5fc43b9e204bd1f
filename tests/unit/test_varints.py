"""Numbers of variable length, as requests and records have them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.varints import (
    VarintTooLong,
    append_varint,
    read_uvarint,
    read_uvarlong,
    read_varint,
    uvarint,
)

LONGS = st.integers(-(2**63), 2**63 - 1)


@given(LONGS, st.binary(max_size=3), st.binary(max_size=3))
def test_signed_numbers_come_back(number: int, before: bytes, after: bytes) -> None:
    target = bytearray(before)
    append_varint(target, number)
    end = len(target)
    target += after
    assert read_varint(bytes(target), len(before)) == (number, end)
    raw, after_raw = read_uvarlong(memoryview(target), len(before))
    assert (raw >> 1 if number >= 0 else ~(raw >> 1), after_raw) == (number, end)


@given(st.integers(0, 2**32 - 1))
def test_unsigned_numbers_come_back(number: int) -> None:
    data = uvarint(number)
    assert read_uvarint(data, 0) == read_uvarlong(data, 0) == (number, len(data))


@pytest.mark.parametrize(("number", "data"), [(0, b"\0"), (-1, b"\1"), (1, b"\2"), (64, b"\x80\1")])
def test_the_sign_is_the_lowest_bit(number: int, data: bytes) -> None:
    target = bytearray()
    append_varint(target, number)
    assert target == data


@pytest.mark.parametrize("read", [read_uvarint, read_uvarlong, read_varint])
def test_a_number_that_does_not_end_is_an_index_error(read: object) -> None:
    assert callable(read)
    for data in (b"", b"\xff", b"\xff\xff"):
        with pytest.raises(IndexError):
            read(data, 0)
    with pytest.raises(VarintTooLong):
        read(b"\xff" * 100, 0)
