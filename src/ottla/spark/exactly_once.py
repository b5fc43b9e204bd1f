"""Micro-batches into topics, each exactly once: one transaction holds its records and its source offsets.

    begin ─ is the batch in? ─ encode │ shuffle │ write ─ commit(records + offsets + batch id)

- Encoding and the shuffle are part of the query, so that Spark hands the writer a few record batches, not all
  rows once more.
- `begin` gives the transaction an epoch of its own. A driver or a task from before, dead or only thought
  so, has an older one and is refused from here on.
- The group named after the application has, with each offset, the number of the micro-batch that it belongs
  to. It changes with the records or not at all, so after a crash it says whether the batch is in.
- A task that had to be started twice spoils the transaction (see `TransactionalWriteTask`). The second
  attempt refuses where it can see that it is one. Where Spark runs a whole stage again, a task cannot see
  it; then the record of the stage shows it, and without proof of a single attempt nothing is committed.
"""

from __future__ import annotations

import json
import logging
import re
from dataclasses import dataclass
from typing import Any, Final

from ottla.client.transaction import CommittedOffset, ProducerIdentity, Transactions
from ottla.spark.checkpoint import Checkpoint
from ottla.spark.connection import shared_connection
from ottla.spark.sink_options import SinkOptions
from ottla.spark.sink_rows import sink_columns
from ottla.spark.task_writing import BATCH_TYPES, WRITTEN_TYPES, EncodeTask, TransactionalWriteTask

ATTEMPTS_MAX: Final = 4
CAUSE_CHARACTERS_MAX: Final = 1000
_STATUS_TIMEOUT_MS: Final = 10_000
# How Spark words failures that are not the fault of the data or the program.
_PASSING: Final = re.compile(
    r"WriterRepeated|exited unexpectedly|crashed|ExecutorLostFailure|FetchFailed|ExecutorDeadException"
    r"|heartbeat timed out|Worker lost|Connection reset by peer|EOFException"
)

_log = logging.getLogger(__name__)


class BatchFailed(Exception):
    """A micro-batch could not be written: nothing of it is visible, the next start does it again."""


class SeveralAttempts(Exception):
    """Spark cannot show that each writing task ran once."""


@dataclass(frozen=True, slots=True)
class _Written:
    targets: list[tuple[str, int]]
    record_count: int


def encoded_batches(rows: Any, options: SinkOptions, partitions: int | None) -> Any:
    """The rows of a data frame as record batches, those of a partition together, for `MicroBatchWriter`.

    `partitions` are those of the topic, if all rows go to one.
    """
    cores = max(1, int(rows.sparkSession.sparkContext.defaultParallelism))
    writer_count = cores if partitions is None else min(cores, partitions)
    # Null or empty means none, but on its way to Python Spark walks over all nulls again for each of them.
    columns = [
        "coalesce(headers, array()) AS headers" if name == "headers" else name
        for name in sink_columns(rows.dtypes, options.topic)
    ]
    batches = rows.selectExpr(*columns).mapInArrow(EncodeTask(options, writer_count), BATCH_TYPES)
    return batches.repartitionById(writer_count, "writer")


