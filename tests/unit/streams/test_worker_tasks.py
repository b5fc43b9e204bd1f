"""What runs in Spark's workers, without Spark: tasks over rows, with dictionaries for state."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra ottla[spark]")

import numpy as np
import pyarrow as pa
from pyspark.cloudpickle import dumps, loads
from tests.unit.streams import test_topology_description

from ottla.streams import (
    Consumed,
    JoinWindows,
    Materialized,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    RecordError,
    SessionWindows,
    Stores,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
)
from ottla.streams.on_spark import worker_tasks
from ottla.streams.on_spark.packets import (
    Packer,
    PackStage,
    in_order,
    restored_packets,
    unpacked,
)
from ottla.streams.on_spark.rows import HEADERS_TYPE, OUTPUT
from ottla.streams.on_spark.worker_tasks import StatelessStage, TaskProcessor, TaskSettings
from ottla.streams.plan.plan import Plan, subtopologies
from ottla.streams.records import InputRecord
from ottla.streams.tasks.failures import ErrorPolicy

SETTINGS = TaskSettings("app", ErrorPolicy(), {}, "nowhere:9092", {})


class FakeState:
    """Spark's map state of one group, without Spark."""

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes] = {}

    def exists(self) -> bool:
        return bool(self.rows)

    def getValue(self, key: tuple[bytes]) -> tuple[bytes] | None:
        return (self.rows[key[0]],) if key[0] in self.rows else None

    def updateValue(self, key: tuple[bytes], value: tuple[bytes]) -> None:
        self.rows[key[0]] = value[0]

    def removeKey(self, key: tuple[bytes]) -> None:
        self.rows.pop(key[0], None)

    def iterator(self) -> Iterator[tuple[tuple[bytes], tuple[bytes]]]:
        return iter([((key,), (value,)) for key, value in self.rows.items()])


class FakeHandle:
    def __init__(self) -> None:
        self.states: dict[str, FakeState] = {}
        self.timers: set[int] = set()

    def getMapState(self, name: str, key: str, value: str) -> FakeState:
        return self.states.setdefault(name, FakeState())

    def registerTimer(self, due_ms: int) -> None:
        self.timers.add(due_ms)

    def deleteTimer(self, due_ms: int) -> None:
        self.timers.remove(due_ms)

    def listTimers(self) -> Iterator[int]:
        return iter(sorted(self.timers))


def clock(now_ms: int) -> Any:
    return SimpleNamespace(getCurrentProcessingTimeInMs=lambda: now_ms)


def row(topic: str, key: bytes | None, value: bytes | None, time_ms: int, offset: int = 0) -> Any:
    return SimpleNamespace(
        topic=topic,
        offset=offset,
        timestamp_ms=time_ms,
        key=key,
        value=value,
        headers=None,
        origin_topic=topic,
        origin_partition=0,
    )


def as_packets(batch: pa.RecordBatch) -> list[Any]:
    """Rows as Spark hands them to a group."""
    return [SimpleNamespace(**each) for each in batch.to_pylist()]


def taken(arrived: Iterable[Any]) -> list[InputRecord]:
    """Records in the order in which a task takes them."""
    return [run.batch.record(index) for run in in_order(arrived) for index in range(run.start, run.stop)]


def packets(rows: Sequence[Any], packer: Packer | None = None) -> list[Any]:
    """Rows on their way into task 0."""
    columns = [
        pa.array([each.offset for each in rows], pa.int64()),
        pa.array([each.timestamp_ms for each in rows], pa.int64()),
        pa.array([each.key for each in rows], pa.binary()),
        pa.array([each.value for each in rows], pa.binary()),
        pa.array([each.headers for each in rows], HEADERS_TYPE),
    ]
    topics, origins = (pa.array([getattr(each, name) for each in rows]) for name in ("topic", "origin_topic"))
    partitions = np.array([each.origin_partition for each in rows], np.int32)
    packer = packer or Packer(0)
    return as_packets(packer.pack(columns, np.zeros(len(rows), np.int32), topics, origins, partitions))


def results(rows: Iterable[Any]) -> list[Any]:
    """What tasks gave out, as the sink would see it."""
    found = []
    for each in rows:
        time_ms = pa.scalar(each.timestamp, OUTPUT.field("timestamp").type).cast(pa.int64()).as_py() // 1000
        found.append(SimpleNamespace(**each.asDict(), timestamp_ms=time_ms))
    return found


