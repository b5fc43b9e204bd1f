from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.latest_records import LATEST, SLOT_BYTES, SUPERSEDED, TOMBSTONE, LatestRecords

BATCHES = st.lists(
    st.lists(st.tuples(st.none() | st.binary(max_size=2), st.booleans()), max_size=20), max_size=20
)


@given(BATCHES, st.sampled_from([0.5, 0.9, 1.0]))
def test_it_knows_the_last_of_each_key(
    batches: list[list[tuple[bytes | None, bool]]], load_factor: float
) -> None:
    records = [record for batch in batches for record in batch]
    latest = LatestRecords(10**6, load_factor, len(records))
    for batch in batches:
        tombstones = [index for index, (_, has_value) in enumerate(batch) if not has_value]
        assert latest.add([key for key, _ in batch], tombstones) == len(batch)
    last = {key: number for number, (key, _) in enumerate(records) if key is not None}
    assert latest.kinds == bytes(
        SUPERSEDED if last.get(key) != number else LATEST if has_value else TOMBSTONE  # type: ignore[arg-type]
        for number, (key, has_value) in enumerate(records)
    )
    assert all(key in latest for key in last)
    assert b"never put" not in latest
    assert latest.count == len(last)


@pytest.mark.parametrize("slots", [4, 5, 100])
def test_it_is_full_before_it_outgrows_its_memory(slots: int) -> None:
    bytes_max = 2 * slots * SLOT_BYTES
    latest = LatestRecords(bytes_max, 1.0, 10**9)
    keys: list[bytes | None] = [b"%d" % number for number in range(1000)]
    taken = latest.add(keys, [0, taken_at_most := slots])
    assert 1 <= taken <= taken_at_most == slots
    assert latest.size_bytes <= bytes_max
    assert [key in latest for key in keys if key] == [*[True] * taken, *[False] * (1000 - taken)]
    assert latest.kinds == bytes([TOMBSTONE, *[LATEST] * (taken - 1)])
    assert latest.add([b"1000"], []) == 0, "no other key"
    assert latest.add([b"0"], []) == 1, "but one that is there"
    assert latest.kinds[0] == SUPERSEDED


def test_many_records_of_few_keys_are_bounded_too() -> None:
    latest = LatestRecords(100, 0.9, 1000)
    assert latest.add([b"a"] * 1000, []) == 50
    assert latest.add([b"a"], []) == 0
    assert latest.kinds == bytes([*[SUPERSEDED] * 49, LATEST])
