"""Stores that forget and stores that remember: TTL, versions (KIP-889), joins that wait (KIP-923)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.streams.topologies import relaxed

from ottla.streams import (
    Joined,
    Materialized,
    Processor,
    ProcessorContext,
    Record,
    Serdes,
    Stores,
    StreamsBuilder,
    TopologyError,
)
from ottla.streams.records import ValueAndTimestamp
from ottla.streams.state.backend import MemoryBackend
from ottla.streams.state.key_value import ExpiringStore, KeyValueStore
from ottla.streams.state.ordered import OrderedBackend
from ottla.streams.state.versioned import NOT_PUT, UNDEFINED, VersionedStore
from ottla.streams.testing import TopologyTestDriver

TEXT = Serdes.string()
KEYS = st.sampled_from(["a", "b", "ab"])
TIMES = st.integers(0, 60)


@relaxed
@given(st.lists(st.tuples(KEYS, st.one_of(st.none(), st.text(max_size=2)), TIMES)), st.integers(1, 30))
def test_an_expiring_store_is_a_map_of_what_is_young(
    puts: list[tuple[str, str | None, int]], ttl_ms: int
) -> None:
    backend, now_ms, logged = MemoryBackend(), 0, []
    model: dict[str, tuple[str, int]] = {}
    for number, (key, value, time_ms) in enumerate(puts):
        now_ms = max(now_ms, time_ms)
        store = ExpiringStore(
            "s",
            backend,
            TEXT,
            TEXT,
            ttl_ms=ttl_ms,
            now_ms=lambda now=now_ms: now,
            log=lambda key, value, _: logged.append((key, value)),
        )
        store.put(key, value, time_ms)
        model.pop(key, None)
        if value is not None:
            model[key] = (value, time_ms)
        alive = {each: value for each, (value, since) in model.items() if since + ttl_ms > now_ms}
        assert dict(store.all()) == alive
        assert {each: store.get(each) for each in ("a", "b", "ab") if store.get(each) is not None} == alive
        assert [each for each, _ in store.reverse_range("a", "ab")] == sorted(alive.keys() & {"a", "ab"})[
            ::-1
        ]
        if number % 3 == 2:
            store.flush()
            assert store.entry_count() == len(alive)
            for gone in model.keys() - alive.keys():
                assert (gone.encode(), None) in logged
            model = {each: model[each] for each in alive}


@relaxed
@given(st.lists(st.tuples(KEYS, st.one_of(st.none(), st.text(max_size=2)), TIMES)), st.integers(1, 30))
def test_a_versioned_store_knows_what_was(puts: list[tuple[str, str | None, int]], history_ms: int) -> None:
    backend = OrderedBackend(MemoryBackend(), page_bytes=60)
    store = VersionedStore("s", backend, TEXT, TEXT, history_ms=history_ms)
    model: dict[str, dict[int, str | None]] = {"a": {}, "b": {}, "ab": {}}
    latest_ms = 0
    for number, (key, value, time_ms) in enumerate(puts):
        until_ms = store.put(key, value, time_ms)
        if time_ms < latest_ms - history_ms:
            assert until_ms == NOT_PUT
            continue
        latest_ms = max(latest_ms, time_ms)
        model[key][time_ms] = value
        assert until_ms == min((each for each in model[key] if each > time_ms), default=UNDEFINED)
        if number % 4 == 3:
            store.flush()
            store = VersionedStore("s", backend, TEXT, TEXT, history_ms=history_ms)
        for name, versions in model.items():
            newest = max(versions, default=None)
            for at_ms in range(0, 62, 3):
                valid = max((each for each in versions if each <= at_ms), default=None)
                found = None if valid is None else versions[valid]
                if valid != newest and at_ms < latest_ms - history_ms:
                    found = None
                expected = None if found is None or valid is None else ValueAndTimestamp(found, valid)
                assert store.get_as_of(name, at_ms) == expected, (name, at_ms)
            assert store.get(name) == (None if newest is None else versions[newest])
    store.flush()
    kept = sum(
        1
        for versions in model.values()
        for at_ms, value in versions.items()
        for next_ms in [min((each for each in versions if each > at_ms), default=None)]
        if next_ms is None or next_ms > latest_ms - history_ms
    )
    assert store.entry_count() <= kept, "what nobody can ask for any more is gone"
    assert dict(store.all()) == {
        name: versions[max(versions)]
        for name, versions in model.items()
        if versions and versions[max(versions)] is not None
    }


def test_a_key_deleted_again_and_again_leaves_a_versioned_store() -> None:
    store = VersionedStore("s", OrderedBackend(MemoryBackend()), TEXT, TEXT, history_ms=1)
    for time_ms in (0, 1, 2):
        store.put("a", None, time_ms)
    store.put("b", None, 10)
    store.flush()
    assert store.get("a") is None
    assert store.entry_count() == 1


def test_ranges_and_prefixes_come_in_the_order_of_bytes() -> None:
    store = KeyValueStore("s", OrderedBackend(MemoryBackend(), page_bytes=60), TEXT, TEXT)
    for key in ("pear", "apple", "peach", "fig", "grape"):
        store.put(key, key.upper())
    assert [key for key, _ in store.all()] == ["apple", "fig", "grape", "peach", "pear"]
    assert [key for key, _ in store.range("b", "peach")] == ["fig", "grape", "peach"]
    assert [key for key, _ in store.reverse_range("b", "peach")] == ["peach", "grape", "fig"]
    assert list(store.prefix_scan(b"pea")) == [("peach", "PEACH"), ("pear", "PEAR")]
    assert store.approximate_num_entries() == 5


class Remember(Processor):
    """Forwards whether it has seen a value lately."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.seen = context.get_state_store("seen")

    def process(self, record: Record) -> None:
        known = self.seen.put_if_absent(record.value, "x")
        self.context.forward(record.with_value(f"{record.value}:{'old' if known else 'new'}"))


