from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.offset_map import NOT_FOUND, SLOT_BYTES, OffsetMap


@given(st.lists(st.binary(max_size=4), max_size=200), st.sampled_from([0.5, 0.9, 1.0]))
def test_it_is_a_dictionary(keys: list[bytes], load_factor: float) -> None:
    offsets = OffsetMap(10**6, load_factor, len(keys))
    expected = {}
    for offset, key in enumerate(keys):
        assert not offsets.is_full
        offsets.put(key, offset)
        expected[key] = offset
    assert {key: offsets.get(key) for key in keys} == expected
    assert offsets.get(b"never put") == NOT_FOUND
    assert offsets.count == len(expected)


@pytest.mark.parametrize("slots", [2, 3, 100])
def test_it_is_full_before_it_outgrows_its_memory(slots: int) -> None:
    offsets = OffsetMap(slots * SLOT_BYTES, 1.0, 10**9)
    number = 0
    while not offsets.is_full:
        offsets.put(b"%d" % number, number)
        number += 1
    assert 1 <= number < slots
    assert offsets.size_bytes <= slots * SLOT_BYTES
    assert [offsets.get(b"%d" % other) for other in range(number + 5)] == [*range(number), *[NOT_FOUND] * 5]
