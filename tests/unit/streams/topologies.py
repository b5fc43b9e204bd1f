"""Shared by the tests of operators: runs a topology on records, with or without a restart in the middle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from ottla.streams import StreamsBuilder
from ottla.streams.records import Record
from ottla.streams.serdes import Serde
from ottla.streams.testing import TopologyTestDriver

# A history is worked on many times over, and the machine may be busy.
relaxed = settings(deadline=None, max_examples=60)


@dataclass(frozen=True)
class Event:
    topic: str
    key: Any
    value: Any
    time: int


def events(
    *topics: str,
    keys: Sequence[Any] = ("a", "b"),
    values: st.SearchStrategy[Any] | None = None,
    time_max: int = 60,
) -> st.SearchStrategy[list[Event]]:
    """Histories with out-of-order and late records."""
    return st.lists(
        st.builds(
            Event,
            st.sampled_from(topics),
            st.sampled_from(keys),
            values if values is not None else st.integers(0, 9),
            st.integers(0, time_max),
        ),
        max_size=25,
    )


def run(
    define: Callable[[StreamsBuilder], None],
    history: Sequence[Event],
    *,
    value: Serde | type = int,
    out_key: Serde | type = str,
    out_value: Serde | type = int,
    restart_at: int | None = None,
    out: str = "out",
) -> list[Record]:
    """Outputs of a topology for a history. A restart keeps nothing but the bytes of the stores."""
    builder = StreamsBuilder(default_value_serde=value)
    define(builder)
    topology = builder.build()
    driver = TopologyTestDriver(topology)
    records: list[Record] = []
    for index, event in enumerate(history):
        if index == restart_at:
            records += driver.create_output_topic(out, out_key, out_value).read_records()
            driver.close()
            driver = TopologyTestDriver(topology, state=driver.state())
        driver.create_input_topic(event.topic, str, value).pipe_input(event.key, event.value, event.time)
    records += driver.create_output_topic(out, out_key, out_value).read_records()
    driver.close()
    return records


def latest(records: Sequence[Record]) -> dict[Any, Any]:
    """The table the updates lead to."""
    rows: dict[Any, Any] = {}
    for record in records:
        rows[record.key] = record.value
    return {key: value for key, value in rows.items() if value is not None}
