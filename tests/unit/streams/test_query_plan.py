"""Plans as streaming queries: what runs together, what Spark does itself, which topics are really needed."""

from __future__ import annotations

import pytest

from ottla.streams import (
    Consumed,
    Grouped,
    JoinWindows,
    Materialized,
    Processor,
    Produced,
    Repartitioned,
    Serdes,
    StreamsBuilder,
    TimeWindows,
    TopologyError,
    expr,
)
from ottla.streams.on_spark.columns import column_heads, without_head
from ottla.streams.on_spark.query_plan import Kind, Query, Wishes, compile_plan
from ottla.streams.plan.partitions import partition_counts, task_count
from ottla.streams.plan.plan import Plan, SourceNode


def compiled(builder: StreamsBuilder) -> tuple[Plan, list[Query]]:
    plan = builder.build().plan.decorated("app")
    return plan, compile_plan(plan)


def test_stateless_streams_are_one_query_each() -> None:
    builder = StreamsBuilder()
    builder.stream("a").map_values(str.upper).to("b")
    builder.stream("c").merge(builder.stream("d")).to("e")
    _, queries = compiled(builder)
    assert [(query.kind, query.topics) for query in queries] == [
        (Kind.STATELESS, ("a",)),
        (Kind.STATELESS, ("c", "d")),
    ]


def test_a_count_behind_functions_is_spark_s_own_and_needs_no_repartition_topic() -> None:
    builder = StreamsBuilder()
    words = builder.stream("lines").flat_map_values(str.split).group_by(lambda key, word: word)
    words.count().to_stream().filter(lambda count: count > 1).to("out", Produced.with_(str, int))
    plan, (query,) = compiled(builder)
    assert query.kind is Kind.AGGREGATION
    assert query.topics == ("lines",)
    assert query.shuffled_topics == set(plan.internal_topics)
    assert query.aggregation is not None
    assert query.aggregation.column is None
    # What follows reads the aggregation's results in place of the aggregation.
    assert next(iter(query.aggregation.rest.nodes)) == query.aggregation.node
    assert not query.aggregation.rest.stores


def test_what_else_happens_to_a_stream_is_a_query_of_its_own() -> None:
    builder = StreamsBuilder()
    lines = builder.stream("lines")
    lines.map_values(str.upper).to("loud")
    lines.select_key(lambda key, value: value).group_by_key().count().to_stream().to("counts")
    _, queries = compiled(builder)
    assert [query.kind for query in queries] == [Kind.STATELESS, Kind.AGGREGATION]
    assert {sink.topic for sink in queries[0].plan.sinks()} == {"loud"}
    (upstream,) = queries[1].upstream
    assert not any(sink.topic == "loud" for sink in upstream.sinks())


@pytest.mark.parametrize(
    "define",
    [
        lambda grouped: grouped.reduce(lambda a, b: b),
        lambda grouped: grouped.windowed_by(TimeWindows.of_size_with_no_grace(5)).count(),
        lambda grouped: grouped.count().filter(lambda n: n > 1, Materialized.as_("many")),
        lambda grouped: grouped.count().group_by(lambda k, v: (v, k), Grouped.with_(int, str)).count(),
    ],
)
def test_everything_else_that_is_stateful_runs_in_tasks(define: object) -> None:
    builder = StreamsBuilder()
    define(builder.stream("in").group_by_key()).to_stream().to("out")  # type: ignore[operator]
    _, queries = compiled(builder)
    assert queries[0].kind is Kind.TASKS


def test_an_aggregate_expression_is_spark_s_own() -> None:
    builder = StreamsBuilder()
    sales = builder.stream("sales", Consumed.with_(str, int)).group_by_key()
    sales.aggregate(expr("sum(value)"), materialized=Materialized.with_(value=int)).to_stream().to("out")
    _, (query,) = compiled(builder)
    assert query.kind is Kind.AGGREGATION
    assert query.aggregation is not None
    assert query.aggregation.column is not None


def test_behind_a_stateful_part_the_repartition_topic_is_real() -> None:
    builder = StreamsBuilder()
    counts = builder.stream("in").group_by_key().reduce(lambda a, b: b).to_stream()
    counts.group_by(lambda key, value: value).count().to_stream().to("out")
    plan, queries = compiled(builder)
    assert [query.kind for query in queries] == [Kind.TASKS, Kind.AGGREGATION]
    assert not any(query.shuffled_topics for query in queries)
    assert queries[1].topics == tuple(plan.internal_topics)


def test_where_topics_wait_for_each_other_a_shuffle_stands_for_none_of_them() -> None:
    builder = StreamsBuilder()
    moved = builder.stream("a").select_key(lambda key, value: value)
    moved.left_join(builder.table("b"), lambda left, right: left).to("joined")
    builder.stream("c").group_by(lambda key, value: value).count().to_stream().to("counted")
    plan = builder.build().plan.decorated("app")
    (topic,) = (name for name in plan.internal_topics if "KSTREAM-KEY-SELECT" in name)
    assert all(topic in query.shuffled_topics for query in compile_plan(plan) if "b" in query.topics)
    queries = {query.topics: query for query in compile_plan(plan, wishes=Wishes(waits=True))}
    assert queries.keys() == {("a",), (topic, "b"), ("c",)}
    assert queries["c",].kind is Kind.AGGREGATION


