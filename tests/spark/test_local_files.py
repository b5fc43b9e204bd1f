"""Files of checkpoints are written by a class of our own, which starts no processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.spark.topics import Cluster

from ottla.spark.local_files import CLASS_NAME
from ottla.spark.session import file_settings
from ottla.spark.sink import write_stream
from ottla.testing.in_process import InProcessBroker

pytestmark = pytest.mark.slow


def file_system(spark: Any, settings: dict[str, str]) -> Any:
    java = spark._jvm
    conf = java.org.apache.hadoop.conf.Configuration(spark._jsc.hadoopConfiguration())
    for name, value in settings.items():
        conf.set(name, value)
    return java.org.apache.hadoop.fs.FileSystem.get(java.java.net.URI("file:///"), conf)


def test_the_class_writes_and_renames_files(spark: Any, tmp_path: Path) -> None:
    files = file_system(spark, file_settings(spark))
    assert files.getClass().getName() == CLASS_NAME
    path = spark._jvm.org.apache.hadoop.fs.Path
    stream = files.create(path(f"{tmp_path}/new"), True)
    stream.write(bytearray(b"records"))
    stream.close()
    assert files.rename(path(f"{tmp_path}/new"), path(f"{tmp_path}/done"))
    (tmp_path / "plain").touch()
    assert {each.name for each in tmp_path.iterdir()} == {"done", ".done.crc", "plain"}
    assert (tmp_path / "done").read_bytes() == b"records"
    assert (tmp_path / "done").stat().st_mode == (tmp_path / "plain").stat().st_mode
    # Others in the machine go on with theirs.
    assert file_system(spark, {}).getClass().getName() != CLASS_NAME


def test_a_checkpoint_is_written_without_processes(spark: Any, tmp_path: Path) -> None:
    with InProcessBroker() as broker:
        cluster = Cluster(broker.bootstrap_servers)
        cluster.create("in", 1)
        cluster.create("out", 1)
        records = spark.readStream.format("ottla").option("kafka.bootstrap.servers", broker.bootstrap_servers)
        frame = records.option("subscribe", "in").option("startingOffsets", "earliest").load()
        checkpoint = f"{tmp_path}/checkpoint"
        counted = frame.groupBy("key").count().selectExpr("key", "CAST(count AS STRING) AS value")
        query = write_stream(
            counted,
            application_id="files",
            bootstrap_servers=broker.bootstrap_servers,
            topic="out",
            checkpoint=checkpoint,
            output_mode="update",
        )
        try:
            for number in range(3):
                if number == 1:
                    # The first micro-batch starts Python workers, those after it nothing at all.
                    recording = spark._jvm.jdk.jfr.Recording()
                    recording.enable("jdk.ProcessStart")
                    recording.start()
                cluster.produce("in", [b"%d" % number])
                query.processAllAvailable()
            recording.stop()
        finally:
            query.stop()
        assert Path(checkpoint, "commits", "2").exists()
        recorded = spark._jvm.java.io.File(f"{tmp_path}/recorded.jfr").toPath()
        recording.dump(recorded)
        events = spark._jvm.jdk.jfr.consumer.RecordingFile.readAllEvents(recorded)
        assert [str(event.getString("command")) for event in events] == []
