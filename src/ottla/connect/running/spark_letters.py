"""What becomes of rows that a sink on Spark cannot read: the end, or a place in the dead-letter topic."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from ottla.connect.connector_settings import DEAD_LETTER_TOPIC, base_settings
from ottla.connect.plugins import Kind
from ottla.connect.running.columns import UNREADABLE, refusing
from ottla.connect.running.environment import Worker
from ottla.connect.running.failures import CONTEXT_PREFIX, Stage
from ottla.connect.state.entries import TaskId

_CAUSE_CHARS_MAX: Final = 600
_UNREADABLE: Final = re.compile(r"UNREADABLE (\S+-\d+@\d+: [^\n]*?)(?: SQLSTATE|\n|$)")
_log = logging.getLogger(__name__)


class Letters:
    def __init__(self, worker: Worker, task: TaskId, given: Mapping[str, str]) -> None:
        self._worker = worker
        self._task = task
        self._given = given
        self.skipped = 0
        found = worker.plugins.find(given["connector.class"], Kind.SINK)
        self._values = base_settings(worker.plugins, found, is_sink=True).parse(given)

    @contextmanager
    def sorted_out(self, batch: Any, rows: Any) -> Iterator[Any]:
        """The rows that can be read; `batch` is what they were read from.

        Letters are at least once: a micro-batch that is run again writes them again.
        """
        if self._values["errors.tolerance"] != "all":
            yield refusing(rows)
            return
        # Twice over the same rows: the second time not from the topic.
        kept = rows.persist()
        try:
            count = kept.where(f"{UNREADABLE} IS NOT NULL").count()
            self.skipped += count
            if count:
                self._post(batch, kept.where(f"{UNREADABLE} IS NOT NULL"), count)
            yield kept.where(f"{UNREADABLE} IS NULL").drop(UNREADABLE)
        finally:
            kept.unpersist()

    def _post(self, batch: Any, unreadable: Any, count: int) -> None:
        from pyspark.sql import functions as F  # noqa: N812

        if self._values["errors.log.enable"]:
            _log.error("task %s skips %d records that cannot be read", self._task, count)
        topic = self._values[DEAD_LETTER_TOPIC]
        if not topic:
            return
        self._worker.ensure_topic(
            {
                "topic.creation.default.partitions": "1",
                "topic.creation.default.replication.factor": str(
                    self._values["errors.deadletterqueue.topic.replication.factor"]
                ),
            },
            topic,
        )
        place = ["topic", "partition", "offset"]
        letters = batch.join(F.broadcast(unreadable.select(*place, UNREADABLE)), place)
        headers = F.coalesce(F.col("headers"), F.array())
        if self._values["errors.deadletterqueue.context.headers.enable"]:
            told = {
                "topic": F.col("topic"),
                "partition": F.col("partition"),
                "offset": F.col("offset"),
                "connector.name": F.lit(self._task.connector),
                "task.id": F.lit(self._task.task),
                "stage": F.lit(Stage.VALUE_CONVERTER.value),
                "exception.message": F.col(UNREADABLE),
            }
            context = [
                F.struct(
                    F.lit(CONTEXT_PREFIX + name).alias("key"),
                    value.cast("string").cast("binary").alias("value"),
                )
                for name, value in told.items()
            ]
            headers = F.concat(headers, F.array(*context))
        writer = letters.select("key", "value", headers.alias("headers")).write.format("ottla")
        for name, value in self._worker.settings.client_of("producer", self._given).items():
            writer = writer.option(f"kafka.{name}", value)
        writer.option("topic", topic).mode("append").save()


def cause_of(error: BaseException) -> str:
    """What went wrong, without Java's traces around it."""
    text = str(error)
    if found := _UNREADABLE.search(text):
        return (
            f"{found[1]}. Put the record or the configuration right and restart the task, or set "
            "errors.tolerance=all to skip such records"
        )
    return f"{type(error).__name__}: {text.strip().splitlines()[0] if text.strip() else ''}"[
        :_CAUSE_CHARS_MAX
    ]