def batches(processor: TaskProcessor, *inputs: list[Any]) -> list[list[Any]]:
    """Outputs of micro-batches, each by a processor that came through pickling, as in Spark."""
    handle = FakeHandle()
    outputs = []
    for rows in inputs:
        fresh: TaskProcessor = loads(dumps(processor))
        fresh.init(handle)  # type: ignore[arg-type]
        outputs.append(results(fresh.handleInputRows((0,), iter(packets(rows)), clock(0))))
    return outputs


def only_part(builder: StreamsBuilder) -> Plan:
    plan = builder.build().plan.decorated("app")
    (names,) = subtopologies(plan)
    return plan.only(names)


def test_state_lives_on_from_batch_to_batch_and_named_stores_are_logged() -> None:
    builder = StreamsBuilder()
    table = builder.stream("in").group_by_key().reduce(lambda a, b: a + b, Materialized.as_("joined"))
    table.to_stream().to("out")
    processor = TaskProcessor(only_part(builder), SETTINGS, iter, with_timers=False)
    first, second = batches(
        processor,
        [row("in", b"k", b"a", 5, 0), row("in", b"k", b"b", 6, 1)],
        [row("in", b"k", b"c", 7, 2)],
    )
    assert [(r.topic, r.key, r.value, r.timestamp_ms) for r in first] == [
        ("out", b"k", b"a", 5),
        ("out", b"k", b"ab", 6),
        ("app-joined-changelog", b"k", b"ab", 6),
    ]
    assert [(r.topic, r.value) for r in second] == [("out", b"abc"), ("app-joined-changelog", b"abc")]


