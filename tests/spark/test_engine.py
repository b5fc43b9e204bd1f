"""What PySpark does not promise, and we use all the same: this fails first when it changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ottla.spark import engine

pytestmark = pytest.mark.slow


def test_reports_of_micro_batches(spark: Any, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "one").write_text("line\n")
    lines = spark.readStream.text(str(source))
    writer = lines.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.start()
    try:
        query.processAllAvailable()
        told = [json.loads(each) for each in engine.reports_since(query, "")]
        assert [each["numInputRows"] for each in told if each["numInputRows"]] == [1]
        last = engine.last_report(query)
        assert last is not None
        assert engine.reports_since(query, json.loads(last)["timestamp"]) == []
    finally:
        query.stop()


def test_the_record_of_a_stage(spark: Any) -> None:
    from pyspark import TaskContext

    def stage(rows: Any) -> Any:
        context = TaskContext.get()
        assert context is not None
        yield from [context.stageId() for _ in rows][:1]

    (number, *_) = spark.sparkContext.parallelize(range(4), 2).mapPartitions(stage).collect()
    record = engine.stage_record(spark, number, 10_000)
    assert (record.attemptId(), record.numTasks(), record.numCompleteTasks()) == (0, 2, 2)
    assert (record.numFailedTasks(), record.numKilledTasks()) == (0, 0)


def test_files_of_hadoop(spark: Any, tmp_path: Path) -> None:
    files = engine.HadoopFiles(spark)
    assert files.default_system.startswith("file:")
    path = files.path(f"file://{tmp_path}/below/text")
    assert not files.system(path).exists(path)
    files.write(path, "first")
    files.write(path, "größer")
    assert files.read(path) == (tmp_path / "below" / "text").read_text() == "größer"


def test_state_is_divided_only_where_there_is_some(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="STATE_REPARTITION_INVALID_CHECKPOINT"):
        engine.repartition_state(spark, str(tmp_path), 3)


def test_the_machine_is_known_to_run(spark: Any) -> None:
    assert engine.machine_runs()
    assert not engine.forget_dead_machine()
