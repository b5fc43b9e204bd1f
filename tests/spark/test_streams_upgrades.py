"""Programs that change while they live: their state and their progress come along, exactly once."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.spark.test_streams import Row, Running, last
from tests.spark.topics import Cluster

from ottla.streams import (
    Grouped,
    Materialized,
    Processor,
    ProcessorContext,
    Produced,
    Record,
    Stores,
    StreamsBuilder,
    StreamsError,
    TimeWindows,
    Topology,
)
from ottla.testing.in_process import InProcessBroker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def broker() -> Iterator[InProcessBroker]:
    with InProcessBroker() as running:
        yield running


def first_version() -> Topology:
    builder = StreamsBuilder()
    words = builder.stream("lines").flat_map_values(str.split)
    words.group_by(lambda key, word: word).count(Materialized.as_("counts")).to_stream().to("counted")
    return builder.build()


def second_version() -> Topology:
    """A stream defined before, a filter in front, and a store behind: the count moves to tasks."""
    builder = StreamsBuilder()
    builder.stream("notes").map_values(str.upper).to("shouted")
    words = builder.stream("lines").filter(lambda line: line != "skipped").flat_map_values(str.split)
    counts = words.group_by(lambda key, word: word).count(Materialized.as_("counts"))
    counts.to_stream().to("counted")
    many = counts.filter(lambda count: count > 100, Materialized.as_("many").with_value_serde(int))
    many.to_stream().to("often")
    return builder.build()


def third_version() -> Topology:
    """Another topic, and a window beside the count."""
    builder = StreamsBuilder()
    words = builder.stream("lines").merge(builder.stream("notes")).flat_map_values(str.split)
    grouped = words.group_by(lambda key, word: word, Grouped.as_("counts"))
    grouped.count(Materialized.as_("counts")).to_stream().to("counted")
    windows = grouped.windowed_by(TimeWindows.of_size_with_no_grace(1_000_000_000))
    windows.count(Materialized.as_("by-time")).to_stream(lambda key, value: key.key).to("often")
    return builder.build()


def lines(first: int, end: int) -> list[Row]:
    return [("lines", None, f"hello word-{n % 7} of {n % 40}", n) for n in range(first, end)]


def counts_of(rows: list[Row]) -> dict[bytes | None, bytes | None]:
    counted = Counter(word for _, _, line, _ in rows for word in (line or "").split())
    return {word.encode(): count.to_bytes(8, "big") for word, count in counted.items()}


def test_a_word_count_changes_and_goes_on_counting(
    spark: Any, broker: InProcessBroker, tmp_path: Path
) -> None:
    cluster = Cluster(broker.bootstrap_servers)
    for topic in ("lines", "notes", "counted", "shouted", "often"):
        cluster.create(topic, 2)
    app = Running(spark, broker, "changing", first_version(), tmp_path)
    try:
        app.send(lines(0, 100))
        app.restart(forget_commits=True)
        app.change(second_version())
        app.send([*lines(100, 200), ("lines", None, "skipped", 1), ("notes", None, "aloud", 1)])
        assert last(app.read("counted")) == counts_of(lines(0, 200))
        assert last(app.read("often")) == {
            b"hello": (200).to_bytes(8, "big"),
            b"of": (200).to_bytes(8, "big"),
        }
        assert app.read("shouted") == [(None, b"ALOUD")]
        # Each was counted once: every line gives one update of hello and no other.
        hellos = [int.from_bytes(value or b"") for key, value in app.read("counted") if key == b"hello"]
        assert hellos[-100:] == list(range(101, 201))

        app.restart(forget_commits=True)
        app.change(third_version())
        app.send([*lines(200, 250), ("notes", None, "hello notes", 2)])
        # The stream of notes was another query, so the count begins with the first of them.
        expected = counts_of([*lines(0, 250), ("", None, "hello notes aloud", 0)])
        assert last(app.read("counted")) == expected
        assert last(app.read("often"))[b"hello"] == (51).to_bytes(8, "big")

        # A state directory that is lost costs nothing that has a name.
        app.app.stop()
        app.app.config = app.app.config.__class__(
            "changing", app.servers, state_dir=str(tmp_path / "new"), trigger={"processingTime": "1 second"}
        )
        app.change(third_version())
        app.send(lines(250, 260))
        assert last(app.read("counted")) == counts_of([*lines(0, 260), ("", None, "hello notes aloud", 0)])

        # Nor does the checkpoint alone.
        app.app.stop()
        (checkpoint,) = (path for path in (tmp_path / "new/changing").iterdir() if path.is_dir())
        shutil.rmtree(checkpoint)
        app.change(third_version())
        app.send(lines(260, 270))
        assert last(app.read("counted")) == counts_of([*lines(0, 270), ("", None, "hello notes aloud", 0)])
    finally:
        app.stop()


def lengths() -> Topology:
    """The store of the word count in another format."""
    builder = StreamsBuilder()
    words = builder.stream("phrases").flat_map_values(str.split)
    grouped = words.group_by(lambda key, word: word, Grouped.as_("phrase-words"))
    rows = grouped.aggregate(str, lambda key, word, row: f"{row}|", Materialized.as_("rows"))
    rows.to_stream().to("rows-out")
    return builder.build()


def lengths_and_more() -> Topology:
    builder = StreamsBuilder()
    words = builder.stream("phrases").merge(builder.stream("sayings")).flat_map_values(str.split)
    grouped = words.group_by(lambda key, word: word, Grouped.as_("phrase-words"))
    rows = grouped.aggregate(str, lambda key, word, row: f"{row}|", Materialized.as_("rows"))
    rows.to_stream().to("rows-out")
    return builder.build()


def numbers() -> Topology:
    builder = StreamsBuilder()
    words = builder.stream("phrases").flat_map_values(str.split)
    grouped = words.group_by(lambda key, word: word, Grouped.as_("phrase-words"))
    grouped.count(Materialized.as_("rows")).to_stream().to("numbers-out")
    return builder.build()


def test_a_store_that_was_given_up_does_not_come_back_with_a_rebuild(
    spark: Any, broker: InProcessBroker, tmp_path: Path
) -> None:
    cluster = Cluster(broker.bootstrap_servers)
    for topic in ("phrases", "sayings", "rows-out", "numbers-out"):
        cluster.create(topic, 2)
    app = Running(spark, broker, "formats", numbers(), tmp_path)
    try:
        app.send([("phrases", None, "old both", 1)])
        with pytest.raises(StreamsError, match="rows was a key-value store of string to long"):
            app.change(lengths())
        app.app.config = replace(app.app.config, upgrade="discard")
        app.change(lengths())
        app.send([("phrases", None, "both new", 2)])
        app.app.config = replace(app.app.config, upgrade="keep")
        app.change(lengths_and_more())
        app.send([("sayings", None, "old both new", 3)])
        assert last(app.read("rows-out")) == {b"old": b"|", b"both": b"||", b"new": b"||"}
    finally:
        app.stop()


class Numbered(Processor):
    """Every word with how often it has been there."""

    stores = (Stores.key_value_store("times", str, int),)

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.times = context.get_state_store("times")

    def process(self, record: Record) -> None:
        times = (self.times.get(record.value) or 0) + 1
        self.times.put(record.value, times)
        self.context.forward(record)


def counted_behind(name: str, *, numbered: bool) -> Topology:
    builder = StreamsBuilder()
    words = builder.stream(f"{name}-in")
    if numbered:
        words = words.process(Numbered)
    grouped = words.group_by(lambda key, word: word, Grouped.as_("counts"))
    grouped.count(Materialized.as_("counts")).to_stream().to(f"{name}-out")
    return builder.build()


@pytest.mark.soak
def test_a_repartition_topic_comes_and_goes_and_comes(
    spark: Any, broker: InProcessBroker, tmp_path: Path
) -> None:
    cluster = Cluster(broker.bootstrap_servers)
    for topic in ("behind-in", "behind-out"):
        cluster.create(topic, 2)
    app = Running(spark, broker, "behind", counted_behind("behind", numbered=False), tmp_path)
    rows: list[Row] = [("behind-in", f"{n % 5}", f"word-{n % 3}", n) for n in range(30)]
    try:
        app.send(rows)
        for run, numbered in enumerate((True, False, True), 2):
            app.change(counted_behind("behind", numbered=numbered))
            # Nothing to do is nothing to wait for.
            app.app.process_all_available()
            app.send(rows)
            counts = {f"word-{n}".encode(): (10 * run).to_bytes(8, "big") for n in range(3)}
            assert last(app.read("behind-out")) == counts
    finally:
        app.stop()


def sides(*, are_joined: bool) -> Topology:
    """Two sub-topologies, or one. Each result says how many records it has seen."""
    builder = StreamsBuilder()
    tables = []
    for side in ("left", "right"):
        grouped = builder.stream(f"{side}-in").group_by_key()
        seen = Materialized.as_(side).with_value_serde(int)
        table = grouped.aggregate(int, lambda key, value, count: count + 1, seen)
        table.to_stream().to(f"{side}-out")
        tables.append(table)
    if are_joined:
        joined = tables[0].join(tables[1], lambda left, right: left + right)
        joined.to_stream().to("both-out", Produced.with_(str, int))
    return builder.build()


def test_two_queries_become_one_by_a_join_and_part_again(
    spark: Any, broker: InProcessBroker, tmp_path: Path
) -> None:
    cluster = Cluster(broker.bootstrap_servers)
    for topic in ("left-in", "right-in", "left-out", "right-out", "both-out"):
        cluster.create(topic, 2)
    app = Running(spark, broker, "sides", sides(are_joined=False), tmp_path)
    rows: list[Row] = [(f"{side}-in", f"{n % 3}", "x", n) for n in range(30) for side in ("left", "right")]
    try:
        app.send(rows)
        app.restart(forget_commits=True)
        for run, are_joined in enumerate((True, False, True), 2):
            app.change(sides(are_joined=are_joined))
            app.send(rows)
            for side in ("left", "right"):
                # Each record was counted once, and each count was written once.
                found = Counter(app.read(f"{side}-out"))
                assert found == {
                    (f"{key}".encode(), count.to_bytes(8, "big")): 1
                    for key in range(3)
                    for count in range(1, 10 * run + 1)
                }
        assert last(app.read("both-out")) == {f"{key}".encode(): (80).to_bytes(8, "big") for key in range(3)}
    finally:
        app.stop()
