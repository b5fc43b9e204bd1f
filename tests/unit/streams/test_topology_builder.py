"""Topologies of sources, processors and sinks by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.streams import Processor, Record, Stores, TopologyBuilder, TopologyError
from ottla.streams.on_spark.query_plan import compile_plan
from ottla.streams.testing import TopologyTestDriver


class Count(Processor):
    """To everybody the count, to one child the records that were the first of their key."""

    def process(self, record: Record) -> None:
        store = self.context.get_state_store("counts")
        count = (store.get(record.key) or 0) + 1
        store.put(record.key, count)
        self.context.forward(record.with_value(count), "all")
        if count == 1:
            self.context.forward(record, "first")


def counting() -> TopologyBuilder:
    return (
        TopologyBuilder()
        .add_source("lines", ["in", "also-in"])
        .add_state_store(Stores.key_value_store("counts", str, int))
        .add_processor("count", Count, "lines", stores=["counts"])
        .add_sink("all", "counted", "count", value=int)
        .add_sink("first", lambda key, value, timestamp_ms: f"first-{key}", "count")
    )


def test_records_go_from_sources_through_processors_to_sinks() -> None:
    with TopologyTestDriver(counting().build()) as driver:
        driver.create_input_topic("in").pipe_records([("a", "x"), ("b", "y")])
        driver.create_input_topic("also-in").pipe_input("a", "z")
        assert driver.create_output_topic("counted", str, int).read_key_values() == [
            ("a", 1),
            ("b", 1),
            ("a", 2),
        ]
        assert driver.create_output_topic("first-a").read_values() == ["x"]
        assert driver.create_output_topic("first-b").read_values() == ["y"]


def test_it_is_described_as_kafka_streams_does_and_planned_as_any_other() -> None:
    topology = counting().build()
    assert "Source: lines (topics: [also-in, in])\n      --> count" in topology.describe()
    assert "Processor: count (stores: [counts])" in topology.describe()
    (query,) = compile_plan(topology.plan.decorated("app"))
    assert (query.label, query.topics) == ("also-in", ("also-in", "in"))


@pytest.mark.parametrize(
    ("add", "text"),
    [
        (lambda b: b.add_source("more"), "either topics or a pattern"),
        (lambda b: b.add_source("more", "t", pattern="t.*"), "either topics or a pattern"),
        (lambda b: b.add_source("more", ["in", "also-in"]), "is read by lines already"),
        (lambda b: b.add_source("lines", "t"), "a node named lines exists already"),
        (lambda b: b.add_processor("p", Count, "nobody"), "follows nobody, which does not exist"),
        (lambda b: b.add_processor("p", Count, []), "p follows nothing"),
        (lambda b: b.add_processor("p", Count, "all"), "which is a sink"),
        (lambda b: b.add_processor("p", Count, "lines", stores=["other"]), "no store named other"),
        (lambda b: b.add_state_store(Stores.key_value_store("counts", str, int)), "exists already"),
    ],
)
def test_what_does_not_fit_is_refused(add: Callable[[TopologyBuilder], Any], text: str) -> None:
    with pytest.raises(TopologyError, match=text):
        add(counting())