def test_stores_are_restored_from_their_changelogs_into_the_tasks_they_came_from() -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in").group_by_key()
    grouped.reduce(lambda a, b: (a + b)[-9:], Materialized.as_("joined")).to_stream().to("out")
    windows = grouped.windowed_by(TimeWindows.of_size_and_grace(20, 10))
    windows.count(Materialized.as_("windows")).to_stream(lambda key, value: key.key).to("out")
    sessions = grouped.windowed_by(SessionWindows.of_inactivity_gap_and_grace(5, 30))
    sessions.count(Materialized.as_("sessions")).to_stream(lambda key, value: key.key).to("out")
    processor = TaskProcessor(only_part(builder), SETTINGS, iter, with_timers=False)
    chance = random.Random(7)
    rows = [row("in", b"%d" % chance.randrange(40), b"%d" % n, n // 2, n) for n in range(900)]
    uninterrupted = batches(processor, rows[:600], rows[600:])
    changes = [each for each in uninterrupted[0] if each.topic.endswith("-changelog")]
    assert {each.partition for each in changes} == {0}, "that of the task"
    changelog = source_batch(
        *((each.topic, n, each.key, each.value, each.timestamp_ms) for n, each in enumerate(changes))
    )
    changelog = changelog.set_column(3, "partition", pa.array([0] * len(changes), pa.int32()))
    restored = FakeHandle()
    processor.init(restored)  # type: ignore[arg-type]
    for part in restored_packets([changelog]):
        for packet in as_packets(part):
            processor.handleInitialState((packet.slot,), packet, clock(0))
    outputs = results(processor.handleInputRows((0,), iter(packets(rows[600:])), clock(0)))
    assert outputs == uninterrupted[1]


def test_all_versions_of_a_table_are_logged_and_restored() -> None:
    builder = StreamsBuilder()
    rows_of = builder.table("rows", materialized=Materialized.as_("rows"), history=100)
    builder.stream("in").left_join(rows_of, lambda value, row: f"{value}@{row}").to("out")
    plan = only_part(builder)
    processor = TaskProcessor(plan, SETTINGS, iter, with_timers=False)
    versions = [(b"a", 10), (b"b", 20), (None, 30), (b"c", 40)]
    written = [row("rows", b"k", value, time_ms, n) for n, (value, time_ms) in enumerate(versions)]
    asked = [row("in", b"k", b"x", time_ms, n) for n, time_ms in enumerate((15, 25, 35, 45))]
    logged, uninterrupted = batches(processor, written, asked)
    changelog = source_batch(
        *((each.topic, n, each.key, each.value, each.timestamp_ms) for n, each in enumerate(logged))
    )
    changelog = changelog.set_column(3, "partition", pa.array([0] * len(logged), pa.int32()))
    restored = FakeHandle()
    processor.init(restored)  # type: ignore[arg-type]
    for part in restored_packets([changelog], plan.versioned_changelogs("app")):
        for packet in as_packets(part):
            processor.handleInitialState((packet.slot,), packet, clock(0))
    outputs = results(processor.handleInputRows((0,), iter(packets(asked)), clock(0)))
    assert outputs == uninterrupted
    assert [each.value for each in outputs] == [b"x@a", b"x@b", b"x@None", b"x@c"]


def test_only_the_last_change_of_a_key_is_restored() -> None:
    changelog = source_batch(
        ("log", 0, b"a", b"1", 5),
        ("log", 1, b"b", b"2", 6),
        ("log", 2, b"a", b"3", 7),
        ("log", 3, b"b", None, 8),
    )
    found = [
        record
        for part in restored_packets([changelog])
        for each in as_packets(part)
        for record in unpacked(each).records()
    ]
    assert [(each.key, each.value, each.timestamp_ms, each.partition) for each in found] == [
        (b"a", b"3", 7, 1)
    ]


def test_windows_joins_and_suppression_survive_pickling_and_batches() -> None:
    builder = StreamsBuilder()
    left, right = builder.stream("left"), builder.stream("right")
    joined = left.outer_join(right, lambda a, b: f"{a}{b}", JoinWindows.of_time_difference_with_no_grace(10))
    windowed = joined.group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(10))
    windowed.count().suppress(Suppressed.until_window_closes()).to_stream(lambda key, value: key.key).to(
        "out"
    )
    processor = TaskProcessor(only_part(builder), SETTINGS, iter, with_timers=False)
    outputs = batches(
        processor,
        [row("left", b"k", b"a", 1)],
        [row("right", b"k", b"b", 2)],
        [row("left", b"k", b"c", 100)],
        [row("right", b"k", b"d", 101)],
        [row("right", b"k", b"e", 300), row("right", b"k", b"f", 400)],
    )
    assert [[int.from_bytes(r.value, "big") for r in batch] for batch in outputs] == [[], [], [], [1], [1]]


def test_state_written_in_the_middle_of_a_batch_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = StreamsBuilder()
    left, right = builder.stream("left"), builder.stream("right")
    left.group_by_key().reduce(lambda a, b: (a + b)[-9:], Materialized.as_("joined")).to_stream().to("out")
    left.outer_join(right, lambda a, b: f"{a}{b}", JoinWindows.of_time_difference_with_no_grace(10)).to("out")
    windowed = right.group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(20))
    windowed.count().suppress(Suppressed.until_window_closes()).to_stream(lambda key, value: key.key).to(
        "out"
    )
    sessions = right.group_by_key().windowed_by(SessionWindows.of_inactivity_gap_and_grace(5, 30))
    sessions.count().to_stream(lambda key, value: key.key).to("out")
    plan = builder.build().plan.decorated("app")
    part = plan.only(subtopologies(plan)[0])
    chance = random.Random(7)
    inputs = [
        [
            row(chance.choice(["left", "right"]), b"%d" % chance.randrange(40), b"%d" % n, n // 2, n)
            for n in range(first, first + 600)
        ]
        for first in (0, 600)
    ]

    def outputs() -> list[list[tuple[Any, ...]]]:
        found = batches(TaskProcessor(part, SETTINGS, iter, with_timers=False), *inputs)
        return [[(r.topic, r.key, r.value, r.timestamp_ms) for r in batch] for batch in found]

    expected = outputs()
    assert sum(map(len, expected)) > 1500
    monkeypatch.setattr(worker_tasks, "_STRIDE", 17)
    monkeypatch.setattr(worker_tasks, "_RESULTS_MAX", 100)
    monkeypatch.setattr(worker_tasks, "STATE_MEMORY_BYTES", 0)
    assert outputs() == expected


def test_clock_timers_are_left_with_spark() -> None:
    class Beat(Processor):
        def init(self, context: ProcessorContext) -> None:
            super().init(context)
            context.schedule(timedelta(seconds=10), PunctuationType.WALL_CLOCK_TIME, self.beat)

        def process(self, record: Record) -> None:
            self.context.get_state_store("last").put(record.key, record.value)

        def beat(self, time_ms: int) -> None:
            for key, value in self.context.get_state_store("last").all():
                self.context.forward(Record(key, value, time_ms))

    builder = StreamsBuilder()
    builder.add_state_store(Stores.key_value_store("last", str, str, logged=False))
    builder.stream("in").process(Beat, stores=["last"]).to("out")
    processor = TaskProcessor(only_part(builder), SETTINGS, iter, with_timers=True)
    handle = FakeHandle()
    processor.init(handle)  # type: ignore[arg-type]
    rows = packets([row("in", b"k", b"v", 1)])
    assert not list(processor.handleInputRows((0,), iter(rows), clock(1_000)))
    assert handle.timers == {11_000}
    fired = results(processor.handleExpiredTimer((0,), clock(12_000), None))
    assert [(r.key, r.value, r.timestamp_ms) for r in fired] == [(b"k", b"v", 12_000)]
    assert handle.timers == {21_000}


def test_records_are_taken_by_time_across_topics_and_by_offset_within_one() -> None:
    rows = [
        row("b", b"", b"b0", 2, 0),
        row("a", b"", b"a1", 1, 1),
        row("a", b"", b"a0", 5, 0),
        row("b", b"", b"b1", 6, 1),
    ]
    assert [record.value for record in taken(packets(rows))] == [b"b0", b"a0", b"a1", b"b1"]


def test_packets_of_a_partition_are_taken_by_offset_however_they_arrive() -> None:
    packer = Packer(0)
    later = packets([row("t", b"", b"2", 9, 2), row("t", b"", b"3", 1, 3)], packer)
    # One record became two, and the second did not go into the same packet.
    first = packets([row("t", b"", b"0", 9, 0), row("t", b"", b"1", 5, 1)], packer)
    second = packets([row("t", b"", b"1'", 5, 1)], packer)
    for arrived in (later + second + first, first + second + later):
        assert [record.value for record in taken(arrived)] == [b"0", b"1", b"1'", b"2", b"3"]


def test_packets_of_two_stages_from_one_partition_are_merged_by_offset() -> None:
    one = packets([row("t", b"", b"%d" % n, n, n) for n in range(5)], Packer(0))
    other = packets([row("t", b"", b"%d'" % n, n, n) for n in range(2, 7)], Packer(1))
    expected = [b"0", b"1", b"2", b"2'", b"3", b"3'", b"4", b"4'", b"5'", b"6'"]
    for arrived in (one + other, other + one):
        assert [record.value for record in taken(arrived)] == expected


def test_rows_of_topics_become_packets_and_records_again() -> None:
    headers = pa.array([[{"key": "h", "value": b"1"}, {"key": "n", "value": None}], None, None], HEADERS_TYPE)
    batch = source_batch(
        ("a", 7, b"k", b"v", 42), ("b", 3, None, b"w", 41), ("a", 8, b"l", None, 40)
    ).append_column("headers", headers)
    found = [each for part in PackStage(8)([batch]) for each in as_packets(part)]
    assert sorted((each.topic, each.task, each.first_offset, each.last_offset) for each in found) == [
        ("a", 1, 7, 8),
        ("b", 1, 3, 3),
    ]
    records = taken(found)
    assert [(r.topic, r.partition, r.offset, r.timestamp_ms, r.key, r.value) for r in records] == [
        ("b", 1, 3, 41, None, b"w"),
        ("a", 1, 7, 42, b"k", b"v"),
        ("a", 1, 8, 40, b"l", None),
    ]
    assert [record.headers for record in records] == [(), (("h", b"1"), ("n", None)), ()]
    assert records[2].origin == ("a", 1, 8)


def source_batch(*records: tuple[str, int, bytes | None, bytes | None, int]) -> pa.RecordBatch:
    topics, offsets, keys, values, times = zip(*records, strict=True)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
            pa.array(topics),
            pa.array([1] * len(records), pa.int32()),
            pa.array(offsets, pa.int64()),
            pa.array([time * 1000 for time in times], pa.int64()).cast(pa.timestamp("us", "UTC")),
        ],
        names=["key", "value", "topic", "partition", "offset", "timestamp"],
    )


