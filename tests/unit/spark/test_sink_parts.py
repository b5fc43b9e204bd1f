"""Rows, options, routes and marks of the sink, without Spark."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ottla.records.arrow_encode import encode_columns
from ottla.records.murmur import key_partitions
from ottla.records.producer import ProducerIdentity
from ottla.records.records import iter_records
from ottla.spark.checkpoint import Checkpoint, SourceOffsets, topic_offsets
from ottla.spark.exactly_once import SeveralAttempts, _cause, _passes, _read_mark, _require_single_attempt
from ottla.spark.routing import SPREAD_ROWS_MIN, Router, UnknownTarget
from ottla.spark.sink_options import InvalidOption, sink_options
from ottla.spark.sink_rows import SchemaMismatch, record_columns, sink_columns
from ottla.spark.spool import Spool, SpoolTask
from ottla.spark.task_writing import TransactionalWriteTask, WriterRepeated, encoded, partition_counts

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


def counts(topics: Sequence[str]) -> Mapping[str, int]:
    return {"a": 3, "b": 5, "one": 1}


def rows(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


# Options


def test_options_are_those_of_sparks_kafka_sink() -> None:
    options = sink_options(
        {
            **SERVERS,
            "topic": "a",
            "kafka.compression.type": "zstd",
            "kafka.security.protocol": "SSL",
            "kafka.batch.size": "1000",
        }
    )
    assert (options.bootstrap_servers, options.topic, options.codec) == ("localhost:9092", "a", 4)
    assert options.batch_bytes == 1000
    assert options.client_properties["security.protocol"] == "SSL"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, r"kafka\.bootstrap\.servers is missing"),
        ({**SERVERS, "kafka.compression.type": "brotli"}, r"compression\.type is 'brotli'.*none, gzip"),
        ({**SERVERS, "kafka.batch.size": "0"}, r"batch\.size is '0'.*greater than 0"),
        ({**SERVERS, "kafka.transaction.timeout.ms": "soon"}, r"transaction\.timeout\.ms is 'soon'"),
    ],
)
def test_an_option_that_cannot_be_used_is_named(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        sink_options(given)


# Columns


def test_only_known_columns_are_written() -> None:
    columns = [("id", "bigint"), ("value", "string"), ("topic", "string"), ("key", "binary")]
    assert sink_columns(columns, None) == ["topic", "key", "value"]
    assert sink_columns(columns, "a") == ["key", "value"]


@pytest.mark.parametrize(
    ("columns", "topic", "message"),
    [
        ([("vale", "string")], "a", r"no column value \(binary or string\); its columns are vale"),
        ([("value", "string")], None, r"no column topic \(string\) and the option topic is not set"),
        ([("value", "bigint")], "a", r"column value is of type bigint, expected is binary or string"),
        (
            [("value", "binary"), ("headers", "map<string,string>")],
            "a",
            r"headers is of type map<string,string>, expected is array<struct<key:string,value:binary>>",
        ),
        (
            [("value", "binary"), ("partition", "bigint")],
            "a",
            r"partition is of type bigint, expected is int",
        ),
    ],
)
def test_a_mismatch_names_column_and_type(
    columns: list[tuple[str, str]], topic: str | None, message: str
) -> None:
    with pytest.raises(SchemaMismatch, match=message):
        sink_columns(columns, topic)


def test_rows_become_records() -> None:
    at = dt.datetime(2024, 5, 6, 7, 8, 9, 123456, dt.UTC)
    batch = rows(
        key=pa.array(["k", None]),
        value=pa.array([b"v", None], pa.binary()),
        timestamp=pa.array([at, None], pa.timestamp("us", "UTC")),
    )
    (encoded,) = encode_columns(record_columns(batch, 42))
    records = [(r.key, r.value, r.timestamp_ms) for r in iter_records(encoded.data)]
    assert records == [(b"k", b"v", int(at.timestamp() * 1000)), (None, None, 42)]


# Routes


def test_keys_decide_and_a_named_partition_overrules_them() -> None:
    keys = pa.array([b"x", b"y", b"z"], pa.binary())
    batch = rows(value=keys, partition=pa.array([None, 4, None], pa.int32()))
    targets, meaning = Router("b", counts, 0).route(batch, keys)
    by_key = key_partitions(keys, 5).tolist()
    assert [meaning[target] for target in targets] == [("b", by_key[0]), ("b", 4), ("b", by_key[2])]


def test_each_row_may_name_its_topic() -> None:
    keys = pa.array([b"x", b"y", b"z", b"x"], pa.binary())
    batch = rows(value=keys, topic=pa.array(["b", "a", "one", "a"]))
    targets, meaning = Router(None, counts, 0).route(batch, keys)
    expected = [
        (topic, int(key_partitions(keys[at : at + 1], counts([])[topic])[0]))
        for at, topic in enumerate(["b", "a", "one", "a"])
    ]
    assert [meaning[target] for target in targets] == expected


def test_rows_without_key_go_everywhere_in_long_runs() -> None:
    router = Router("a", counts, 7)
    targets, _ = router.route(rows(value=pa.nulls(9000, pa.binary())), None)
    assert np.bincount(targets).tolist() == [3000, 3000, 3000]
    assert int((targets[1:] != targets[:-1]).sum()) == 2
    few = [int(router.route(rows(value=pa.nulls(9, pa.binary())), None)[0][0]) for _ in range(3)]
    assert sorted(few) == [0, 1, 2]
    keys = pa.array([b"x", None] * SPREAD_ROWS_MIN, pa.binary())
    mixed, _ = router.route(rows(value=keys), keys)
    assert len(set(mixed[::2].tolist())) == 1


@pytest.mark.parametrize("partition", [-1, 3])
def test_a_partition_that_there_is_not_is_named(partition: int) -> None:
    batch = rows(value=pa.array([b"v"]), partition=pa.array([partition], pa.int32()))
    with pytest.raises(UnknownTarget, match=rf"partition is {partition} for topic a, .* 0 to 2"):
        Router("a", counts, 0).route(batch, None)


def test_a_row_without_topic_is_refused() -> None:
    with pytest.raises(UnknownTarget, match="topic is null in row 1 of 2"):
        Router(None, counts, 0).route(rows(value=pa.array([b"v", b"w"]), topic=pa.array(["a", None])), None)


# Checkpoint and marks


def test_offsets_are_read_from_the_log_of_the_query() -> None:
    entry = (
        'v1\n{"batchWatermarkMs":0}\n{"a":{"0":5,"1":7}}\n-\n{"offset":3,"timestamp":1}\n'
        '{"@cluster":"other","b":{"0":0}}'
    )
    assert list(topic_offsets(entry)) == [
        SourceOffsets(None, {("a", 0): 5, ("a", 1): 7}),
        SourceOffsets("other", {("b", 0): 0}),
    ]


@pytest.mark.parametrize(
    ("before", "now", "taken"),
    [
        ('{"a":{"0":5,"1":7}}', '{"@cluster":"c","a":{"0":6,"1":7}}', 1),
        ('{"a":{"0":5}}', '{"a":{"0":5,"1":3}}', 3),
        ('{"a":{"0":5}}\n{"a":{"0":1}}', '{"a":{"0":8}}\n{"a":{"0":2}}', 4),
        ('{"a":{"0":5}}\n-', '{"a":{"0":8}}\n{"a":{"0":2}}', None),
        ('{"a":{"0":5}}\n{"files":1}', '{"a":{"0":8}}\n{"files":2}', None),
    ],
)
def test_how_many_records_a_micro_batch_takes_is_known_of_topics(
    before: str, now: str, taken: int | None, tmp_path: Path
) -> None:
    (tmp_path / "offsets").mkdir()
    for number, offsets in enumerate((before, now), 4):
        (tmp_path / "offsets" / str(number)).write_text(f"v1\n{{}}\n{offsets}")
    files = {"fs.defaultFS": "file:///"}
    java = SimpleNamespace(hadoopConfiguration=lambda: files)
    checkpoint = Checkpoint(SimpleNamespace(_jvm=None, _jsc=java), str(tmp_path))
    assert checkpoint.taken(5) == taken
    assert checkpoint.taken(0) is None


class Frame:
    """Rows in Spark, where only the ways out that are expected work."""

    def __init__(self, rows: pa.Table | None = None, spooled: list[Any] | None = None) -> None:
        self._rows = rows
        self._spooled = spooled

    def toArrow(self) -> pa.Table:
        assert self._rows is not None
        return self._rows

    def mapInArrow(self, encode: SpoolTask, types: str) -> Frame:
        assert self._rows is not None
        places = [row for batch in encode(self._rows.to_batches()) for row in batch.to_pylist()]
        return Frame(spooled=[SimpleNamespace(**place) for place in places])

    def collect(self) -> list[Any]:
        assert self._spooled is not None
        return self._spooled


@pytest.mark.parametrize("is_small", [True, False])
def test_few_rows_are_encoded_in_the_driver_as_many_are_in_workers(
    is_small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.spark.task_writing.partition_counts", lambda options: counts)
    spool = Spool(None, sink_options(SERVERS), is_query_encoded=False)
    table = pa.table({"topic": ["a", "one", "a"], "key": [b"k", None, b"k"], "value": [b"1", b"2", b"3"]})

    def is_spooled(table: pa.Table) -> bool:
        collected = spool.collect(Frame(table), is_small=is_small)
        found = {
            target: (count, [record.value for record in iter_records(bytes(data))])
            for target, count, data in collected.batches
        }
        if table.num_rows == 3:
            to_a = ("a", int(key_partitions(pa.array([b"k"]), 3)[0]))
            assert found == {to_a: (2, [b"1", b"3"]), ("one", 0): (1, [b"2"])}
        assert collected.targets == sorted(found)
        files = list(Path(spool.directory).iterdir())
        spool.clear()
        return bool(files)

    # It is not known yet how many rows few records lead to.
    assert is_spooled(table)
    assert is_spooled(table) is not is_small
    many = pa.table({"topic": ["one"] * 10_000, "value": [b"v"] * 10_000})
    assert is_spooled(many) is not is_small
    # Few records have led to many.
    assert is_spooled(many)
    assert is_spooled(table)
    assert is_spooled(table) is not is_small


def test_marks_of_others_are_no_marks() -> None:
    assert _read_mark('{"query": "q", "batch": 7}') == ("q", 7)
    for other in ("", "x", "{}", "[]", '{"query": "q"}', "null"):
        assert _read_mark(other) == (None, -1)


def test_the_cause_of_a_failed_job_is_what_the_worker_raised() -> None:
    text = (
        "Job aborted\nCaused by: PythonException: Traceback (most recent call last):\n"
        '  File "x.py", line 1, in f\nottla.wire.errors.MessageTooLarge: produce to a-0\n\n\tat Java'
    )
    assert _cause(Exception(text)) == "ottla.wire.errors.MessageTooLarge: produce to a-0"
    assert not _passes(Exception(text))
    assert _passes(Exception("Python worker exited unexpectedly (crashed)"))


# Tasks


class Counting:
    """A connection to a cluster with topics of so many partitions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **partitions: int) -> None:
        self.partitions = partitions
        self.asked: list[list[str]] = []
        self.cluster = SimpleNamespace(topics=self.topics)
        monkeypatch.setattr("ottla.spark.task_writing.sink_connection", lambda options: self)

    def topics(self, names: Sequence[str]) -> dict[str, Any]:
        self.asked.append(list(names))
        return {
            name: SimpleNamespace(partitions=range(self.partitions[name]))
            for name in names
            if name in self.partitions
        }

    def run(self, answer: Any) -> Any:
        return answer


