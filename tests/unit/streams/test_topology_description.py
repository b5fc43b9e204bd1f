"""Topologies print and name their internal topics exactly as Kafka Streams does."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ottla.streams import (
    Branched,
    Consumed,
    Grouped,
    JoinWindows,
    Materialized,
    Produced,
    Repartitioned,
    SessionWindows,
    StreamJoined,
    StreamsBuilder,
    Suppressed,
    TableJoined,
    TimeWindows,
    TopologyError,
)

WORD_COUNT = """Topologies:
   Sub-topology: 0
    Source: KSTREAM-SOURCE-0000000000 (topics: [lines])
      --> KSTREAM-FLATMAPVALUES-0000000001
    Processor: KSTREAM-FLATMAPVALUES-0000000001 (stores: [])
      --> KSTREAM-KEY-SELECT-0000000002
      <-- KSTREAM-SOURCE-0000000000
    Processor: KSTREAM-KEY-SELECT-0000000002 (stores: [])
      --> counts-repartition-filter
      <-- KSTREAM-FLATMAPVALUES-0000000001
    Processor: counts-repartition-filter (stores: [])
      --> counts-repartition-sink
      <-- KSTREAM-KEY-SELECT-0000000002
    Sink: counts-repartition-sink (topic: counts-repartition)
      <-- counts-repartition-filter

  Sub-topology: 1
    Source: counts-repartition-source (topics: [counts-repartition])
      --> KSTREAM-AGGREGATE-0000000003
    Processor: KSTREAM-AGGREGATE-0000000003 (stores: [counts])
      --> KTABLE-TOSTREAM-0000000007
      <-- counts-repartition-source
    Processor: KTABLE-TOSTREAM-0000000007 (stores: [])
      --> KSTREAM-SINK-0000000008
      <-- KSTREAM-AGGREGATE-0000000003
    Sink: KSTREAM-SINK-0000000008 (topic: word-counts)
      <-- KTABLE-TOSTREAM-0000000007

