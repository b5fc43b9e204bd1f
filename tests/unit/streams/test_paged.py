"""The paged map against a dictionary: any operations, written and opened anew at any time, at any size."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.streams.state.backend import MemoryBackend
from ottla.streams.state.paged import PAGE_BYTES, PagedBackend, decode_entries, encode_entries

KEYS = st.binary(max_size=3)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, st.binary(max_size=40)),
        st.tuples(st.just("delete"), KEYS),
        st.tuples(st.just("get"), KEYS),
        st.tuples(st.just("flush")),
        st.tuples(st.just("release")),
        st.tuples(st.just("reopen")),
        st.tuples(st.just("items")),
    ),
    max_size=120,
)


class CountingBackend(MemoryBackend):
    """Counts round trips."""

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


@given(STEPS, st.integers(20, 200))
@settings(deadline=None, max_examples=300)
def test_it_is_a_map_whatever_is_done_and_whenever_it_is_written(
    steps: list[tuple[object, ...]], page_bytes: int
) -> None:
    host = MemoryBackend()
    paged = PagedBackend(host, page_bytes=page_bytes)
    model: dict[bytes, bytes] = {}
    for step in steps:
        match step:
            case ("put", bytes(key), bytes(value)):
                paged.put(key, value)
                model[key] = value
            case ("delete", bytes(key)):
                paged.delete(key)
                model.pop(key, None)
            case ("get", bytes(key)):
                assert paged.get(key) == model.get(key)
            case ("flush",):
                paged.flush()
            case ("release",):
                paged.release()
            case ("reopen",):
                paged.flush()
                paged = PagedBackend(host, page_bytes=page_bytes)
            case ("items",):
                assert dict(paged.items()) == model
    paged.flush()
    assert dict(PagedBackend(host, page_bytes=page_bytes).items()) == model


@given(st.dictionaries(st.binary(), st.binary()))
def test_a_page_gives_back_its_entries(entries: dict[bytes, bytes]) -> None:
    assert decode_entries(encode_entries(entries)) == entries


def _key(number: int) -> bytes:
    return b"key-%06d" % number


def test_pages_divide_as_the_map_grows_and_join_as_it_shrinks() -> None:
    host = CountingBackend()
    paged = PagedBackend(host)
    for number in range(20_000):
        paged.put(_key(number), b"v" * 30)
        if number % 1000 == 999:
            paged.release()
    sizes = [len(data) for data in host.entries.values()]
    assert len(sizes) == -(-20_000 * (10 + 30 + 16) // PAGE_BYTES)
    # Linear hashing leaves some pages with twice the load of others until their turn has come.
    assert max(sizes) < 3 * PAGE_BYTES
    for number in range(100, 20_000):
        paged.delete(_key(number))
    paged.flush()
    assert len(host.entries) <= 4
    assert sorted(dict(paged.items())) == [_key(number) for number in range(100)]


def test_a_large_map_is_neither_read_nor_written_as_a_whole() -> None:
    host = CountingBackend()
    paged = PagedBackend(host)
    for number in range(50_000):
        paged.put(_key(number), b"v" * 30)
    paged.release()
    assert host.reads == 1
    host.reads = host.writes = 0
    for number in range(0, 50_000, 5000):
        assert paged.get(_key(number)) == b"v" * 30
        paged.put(_key(number), b"w" * 30)
    paged.flush()
    # A page for each key, and the first page, which has the head.
    assert host.reads <= 11
    assert host.writes <= 11
    # Growth divides as many pages as are added, and reads no others.
    host.reads = host.writes = 0
    for number in range(50_000, 50_100):
        paged.put(_key(number), b"v" * 30)
    paged.flush()
    assert host.reads <= 110
    assert host.writes <= 115


def test_what_is_held_in_memory_is_told_and_released() -> None:
    paged = PagedBackend(MemoryBackend())
    for number in range(1000):
        paged.put(_key(number), bytes(100))
    assert paged.memory_bytes > 100_000
    paged.release()
    assert paged.memory_bytes == 0
    assert paged.get(_key(7)) == bytes(100)
    assert 0 < paged.memory_bytes < 50_000
