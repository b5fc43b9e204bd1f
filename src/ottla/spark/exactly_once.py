"""Micro-batches into topics, each exactly once: one transaction holds its records and its source offsets.

    on a cluster:    begin ─ is the batch in? ─ encode │ shuffle │ write ─ commit(records, offsets, batch id)
    on one machine:  begin ─ is the batch in? ─ encode │ spool ─ write ─ commit(records, offsets, batch id)

- `begin` gives the transaction an epoch of its own. A driver or a task from before, dead or only thought
  so, has an older one and is refused from here on. Clusters with version 2 of transactions give the next
  epoch with the commit. Then only the first micro-batch, and one after a failure, asks for an epoch and
  whether it is in: behind a commit of its own a writer knows that the next one is not.
- The group named after the application has, with each offset, the number of the micro-batch that it belongs
  to. It changes with the records or not at all, so after a crash it says whether the batch is in.
- A partition has a single writer. Where all tasks run on the driver's machine, the driver writes (`spool`).
- On a cluster tasks do. One that had to be started twice spoils the transaction (see
  `TransactionalWriteTask`). The second attempt refuses where it can see that it is one. Where Spark runs a
  whole stage again, a task cannot see it; then the record of the stage shows it, and without proof of a
  single attempt nothing is committed.
- Encoding is part of the query: Spark hands the writer a few record batches, not all rows once more.
"""

from __future__ import annotations

import json
import logging
import re
import time
from concurrent.futures import Future
from typing import Any, Final

from ottla.client.transaction import CommittedOffset, Transactions
from ottla.records.producer import ProducerIdentity
from ottla.spark.checkpoint import Checkpoint
from ottla.spark.connection import shared_connection
from ottla.spark.engine import stage_record
from ottla.spark.positions import Offsets
from ottla.spark.sink_options import SinkOptions
from ottla.spark.sink_rows import sink_columns
from ottla.spark.spool import SPOOLED_TYPES, Collected, Spool
from ottla.spark.task_writing import (
    BATCH_TYPES,
    WRITTEN_TYPES,
    BatchSender,
    EncodeTask,
    TransactionalWriteTask,
    Unencoded,
)

ATTEMPTS_MAX: Final = 4
CAUSE_CHARACTERS_MAX: Final = 1000
_STATUS_TIMEOUT_MS: Final = 10_000
# Records of a micro-batch whose results the driver encodes itself.
_SMALL_MAX: Final = 200
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


def encoded_batches(rows: Any, options: SinkOptions, partitions: int | None, spool: Spool | None) -> Any:
    """The data frame for `MicroBatchWriter`, of one for the sink or of `Unencoded`: record batches, or where
    they are in the spool, or rows that may be few.

    `partitions` are those of the topic, if all rows go to one.
    """
    is_made = isinstance(rows, Unencoded)
    encoded = rows.encoded if is_made else _chosen(rows, options).mapInArrow
    if spool is not None:
        return encoded(spool.encode, SPOOLED_TYPES) if is_made else _chosen(rows, options)
    session = rows.session if is_made else rows.sparkSession
    cores = max(1, int(session.sparkContext.defaultParallelism))
    writer_count = cores if partitions is None else min(cores, partitions)
    batches = encoded(EncodeTask(options, writer_count), BATCH_TYPES)
    return batches.repartitionById(writer_count, "writer")


def _chosen(rows: Any, options: SinkOptions) -> Any:
    # Null or empty means none, but on its way to Python Spark walks over all nulls again for each of them.
    columns = [
        "coalesce(headers, array()) AS headers" if name == "headers" else name
        for name in sink_columns(rows.dtypes, options.topic)
    ]
    return rows.selectExpr(*columns)