"""


def word_count(materialized: Materialized | None) -> StreamsBuilder:
    builder = StreamsBuilder()
    words = builder.stream("lines").flat_map_values(str.split).group_by(lambda key, word: word)
    words.count(materialized).to_stream().to("word-counts")
    return builder


def test_word_count_reads_as_in_kafka_streams() -> None:
    assert word_count(Materialized.as_("counts")).build().describe() == WORD_COUNT


def test_generated_store_and_topic_names_are_those_of_kafka_streams() -> None:
    plan = word_count(None).build().plan
    assert list(plan.stores) == ["KSTREAM-AGGREGATE-STATE-STORE-0000000003"]
    assert list(plan.internal_topics) == ["KSTREAM-AGGREGATE-STATE-STORE-0000000003-repartition"]
    decorated = plan.decorated("app")
    assert list(decorated.internal_topics) == ["app-KSTREAM-AGGREGATE-STATE-STORE-0000000003-repartition"]
    assert plan.stores["KSTREAM-AGGREGATE-STATE-STORE-0000000003"].changelog == (
        "KSTREAM-AGGREGATE-STATE-STORE-0000000003-changelog"
    )


def test_a_name_given_still_uses_up_its_number() -> None:
    builder = StreamsBuilder()
    builder.stream("in", Consumed.as_("start")).map_values(len, named="length").to(
        "out", Produced.with_(str, int)
    )
    names = list(builder.build().plan.nodes)
    assert names == ["start", "length", "KSTREAM-SINK-0000000002"]


def test_a_stream_join_has_the_nodes_and_stores_of_kafka_streams() -> None:
    builder = StreamsBuilder()
    left, right = builder.stream("left"), builder.stream("right")
    windows = JoinWindows.of_time_difference_with_no_grace(timedelta(seconds=1))
    left.left_join(right, lambda a, b: f"{a}{b}", windows).to("out")
    plan = builder.build().plan
    assert list(plan.nodes) == [
        "KSTREAM-SOURCE-0000000000",
        "KSTREAM-SOURCE-0000000001",
        "KSTREAM-WINDOWED-0000000002",
        "KSTREAM-WINDOWED-0000000003",
        "KSTREAM-JOINTHIS-0000000004",
        "KSTREAM-OUTEROTHER-0000000005",
        "KSTREAM-MERGE-0000000006",
        "KSTREAM-SINK-0000000007",
    ]
    assert sorted(plan.stores) == [
        "KSTREAM-JOINTHIS-0000000004-store",
        "KSTREAM-OUTEROTHER-0000000005-store",
        "KSTREAM-OUTERSHARED-0000000004-store",
    ]


def test_a_stream_join_can_be_named() -> None:
    builder = StreamsBuilder()
    left, right = builder.stream("left"), builder.stream("right")
    windows = JoinWindows.of_time_difference_with_no_grace(1000)
    left.join(right, lambda a, b: a, windows, StreamJoined.as_("pairs").with_name("match")).to("out")
    plan = builder.build().plan
    assert {"match-this-windowed", "match-other-windowed", "match-this-join", "match-merge"} <= set(
        plan.nodes
    )
    assert sorted(plan.stores) == ["pairs-other-join-store", "pairs-this-join-store"]


def test_a_foreign_key_join_has_the_topics_of_kafka_streams() -> None:
    builder = StreamsBuilder()
    orders, customers = builder.table("orders"), builder.table("customers")
    orders.join(customers, lambda o, c: o + c, foreign_key=lambda order: order).to_stream().to("out")
    assert list(builder.build().plan.internal_topics) == [
        "KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000006-topic",
        "KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-0000000014-topic",
    ]


def test_a_named_foreign_key_join_names_its_topics() -> None:
    builder = StreamsBuilder()
    orders, customers = builder.table("orders"), builder.table("customers")
    joined = orders.join(
        customers, lambda o, c: o + c, foreign_key=lambda order: order, table_joined=TableJoined.as_("buyer")
    )
    joined.to_stream().to("out")
    assert list(builder.build().plan.internal_topics) == [
        "buyer-subscription-registration-topic",
        "buyer-subscription-response-topic",
    ]


def test_a_table_is_stored_only_if_somebody_needs_it() -> None:
    builder = StreamsBuilder()
    builder.table("in").filter(lambda value: True).to_stream().to("out")
    assert not builder.build().plan.stores
    builder = StreamsBuilder()
    table = builder.table("in")
    builder.stream("clicks").join(table, lambda a, b: a).to("out")
    assert list(builder.build().plan.stores) == ["in-STATE-STORE-0000000000"]


def test_a_topic_is_read_once_however_often_it_is_used() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("a")
    builder.stream("in").to("b")
    assert len(builder.build().plan.sources()) == 1


def test_subtopologies_are_cut_at_topics_and_joined_by_stores() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in").select_key(lambda key, value: value)
    stream.repartition(Repartitioned.as_("by-value").with_number_of_partitions(4)).to("out")
    builder.stream("other").to("elsewhere")
    text = builder.build().describe()
    assert text.count("Sub-topology:") == 3
    plan = builder.build().plan
    assert plan.internal_topics["by-value-repartition"].partitions == 4


def test_a_global_table_generates_no_task() -> None:
    builder = StreamsBuilder()
    table = builder.global_table("rates")
    builder.stream("in").join(table, lambda a, b: a, key_selector=lambda key, value: value).to("out")
    assert "for global store (will not generate tasks)" in builder.build().describe()


def test_branches_are_nodes_named_after_the_split() -> None:
    builder = StreamsBuilder()
    branches = (
        builder.stream("in")
        .split(named="by-size-")
        .branch(lambda value: len(value) > 3, Branched.as_("long"))
        .default_branch(Branched.as_("short"))
    )
    assert sorted(branches) == ["by-size-long", "by-size-short"]


def test_the_drawing_is_well_formed_and_shows_every_node() -> None:
    topology = word_count(Materialized.as_("counts")).build()
    root = ElementTree.fromstring(topology.draw())
    titles = [element.text for element in root.iter("{http://www.w3.org/2000/svg}title")]
    assert sorted(titles) == sorted(topology.plan.nodes)


@pytest.mark.parametrize(
    ("define", "text"),
    [
        (lambda b: b.stream([]), "at least one topic"),
        (lambda b: b.stream("a").map_values(3), "give a function"),
        (lambda b: b.stream("a").map_values(lambda a, b, c: a), "takes 3 arguments"),
        (lambda b: b.stream("a").join(b.stream("b"), lambda x, y: x), "needs JoinWindows"),
        (lambda b: b.stream("a").process(object, stores=["nowhere"]), "no store named nowhere"),
        (lambda b: b.stream("a").peek(print, named="x y"), "may contain letters"),
        (lambda b: b.table("a").suppress(Suppressed.until_window_closes()), "needs a windowed table"),
        (lambda b: TimeWindows.of_size_with_no_grace(0), "at least 1 ms"),
        (lambda b: TimeWindows.of_size_with_no_grace(5).advance_by(6), "must not exceed"),
        (
            lambda b: (b.stream("a", Consumed.with_(str, int)), b.stream("a", Consumed.with_(str, str))),
            "different",
        ),
        (lambda b: b.build(), "reads no topic"),
    ],
)
def test_an_impossible_topology_is_refused_with_its_reason(define: object, text: str) -> None:
    with pytest.raises(TopologyError, match=text):
        define(StreamsBuilder())  # type: ignore[operator]


def test_two_aggregations_of_one_named_grouping_share_its_topic() -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in").group_by(lambda key, value: value, Grouped.as_("by-value"))
    grouped.count().to_stream().to("counts")
    grouped.reduce(lambda a, b: b).to_stream().to("last")
    assert list(builder.build().plan.internal_topics) == ["by-value-repartition"]


def first(left: object, right: object) -> object:
    return left


def value_of(key: object, value: object) -> object:
    return value


def stream_joins(builder: StreamsBuilder) -> None:
    left, right = builder.stream("left"), builder.stream("right")
    windows = JoinWindows.of_time_difference_with_no_grace(1000)
    left.join(right, first, windows).to("inner")
    left.left_join(right, first, windows).to("lefts")
    left.outer_join(right, first, windows).to("outers")


def table_joins(builder: StreamsBuilder) -> None:
    left, right = builder.table("left"), builder.table("right")
    left.join(right, first).to_stream().to("inner")
    left.left_join(right, first, Materialized.as_("joined")).to_stream().to("lefts")
    left.filter(value_of).outer_join(right.map_values(value_of), first).to_stream().to("outers")


def repartitioned_join(builder: StreamsBuilder) -> None:
    users = builder.table("users")
    builder.stream("clicks").select_key(value_of).join(users, first).to("out")


def foreign_key(builder: StreamsBuilder) -> None:
    orders, customers = builder.table("orders"), builder.table("customers")
    orders.join(customers, first, foreign_key=value_of).to_stream().to("out")


def cogroup(builder: StreamsBuilder) -> None:
    clicks = builder.stream("clicks").group_by_key()
    views = builder.stream("views").group_by(value_of)
    clicks.cogroup(first).cogroup(views, first).aggregate(str).to_stream().to("out")


def branches(builder: StreamsBuilder) -> None:
    split = builder.stream("in").split(named="by-size-")
    streams = split.branch(value_of, Branched.as_("long")).branch(value_of).default_branch()
    streams["by-size-long"].to("longs")
    streams["by-size-2"].merge(streams["by-size-0"]).to("others")


def global_table(builder: StreamsBuilder) -> None:
    rates = builder.global_table("rates")
    builder.stream("in").join(rates, first, key_selector=value_of).to("out")


def stateless(builder: StreamsBuilder) -> None:
    stream = builder.stream("in")
    stream.filter(value_of).map(value_of).flat_map_values(value_of).peek(value_of).to("out")
    stream.foreach(value_of)
    stream.print()
    stream.flat_map(value_of).repartition().to("again")
    stream.to_table().to_stream().to("rows")


def sessions(builder: StreamsBuilder) -> None:
    grouped = builder.stream("in").group_by(value_of, Grouped.as_("by-value"))
    windowed = grouped.windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(10))
    windowed.reduce(first, Materialized.as_("sessions"), named="last").to_stream().to("out")


def windowed_suppressed(builder: StreamsBuilder) -> None:
    windowed = builder.stream("in").group_by_key().windowed_by(TimeWindows.of_size_and_grace(10, 5))
    counts = windowed.count(Materialized.with_(str, int))
    counts.suppress(Suppressed.until_window_closes()).to_stream().to("out")


def generated_count(builder: StreamsBuilder) -> None:
    builder.stream("in").group_by(value_of).count().to_stream().to("out")


def grouped_table(builder: StreamsBuilder) -> None:
    grouped = builder.table("in").group_by(value_of)
    grouped.count(Materialized.as_("per-value")).to_stream().to("out")


def unordered(description: str) -> list[str]:
    """Lines with the names in lists sorted: their order differs from run to run in Kafka Streams."""
    lines = []
    for line in description.splitlines():
        head, mark, names = re.match(r"(.*?)(--> |<-- |stores: \[|$)(.*)", line).groups()  # type: ignore[union-attr]
        lines.append(head + mark + ", ".join(sorted(re.split(r", |\]\)", names))))
    return lines


def kafka_streams_descriptions() -> dict[str, str]:
    """What Kafka Streams 4.3.1 prints for the topologies above."""
    text = (Path(__file__).parent / "kafka_streams_descriptions.txt").read_text()
    return dict(part.split("\n", 1) for part in text.split("=== ")[1:])  # type: ignore[misc]


@pytest.mark.parametrize("name", sorted(kafka_streams_descriptions()))
def test_nodes_stores_and_topics_have_the_names_kafka_streams_gives_them(name: str) -> None:
    builder = StreamsBuilder()
    globals()[name](builder)
    assert unordered(builder.build().describe()) == unordered(kafka_streams_descriptions()[name])