def test_numbers_of_partitions_are_asked_for_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    connection, now_s = Counting(monkeypatch, a=3), 100.0
    monkeypatch.setattr("ottla.spark.task_writing.time", SimpleNamespace(monotonic=lambda: now_s))
    options = sink_options(SERVERS)
    assert [partition_counts(options)(["a"])["a"] for _ in range(3)] == [3, 3, 3]
    # What does not exist is not remembered.
    for _ in range(2):
        with pytest.raises(UnknownTarget, match="topic b does not exist"):
            partition_counts(options)(["a", "b"])
    connection.partitions |= {"a": 4, "b": 1}
    assert dict(partition_counts(options)(["a", "b"])) == {"a": 3, "b": 1}
    now_s += 5
    assert dict(partition_counts(options)(["a", "b"])) == {"a": 4, "b": 1}
    assert connection.asked == [["a"], ["b"], ["b"], ["b"], ["a", "b"]]


def test_a_partition_that_is_new_is_found_though_numbers_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connection, options = Counting(monkeypatch, a=3), sink_options(SERVERS)

    def targets(partition: int) -> list[tuple[str, int]]:
        row = rows(topic=["a"], value=[b"v"], partition=pa.array([partition], pa.int32()))
        return [target for target, _, _ in encoded([row], options)]

    assert targets(2) == [("a", 2)]
    connection.partitions["a"] = 6
    assert targets(5) == [("a", 5)]
    with pytest.raises(UnknownTarget, match="partition is 6 for topic a, whose partitions are 0 to 5"):
        targets(6)