def test_a_processor_forgets_what_is_past_its_ttl() -> None:
    builder = StreamsBuilder()
    builder.add_state_store(Stores.key_value_store("seen", str, str, ttl=100))
    builder.stream("in").process(Remember, stores=["seen"]).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        topic, out = driver.create_input_topic("in"), driver.create_output_topic("out")
        for value, time_ms in (("a", 0), ("a", 99), ("b", 100), ("a", 150), ("b", 199), ("b", 200)):
            topic.pipe_input("k", value, time_ms)
        assert out.read_values() == ["a:new", "a:old", "b:new", "a:new", "b:old", "b:new"]
        assert driver.get_state_store("seen").entry_count() == 2


def prices(joined: Joined | None = None) -> TopologyTestDriver:
    builder = StreamsBuilder()
    table = builder.table("prices", materialized=Materialized.as_("prices"), history=1000)
    table.to_stream().to("changes")
    cheap = table.filter(lambda key, price: price != "high")
    builder.stream("orders").left_join(cheap, lambda order, price: f"{order}@{price}", joined=joined).to(
        "sold"
    )
    return TopologyTestDriver(builder.build())


def test_a_stream_meets_the_row_of_its_time() -> None:
    with prices() as driver:
        table, orders = driver.create_input_topic("prices"), driver.create_input_topic("orders")
        sold = driver.create_output_topic("sold")
        for price, time_ms in (("one", 100), ("high", 200), ("three", 300)):
            table.pipe_input("k", price, time_ms)
        for name, time_ms in (("a", 50), ("b", 100), ("c", 299), ("d", 300), ("e", 5000)):
            orders.pipe_input("k", name, time_ms)
        assert sold.read_values() == ["a@None", "b@one", "c@None", "d@three", "e@three"]
        # Out of order: into the history, and not into what is now.
        table.pipe_input("k", "half", 150)
        orders.pipe_input("k", "f", 160)
        assert sold.read_values() == ["f@half"]
        assert driver.create_output_topic("changes").read_values() == ["one", "high", "three"]
        table.pipe_input("k", "now", 2000)
        table.pipe_input("k", "too late", 500)
        assert driver.dropped == {"late record for the history of a table": 1}


def test_a_join_with_grace_waits_for_rows_that_are_late() -> None:
    with prices(Joined().with_grace_period(100)) as driver:
        table, orders = driver.create_input_topic("prices"), driver.create_input_topic("orders")
        sold = driver.create_output_topic("sold")
        orders.pipe_input("k", "second", 160, headers=((("h"), b"1"), ("n", None)))
        orders.pipe_input("k", "first", 150)
        table.pipe_input("k", "one", 140)
        table.pipe_input("k", "two", 155)
        assert sold.is_empty
        orders.pipe_input("k", "third", 259)
        assert sold.read_values() == ["first@one"]
        orders.pipe_input("k", "fourth", 400)
        (second, third) = sold.read_records()
        assert (second.value, second.timestamp_ms) == ("second@two", 160)
        assert second.headers == (("h", b"1"), ("n", None))
        assert (third.value, third.timestamp_ms) == ("third@two", 259)
        # Later than the grace: joined at once.
        orders.pipe_input("k", "fifth", 141)
        assert sold.read_values() == ["fifth@one"]


def test_grace_needs_a_history_as_long() -> None:
    joined = Joined().with_grace_period(2000)
    with pytest.raises(
        TopologyError, match="grace period of 2000 ms, and its table has a history of 1000 ms"
    ):
        prices(joined)
    builder = StreamsBuilder()
    with pytest.raises(TopologyError, match="its table has no history: give it one as long or longer"):
        builder.stream("a").join(builder.table("b"), lambda a, b: a, joined=joined)
