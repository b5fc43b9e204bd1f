"""Joins against models that look at all pairs of the whole history."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.streams.topologies import Event, events, latest, relaxed, run

from ottla.streams import Consumed, JoinWindows, Materialized, Produced, StreamsBuilder
from ottla.streams.testing import TopologyTestDriver

RESTART = st.integers(0, 25)
LONG_AGO = 1000
NULLABLE = st.one_of(st.none(), st.integers(0, 9))


def pair(left: int | None, right: int | None) -> str:
    return f"{left}+{right}"


@pytest.mark.parametrize("kind", ["join", "left_join", "outer_join"])
@relaxed
@given(
    history=events("left", "right"),
    before=st.integers(0, 12),
    after=st.integers(0, 12),
    restart_at=RESTART,
)
def test_stream_stream_joins(
    kind: str, history: list[Event], before: int, after: int, restart_at: int
) -> None:
    windows = JoinWindows.of_time_difference_and_grace(0, LONG_AGO).before(before).after(after)

    def define(builder: StreamsBuilder) -> None:
        left, right = builder.stream("left"), builder.stream("right")
        getattr(left, kind)(right, pair, windows).to("out", Produced.with_(str, str))

    # A record far in the future closes all windows, so that unmatched records leave.
    history = [*history, Event("left", "end", 0, 10 * LONG_AGO)]
    outputs = run(define, history, out_value=str, restart_at=restart_at)

    expected: list[tuple[str, str, int]] = []
    matched: set[int] = set()
    for i, left in enumerate(history):
        for j, right in enumerate(history):
            is_pair = (left.topic, right.topic) == ("left", "right") and left.key == right.key
            if is_pair and left.time - before <= right.time <= left.time + after:
                expected.append((left.key, pair(left.value, right.value), max(left.time, right.time)))
                matched |= {i, j}
    for index, event in enumerate(history[:-1]):
        if index not in matched:
            if event.topic == "left" and kind != "join":
                expected.append((event.key, pair(event.value, None), event.time))
            if event.topic == "right" and kind == "outer_join":
                expected.append((event.key, pair(None, event.value), event.time))
    assert Counter((r.key, r.value, r.timestamp_ms) for r in outputs) == Counter(expected)


@relaxed
@given(history=events("left", "right"), restart_at=RESTART)
def test_with_records_no_later_than_the_grace_nothing_is_taken_back(
    history: list[Event], restart_at: int
) -> None:
    windows = JoinWindows.of_time_difference_and_grace(5, 7)

    def define(builder: StreamsBuilder) -> None:
        builder.stream("left").outer_join(builder.stream("right"), pair, windows).to(
            "out", Produced.with_(str, str)
        )

    # A record that comes later than that may still meet one that left alone.
    in_time: list[Event] = []
    for event in history:
        if event.time + 7 >= max((other.time for other in in_time), default=0):
            in_time.append(event)
    history = in_time
    joined: set[tuple[str, str, int]] = set()
    alone: set[tuple[str, str, int]] = set()
    for record in run(define, history, out_value=str, restart_at=restart_at):
        left, right = record.value.split("+")
        for side, value in (("left", left), ("right", right)):
            if value != "None":
                fact = (side, record.key, int(value))
                (alone if "None" in record.value else joined).add(fact)
    times = {}
    for event in history:
        times.setdefault((event.topic, event.key, event.value), set()).add(event.time)
    # Only records that are told apart by their value: one that was given out alone is not joined later.
    for fact in alone & joined:
        assert len(times[fact]) > 1


def test_a_late_record_within_grace_joins_instead_of_leaving_alone() -> None:
    builder = StreamsBuilder()
    windows = JoinWindows.of_time_difference_and_grace(10, 50)
    builder.stream("orders").left_join(builder.stream("payments"), pair, windows).to(
        "out", Produced.with_(str, str)
    )
    with TopologyTestDriver(builder.build()) as driver:
        orders, payments = driver.create_input_topic("orders"), driver.create_input_topic("payments")
        out = driver.create_output_topic("out")
        orders.pipe_input("o1", "order 1", 100)
        orders.pipe_input("o2", "order 2", 140)
        assert out.is_empty
        payments.pipe_input("o1", "paid late", 105)
        assert out.read_key_values() == [("o1", "order 1+paid late")]
        orders.pipe_input("o3", "order 3", 201)
        assert out.read_key_values() == [("o2", "order 2+None")]


@pytest.mark.parametrize("kind", ["join", "left_join"])
@relaxed
@given(history=events("stream", "table", values=NULLABLE), restart_at=RESTART)
def test_stream_table_join_uses_the_table_of_the_moment(
    kind: str, history: list[Event], restart_at: int
) -> None:
    def define(builder: StreamsBuilder) -> None:
        getattr(builder.stream("stream"), kind)(builder.table("table"), pair).to(
            "out", Produced.with_(str, str)
        )

    rows: dict[str, int | None] = {}
    expected = []
    for event in history:
        if event.topic == "table":
            rows[event.key] = event.value
        elif event.value is not None and (kind == "left_join" or rows.get(event.key) is not None):
            expected.append((event.key, pair(event.value, rows.get(event.key)), event.time))
    outputs = run(define, history, out_value=str, restart_at=restart_at)
    assert [(record.key, record.value, record.timestamp_ms) for record in outputs] == expected


def table_of(history: list[Event], topic: str) -> dict[str, int]:
    rows = {event.key: event.value for event in history if event.topic == topic}
    return {key: value for key, value in rows.items() if value is not None}


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("kind", ["join", "left_join", "outer_join"])
@relaxed
@given(history=events("left", "right", keys=("a", "b", "c"), values=NULLABLE), restart_at=RESTART)
def test_table_table_joins(kind: str, stored: bool, history: list[Event], restart_at: int) -> None:
    materialized = (
        Materialized.as_("joined").with_value_serde(str) if stored else Materialized.with_(value=str)
    )

    def define(builder: StreamsBuilder) -> None:
        left = builder.table("left").filter(lambda value: value != 5)
        getattr(left, kind)(builder.table("right"), pair, materialized).to_stream().to("out")

    left = {key: value for key, value in table_of(history, "left").items() if value != 5}
    right = table_of(history, "right")
    keys = {
        "join": left.keys() & right.keys(),
        "left_join": left.keys(),
        "outer_join": left.keys() | right.keys(),
    }
    expected = {key: pair(left.get(key), right.get(key)) for key in keys[kind]}
    assert latest(run(define, history, out_value=str, restart_at=restart_at)) == expected


@relaxed
@given(events("left", "middle", "right", keys=("a", "b"), values=NULLABLE), RESTART)
def test_a_join_of_a_join_and_its_old_values(history: list[Event], restart_at: int) -> None:
    def define(builder: StreamsBuilder) -> None:
        left, middle, right = (builder.table(topic) for topic in ("left", "middle", "right"))
        both = left.outer_join(middle, lambda a, b: (a or 0) + (b or 0), Materialized.with_(value=int))
        three = both.left_join(right, lambda a, b: a + (b or 0), Materialized.with_(value=int))
        # Old values must be right for the group to be: it sums what the join holds now.
        three.group_by(lambda key, value: ("all", value)).aggregate(
            lambda: 0, lambda k, v, total: total + v, lambda k, v, total: total - v
        ).to_stream().to("out")

    left, middle, right = (table_of(history, topic) for topic in ("left", "middle", "right"))
    total = sum(left.get(k, 0) + middle.get(k, 0) + right.get(k, 0) for k in left.keys() | middle.keys())
    assert latest(run(define, history, restart_at=restart_at)).get("all", 0) == total


@pytest.mark.parametrize("kind", ["join", "left_join"])
@relaxed
@given(history=events("orders", "customers", keys=("1", "2", "3"), values=NULLABLE), restart_at=RESTART)
def test_foreign_key_joins(kind: str, history: list[Event], restart_at: int) -> None:
    def customer(order: int) -> str | None:
        return None if order == 9 else str(order % 4)

    def define(builder: StreamsBuilder) -> None:
        orders, customers = builder.table("orders"), builder.table("customers")
        joined = getattr(orders, kind)(customers, pair, Materialized.with_(value=str), foreign_key=customer)
        joined.to_stream().to("out")

    orders, customers = table_of(history, "orders"), table_of(history, "customers")
    expected = {}
    for key, order in orders.items():
        partner = customers.get(customer(order) or "")
        if partner is not None or kind == "left_join":
            expected[key] = pair(order, partner)
    assert latest(run(define, history, out_value=str, restart_at=restart_at)) == expected


@relaxed
@given(events("stream", "rates", keys=("1", "2", "3"), values=NULLABLE), RESTART)
def test_global_table_join_by_a_key_of_the_value(history: list[Event], restart_at: int) -> None:
    def define(builder: StreamsBuilder) -> None:
        rates = builder.global_table("rates")
        builder.stream("stream").left_join(rates, pair, key_selector=lambda value: str(value % 4)).to(
            "out", Produced.with_(str, str)
        )

    rows: dict[str, int | None] = {}
    expected = []
    for event in history:
        if event.topic == "rates":
            rows[event.key] = event.value
        elif event.value is not None:
            expected.append((event.key, pair(event.value, rows.get(str(event.value % 4)))))
    outputs = run(define, history, out_value=str, restart_at=restart_at)
    assert [(record.key, record.value) for record in outputs] == expected


def test_a_stream_whose_key_changed_is_repartitioned_before_its_join() -> None:
    builder = StreamsBuilder()
    users = builder.table("users", Consumed.with_(str, str))
    clicks = builder.stream("clicks").select_key(lambda key, value: value.split("@")[0])
    clicks.join(users, lambda key, click, user: f"{key}:{user}").to("out")
    topology = builder.build()
    assert list(topology.plan.internal_topics) == ["KSTREAM-KEY-SELECT-0000000004-repartition"]
    with TopologyTestDriver(topology) as driver:
        driver.create_input_topic("users").pipe_input("ann", "Ann")
        driver.create_input_topic("clicks").pipe_input(None, "ann@home")
        assert driver.create_output_topic("out").read_key_values() == [("ann", "ann:Ann")]
