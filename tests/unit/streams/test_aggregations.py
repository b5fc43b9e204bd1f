"""Aggregations against models that recompute the result from the whole history."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.streams.topologies import Event, events, latest, relaxed, run

from ottla.streams import Grouped, Materialized, Serdes, StreamsBuilder
from ottla.streams.testing import TopologyTestDriver

RESTART = st.integers(0, 25)
NULLABLE = st.one_of(st.none(), st.integers(0, 9))


@relaxed
@given(events("in", values=NULLABLE), RESTART)
def test_count(history: list[Event], restart_at: int) -> None:
    def define(builder: StreamsBuilder) -> None:
        builder.stream("in").group_by_key().count().to_stream().to("out")

    outputs = run(define, history, restart_at=restart_at)
    counted = [event for event in history if event.value is not None]
    assert latest(outputs) == Counter(event.key for event in counted)
    # One update for each record, each with the largest timestamp the key has had.
    seen: dict[str, int] = {}
    expected = []
    for event in counted:
        seen[event.key] = max(seen.get(event.key, 0), event.time)
        expected.append((event.key, seen[event.key]))
    assert [(record.key, record.timestamp_ms) for record in outputs] == expected


@relaxed
@given(events("in"), RESTART)
def test_reduce(history: list[Event], restart_at: int) -> None:
    def define(builder: StreamsBuilder) -> None:
        builder.stream("in").group_by_key().reduce(lambda a, b: a * 10 + b).to_stream().to("out")

    digits: dict[str, str] = defaultdict(str)
    for event in history:
        digits[event.key] += str(event.value)
    assert latest(run(define, history, restart_at=restart_at)) == {
        key: int(text) for key, text in digits.items()
    }


@relaxed
@given(events("in"), RESTART)
def test_aggregate_with_an_aggregator_that_changes_its_argument(
    history: list[Event], restart_at: int
) -> None:
    def append(key: str, value: int, seen: list[int]) -> list[int]:
        seen.append(value)
        return seen

    def define(builder: StreamsBuilder) -> None:
        aggregated = (
            builder.stream("in").group_by_key().aggregate(list, append, Materialized.with_(value=list))
        )
        # Grouping the table asks for its old values, which must not be the changed object.
        aggregated.group_by(lambda key, seen: ("all", len(seen)), Grouped.with_(str, int)).reduce(
            lambda a, b: a + b, lambda a, b: a - b
        ).to_stream().to("out")

    outputs = run(define, history, restart_at=restart_at)
    assert latest(outputs) == ({"all": len(history)} if history else {})


@relaxed
@given(events("in", values=st.integers(0, 3)), RESTART)
def test_group_by_a_new_key(history: list[Event], restart_at: int) -> None:
    def define(builder: StreamsBuilder) -> None:
        stream = builder.stream("in")
        stream.group_by(lambda key, value: value, Grouped.with_(int, int)).count().to_stream().to("out")

    outputs = run(define, history, out_key=int, restart_at=restart_at)
    assert latest(outputs) == Counter(event.value for event in history)


def rows_of(history: Sequence[Event], topic: str = "in") -> dict[str, int]:
    rows: dict[str, int] = {}
    for event in history:
        if event.topic == topic:
            rows[event.key] = event.value
    return {key: value for key, value in rows.items() if value is not None}


@relaxed
@given(events("in", keys=("a", "b", "c"), values=NULLABLE), RESTART)
def test_a_grouped_table_counts_rows_that_come_change_and_go(history: list[Event], restart_at: int) -> None:
    def define(builder: StreamsBuilder) -> None:
        grouped = builder.table("in").group_by(lambda key, value: (value % 3, value), Grouped.with_(int, int))
        grouped.count().to_stream().to("out")

    outputs = run(define, history, out_key=int, restart_at=restart_at)
    expected = Counter(value % 3 for value in rows_of(history).values())
    assert {key: count for key, count in latest(outputs).items() if count} == expected


@relaxed
@given(events("in", keys=("a", "b", "c"), values=NULLABLE), RESTART)
def test_a_grouped_table_aggregates_with_adder_and_subtractor(history: list[Event], restart_at: int) -> None:
    def define(builder: StreamsBuilder) -> None:
        grouped = builder.table("in").group_by(lambda key, value: (value % 3, value), Grouped.with_(int, int))
        grouped.aggregate(
            lambda: 0, lambda key, value, total: total + value, lambda key, value, total: total - value
        ).to_stream().to("out")

    expected: dict[int, int] = defaultdict(int)
    for value in rows_of(history).values():
        expected[value % 3] += value
    outputs = run(define, history, out_key=int, restart_at=restart_at)
    assert {k: v for k, v in latest(outputs).items() if v} == {k: v for k, v in expected.items() if v}


@relaxed
@given(events("in", keys=("a", "b", "c"), values=NULLABLE), RESTART)
def test_filters_and_maps_of_a_table(history: list[Event], restart_at: int) -> None:
    def define(builder: StreamsBuilder) -> None:
        table = builder.table("in").filter(lambda value: value > 2).map_values(lambda value: value * 2)
        table.filter_not(lambda value: value == 16).to_stream().to("out")

    expected = {key: value * 2 for key, value in rows_of(history).items() if value > 2 and value != 8}
    assert latest(run(define, history, restart_at=restart_at)) == expected


@relaxed
@given(events("clicks", "views"), RESTART)
def test_cogroup(history: list[Event], restart_at: int) -> None:
    def define(builder: StreamsBuilder) -> None:
        clicks, views = builder.stream("clicks").group_by_key(), builder.stream("views").group_by_key()
        cogrouped = clicks.cogroup(lambda key, value, total: total + 100).cogroup(
            views, lambda key, value, total: total + 1
        )
        cogrouped.aggregate(lambda: 0, Materialized.as_("both")).to_stream().to("out")

    expected = Counter[str]()
    for event in history:
        expected[event.key] += 100 if event.topic == "clicks" else 1
    assert latest(run(define, history, restart_at=restart_at)) == expected


def test_an_aggregation_that_returns_none_deletes_the_key() -> None:
    builder = StreamsBuilder(default_value_serde=int)
    table = (
        builder.stream("in")
        .group_by_key()
        .aggregate(
            lambda: 0, lambda key, value, total: total + value if value else None, Materialized.as_("totals")
        )
    )
    table.to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", str, int)
        topic.pipe_records([("a", 2), ("a", 3), ("a", 0), ("a", 4)])
        assert driver.create_output_topic("out", str, int).read_values() == [2, 5, None, 4]
        assert driver.get_state_store("totals").get("a") == 4


def test_a_key_with_another_name_for_its_store_is_queryable() -> None:
    builder = StreamsBuilder()
    table = (
        builder.stream("in").group_by_key().count(Materialized.as_("counts").with_key_serde(Serdes.string()))
    )
    assert table.queryable_store_name == "counts"
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in").pipe_records([("a", "x"), ("b", "x"), ("a", "x")])
        store = driver.get_state_store("counts")
        assert list(store.all()) == [("a", 2), ("b", 1)]
        assert list(store.range("b", None)) == [("b", 1)]
        assert list(store.reverse_range()) == [("b", 1), ("a", 2)]
        assert list(store.prefix_scan(b"a")) == [("a", 2)]
        assert store.approximate_num_entries() == 2