def test_a_writer_that_is_started_again_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    context = SimpleNamespace(attemptNumber=lambda: 1, stageId=lambda: 7)
    monkeypatch.setattr("pyspark.TaskContext.get", lambda: context)
    task = TransactionalWriteTask(sink_options(SERVERS), "app", ProducerIdentity(1, 0))
    with pytest.raises(WriterRepeated, match="attempt 1 of a writer of app"):
        list(task(iter(())))


@pytest.mark.parametrize(
    ("attempt", "complete", "failed", "killed", "is_clean"),
    [(0, 3, 0, 0, True), (1, 3, 0, 0, False), (0, 3, 1, 0, False), (0, 3, 0, 1, False), (0, 2, 0, 0, False)],
)
def test_only_a_stage_with_one_attempt_of_each_task_is_committed(
    attempt: int, complete: int, failed: int, killed: int, is_clean: bool
) -> None:
    figures = {"attemptId": attempt, "numTasks": 3, "numCompleteTasks": complete}
    figures |= {"numFailedTasks": failed, "numKilledTasks": killed}
    stage = SimpleNamespace(**{name: partial(int, value) for name, value in figures.items()})
    bus = SimpleNamespace(waitUntilEmpty=lambda timeout_ms: None)
    store = SimpleNamespace(lastStageAttempt=lambda stage_id: stage)
    context = SimpleNamespace(listenerBus=lambda: bus, statusStore=lambda: store)
    spark = SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: context))
    if is_clean:
        _require_single_attempt(spark, 7)
    else:
        with pytest.raises(SeveralAttempts, match="stage 7"):
            _require_single_attempt(spark, 7)
