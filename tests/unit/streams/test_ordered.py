"""The ordered map against a dictionary: any operations, written and opened anew at any time, at any size."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.streams.state.backend import MemoryBackend, end_of_prefix
from ottla.streams.state.ordered import PAGE_BYTES, OrderedBackend

KEYS = st.binary(max_size=3)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, st.binary(max_size=40)),
        st.tuples(st.just("delete"), KEYS),
        st.tuples(st.just("get"), KEYS),
        st.tuples(st.just("scan"), KEYS, st.one_of(st.none(), KEYS)),
        st.tuples(st.just("flush")),
        st.tuples(st.just("release")),
        st.tuples(st.just("reopen")),
    ),
    max_size=150,
)


class CountingHost(MemoryBackend):
    """Counts round trips."""

    __slots__ = ("reads", "writes")

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.writes = 0

    def get(self, key: bytes) -> bytes | None:
        self.reads += 1
        return super().get(key)

    def put(self, key: bytes, value: bytes) -> None:
        self.writes += 1
        super().put(key, value)

    def delete(self, key: bytes) -> None:
        self.writes += 1
        super().delete(key)


def between(model: dict[bytes, bytes], first: bytes, end: bytes | None) -> list[tuple[bytes, bytes]]:
    return sorted(each for each in model.items() if each[0] >= first and (end is None or each[0] < end))


@given(STEPS, st.integers(20, 200))
@settings(deadline=None, max_examples=300)
def test_it_is_a_map_whatever_is_done_and_whenever_it_is_written(
    steps: list[tuple[object, ...]], page_bytes: int
) -> None:
    host = MemoryBackend()
    ordered = OrderedBackend(host, page_bytes=page_bytes)
    model: dict[bytes, bytes] = {}
    for step in steps:
        match step:
            case ("put", bytes(key), bytes(value)):
                ordered.put(key, value)
                model[key] = value
            case ("delete", bytes(key)):
                ordered.delete(key)
                model.pop(key, None)
            case ("get", bytes(key)):
                assert ordered.get(key) == model.get(key)
            case ("scan", bytes(first), end):
                assert end is None or isinstance(end, bytes)
                expected = between(model, first, end)
                assert list(ordered.scan(first, end)) == expected
                assert list(ordered.scan_back(first, end)) == expected[::-1]
            case ("flush",):
                ordered.flush()
            case ("release",):
                ordered.release()
            case ("reopen",):
                ordered.flush()
                ordered = OrderedBackend(host, page_bytes=page_bytes)
        assert ordered.entry_count == len(model)
    ordered.flush()
    opened = OrderedBackend(host, page_bytes=page_bytes)
    assert list(opened.scan()) == sorted(model.items())
    assert opened.entry_count == len(model)
    if not model:
        assert not host.entries, "an empty map leaves nothing behind"


def test_a_tree_of_several_levels_grows_and_shrinks_in_any_order() -> None:
    dice = random.Random(3)
    host = MemoryBackend()
    ordered = OrderedBackend(host, page_bytes=100)
    model: dict[bytes, bytes] = {}
    keys = [b"%05d" % number for number in range(3000)]
    for share in (0.9, 0.1, 0.7, 0.0):
        dice.shuffle(keys)
        for count, key in enumerate(keys):
            if dice.random() < share:
                model[key] = value = bytes(dice.randrange(30))
                ordered.put(key, value)
            else:
                model.pop(key, None)
                ordered.delete(key)
            if count % 500 == 0:
                ordered.release()
        ordered.flush()
        assert list(OrderedBackend(host, page_bytes=100).scan()) == sorted(model.items())
    assert not host.entries


def test_prefixes_end_where_the_next_begins() -> None:
    assert end_of_prefix(b"ab") == b"ac"
    assert end_of_prefix(b"a\xff\xff") == b"b"
    assert end_of_prefix(b"\xff") is None
    assert end_of_prefix(b"") is None


def _key(number: int) -> bytes:
    return b"key-%06d" % number


def test_pages_divide_as_the_map_grows_and_join_as_it_shrinks() -> None:
    host = MemoryBackend()
    ordered = OrderedBackend(host)
    for number in range(20_000):
        ordered.put(_key(number), b"v" * 30)
        if number % 1000 == 999:
            ordered.release()
    sizes = [len(data) for data in host.entries.values()]
    # What comes in order fills its pages.
    assert len(sizes) < 1.1 * 20_000 * (10 + 30 + 16) / PAGE_BYTES
    assert max(sizes) < 3 * PAGE_BYTES
    for number in range(100, 20_000):
        ordered.delete(_key(number))
    ordered.flush()
    assert len(host.entries) <= 4
    assert [key for key, _ in ordered.scan()] == [_key(number) for number in range(100)]


def test_a_large_map_is_neither_read_nor_written_as_a_whole() -> None:
    host = CountingHost()
    ordered = OrderedBackend(host)
    numbers = list(range(50_000))
    random.Random(5).shuffle(numbers)
    for number in numbers:
        ordered.put(_key(number), b"v" * 30)
    ordered.release()
    assert host.reads == 1
    host.reads = host.writes = 0
    for number in range(0, 50_000, 5000):
        assert ordered.get(_key(number)) == b"v" * 30
        ordered.put(_key(number), b"w" * 30)
    ordered.flush()
    # A leaf for each key, the pages above them, and the root, which has the head.
    assert host.reads <= 10 + 8
    assert host.writes <= 11
    ordered.release()
    host.reads = 0
    found = list(ordered.scan(_key(20_000), _key(20_100)))
    assert [key for key, _ in found] == [_key(number) for number in range(20_000, 20_100)]
    assert host.reads <= 6
    assert len(list(ordered.scan(b"key-0200", end_of_prefix(b"key-0200")))) == 100
    assert host.reads <= 10


def test_what_is_held_in_memory_is_told_and_released() -> None:
    ordered = OrderedBackend(MemoryBackend())
    for number in range(1000):
        ordered.put(_key(number), bytes(100))
    assert ordered.memory_bytes > 100_000
    ordered.release()
    assert ordered.memory_bytes == 0
    assert ordered.get(_key(7)) == bytes(100)
    assert 0 < ordered.memory_bytes < 50_000
