"""What functions in Spark's workers spare those after them."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra ottla[spark]")

from pyspark.sql.datasource import InputPartition

from ottla.spark import workers
from ottla.spark.sink_options import sink_options
from ottla.spark.source import OttlaStreamReader
from ottla.spark.source_options import source_options
from ottla.spark.task_writing import EncodeTask
from ottla.streams import StreamsBuilder
from ottla.streams.on_spark.packets import PackStage
from ottla.streams.on_spark.worker_tasks import StatelessStage, TaskSettings
from ottla.streams.tasks.failures import ErrorPolicy

SERVERS = {"kafka.bootstrap.servers": "nowhere:9092"}


def read() -> Iterable[Any]:
    reader = OttlaStreamReader(source_options({**SERVERS, "subscribe": "in"}, streaming=True))
    return reader.read(InputPartition(None))


def change() -> Iterable[Any]:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    plan = builder.build().plan.decorated("app")
    return StatelessStage(plan, TaskSettings("app", ErrorPolicy(), {}, "nowhere:9092", {}))([])


def pack() -> Iterable[Any]:
    return PackStage(1)([])


def encode() -> Iterable[Any]:
    return EncodeTask(sink_options({**SERVERS, "topic": "out"}), 1)([])


@pytest.mark.parametrize("function", [read, change, pack, encode])
def test_garbage_is_not_looked_for_in_what_the_first_functions_of_a_worker_found_there(
    function: Callable[[], Iterable[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "_begun", 0)
    try:
        assert list(function()) == []
        assert gc.get_freeze_count() > len(gc.get_objects())
    finally:
        gc.unfreeze()


def test_what_later_functions_find_stays_garbage_when_they_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_begun", 0)
    counts = []
    try:
        for _ in range(6):
            workers.settle()
            counts.append(gc.get_freeze_count())
            made: list[Any] = []
            made.append(made)
    finally:
        gc.unfreeze()
    assert max(counts[3:]) <= counts[2]
