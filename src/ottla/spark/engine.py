"""What PySpark has but does not promise, in one place: another version of it is met here first, and by
tests/spark/test_engine.py. Nothing else touches what its names hide behind an underscore."""

from __future__ import annotations

import subprocess
from typing import Any, BinaryIO


def last_report(query: Any) -> str | None:
    """What a streaming query says of its last micro-batch, as JSON.

    ``query.lastProgress`` fetches it from Java field by field, dozens of calls, to hold the same text.
    """
    report = query._jsq.lastProgress()
    return None if report is None else str(report.json())


def reports_since(query: Any, timestamp: str) -> list[str]:
    """Those of micro-batches that began after a time, as Spark writes times; oldest first."""
    recent = query._jsq.recentProgress()
    found: list[str] = []
    for index in range(len(recent) - 1, -1, -1):
        if str(recent[index].timestamp()) <= timestamp:
            break
        found.append(str(recent[index].json()))
    return found[::-1]


def stage_record(spark: Any, stage_id: int, timeout_ms: int) -> Any:
    """What Spark knows of the last attempt of a stage, once all that has happened is in its records."""
    context = spark._jsc.sc()
    context.listenerBus().waitUntilEmpty(timeout_ms)
    return context.statusStore().lastStageAttempt(stage_id)


def repartition_state(spark: Any, checkpoint: str, partitions: int) -> None:
    """Divide the state of a streaming query anew, which runs a micro-batch without records."""
    spark._streamingCheckpointManager.repartition(checkpoint, partitions)


class HadoopFiles:
    """Files of any file system that Spark knows: a local path, hdfs://, s3a:// and others."""

    def __init__(self, spark: Any) -> None:
        self._jvm = spark._jvm
        self._settings = spark._jsc.hadoopConfiguration()

    @property
    def default_system(self) -> str:
        return str(self._settings.get("fs.defaultFS", "file:///"))

    def path(self, location: str) -> Any:
        """Java's object for it."""
        return self._jvm.org.apache.hadoop.fs.Path(location)

    def system(self, path: Any) -> Any:
        """Java's object for the file system it is in."""
        return path.getFileSystem(self._settings)

    def read(self, path: Any) -> str:
        stream = self.system(path).open(path)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, path: Any, text: str) -> None:
        """Over what is there."""
        stream = self.system(path).create(path, True)
        try:
            stream.write(text.encode())
        finally:
            stream.close()


def machine_runs() -> bool:
    """Whether this process has a Java virtual machine for Spark."""
    from pyspark import SparkContext

    return SparkContext._gateway is not None


def start_machine(conf: Any, output: BinaryIO) -> None:
    """With settings that only count on its command line; `output` gets what it prints."""
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway

    gateway = launch_gateway(conf, {"stdout": output, "stderr": subprocess.STDOUT})  # type: ignore[no-untyped-call]
    SparkContext._ensure_initialized(gateway=gateway)


def forget_dead_machine() -> bool:
    """Whether the machine that this process started has died; then the next session starts another one."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    machine = getattr(SparkContext._gateway, "proc", None)
    if machine is None or machine.poll() is None:
        return False
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
    return True
