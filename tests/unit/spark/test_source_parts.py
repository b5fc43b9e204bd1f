"""Options, limits and filters of the source, without Spark running."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra ottla[spark]")

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import datasource as ds

from ottla.client.cluster import EARLIEST, LATEST
from ottla.spark.idling import Idling
from ottla.spark.positions import from_stored, to_stored
from ottla.spark.pushdown import PushedFilters
from ottla.spark.ranges import TOGETHER_MAX, OffsetRange, SmallRanges, limited, split, together
from ottla.spark.sink_options import InvalidOption
from ottla.spark.source_options import source_options

SERVER = {"kafka.bootstrap.servers": "h:9092"}


def test_defaults_are_those_of_sparks_kafka_source() -> None:
    options = source_options({**SERVER, "subscribe": "b, a"}, streaming=True)
    assert options.subscription.topics == ("a", "b")
    assert (options.starting.everywhere, options.ending.everywhere) == (LATEST, LATEST)
    assert source_options({**SERVER, "subscribe": "a"}, streaming=False).starting.everywhere == EARLIEST
    assert (options.fail_on_data_loss, options.include_headers, options.read_committed) == (
        True,
        False,
        False,
    )
    assert options.max_trigger_delay_ms == 15 * 60 * 1000


def test_names_are_taken_in_any_case_and_client_settings_without_their_prefix() -> None:
    given = {"bootstrap.servers": "h:1", "SUBSCRIBE": "a", "Kafka.Security.Protocol": "SSL"}
    given |= {"kafka.isolation.level": "read_committed", "groupidprefix": "x", "failondataloss": "FALSE"}
    options = source_options(given, streaming=True)
    assert options.client == (("security.protocol", "SSL"),)
    assert options.read_committed and not options.fail_on_data_loss


@pytest.mark.parametrize(
    ("given", "streaming", "complaint"),
    [
        ({"subscribe": "a", "subscribePattern": "b"}, True, "set are subscribe, subscribePattern"),
        ({}, True, "none is set"),
        ({"subscribe": " , "}, True, "names no topic"),
        ({"subscribePattern": "("}, True, "no regular expression"),
        ({"assign": "{"}, True, "assign is '{', which is no JSON"),
        ({"assign": '{"t": 1}'}, True, "the partitions of t are 1"),
        ({"subscribe": "a", "startingOffsets": "soon"}, True, "startingOffsets is 'soon', which is no JSON"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"x": 1}}'}, True, "partition 'x' of a has 1"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"0": -3}}'}, True, "partition '0' of a has -3"),
        ({"subscribe": "a", "endingOffsets": "latest"}, True, "no meaning for a stream"),
        ({"subscribe": "a", "startingOffsets": "latest"}, False, "a batch would read nothing"),
        ({"subscribe": "a", "endingOffsets": '{"a": {"0": -2}}'}, False, "a batch would read nothing"),
        ({"subscribe": "a", "startingTimestamp": "noon"}, True, "startingTimestamp is 'noon'"),
        ({"subscribe": "a", "maxOffsetsPerTrigger": "0"}, True, "maxOffsetsPerTrigger is 0"),
        ({"subscribe": "a", "maxTriggerDelay": "soon"}, True, "such as 500ms"),
        ({"subscribe": "a", "maxTaskIdleMs": "-1"}, True, "maxTaskIdleMs is '-1'"),
        ({"subscribe": "a", "failOnDataLoss": "maybe"}, True, "true or false"),
        ({"subscribe": "a", "maxOffsetPerTrigger": "5"}, True, "did you mean maxOffsetsPerTrigger"),
        ({"subscribe": "a", "kafka.isolation.level": "dirty"}, True, "read_committed or"),
    ],
)
def test_what_cannot_be_meant_is_said(given: dict[str, str], streaming: bool, complaint: str) -> None:
    with pytest.raises(InvalidOption, match=complaint):
        source_options({**SERVER, **given}, streaming=streaming)


def test_a_missing_address_is_said() -> None:
    with pytest.raises(InvalidOption, match=r"kafka\.bootstrap\.servers is missing"):
        source_options({"subscribe": "a"}, streaming=True)
    # So it is with what CREATE TABLE was given.
    with pytest.raises(InvalidOption, match="use CREATE TEMPORARY VIEW"):
        source_options({}, streaming=False)


@given(st.dictionaries(st.tuples(st.text(max_size=3), st.integers(0, 20)), st.integers(0, 9)))
def test_offsets_are_stored_the_same_however_they_were_ordered(offsets: dict[tuple[str, int], int]) -> None:
    stored = to_stored(offsets)
    assert from_stored(stored) == offsets
    assert list(to_stored(dict(reversed(offsets.items())))) == list(stored)
    assert all(list(inner) == sorted(inner, key=int) for inner in stored.values())
    assert from_stored(to_stored(offsets, "cluster")) == offsets
    assert next(iter(to_stored(offsets, "cluster").items())) == ("@cluster", "cluster")


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 500)), min_size=1, max_size=6),
    st.none() | st.integers(1, 20),
    st.none() | st.integers(1, 50),
)
def test_parts_cover_the_ranges_exactly(sizes: Any, at_least: int | None, at_most: int | None) -> None:
    ranges = [OffsetRange("t", n, start, start + size) for n, (start, size) in enumerate(sizes)]
    parts = split(ranges, at_least, at_most)
    covered = [(part.partition, offset) for part in parts for offset in range(part.start, part.end)]
    assert covered == [(found.partition, n) for found in ranges for n in range(found.start, found.end)]
    assert all(part.size > 0 for part in parts)
    if at_most is not None:
        assert all(part.size <= at_most for part in parts)


@given(st.lists(st.integers(1, 2 * TOGETHER_MAX), max_size=12))
def test_small_ranges_share_tasks_and_large_ones_do_not(sizes: list[int]) -> None:
    ranges = [OffsetRange("t", n, 5, 5 + size) for n, size in enumerate(sizes)]
    tasks = together(ranges)
    shared = [task.ranges for task in tasks if isinstance(task, SmallRanges)]
    assert (
        sorted(
            [task for task in tasks if isinstance(task, OffsetRange)]
            + [each for ranges in shared for each in ranges],
            key=lambda each: each.partition,
        )
        == ranges
    )
    loads = [sum(each.size for each in ranges) for ranges in shared]
    assert all(0 < load <= TOGETHER_MAX for load in loads)
    # No two neighbours would have fitted into one.
    assert all(a + b[0].size > TOGETHER_MAX for a, b in zip(loads, shared[1:], strict=False))


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=8), st.integers(1, 500))
def test_a_limit_is_kept_and_whoever_has_rows_gets_on(sizes: list[int], rows_max: int) -> None:
    start = {("t", n): 100 * n for n in range(len(sizes))}
    latest = {("t", n): 100 * n + size for n, size in enumerate(sizes)}
    ends = limited(start, latest, rows_max)
    taken = {place: ends[place] - start[place] for place in start}
    assert sum(taken.values()) == min(rows_max, sum(sizes))
    assert all(0 <= taken["t", n] <= size for n, size in enumerate(sizes))
    lost = limited({("t", 0): 9}, {("t", 0): 3, ("t", 1): 900}, 1)
    assert lost["t", 0] == 3
    for _ in range(1000):
        if ends == latest:
            break
        ends = limited(ends, latest, rows_max)
    assert ends == latest or sum(sizes) > 1000 * rows_max


def test_filters_narrow_what_is_read() -> None:
    pushed = PushedFilters()
    late = ds.GreaterThanOrEqual(("timestamp",), datetime(2023, 11, 14, tzinfo=UTC))
    others = [
        ds.EqualTo(("value",), b"x"),
        ds.Not(ds.EqualTo(("partition",), 1)),
        ds.EqualTo(("headers", "key"), "x"),
        ds.In(("offset",), (1, 2)),
    ]
    taken: list[ds.Filter] = [
        ds.IsNotNull(("partition",)),
        ds.In(("partition",), (1, 2)),
        ds.EqualTo(("partition",), 2),
        ds.EqualTo(("topic",), "t"),
        ds.GreaterThan(("offset",), 9),
        ds.LessThanOrEqual(("offset",), 99),
        ds.LessThan(("offset",), 50),
    ]
    assert pushed.take([*taken, late, *others]) == [late, *others]
    assert (pushed.partitions, pushed.topics) == ({2}, {"t"})
    assert (pushed.offset_min, pushed.offset_end) == (10, 50)
    assert pushed.timestamp_min_ms == 1_699_920_000_000 - 1
    assert pushed.wants("t", 2) and not pushed.wants("t", 1) and not pushed.wants("u", 2)


def test_records_wait_for_the_partition_of_their_number_until_nothing_is_expected_of_it() -> None:
    idling, begin = Idling(1000), {("a", 0): 5, ("a", 1): 5, ("b", 0): 2, ("b", 1): 2}
    # Partition 1 has something in both topics, and does not care about partition 0.
    end = {("a", 0): 9, ("a", 1): 9, ("b", 0): 2, ("b", 1): 3}
    held = idling.held(begin, end, 10_000)
    assert held.end == {("a", 0): 5, ("a", 1): 9, ("b", 0): 2, ("b", 1): 3}
    assert (held.empty, held.wait_ms) == ([("b", 0)], 1000)
    assert idling.held(begin, end, 10_999).wait_ms == 1
    assert idling.held(begin, end, 11_000) == (end, [], 0)
    # It stays that way for what comes later, until there is something again.
    assert idling.held({**begin, ("a", 0): 9}, {**end, ("a", 0): 10}, 11_500).end == {**end, ("a", 0): 10}
    assert idling.held(begin, {**end, ("b", 0): 3}, 12_000).end == {**end, ("b", 0): 3}
    assert idling.held({**begin, ("b", 0): 3}, {**end, ("b", 0): 3}, 12_500).wait_ms == 1000


def test_an_only_topic_waits_for_nothing_and_neither_does_an_empty_group() -> None:
    assert Idling(1000).held({("a", 0): 0, ("a", 1): 0}, {("a", 0): 1, ("a", 1): 0}, 0).end[("a", 0)] == 1
    nothing = {("a", 0): 3, ("b", 0): 4}
    assert Idling(1000).held(nothing, nothing, 0) == (nothing, [], 0)