def test_a_stateless_stage_turns_source_rows_into_sink_rows() -> None:
    builder = StreamsBuilder()
    builder.stream("in").flat_map_values(str.split).to("out")
    stage: StatelessStage = loads(dumps(StatelessStage(only_part(builder), SETTINGS)))
    (batch,) = stage([source_batch(("in", 7, b"k", b"a b", 42), ("in", 8, None, b"", 43))])
    assert batch.to_pylist() == [
        {"topic": "out", "key": b"k", "value": word, "headers": [], "partition": None, "timestamp": stamp}
        for word in (b"a", b"b")
        for stamp in [batch.column("timestamp")[0].as_py()]
    ]
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [42_000, 42_000]


def test_a_shuffling_stage_sends_equal_keys_to_one_task_and_keeps_where_they_came_from() -> None:
    builder = StreamsBuilder()
    builder.stream("in").select_key(lambda key, value: value).repartition().to("out")
    plan = builder.build().plan.decorated("app")
    part = plan.only(subtopologies(plan)[0])
    stage = StatelessStage(part, SETTINGS, shuffle_to=8)
    (batch,) = stage([source_batch(*(("in", n, None, b"v%d" % (n % 3), n) for n in range(9)))])
    tasks: dict[bytes | None, set[int]] = {}
    found = 0
    for packet in as_packets(batch):
        for record in taken([packet]):
            tasks.setdefault(record.key, set()).add(packet.task)
            assert record.origin == ("in", 1, record.timestamp_ms)
            found += 1
    assert (found, len(tasks)) == (9, 3)
    assert all(len(found) == 1 for found in tasks.values())


