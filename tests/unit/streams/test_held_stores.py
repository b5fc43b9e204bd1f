"""Stores that hold objects, against those that read and write bytes each time: nobody can tell them apart."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.unit.streams.topologies import relaxed

from ottla.streams import (
    Consumed,
    Processor,
    ProcessorContext,
    Produced,
    Record,
    Serdes,
    Stores,
    StreamsBuilder,
)
from ottla.streams.errors import SerdeError
from ottla.streams.state import held
from ottla.streams.state.backend import MemoryBackend
from ottla.streams.state.held import HeldKeyValueStore, HeldWindowStore, can_be_held
from ottla.streams.state.key_value import KeyValueStore
from ottla.streams.state.spec import StoreKind, StoreSpec, open_store
from ottla.streams.state.window import WindowStore
from ottla.streams.testing import TopologyTestDriver


class Text(str):
    """Equal to the text it is made of, and not of its type."""


# No key and an empty one have the same bytes.
KEYS = st.sampled_from(["a", "", Text("a"), None])
# Whole numbers come back as they went in, and one that is true comes back as a number.
VALUES = st.sampled_from([None, 1, -5, True])
TIMES = st.sampled_from([0, 7, 12, 31, 55])
NAMES = st.sampled_from(["put", "put", "put", "get", "get", "get", "range", "all", "count", "flush", "open"])
STEPS = st.lists(st.tuples(NAMES, KEYS, VALUES, TIMES), min_size=10, max_size=60)


class Changelog:
    """What a changelog would hold of a batch: the last change of each key."""

    def __init__(self) -> None:
        self.last: dict[bytes, tuple[bytes | None, int]] = {}

    def __call__(self, key: bytes, value: bytes | None, timestamp_ms: int) -> None:
        self.last[key] = (value, timestamp_ms)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "HELD_MAX", 2)


@relaxed
@given(STEPS)
def test_a_key_value_store_that_holds_is_as_one_that_does_not(steps: list[Any]) -> None:
    kinds = (KeyValueStore, HeldKeyValueStore)
    backends, logs = [MemoryBackend(), MemoryBackend()], [Changelog(), Changelog()]

    def opened() -> list[Any]:
        parts = zip(kinds, backends, logs, strict=True)
        return [kind("s", backend, Serdes.of(str), Serdes.of(int), log) for kind, backend, log in parts]

    stores = opened()
    for name, key, value, time_ms in steps:
        match name:
            case "put":
                for store in stores:
                    store.put(key, value, time_ms)
            case "get":
                plain, holding = (store.get_with_timestamp(key) for store in stores)
                assert (plain, type(plain and plain.value)) == (holding, type(holding and holding.value))
            case "range":
                plain, holding = (list(store.range(key, None)) for store in stores)
                assert plain == holding
            case "all":
                plain, holding = (list(store.reverse_all()) for store in stores)
                assert plain == holding
            case "count":
                plain, holding = (store.entry_count() for store in stores)
                assert plain == holding
            case "flush" | "open":
                for store in stores:
                    store.flush()
                assert backends[0].entries == backends[1].entries
                assert logs[0].last == logs[1].last
                if name == "open":
                    stores = opened()


@relaxed
@example([("put", "a", 1, 0), ("put", "a", None, 0), ("flush", "a", None, 0)])
@given(STEPS)
def test_a_window_store_that_holds_is_as_one_that_does_not(steps: list[Any]) -> None:
    kinds = (WindowStore, HeldWindowStore)
    backends, logs = [MemoryBackend(), MemoryBackend()], [Changelog(), Changelog()]

    def opened() -> list[Any]:
        return [
            kind("s", backend, Serdes.of(str), Serdes.of(int), size_ms=10, retention_ms=20, log=log)
            for kind, backend, log in zip(kinds, backends, logs, strict=True)
        ]

    stores = opened()
    for name, key, value, time_ms in steps:
        start_ms = time_ms // 5 * 5
        match name:
            case "put":
                for store in stores:
                    store.put(key, value, start_ms, time_ms)
            case "get":
                plain, holding = (store.fetch_with_timestamp(key, start_ms) for store in stores)
                assert (plain, type(plain and plain.value)) == (holding, type(holding and holding.value))
            case "range":
                plain, holding = (store.fetch_range(key, start_ms, start_ms + 15) for store in stores)
                assert plain == holding
            case "all":
                plain, holding = (list(store.all()) for store in stores)
                assert plain == holding
            case "flush" | "open":
                for store in stores:
                    store.flush()
                assert backends[0].entries == backends[1].entries
                assert logs[0].last == logs[1].last
                plain, holding = (store.entry_count() for store in stores)
                assert plain == holding
                if name == "open":
                    stores = opened()


def test_only_what_comes_back_as_it_went_in_is_held() -> None:
    def store(key: Any, value: Any) -> Any:
        spec = StoreSpec("s", StoreKind.KEY_VALUE, Serdes.of(key), Serdes.of(value))
        return open_store(spec, MemoryBackend())

    assert isinstance(store(str, int), HeldKeyValueStore)
    # Lists and dictionaries could be changed in place, 32 bits do not hold every float.
    for value in (dict, list, Serdes.json(), Serdes.float()):
        assert not can_be_held(Serdes.of(str), Serdes.of(value))
    # Zero and minus zero are equal, their bytes are not.
    assert not can_be_held(Serdes.of(float), Serdes.of(int))
    listed = store(str, list)
    listed.put("k", [1])
    listed.get("k").append(2)
    assert listed.get("k") == [1]


def test_what_cannot_be_written_fails_where_it_is_put() -> None:
    store = HeldKeyValueStore("s", MemoryBackend(), Serdes.of(str), Serdes.of(int))
    store.put("k", 1)
    with pytest.raises(SerdeError, match="cannot be written as long"):
        store.put("k", 1 << 63)
    store.flush()
    assert store.get("k") == 1


@pytest.mark.parametrize(
    ("kind", "key"), [(int, 1 << 63), (str, "\ud800")], ids=["a number of 65 bits", "half a character"]
)
def test_a_key_that_cannot_be_written_fails_where_it_is_put(kind: type, key: Any) -> None:
    backend = MemoryBackend()
    store = HeldKeyValueStore("s", backend, Serdes.of(kind), Serdes.of(int))
    with pytest.raises(SerdeError, match="cannot be written as"):
        store.put(key, 1)
    windows = HeldWindowStore(
        "w", MemoryBackend(), Serdes.of(kind), Serdes.of(int), size_ms=10, retention_ms=20
    )
    with pytest.raises(SerdeError, match="cannot be written as"):
        windows.put(key, 1, 0)
    for each in (store, windows):
        each.flush()
        assert not each.entry_count()
    assert not backend.entries


@pytest.mark.parametrize("time_ms", [0.5, 1 << 63, "now"])
def test_a_time_that_cannot_be_written_fails_where_it_is_put(time_ms: Any) -> None:
    store = HeldKeyValueStore("s", MemoryBackend(), Serdes.of(str), Serdes.of(int))
    windows = HeldWindowStore(
        "w", MemoryBackend(), Serdes.of(str), Serdes.of(int), size_ms=10, retention_ms=20
    )
    with pytest.raises(struct.error):
        store.put("k", 1, time_ms)
    for start_ms, timestamp_ms in ((time_ms, 0), (0, time_ms)):
        with pytest.raises(struct.error):
            windows.put("k", 1, start_ms, timestamp_ms)
    store.flush()
    windows.flush()
    assert not store.entry_count() + windows.entry_count()


def test_a_record_that_brings_no_key_goes_to_dead_letters_and_the_next_ones_on() -> None:
    class Remember(Processor):
        stores = (Stores.key_value_store("seen", str, int),)

        def init(self, context: ProcessorContext) -> None:
            self.context = context
            self.seen = context.get_state_store("seen")

        def process(self, record: Record) -> None:
            self.seen.put(record.value["user"], 1)
            self.context.forward(record)

    builder = StreamsBuilder()
    builder.stream("in", Consumed.with_(str, dict)).process(Remember).to("out", Produced.with_(str, dict))
    with TopologyTestDriver(builder.build(), on_error="dead-letter", dead_letter_topic="dead") as driver:
        events = driver.create_input_topic("in")
        events.pipe_value('{"user": "a"}')
        events.pipe_value('{"user": "\\ud800"}')
        events.pipe_value('{"user": "b"}')
        assert len(driver.create_output_topic("out").read_values()) == 2
        assert driver.create_output_topic("dead").read_values() == ['{"user": "\\ud800"}']


def test_large_values_are_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "HELD_MAX", 1000)
    monkeypatch.setattr(held, "HELD_BYTES_MAX", 100)
    backend = MemoryBackend()
    store = HeldKeyValueStore("s", backend, Serdes.of(str), Serdes.of(str))
    store.put("a", "x" * 60)
    assert not backend.entries
    store.put("b", "y" * 60)
    assert backend.entries.keys() == {b"a", b"b"}


def test_keys_of_another_type_are_those_of_their_bytes() -> None:
    keyed = HeldKeyValueStore("s", MemoryBackend(), Serdes.of(str), Serdes.of(int))
    keyed.put("", 1)
    assert keyed.get(None) == 1
    keyed.put(None, 2)
    assert keyed.get("") == 2
    windows = HeldWindowStore(
        "s", MemoryBackend(), Serdes.of(str), Serdes.of(int), size_ms=10, retention_ms=20
    )
    windows.put("", 1, 0)
    assert windows.fetch(None, 0) == 1
    windows.put(None, 2, 0)
    assert windows.fetch("", 0) == 2
    windows.put("", 3, 5)
    assert [found.value for _, found in windows.fetch_range(None, 0, 5)] == [2, 3]
