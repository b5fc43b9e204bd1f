"""Stateless operators, one by one."""

from __future__ import annotations

import pytest

from ottla.streams import Branched, Grouped, KStream, Materialized, Produced, Record, StreamsBuilder
from ottla.streams.testing import TopologyTestDriver


def outputs(
    builder: StreamsBuilder, records: list[tuple[str | None, str]], topic: str = "out"
) -> list[object]:
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in").pipe_records(records)
        return driver.create_output_topic(topic).read_key_values()


def chain(define: object) -> StreamsBuilder:
    builder = StreamsBuilder()
    define(builder.stream("in")).to("out")  # type: ignore[operator]
    return builder


@pytest.mark.parametrize(
    ("define", "expected"),
    [
        (lambda s: s.filter(lambda value: value > "b"), [("k", "c d")]),
        (lambda s: s.filter(lambda key, value: key == "j"), [("j", "a b")]),
        (lambda s: s.filter_not(lambda value: value > "b"), [("j", "a b")]),
        (lambda s: s.map(lambda key, value: (value, key)), [("a b", "j"), ("c d", "k")]),
        (lambda s: s.map_values(str.upper), [("j", "A B"), ("k", "C D")]),
        (lambda s: s.map_values(lambda key, value: key + value), [("j", "ja b"), ("k", "kc d")]),
        (lambda s: s.flat_map_values(str.split), [("j", "a"), ("j", "b"), ("k", "c"), ("k", "d")]),
        (
            lambda s: s.flat_map(lambda k, v: [(w, k) for w in v.split()]),
            [("a", "j"), ("b", "j"), ("c", "k"), ("d", "k")],
        ),
        (lambda s: s.select_key(lambda key, value: value[0]), [("a", "a b"), ("c", "c d")]),
        (
            lambda s: s.merge(s.map_values(str.upper)),
            [("j", "A B"), ("j", "a b"), ("k", "C D"), ("k", "c d")],
        ),
        (lambda s: s.repartition(), [("j", "a b"), ("k", "c d")]),
    ],
)
def test_operator(define: object, expected: list[tuple[str, str]]) -> None:
    found = outputs(chain(define), [("j", "a b"), ("k", "c d")])
    assert sorted(found) == expected  # type: ignore[type-var]


def test_peek_sees_what_passes_and_foreach_ends_the_stream() -> None:
    seen: list[str] = []
    ended: list[tuple[str, str]] = []
    builder = StreamsBuilder()
    stream = builder.stream("in").peek(seen.append)
    stream.foreach(lambda key, value: ended.append((key, value)))
    stream.to("out")
    assert outputs(builder, [("k", "v")]) == [("k", "v")]
    assert (seen, ended) == (["v"], [("k", "v")])


def test_print_shows_label_key_and_value(capsys: pytest.CaptureFixture[str]) -> None:
    builder = StreamsBuilder()
    builder.stream("in").print("words")
    outputs(builder, [("k", "v")])
    assert capsys.readouterr().out == "[words]: k, v\n"


def test_split_sends_each_record_to_the_first_branch_that_takes_it() -> None:
    builder = StreamsBuilder()
    split = builder.stream("in").split(named="size-")
    branches = (
        split.branch(lambda value: len(value) > 5, Branched.as_("long"))
        .branch(
            lambda value: len(value) > 2, Branched.with_function(lambda s: s.map_values(str.upper), "middle")
        )
        .default_branch(Branched.with_consumer(lambda stream: stream.to("short")))
    )
    assert sorted(branches) == ["size-long", "size-middle"]
    branches["size-long"].to("long")
    branches["size-middle"].to("middle")
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in")
        for word in ("a", "abc", "abcdef", "ab"):
            topic.pipe_value(word)
        found = {name: driver.create_output_topic(name).read_values() for name in ("long", "middle", "short")}
    assert found == {"long": ["abcdef"], "middle": ["ABC"], "short": ["a", "ab"]}


def test_without_a_default_branch_other_records_are_dropped() -> None:
    builder = StreamsBuilder()
    (branch,) = builder.stream("in").split().branch(lambda value: value == "yes").no_default_branch().values()
    branch.to("out")
    assert outputs(builder, [("k", "no"), ("k", "yes")]) == [("k", "yes")]


def test_the_topic_can_be_chosen_by_record() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to(lambda key, value, timestamp_ms: f"to-{key}-{timestamp_ms}")
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in").pipe_input("a", "v", 7)
        assert driver.produced_topics == ["to-a-7"]


def test_a_partitioner_is_asked_with_what_it_partitions() -> None:
    asked: list[tuple[object, ...]] = []

    def partition(topic: str, key: object, value: object, partitions: int) -> int:
        asked.append((topic, key, value, partitions))
        return 0

    builder = StreamsBuilder()
    builder.stream("in").to("out", Produced().with_stream_partitioner(partition))
    outputs(builder, [("k", "v")])
    assert asked == [("out", "k", "v", 1)]


def test_timestamps_and_headers_travel_along() -> None:
    builder = StreamsBuilder()
    builder.stream("in").map_values(str.upper).flat_map_values(list).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in").pipe_input("k", "ab", 42, (("h", b"1"),))
        records = driver.create_output_topic("out").read_records()
    assert records == [Record("k", "A", 42, (("h", b"1"),)), Record("k", "B", 42, (("h", b"1"),))]


def test_a_stream_becomes_a_table_and_a_table_a_stream() -> None:
    builder = StreamsBuilder()
    table = builder.stream("in").to_table(Materialized.as_("rows"))
    table.to_stream(lambda key, value: f"{key}!").to("out")
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in")
        topic.pipe_records([("a", "1"), (None, "no key"), ("a", "2"), ("b", "3")])
        topic.pipe_input("b", None)
        assert driver.create_output_topic("out").read_key_values() == [
            ("a!", "1"),
            ("a!", "2"),
            ("b!", "3"),
            ("b!", None),
        ]
        assert list(driver.get_state_store("rows").all()) == [("a", "2")]


def test_several_topics_and_patterns_are_read_by_one_stream() -> None:
    builder = StreamsBuilder()
    builder.stream(["one", "two"]).merge(builder.stream_pattern("log-.*")).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        for topic in ("one", "log-x", "two"):
            driver.create_input_topic(topic).pipe_value(topic)
        assert driver.create_output_topic("out").read_values() == ["one", "log-x", "two"]


def test_records_without_a_key_go_through_a_repartition_topic() -> None:
    builder = StreamsBuilder()
    builder.stream("in").repartition().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.pipe("in", None, b"keyless", 0, ())
        assert [(each.key, each.value) for each in driver.output("out")] == [(None, b"keyless")]


def test_records_without_a_key_do_not_reach_a_group() -> None:
    builder = StreamsBuilder()

    def first_letter(value: str) -> str | None:
        return value[0] if value else None

    stream: KStream = builder.stream("in")
    stream.group_by(first_letter, Grouped.with_(str, str)).count(Materialized.as_("n")).to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in")
        for value in ("ab", "", "a"):
            topic.pipe_value(value)
        assert driver.create_output_topic("out", str, int).read_key_values() == [("a", 1), ("a", 2)]
