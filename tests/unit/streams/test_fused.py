"""A fused chain gives what the nodes of the topology give one by one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.streams.topologies import relaxed

from ottla.streams import KStream, StreamsBuilder
from ottla.streams.tasks.fused import fuse
from ottla.streams.testing import TopologyTestDriver

STEPS: dict[str, Callable[[KStream], KStream]] = {
    "filter": lambda s: s.filter(lambda key, value: value > (key or "")),
    "filter_not": lambda s: s.filter_not(lambda value: value == "aa"),
    "map": lambda s: s.map(lambda key, value: (value, f"{key}.")),
    "map_values": lambda s: s.map_values(lambda value: value * 2),
    "flat_map": lambda s: s.flat_map(lambda key, value: [(letter, value) for letter in value]),
    "flat_map_values": lambda s: s.flat_map_values(list),
    "select_key": lambda s: s.select_key(lambda key, value: None if value == "b" else value),
}


@relaxed
@given(
    st.lists(st.sampled_from(sorted(STEPS)), max_size=4),
    st.lists(st.tuples(st.sampled_from([None, "a", "b"]), st.text("ab", max_size=3)), max_size=5),
)
def test_a_chain_of_any_steps(names: list[str], records: list[tuple[str | None, str]]) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in")
    for name in names:
        stream = STEPS[name](stream)
    stream.to("out")
    topology = builder.build()
    chain = fuse(topology.plan)
    assert chain is not None
    fused = []
    with TopologyTestDriver(topology) as driver:
        for number, (key, value) in enumerate(records):
            driver.create_input_topic("in").pipe_input(key, value, number)
            fused += chain.run(key.encode() if key else None, value.encode())
        assert fused == [(record.key, record.value) for record in driver.output("out")]


@pytest.mark.parametrize(
    "define",
    [
        lambda s: (s.to("a"), s.to("b")),
        lambda s: s.peek(print).to("a"),
        lambda s: s.to(lambda key, value, time: "a"),
        lambda s: s.merge(s.map_values(str.upper)).to("a"),
        lambda s: s.foreach(print),
    ],
)
def test_what_is_no_chain_is_left_to_tasks(define: Callable[[KStream], object]) -> None:
    builder = StreamsBuilder()
    define(builder.stream("in"))
    assert fuse(builder.build().plan) is None
