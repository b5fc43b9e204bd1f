"""Writing to topics: `write_stream` exactly once, and the plain sink behind `format("ottla")`.

The plain sink promises what Spark's own Kafka sink does: at least once. Its tasks are idempotent producers,
so resends within a task make no duplicates; a task or a micro-batch that Spark runs again does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from ottla.spark.at_least_once import AtLeastOnceWriter
from ottla.spark.checkpoint import Checkpoint
from ottla.spark.exactly_once import MicroBatchWriter, encoded_batches
from ottla.spark.session import file_settings, with_settings
from ottla.spark.sink_options import InvalidOption, SinkOptions, sink_options
from ottla.spark.sink_rows import sink_columns
from ottla.spark.spool import spool_of
from ottla.spark.task_writing import Unencoded, partition_counts, write_plainly

__all__ = ["batch_writer", "stream_writer", "write_stream"]

EXACTLY_ONCE: Final = "exactly_once_v2"
GUARANTEES: Final = (EXACTLY_ONCE, "at_least_once")
ADAPTIVE_STAGES: Final = "spark.sql.adaptive.streaming.stateless.enabled"
# Spark has two ways to write files of a checkpoint. On a local disk both rename in the same way, but the one
# it prefers starts ten processes for each file (readlink, chmod), which takes many times as long as the file.
FILE_MANAGER: Final = "spark.sql.streaming.checkpointFileManagerClass"
LOCAL_FILE_MANAGER: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)


def write_stream(
    df: Any,
    *,
    application_id: str,
    bootstrap_servers: str,
    checkpoint: str,
    topic: str | None = None,
    options: Mapping[str, str] | None = None,
    trigger: Mapping[str, Any] | None = None,
    output_mode: str = "append",
    query_name: str | None = None,
    guarantee: str = EXACTLY_ONCE,
) -> Any:
    """Starts a query that writes the rows of a streaming DataFrame into topics, exactly once.

    Columns: value (binary or string), and optionally key, topic, partition, headers, timestamp. Readers see
    each row once if they read committed records only (`isolation.level=read_committed`).

    `application_id` is the transactional id and the consumer group that shows how far the application is: one
    running query each. `checkpoint` is a directory that all of Spark can reach; who deletes it starts anew.
    `trigger` are the arguments of Spark's `trigger`, such as {"availableNow": True}. With the `guarantee`
    at_least_once there are no transactions: rows can be read sooner, and come twice after a crash. Rows
    may be `Unencoded` instead of a DataFrame.
    """
    is_encoded = isinstance(df, Unencoded)
    if not is_encoded and not df.isStreaming:
        raise ValueError(
            "write_stream takes a streaming DataFrame (spark.readStream …); "
            'write others with df.write.format("ottla")'
        )
    spark = df.session if is_encoded else df.sparkSession
    _refuse_speculation(spark)
    given = {"kafka.bootstrap.servers": bootstrap_servers, **(options or {})}
    parsed = sink_options(given | ({"topic": topic} if topic is not None else {}))
    if guarantee not in GUARANTEES:
        raise InvalidOption(f"The guarantee is {guarantee!r}; it can be one of {', '.join(GUARANTEES)}.")
    if not is_encoded:
        sink_columns(df.dtypes, parsed.topic)
    partitions = partition_counts(parsed)([parsed.topic])[parsed.topic] if parsed.topic is not None else None
    spool = spool_of(spark, parsed, is_query_encoded=is_encoded)
    batches = encoded_batches(df, parsed, partitions, spool)
    writer_class = MicroBatchWriter if guarantee == EXACTLY_ONCE else AtLeastOnceWriter
    place = Checkpoint(spark, checkpoint)
    writer = writer_class(parsed, application_id, place, spool)
    stream = batches.writeStream.outputMode(output_mode).option("checkpointLocation", checkpoint)
    stream = stream.queryName(query_name or application_id).foreachBatch(writer)
    if trigger:
        stream = stream.trigger(**trigger)
    # Adaptive stages run the encoding by itself, before the writer is called, which then could not do it
    # again when a worker is lost.
    settings = {ADAPTIVE_STAGES: "false"}
    if place.is_local and spark.conf.get(FILE_MANAGER, None) is None:
        settings[FILE_MANAGER] = LOCAL_FILE_MANAGER
        settings |= file_settings(spark)
    with with_settings(spark, settings):
        return stream.start()


def batch_writer(options: Mapping[str, str], schema: Any, overwrite: bool) -> DataSourceArrowWriter:
    """For the data source's `writer`."""
    return _BatchWriter(_checked(options, schema, overwrite))


def stream_writer(options: Mapping[str, str], schema: Any, overwrite: bool) -> DataSourceStreamArrowWriter:
    """For the data source's `streamWriter`. `overwrite` is what Spark calls output mode complete: the whole
    result is written with each micro-batch, behind what is there, as Spark's Kafka sink does."""
    return _StreamWriter(_checked(options, schema, overwrite=False))


@dataclass
class _Written(WriterCommitMessage):
    record_count: int


class _BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return _Written(write_plainly(iterator, self._options))


class _StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return _Written(write_plainly(iterator, self._options))


def _checked(options: Mapping[str, str], schema: Any, overwrite: bool) -> SinkOptions:
    if overwrite:
        raise InvalidOption("A topic cannot be overwritten: write with mode('append').")
    parsed = sink_options(options)
    sink_columns([(field.name, field.dataType.simpleString()) for field in schema.fields], parsed.topic)
    return parsed


def _refuse_speculation(spark: Any) -> None:
    if spark.sparkContext.getConf().get("spark.speculation", "false").lower() == "true":
        raise InvalidOption(
            "spark.speculation is true: Spark would run writing tasks twice, and each time the whole "
            "micro-batch would have to be done again. Set spark.speculation=false to write exactly once."
        )