def test_an_error_names_the_record_it_came_from_through_a_shuffle() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed.with_(str, str)).select_key(lambda key, value: value)
    stream.group_by_key().reduce(lambda a, b: a[7]).to_stream().to("out")
    plan = builder.build().plan.decorated("app")
    part = plan.only(subtopologies(plan)[1])
    (topic,) = part.internal_topics
    processor = TaskProcessor(part, SETTINGS, iter, with_timers=False)
    rows = [row(topic, b"k", b"v", 1, 4), row(topic, b"k", b"w", 2, 5)]
    for each in rows:
        each.origin_topic, each.origin_partition = "in", 3
    with pytest.raises(RecordError, match="topic in, partition 3, offset 5, key 'k': IndexError") as caught:
        batches(processor, rows)
    assert loads(dumps(caught.value)).offset == 5


def test_dead_letters_of_a_stage_go_past_the_tasks_behind_it() -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in", Consumed.with_(str, int)).group_by(lambda key, value: key)
    grouped.reduce(lambda a, b: a + b).to_stream().to("out")
    plan = builder.build().plan.decorated("app")
    first, second = (plan.only(names) for names in subtopologies(plan))
    settings = replace(SETTINGS, errors=ErrorPolicy.of("dead-letter", "dead"))
    stage = StatelessStage(first, settings, shuffle_to=1)
    good = (3).to_bytes(8, "big")
    (batch,) = stage(
        [source_batch(("in", 1, b"k", good, 5), ("in", 2, b"k", b"poison", 6), ("in", 3, None, b"x", 7))]
    )
    processor: TaskProcessor = loads(dumps(TaskProcessor(second, settings, iter, with_timers=False)))
    processor.init(FakeHandle())  # type: ignore[arg-type]
    found = results(processor.handleInputRows((0,), iter(as_packets(batch)), clock(0)))
    assert {(each.topic, each.key, each.value, each.timestamp_ms) for each in found} == {
        ("dead", b"k", b"poison", 6),
        ("dead", None, b"x", 7),
        ("out", b"k", good, 5),
    }
    letter = next(each for each in found if each.value == b"poison")
    assert {each["key"]: each["value"] for each in letter.headers}["__streams.errors.offset"] == b"2"


def test_a_record_that_cannot_be_taken_costs_those_around_it_nothing() -> None:
    builder = StreamsBuilder()
    numbers = builder.stream("in", Consumed.with_(str, int))
    numbers.group_by_key().reduce(lambda a, b: a + b).to_stream().to("out")
    settings = replace(SETTINGS, errors=ErrorPolicy.of("dead-letter", "letters"))
    processor = TaskProcessor(only_part(builder), settings, iter, with_timers=False)
    values = [(1).to_bytes(8, "big"), b"?", (2).to_bytes(8, "big"), (4).to_bytes(8, "big")]
    rows = [row("in", b"k", value, 5, number) for number, value in enumerate(values)]
    rows[3].timestamp_ms = -1
    rows.append(row("in", b"k", (8).to_bytes(8, "big"), 6, 4))
    (found,) = batches(processor, rows)
    assert [int.from_bytes(each.value, "big") for each in found if each.topic == "out"] == [1, 3, 11]
    letters = [each for each in found if each.topic == "letters"]
    offsets = [next(h["value"] for h in each.headers if h["key"].endswith("offset")) for each in letters]
    assert offsets == [b"1", b"3"]


@pytest.mark.parametrize("name", sorted(test_topology_description.kafka_streams_descriptions()))
def test_every_plan_can_be_sent_to_workers(name: str) -> None:
    builder = StreamsBuilder()
    getattr(test_topology_description, name)(builder)
    plan = builder.build().plan
    received: Plan = loads(dumps(plan))
    assert list(received.nodes) == list(plan.nodes)
