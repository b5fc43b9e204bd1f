"""The key-value view of a table against a plain dictionary."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.streams.topologies import relaxed

from ottla.streams.queries.entries import SortedEntries, Stored

keys = st.binary(max_size=3)
changes = st.lists(st.tuples(keys, st.none() | st.binary(max_size=2), st.booleans()), max_size=60)


@relaxed
@given(changes, keys, keys)
def test_any_range_after_any_history(
    history: list[tuple[bytes, bytes | None, bool]], low: bytes, high: bytes
):
    entries, model = SortedEntries(), {}
    for key, value, is_read_between in history:
        entries.apply(key, value, 7)
        if value is None:
            model.pop(key, None)
        else:
            model[key] = value
        if is_read_between:
            assert {key: stored.value for key, stored in entries.range(None, None)} == model
    assert len(entries) == len(model)
    found = [(key, stored.value) for key, stored in entries.range(low, high)]
    assert found == sorted((key, value) for key, value in model.items() if low <= key <= high)
    beginning = [(key, stored.value) for key, stored in entries.prefix(low)]
    assert beginning == sorted((key, value) for key, value in model.items() if key.startswith(low))


def test_a_key_that_came_back_is_there_once():
    entries = SortedEntries()
    entries.apply(b"a", b"1", 0)
    assert [key for key, _ in entries.range(None, None)] == [b"a"]
    entries.apply(b"a", None, 1)
    entries.apply(b"a", b"2", 2)
    assert [(key, stored.value) for key, stored in entries.range(None, None)] == [(b"a", b"2")]


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (2, 0, 1)])
def test_a_key_that_moves_to_another_partition_is_there_once(order: tuple[int, ...]) -> None:
    """Each partition is read in order, but not the one before the other."""
    entries = SortedEntries()
    moved = [(b"old", 1), (None, 1), (b"new", 5)]
    for step in order:
        value, partition = moved[step]
        entries.apply(b"a", value, 0, partition)
    assert list(entries.range(None, None)) == [(b"a", Stored(b"new", 0, 5))]
    entries.apply(b"a", None, 0, 5)
    assert len(entries) == 0