def test_with_dead_letters_a_node_runs_in_one_query_and_spark_aggregates_no_dead_letter() -> None:
    builder = StreamsBuilder()
    halves = builder.stream("a").map_values(lambda value: value)
    halves.group_by(lambda key, value: value).reduce(lambda a, b: a + b).to_stream().to("reduced")
    counted = builder.stream("b").group_by(lambda key, value: value)
    counted.count().to_stream().to("counted")
    both = builder.stream("c").map_values(lambda value: value)
    both.to("copied")
    both.group_by(lambda key, value: value).reduce(lambda a, b: a + b).to_stream().to("reduced")
    twice = builder.stream("d").map_values(lambda value: value)
    twice.group_by(lambda key, value: value).reduce(lambda a, b: a + b).to_stream().to("reduced")
    twice.group_by(lambda key, value: key).reduce(lambda a, b: a + b).to_stream().to("reduced")
    plan = builder.build().plan.decorated("app")

    def read(wishes: Wishes) -> dict[str, list[Kind]]:
        queries = compile_plan(plan, wishes=wishes)
        return {name: [each.kind for each in queries if name in each.topics] for name in "abcd"}

    stateless, tasks = Kind.STATELESS, Kind.TASKS
    assert read(Wishes()) == {
        "a": [tasks],
        "b": [Kind.AGGREGATION],
        "c": [stateless, tasks],
        "d": [tasks, tasks],
    }
    assert read(Wishes(dead_letters=True)) == {
        "a": [tasks],
        "b": [stateless],
        "c": [stateless],
        "d": [stateless],
    }


def test_an_explicit_repartition_of_a_stateless_stream_is_real() -> None:
    builder = StreamsBuilder()
    builder.stream("in").repartition(Repartitioned.as_("wide").with_number_of_partitions(9)).to("out")
    _, queries = compiled(builder)
    assert [query.topics for query in queries] == [("in",), ("app-wide-repartition",)]


def test_a_processor_runs_in_a_task_even_without_a_store() -> None:
    builder = StreamsBuilder()
    builder.stream("in").process(Processor).to("out")
    _, (query,) = compiled(builder)
    assert query.kind is Kind.TASKS


def test_a_join_with_a_global_table_alone_is_stateless() -> None:
    builder = StreamsBuilder()
    rates = builder.global_table("rates")
    builder.stream("in").join(rates, lambda a, b: a, key_selector=lambda value: value).to("out")
    _, (query,) = compiled(builder)
    assert (query.kind, query.topics) == (Kind.STATELESS, ("in",))


def joined(left: str, right: str) -> StreamsBuilder:
    builder = StreamsBuilder()
    windows = JoinWindows.of_time_difference_with_no_grace(5)
    builder.stream(left).join(builder.stream(right), lambda a, b: a, windows).to("out")
    return builder


def test_joined_topics_need_equal_partitions() -> None:
    plan, _ = compiled(joined("a", "b"))
    assert partition_counts(plan, {"a": 3, "b": 3}) == {"a": 3, "b": 3}
    with pytest.raises(TopologyError, match="a has 3, b has 4"):
        partition_counts(plan, {"a": 3, "b": 4})


def test_internal_topics_get_the_partitions_of_what_they_meet_or_come_from() -> None:
    builder = StreamsBuilder()
    users = builder.table("users")
    clicks = builder.stream("clicks").select_key(lambda key, value: value)
    clicks.join(users, lambda a, b: a).group_by(lambda key, value: value).count().to_stream().to("out")
    plan, queries = compiled(builder)
    counts = partition_counts(plan, {"users": 4, "clicks": 7})
    for_join, for_count = plan.internal_topics
    assert counts[for_join] == 4, "as many as the table it is joined with"
    assert counts[for_count] == 4, "as many as the tasks that write it"
    assert [task_count(query.plan, counts) for query in queries] == [4, 4]


def test_foreign_key_topics_follow_their_tables() -> None:
    builder = StreamsBuilder()
    orders, customers = builder.table("orders"), builder.table("customers")
    orders.join(customers, lambda a, b: a, foreign_key=lambda value: value).to_stream().to("out")
    plan, _ = compiled(builder)
    counts = partition_counts(plan, {"orders": 2, "customers": 5})
    assert [counts[topic] for topic in plan.internal_topics] == [5, 2]


def test_expressions_right_behind_a_topic_are_told_from_what_functions_do_with_it() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in")
    stream.filter(expr("value > 2"), named="large").map_values(expr("upper(value)"), named="loud").to("a")
    stream.map_values(str.upper).to("b")
    (query,) = compiled(builder)[1]
    with_columns, plain = column_heads(query.plan)
    assert with_columns.nodes == ("large", "loud")
    assert plain.nodes == ()
    # Once Spark has done its part, a source of its rows stands for the expressions.
    rest = without_head(
        query.plan, with_columns, SourceNode("loud", ("rows",), Serdes.bytes(), Serdes.bytes())
    )
    assert [source.topics for source in rest.sources()] == [("in",), ("rows",)]
    assert "large" not in rest.nodes
    assert len(rest.sinks()) == 2


def test_an_expression_behind_a_function_is_refused_on_spark() -> None:
    builder = StreamsBuilder()
    builder.stream("in").map_values(str.upper).filter(expr("value > 2"), named="large").to("out")
    (query,) = compiled(builder)[1]
    with pytest.raises(TopologyError, match="large is a column expression where only a function can run"):
        column_heads(query.plan)
