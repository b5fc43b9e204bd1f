"""What becomes of the state of a program that has changed: kept, rebuilt, dropped or refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ottla.spark.positions import Offsets
from ottla.streams import (
    Consumed,
    EmitStrategy,
    Grouped,
    JoinWindows,
    KTable,
    Materialized,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    Stores,
    StreamsBuilder,
    StreamsError,
    TimeWindows,
    expr,
)
from ottla.streams.application.handing_on import joined
from ottla.streams.application.manifest import Generation, StateDirectory, from_text, to_text
from ottla.streams.application.shapes import QueryShape, shape_of
from ottla.streams.application.upgrade import (
    Action,
    Losses,
    decide,
    to_keep_tasks,
    to_route_by_key,
    to_run_in_tasks,
)
from ottla.streams.on_spark.query_plan import compile_plan
from ottla.streams.plan.partitions import partition_counts

Define = Callable[[StreamsBuilder], Any]
COUNTS = {"lines": 4, "other": 4, "third": 2, "another": 2}


def shapes(define: Define, counts: dict[str, int] | None = None, **tasks: Any) -> dict[str, QueryShape]:
    builder = StreamsBuilder()
    define(builder)
    plan = builder.build().plan.decorated("app")
    known = partition_counts(plan, counts or COUNTS)
    return {query.label: shape_of(query, known) for query in compile_plan(plan, **tasks)}


def upgraded(before: Define, after: Define, **options: Any) -> list[tuple[str, Action, tuple[str, ...]]]:
    """Of each query its action and the stores that are restored, as an application would find it."""
    former, present = shapes(before), shapes(after)
    in_tasks = to_run_in_tasks(present, former)
    present = shapes(after, in_tasks=in_tasks)
    return [(each.label, each.action, each.restored) for each in decide(present, former, **options)]


def refusal(before: Define, after: Define) -> str:
    former, present = shapes(before), shapes(after)
    present = shapes(after, in_tasks=to_run_in_tasks(present, former))
    (text,) = [each.text for each in decide(present, former) if each.action is Action.REFUSED]
    return text


def counted(builder: StreamsBuilder, store: str | None = "counts") -> KTable:
    words = builder.stream("lines").flat_map_values(str.split)
    grouped = words.group_by(lambda key, word: word, Grouped.as_(store) if store else None)
    return grouped.count(Materialized.as_(store) if store else None)


def word_count(builder: StreamsBuilder) -> None:
    counted(builder).to_stream().to("out")


def test_queries_are_named_after_what_they_read_not_by_their_place() -> None:
    def with_another_before(builder: StreamsBuilder) -> None:
        builder.stream("other").map_values(str.upper).to("loud")
        word_count(builder)

    def pattern(builder: StreamsBuilder) -> None:
        builder.stream_pattern("li.*").to("out")

    assert list(shapes(word_count)) == ["counts-repartition"]
    assert sorted(shapes(with_another_before)) == ["counts-repartition", "other"]
    assert upgraded(word_count, with_another_before) == [
        ("other", Action.NEW, ()),
        ("counts-repartition", Action.KEPT, ()),
    ]
    (label,) = shapes(pattern)
    assert label.startswith("li._-")


def test_stateless_changes_keep_the_checkpoint() -> None:
    def filtered(builder: StreamsBuilder) -> None:
        words = builder.stream("lines").filter(lambda line: line != "").flat_map_values(str.split)
        grouped = words.group_by(lambda key, word: word, Grouped.as_("counts"))
        grouped.count(Materialized.as_("counts")).to_stream().filter(lambda count: count > 1).to("out")

    assert upgraded(word_count, filtered) == [("counts-repartition", Action.KEPT, ())]


def test_a_named_store_behind_a_count_moves_it_to_tasks_and_back_with_its_state() -> None:
    def with_store(builder: StreamsBuilder) -> None:
        many = counted(builder).filter(
            lambda count: count > 1, Materialized.as_("many").with_value_serde(int)
        )
        many.to_stream().to("out")

    label = "counts-repartition"
    assert upgraded(word_count, with_store) == [(label, Action.REBUILT, ("counts",))]
    # Back again Spark could aggregate by itself, but only tasks can be given state.
    assert shapes(word_count)[label].kind == "Spark's aggregation"
    assert upgraded(with_store, word_count) == [(label, Action.REBUILT, ("counts",))]
    in_tasks = shapes(word_count, in_tasks={label})
    assert decide(in_tasks, in_tasks)[0].action is Action.KEPT


def test_another_topic_read_rebuilds_the_stores_and_goes_on_from_the_group() -> None:
    def merged(builder: StreamsBuilder) -> None:
        lines = builder.stream("lines").merge(builder.stream("other"))
        words = lines.flat_map_values(str.split).group_by(lambda key, word: word, Grouped.as_("counts"))
        words.count(Materialized.as_("counts")).to_stream().to("out")

    assert upgraded(word_count, merged) == [("counts-repartition", Action.REBUILT, ("counts",))]

    def stateless(builder: StreamsBuilder) -> None:
        builder.stream("lines").to("out")

    def more(builder: StreamsBuilder) -> None:
        builder.stream("lines").merge(builder.stream("other")).to("out")

    # Nothing to rebuild: only where it goes on is another place.
    assert upgraded(stateless, more) == [("lines", Action.KEPT, ())]


def test_what_the_program_no_longer_has_is_dropped_if_it_had_a_name() -> None:
    def nothing_of_it(builder: StreamsBuilder) -> None:
        builder.stream("other").to("out")

    assert upgraded(word_count, nothing_of_it) == [
        ("other", Action.NEW, ()),
        ("counts-repartition", Action.DROPPED, ()),
    ]


def test_a_store_without_a_name_is_refused_with_the_choices() -> None:
    def unnamed(builder: StreamsBuilder) -> None:
        counted(builder, None).to_stream().to("out")

    def shifted(builder: StreamsBuilder) -> None:
        builder.stream("other").to("copy")
        unnamed(builder)

    text = refusal(unnamed, shifted)
    assert "the store KSTREAM-AGGREGATE-STATE-STORE-0000000003, which has no name, is gone" in text
    assert "Materialized.as_" in text
    assert "--upgrade discard" in text
    assert "streams-application-reset" in text
    actions = [action for _, action, _ in upgraded(unnamed, shifted, discard=True)]
    assert actions == [Action.NEW, Action.NEW, Action.DROPPED]

    def behind(builder: StreamsBuilder) -> None:
        counted(builder, None).filter(lambda n: n > 1, Materialized.as_("m").with_value_serde(int))

    assert "has no changelog to be rebuilt from, since it has no name" in refusal(unnamed, behind)
    assert upgraded(unnamed, behind, discard=True)[0][1:] == (Action.REBUILT, ())


def test_another_store_under_the_same_name_is_refused() -> None:
    def windowed(size_ms: int) -> Define:
        def define(builder: StreamsBuilder) -> None:
            grouped = builder.stream("lines").group_by_key()
            windows = grouped.windowed_by(TimeWindows.of_size_with_no_grace(size_ms))
            windows.count(Materialized.as_("counts")).to_stream().to("out")

        return define

    def plain(builder: StreamsBuilder) -> None:
        builder.stream("lines").group_by_key().count(Materialized.as_("counts")).to_stream().to("out")

    text = refusal(plain, windowed(1000))
    assert "counts was a key-value store of string to long and is a window store of 1000 ms" in text
    assert "another store needs another name" in text
    assert "window store of 1000 ms" in refusal(windowed(1000), windowed(2000))


def test_what_only_a_checkpoint_knows_is_refused() -> None:
    def closing(*extra: str) -> Define:
        def define(builder: StreamsBuilder) -> None:
            stream = builder.stream("lines")
            for topic in extra:
                stream = stream.merge(builder.stream(topic))
            windows = stream.group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(10))
            windows = windows.emit_strategy(EmitStrategy.on_window_close())
            windows.count(Materialized.as_("closed")).to_stream().to("out")

        return define

    assert "which windows of closed have given their results" in refusal(closing(), closing("other"))

    def summed(*extra: str) -> Define:
        def define(builder: StreamsBuilder) -> None:
            stream = builder.stream(["lines", *extra], Consumed.with_(str, int))
            stored = Materialized.as_("sums").with_value_serde(int)
            stream.group_by_key().aggregate(expr("sum(value)"), materialized=stored).to_stream().to("out")

        return define

    assert "that of a column expression" in refusal(summed(), summed("other"))

    def joined(builder: StreamsBuilder) -> None:
        windows = JoinWindows.of_time_difference_with_no_grace(5)
        builder.stream("lines").join(builder.stream("other"), lambda a, b: a, windows).to("out")

    def joined_and_more(builder: StreamsBuilder) -> None:
        joined(builder)
        builder.stream("lines").group_by_key().reduce(lambda a, b: b, Materialized.as_("last"))

    assert "has no changelog" in refusal(joined, joined_and_more)


def grown(define: Define, **tasks: Any) -> tuple[dict[str, QueryShape], dict[str, QueryShape]]:
    """The shapes before and after a topic of four partitions got eight."""
    return shapes(define, **tasks), shapes(define, {**COUNTS, "lines": 8}, **tasks)


def test_another_number_of_tasks_moves_what_is_in_changelogs() -> None:
    former, present = grown(word_count, in_tasks={"counts-repartition"})
    (decision,) = decide(present, former)
    assert (decision.action, decision.restored, decision.moves) == (Action.REBUILT, ("counts",), True)
    # Behind a shuffle the key says which task it is anyway.
    assert not to_route_by_key(present, former)


def test_behind_a_shuffle_nothing_has_to_change_when_a_topic_grows() -> None:
    former, present = grown(word_count)
    assert to_keep_tasks(present, former) == {"counts-repartition": 4}

    def unnamed(builder: StreamsBuilder) -> None:
        counted(builder, None).to_stream().to("out")

    former, present = grown(unnamed)
    assert list(to_keep_tasks(present, former).values()) == [4]
    former, present = grown(word_count, in_tasks={"counts-repartition"})
    assert not to_keep_tasks(present, former)


def test_tasks_that_read_a_grown_topic_are_found_by_key_from_then_on() -> None:
    def by_key(builder: StreamsBuilder) -> None:
        reduced = builder.stream("lines").group_by_key().reduce(max, Materialized.as_("largest"))
        reduced.to_stream().to("out")

    former, present = grown(by_key)
    assert to_route_by_key(present, former) == {"lines"}
    routed = shapes(by_key, {**COUNTS, "lines": 8}, by_key={"lines"})
    (decision,) = decide(routed, former)
    assert (decision.action, decision.restored, decision.moves) == (Action.REBUILT, ("largest",), True)
    # At the next start the topic has eight partitions as before, but old records still lie where they lay.
    assert to_route_by_key(present, routed) == {"lines"}
    assert decide(routed, routed)[0].action is Action.KEPT
    # So they do when nobody knows any more how many tasks there were.
    assert to_route_by_key(present, {}, {"lines"}) == {"lines"}
    (decision,) = decide(routed, {}, {"lines"})
    assert decision.moves


def test_stores_with_keys_of_their_own_cannot_be_divided_anew() -> None:
    def processed(builder: StreamsBuilder) -> None:
        builder.add_state_store(Stores.key_value_store("seen", str, str))
        builder.stream("lines").process(Processor, stores=["seen"])

    former, present = grown(processed)
    (decision,) = decide(present, former)
    assert decision.action is Action.REFUSED
    assert "the keys in the changelog of seen do not say which records they belong to" in decision.text
    assert "among 8 tasks instead of 4" in decision.text


def test_a_timer_by_the_clock_is_part_of_the_shape() -> None:
    class Beat(Processor):
        def init(self, context: ProcessorContext) -> None:
            context.schedule(10, PunctuationType.WALL_CLOCK_TIME, lambda time_ms: None)

        def process(self, record: Record) -> None:
            pass

    def define(supplier: type[Processor]) -> Define:
        return lambda builder: builder.stream("lines").process(supplier, named="p")

    assert upgraded(define(Processor), define(Beat)) == [("lines", Action.KEPT, ())]
    assert shapes(define(Processor)) != shapes(define(Beat))


def test_state_that_is_gone_is_rebuilt_where_it_can_be() -> None:
    def unnamed(builder: StreamsBuilder) -> None:
        counted(builder, None).to_stream().to("out")

    label = "counts-repartition"
    assert to_run_in_tasks(shapes(word_count), {}, [label]) == {label}
    present = shapes(word_count, in_tasks={label})
    (decision,) = decide(present, {}, [label])
    assert (decision.action, decision.restored) == (Action.REBUILT, ("counts",))
    (label,) = shapes(unnamed)
    (decision,) = decide(shapes(unnamed), {}, [label])
    assert decision.action is Action.REFUSED


def test_a_checkpoint_that_was_deleted_is_no_checkpoint() -> None:
    label = "counts-repartition"
    former = shapes(word_count)
    losses = Losses(checkpoints=frozenset({label}))
    assert to_run_in_tasks(former, former, losses=losses) == {label}
    (decision,) = decide(shapes(word_count, in_tasks={label}), former, losses=losses)
    assert (decision.action, decision.restored, decision.continues) == (Action.REBUILT, ("counts",), False)
    assert "its checkpoint is gone; from its changelog: counts" in decision.text


def test_a_changelog_that_was_deleted_is_not_taken_for_an_empty_store() -> None:
    def merged(builder: StreamsBuilder) -> None:
        lines = builder.stream("lines").merge(builder.stream("other"))
        words = lines.flat_map_values(str.split).group_by(lambda key, word: word, Grouped.as_("counts"))
        words.count(Materialized.as_("counts")).to_stream().to("out")

    former, present = shapes(word_count), shapes(merged)
    losses = Losses(changelogs=frozenset({"counts"}))
    (decision,) = decide(present, former, losses=losses)
    assert decision.action is Action.REFUSED
    assert "the changelog topic of the store counts was deleted" in decision.text
    (decision,) = decide(present, former, losses=losses, discard=True)
    assert (decision.action, decision.restored, decision.emptied) == (Action.REBUILT, (), ("counts",))
    # The checkpoint has all of it.
    assert decide(former, former, losses=losses)[0].continues


def test_without_offsets_of_the_group_nobody_knows_where_a_changelog_belongs() -> None:
    def stateless(builder: StreamsBuilder) -> None:
        builder.stream("lines").to("out")

    def more(builder: StreamsBuilder) -> None:
        builder.stream("lines").merge(builder.stream("other")).to("out")

    former, present = grown(word_count, in_tasks={"counts-repartition"})
    for before, after, label in (
        (former, present, "counts-repartition"),
        (shapes(stateless), shapes(more), "lines"),
    ):
        losses = Losses(offsets=frozenset({label}))
        (decision,) = decide(after, before, losses=losses)
        assert decision.action is Action.REFUSED
        assert f"the group of {label} has no offsets any more" in decision.text
        assert decide(before, before, losses=losses)[0].action is Action.KEPT
        (decision,) = decide(after, before, losses=losses, discard=True)
        assert (decision.action, decision.restored) == (Action.REBUILT, ())


def test_a_store_that_comes_back_begins_empty() -> None:
    def with_store(builder: StreamsBuilder) -> None:
        many = counted(builder).filter(
            lambda count: count > 1, Materialized.as_("many").with_value_serde(int)
        )
        many.to_stream().to("out")

    label = "counts-repartition"
    (decision,) = decide(shapes(with_store), shapes(word_count, in_tasks={label}))
    assert (decision.restored, decision.emptied) == (("counts",), ("many",))
    assert "begins empty: many" in decision.text
    (decision,) = decide(shapes(word_count, in_tasks={label}), shapes(with_store))
    assert "dropped: many" in decision.text


def test_a_store_that_was_renamed_is_told_to_begin_empty() -> None:
    def summed(name: str) -> Define:
        def define(builder: StreamsBuilder) -> None:
            builder.stream("lines").group_by_key().reduce(max, Materialized.as_(name)).to_stream().to("out")

        return define

    (decision,) = decide(shapes(summed("after")), shapes(summed("before")))
    assert decision.action is Action.REBUILT
    assert "dropped: before; begins empty: after" in decision.text


def test_a_query_under_another_label_is_known_by_its_stores() -> None:
    def before(builder: StreamsBuilder) -> None:
        builder.stream("third").group_by_key().reduce(lambda a, b: b, Materialized.as_("last"))

    def after(builder: StreamsBuilder) -> None:
        stream = builder.stream("third").merge(builder.stream("another"))
        stream.group_by_key().reduce(lambda a, b: b, Materialized.as_("last"))

    assert upgraded(before, after) == [("another", Action.REBUILT, ("last",))]


def apart(builder: StreamsBuilder) -> tuple[KTable, KTable]:
    """Two sub-topologies."""
    tables = []
    for topic, name in (("lines", "largest"), ("other", "latest")):
        table = builder.stream(topic).group_by_key().reduce(max, Materialized.as_(name))
        table.to_stream().to(f"{name}-out")
        tables.append(table)
    return tables[0], tables[1]


def together(builder: StreamsBuilder) -> None:
    largest, latest = apart(builder)
    largest.join(latest, lambda one, other: one + other).to_stream().to("out")


def test_queries_that_become_one_bring_what_they_have_and_take_it_along_when_they_part() -> None:
    former, present = shapes(apart), shapes(together)
    assert (list(former), list(present)) == (["lines", "other"], ["lines"])
    (decision,) = decide(present, former)
    assert (decision.action, decision.formers) == (Action.REBUILT, ("lines", "other"))
    assert (decision.restored, decision.emptied) == (("largest", "latest"), ())
    assert "it reads other topics, and has what other had" in decision.text
    # And back, whatever the group of the other one says by now.
    lines, other = decide(former, present, {"other"})
    assert (lines.formers, lines.restored, lines.emptied) == (("lines",), ("largest",), ())
    assert "dropped" not in lines.text
    assert (other.formers, other.restored, other.emptied) == (("lines",), ("latest",), ())
    assert "it was lines; from its changelog: latest" in other.text
    assert not to_route_by_key(former, present, {"other"})


def test_a_topic_that_only_has_the_number_of_another_query_is_not_its_topic() -> None:
    former = shapes(together)["lines"]
    numbered = "app-KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-0000000012-topic"
    before = {"lines": replace(former, topics=["lines", numbered])}
    after = {
        "lines": replace(former, topics=["lines"]),
        "new": replace(former, topics=["new", numbered], stores={}),
    }
    assert [each.action for each in decide(after, before)] == [Action.REBUILT, Action.NEW]
    after["new"] = replace(after["new"], topics=["lines", "new"])
    assert decide(after, before)[1].formers == ("lines",)


def test_what_becomes_one_begins_where_each_has_come_to() -> None:
    former = shapes(apart)
    # The first one still has an offset of what it read in some version before.
    told: dict[str, Offsets] = {"lines": {("lines", 0): 5, ("other", 0): 3}, "other": {("other", 0): 9}}
    assert joined(told, former) == ({("lines", 0): 5, ("other", 0): 9}, set())
    assert joined({"lines": told["lines"]}, former) == (told["lines"], set())

    def twice(builder: StreamsBuilder) -> None:
        for name in ("by-first", "by-last"):
            grouped = builder.stream("lines").group_by(lambda key, line: line[0], Grouped.as_(name))
            grouped.count(Materialized.as_(name)).to_stream().to("out")

    # Each has shuffled the topic for itself.
    first, last = shapes(twice)
    told = {first: {("lines", 0): 8}, last: {("lines", 0): 9}}
    assert joined(told, shapes(twice))[1] == {("lines", 0)}


def test_the_manifest_is_read_as_it_was_written(tmp_path: Any) -> None:
    (shape,) = shapes(word_count).values()
    manifest = {"counts": Generation(shape, 3, {("lines", 0): 7}, {("log", 1): 9}, ("counts",))}
    directory = StateDirectory(str(tmp_path / "app"))
    assert directory.read("queries.json") is None
    directory.write("queries.json", to_text(manifest))
    assert from_text(directory.read("queries.json") or "", "here") == manifest
    with pytest.raises(StreamsError, match="here cannot be read"):
        from_text("{", "here")
    with pytest.raises(StreamsError, match="version 9"):
        from_text('{"version": 9}', "here")