class MicroBatchWriter:
    """For `foreachBatch`, on what `encoded_batches` gives. Lives in the driver."""

    def __init__(self, options: SinkOptions, application_id: str, checkpoint: Checkpoint) -> None:
        self._options = options
        self._application_id = application_id
        self._checkpoint = checkpoint
        self._connection = shared_connection(options.bootstrap_servers, options.client_properties)
        self._transactions = Transactions(
            self._connection.cluster, application_id, timeout_ms=options.transaction_timeout_ms
        )
        self._query_id: str | None = None

    def __call__(self, batches: Any, batch_id: int) -> None:
        try:
            self._write_once(batches, batch_id)
        except Exception as error:
            _log.debug("%s: batch %d", self._application_id, batch_id, exc_info=error)
            # Short, because Spark takes the text apart in a way that a long one overflows its stack.
            raise BatchFailed(f"batch {batch_id} was not written: {_cause(error)}") from None

    def _write_once(self, batches: Any, batch_id: int) -> None:
        for attempt in range(1, ATTEMPTS_MAX + 1):
            producer = self._connection.run(self._transactions.begin())
            if self._is_in(batch_id):
                _log.info("%s: batch %d is in already", self._application_id, batch_id)
                # Computed all the same: state that Spark keeps has to be that of after the batch.
                batches.write.format("noop").mode("overwrite").save()
                return
            try:
                written = self._write(batches, producer)
            except Exception as error:
                self._abort()
                if attempt == ATTEMPTS_MAX or not _passes(error):
                    raise
                _log.warning("%s: batch %d is done again: %s", self._application_id, batch_id, _cause(error))
            else:
                self._connection.run(self._commit(batch_id, written))
                return

    def _abort(self) -> None:
        try:
            self._connection.run(self._transactions.abort())
        except Exception as error:
            # What made the batch fail matters more, and whoever begins next aborts what is open.
            _log.warning("%s: the transaction is left open: %s", self._application_id, _cause(error))

    def _is_in(self, batch_id: int) -> bool:
        if self._query_id is None:
            self._query_id = self._checkpoint.query_id()
        committed = self._connection.run(self._transactions.committed_offsets(self._application_id))
        marks = (_read_mark(offset.metadata) for offset in committed.values())
        return any(query == self._query_id and batch >= batch_id for query, batch in marks)

    def _write(self, batches: Any, producer: ProducerIdentity) -> _Written:
        write = TransactionalWriteTask(self._options, self._application_id, producer)
        written = batches.mapInArrow(write, WRITTEN_TYPES).collect()
        for stage in sorted({row.stage for row in written}):
            _require_single_attempt(batches.sparkSession, stage)
        targets = sorted((row.topic, row.partition) for row in written)
        return _Written(targets, sum(row.records for row in written))

    async def _commit(self, batch_id: int, written: _Written) -> None:
        mark = json.dumps({"query": self._query_id, "batch": batch_id})
        offsets = {
            place: CommittedOffset(offset, mark)
            for place, offset in self._checkpoint.source_offsets(batch_id).items()
        }
        if not offsets and (written.targets or self._options.topic is not None):
            # The source has no offsets that a group could hold, so the mark stands with where rows go to.
            place = written.targets[0] if written.targets else (str(self._options.topic), 0)
            offsets[place] = CommittedOffset(batch_id, mark)
        await self._transactions.commit(self._application_id, offsets)


def _read_mark(metadata: str) -> tuple[str | None, int]:
    try:
        mark = json.loads(metadata)
        return str(mark["query"]), int(mark["batch"])
    except (ValueError, KeyError, TypeError):
        return None, -1


def _require_single_attempt(spark: Any, stage_id: int) -> None:
    """Raises SeveralAttempts unless Spark's record of the stage shows one attempt and no failed task."""
    context = spark._jsc.sc()
    try:
        context.listenerBus().waitUntilEmpty(_STATUS_TIMEOUT_MS)
        stage = context.statusStore().lastStageAttempt(stage_id)
    except Exception as error:
        raise SeveralAttempts(f"stage {stage_id}: its record cannot be read: {error}") from error
    is_clean = stage.numCompleteTasks() == stage.numTasks() and not (
        stage.attemptId() or stage.numFailedTasks() or stage.numKilledTasks()
    )
    if not is_clean:
        raise SeveralAttempts(
            f"stage {stage_id}: attempt {stage.attemptId()}, {stage.numCompleteTasks()} of "
            f"{stage.numTasks()} tasks done, {stage.numFailedTasks()} failed"
        )


def _passes(error: Exception) -> bool:
    """Whether another attempt can be expected to go through."""
    return isinstance(error, SeveralAttempts) or bool(_PASSING.search(str(error)))


def _cause(error: Exception) -> str:
    """What went wrong in one line: of an error in a task, what the Python there raised."""
    lines = str(error).splitlines() or [type(error).__name__]
    traces = [at for at, line in enumerate(lines) if "Traceback (most recent call last)" in line]
    raised = (
        (line for line in lines[traces[-1] + 1 :] if line and not line[0].isspace())
        if traces
        else iter(lines)
    )
    return next(raised, lines[0])[:CAUSE_CHARACTERS_MAX]