class MicroBatchWriter:
    """For `foreachBatch`, on what `encoded_batches` gives. Lives in the driver."""

    def __init__(
        self, options: SinkOptions, application_id: str, checkpoint: Checkpoint, spool: Spool | None
    ) -> None:
        self._options = options
        self._spool = spool
        self._application_id = application_id
        self._checkpoint = checkpoint
        self._connection = shared_connection(options.bootstrap_servers, options.client_properties)
        self._transactions = Transactions(
            self._connection.cluster, application_id, timeout_ms=options.transaction_timeout_ms
        )
        self._query_id: str | None = None
        self._cluster_id: str | None = None
        # Whether the next transaction has its epoch, and the last micro-batch is known to be in.
        self._has_begun = False

    def __call__(self, batches: Any, batch_id: int) -> None:
        try:
            self._write_once(batches, batch_id)
        except Exception as error:
            self._has_begun = False
            _log.debug("%s: batch %d", self._application_id, batch_id, exc_info=error)
            # Short, because Spark takes the text apart in a way that a long one overflows its stack.
            raise BatchFailed(f"batch {batch_id} was not written: {_cause(error)}") from None
        finally:
            if self._spool is not None:
                self._spool.clear()

    def _write_once(self, batches: Any, batch_id: int) -> None:
        for attempt in range(1, ATTEMPTS_MAX + 1):
            watch = Stopwatch()
            # Only the first transaction of this writer, and one after a failure, has to be asked for.
            is_known, self._has_begun = self._has_begun, False
            producer = (
                self._transactions.producer if is_known else self._connection.run(self._transactions.begin())
            )
            if not is_known and self._is_in(batch_id):
                _log.info("%s: batch %d is in already", self._application_id, batch_id)
                # Computed all the same: state that Spark keeps has to be that of after the batch.
                batches.write.format("noop").mode("overwrite").save()
                return
            offsets = self._connection.run(self._offsets_here(batch_id))
            # While Spark computes.
            announced = (
                self._connection.start(self._transactions.announce_offsets(self._application_id))
                if offsets
                else None
            )
            watch.lap("begin")
            try:
                targets = self._write(batches, producer, offsets, announced, batch_id, watch)
            except Exception as error:
                if announced is not None:
                    announced.cancel()
                self._abort()
                if attempt == ATTEMPTS_MAX or not _passes(error):
                    raise
                _log.warning("%s: batch %d is done again: %s", self._application_id, batch_id, _cause(error))
            else:
                self._connection.run(self._commit(batch_id, targets, has_offsets=bool(offsets)))
                watch.lap("commit")
                self._log_times(batch_id, watch)
                return

    def _abort(self) -> None:
        try:
            self._connection.run(self._transactions.abort())
        except Exception as error:
            # What made the batch fail matters more, and whoever begins next aborts what is open.
            _log.warning("%s: the transaction is left open: %s", self._application_id, _cause(error))

    def _is_in(self, batch_id: int) -> bool:
        own = self._own_id()
        committed = self._connection.run(self._transactions.committed_offsets(self._application_id))
        marks = (_read_mark(offset.metadata) for offset in committed.values())
        return any(query == own and batch >= batch_id for query, batch in marks)

    def _write(
        self,
        batches: Any,
        producer: ProducerIdentity,
        offsets: Offsets,
        announced: Future[None] | None,
        batch_id: int,
        watch: Stopwatch,
    ) -> list[tuple[str, int]]:
        """Records and offsets; the partitions that were written to."""
        if self._spool is not None:
            collected = self._spool.collect(batches, is_small=self._is_small(batch_id))
            watch.lap("job")
            sending = self._start_offsets(offsets, announced, batch_id)
            targets = self._send(collected, producer)
        else:
            write = TransactionalWriteTask(self._options, self._application_id, producer)
            written = batches.mapInArrow(write, WRITTEN_TYPES).collect()
            for stage in sorted({row.stage for row in written}):
                _require_single_attempt(batches.sparkSession, stage)
            targets = sorted((row.topic, row.partition) for row in written)
            watch.lap("job")
            sending = self._start_offsets(offsets, announced, batch_id)
        if sending is not None:
            sending.result()
        watch.lap("produce")
        return targets

    def _start_offsets(
        self, offsets: Offsets, announced: Future[None] | None, batch_id: int
    ) -> Future[None] | None:
        """Sends them beside the records. Not earlier: who asks for the group's offsets would have to wait for
        the end of the transaction."""
        if announced is None:
            return None
        announced.result()
        marked = {place: CommittedOffset(offset, self._mark(batch_id)) for place, offset in offsets.items()}
        return self._connection.start(self._transactions.send_offsets(self._application_id, marked))

    def _send(self, collected: Collected, producer: ProducerIdentity) -> list[tuple[str, int]]:
        with BatchSender(self._connection, producer, self._application_id) as sender:
            sender.announce(collected.targets)
            for target, record_count, data in collected.batches:
                sender.send(target, record_count, data)
        return collected.targets

    def _is_small(self, batch_id: int) -> bool:
        if self._spool is None or self._spool.is_query_encoded:
            return False
        taken = self._checkpoint.taken(batch_id)
        return taken is not None and taken <= _SMALL_MAX

    def _log_times(self, batch_id: int, watch: Stopwatch) -> None:
        _log.debug("%s: batch %d took %s", self._application_id, batch_id, watch.laps_ms)

    def _mark(self, batch_id: int) -> str:
        return json.dumps({"query": self._own_id(), "batch": batch_id})

    def _own_id(self) -> str:
        if self._query_id is None:
            self._query_id = self._checkpoint.query_id()
        return self._query_id

    async def _commit(self, batch_id: int, targets: list[tuple[str, int]], *, has_offsets: bool) -> None:
        if not has_offsets:
            if not targets and self._options.topic is None:
                # Nothing was written and there is nowhere to say so: for the brokers the transaction has not
                # begun, and they refuse to end it. Whoever runs the micro-batch again finds it empty again.
                self._has_begun = True
                return
            # The source has no offsets that a group here could hold: the mark stands with where rows go to.
            place = targets[0] if targets else (str(self._options.topic), 0)
            offsets = {place: CommittedOffset(batch_id, self._mark(batch_id))}
            self._has_begun = await self._transactions.commit(self._application_id, offsets)
            return
        self._has_begun = await self._transactions.end()

    async def _offsets_here(self, batch_id: int) -> Offsets:
        """Those of the sources that are topics of the cluster which is written to.

        A group cannot hold offsets of topics that its cluster does not have, and those of topics which only
        have the same name would say something wrong.
        """
        cluster = self._connection.cluster
        if self._cluster_id is None:
            self._cluster_id = (await cluster.cluster()).cluster_id
        here: Offsets = {}
        for source in self._checkpoint.source_offsets(batch_id):
            if source.cluster_id is None:
                topics = await cluster.topics({topic for topic, _ in source.offsets})
                for (topic, partition), offset in source.offsets.items():
                    if topic in topics and partition in topics[topic].partitions:
                        here[topic, partition] = offset
            elif source.cluster_id == self._cluster_id:
                here |= source.offsets
        return here


class Stopwatch:
    """How long the parts of a micro-batch took, in milliseconds."""

    def __init__(self) -> None:
        self.laps_ms: dict[str, float] = {}
        self._last_ns = time.monotonic_ns()

    def lap(self, name: str) -> None:
        now_ns = time.monotonic_ns()
        self.laps_ms[name] = round((now_ns - self._last_ns) / 1e6, 1)
        self._last_ns = now_ns


def _read_mark(metadata: str) -> tuple[str | None, int]:
    try:
        mark = json.loads(metadata)
        return str(mark["query"]), int(mark["batch"])
    except (ValueError, KeyError, TypeError):
        return None, -1


def _require_single_attempt(spark: Any, stage_id: int) -> None:
    """Raises SeveralAttempts unless Spark's record of the stage shows one attempt and no failed task."""
    try:
        stage = stage_record(spark, stage_id, _STATUS_TIMEOUT_MS)
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
