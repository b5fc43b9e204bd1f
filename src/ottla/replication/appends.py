"""The records of a Produce request, appended at once or when everything they wait for is there.

With one replica and nothing to wait for, the append is synchronous and finished when `append` returns, so
that the request's buffer can be reused at once.

Records that have to be compressed anew, or of which too many have to be looked at, wait until that was done
elsewhere, see `preparation`; so do all that come for the same partition meanwhile. With acks=0 only the
broker's log tells of an error then.

The first records of a transaction on a partition wait for its coordinator, see `transactional_writes`; later
ones of the same producer wait behind them.

With acks=all the answer waits until all replicas in sync have the records, see `commits`: no longer than the
producer says.

Acknowledged means written, not synced, as in Apache Kafka. Where flush.messages asks for a sync after so many
records, the answer waits for it; requests that wait at the same time share one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeAlias

from ottla.config import BrokerConfig
from ottla.log.examination import TakesLong
from ottla.log.log import PartitionLog
from ottla.log.pending_verification import ONGOING, Verification
from ottla.log.types import AppendResult
from ottla.replication.commits import Commits
from ottla.replication.manager import HostedTopic, ReplicaManager
from ottla.replication.partition import ACKS_ALL, Partition
from ottla.replication.transactional_writes import AskCoordinator, Refusal, TransactionalWrite, continues
from ottla.replication.turns import Turn
from ottla.runtime import Runtime
from ottla.runtime.tasks import TaskScope
from ottla.wire import produce as codec
from ottla.wire.errors import (
    CorruptMessage,
    ErrorCode,
    InvalidProducerIdMapping,
    KafkaError,
    NotLeaderOrFollower,
    RecordListTooLarge,
    RecordTooLarge,
    RefusedRecords,
    StorageError,
    UnknownTopicOrPartition,
)
from ottla.wire.produce import PartitionResult, ProduceRequest, TopicData, appended

log = logging.getLogger(__name__)

_UNKNOWN_TOPIC_ID = ErrorCode.unknown_topic_id.value
_UNKNOWN_TOPIC_OR_PARTITION = ErrorCode.unknown_topic_or_partition.value
_STORAGE_ERROR = ErrorCode.kafka_storage_error.value

# As in Apache Kafka: with these errors an answer does not say where the log begins.
_WITHOUT_START_OFFSET = (
    CorruptMessage,
    NotLeaderOrFollower,
    RecordListTooLarge,
    RecordTooLarge,
    StorageError,
    UnknownTopicOrPartition,
)
# Of records that have to be looked at or compressed anew: as much of one request as the event loop may do.
QUICK_REQUEST_BYTES_MAX = 128 * 1024

Results: TypeAlias = list[tuple[bytes, list[PartitionResult]]]


class PendingAppend:
    """A request that is answered later."""

    __slots__ = ("_error", "_is_done", "_then", "results")

    def __init__(self, results: Results) -> None:
        self.results = results
        """Whole once it is done."""
        self._is_done = False
        self._error: Exception | None = None
        self._then: Callable[[Exception | None], None] | None = None

    def when_done(self, then: Callable[[Exception | None], None]) -> None:
        """With an exception there are no results: the broker has failed, not a partition."""
        if self._is_done:
            then(self._error)
        else:
            self._then = then

    def finish(self, error: Exception | None = None) -> None:
        self._is_done = True
        self._error = error
        if self._then is not None:
            self._then(error)


class _Waiting(NamedTuple):
    """Records that are appended later, and where their result belongs."""

    rows: list[PartitionResult]
    at: int
    partition: Partition
    records: memoryview
    verdict: Verification | None
    walk: bool
    turn: Turn


class _Uncommitted(NamedTuple):
    """Records that other replicas have to have first, and where their result belongs."""

    rows: list[PartitionResult]
    at: int
    commits: Commits
    end_offset: int


class _Unsynced(NamedTuple):
    """A log that has to be synced first, and which result depends on it."""

    rows: list[PartitionResult]
    at: int
    log: PartitionLog


class Appends:
    def __init__(
        self,
        runtime: Runtime,
        config: BrokerConfig,
        replicas: ReplicaManager,
        ask_coordinator: AskCoordinator,
        tasks: TaskScope,
    ) -> None:
        self.config = config
        self._runtime = runtime
        self._replicas = replicas
        self._ask_coordinator = ask_coordinator
        self._tasks = tasks
        self.failures: Counter[tuple[str, int]] = Counter()
        """Refusals of records, by topic (empty where that is not known) and error code."""

    def append(  # noqa: PLR0912 - a call per branch would cost what this path may not
        self,
        version: int,
        acks: int,
        timeout_ms: int,
        topics: list[TopicData],
        walk: bool,
        transaction: TransactionalWrite | None = None,
        verdict: Verification | Refusal | None = None,
    ) -> Results | PendingAppend:
        """`transaction` has a verdict on each partition; without, `verdict` is on all of them.

        With `walk` every record is looked at, whatever its topic asks for.
        """
        replicas = self._replicas
        preparations = replicas.preparations
        quick_bytes = QUICK_REQUEST_BYTES_MAX
        by_id = version >= codec.FIRST_WITH_TOPIC_IDS
        lookup = replicas.by_id if by_id else replicas.by_name
        results: Results = []
        to_flush: list[_Unsynced] = []
        waiting: list[_Waiting] = []
        uncommitted: list[_Uncommitted] = []
        for topic, data in topics:
            partitions = lookup.get(topic)
            rows: list[PartitionResult] = []
            for index, records in data:
                partition = partitions.get(index) if partitions is not None else None
                if acks not in (-1, 0, 1):
                    row = self._failed(PartitionResult(index, ErrorCode.invalid_required_acks.value))
                elif partition is None:
                    row = self._failed(_missing(partitions, index, by_id=by_id))
                elif partition.is_internal:
                    row = self._failed(PartitionResult(index, ErrorCode.invalid_topic_exception.value))
                else:
                    if transaction is not None:
                        verdict = transaction.of(partition)
                    try:
                        if verdict is not None and isinstance(verdict, Refusal):
                            row = self._failed(
                                PartitionResult(index, verdict.code.value, error_message=verdict.message),
                                partition,
                            )
                        elif (preparations.queues and partition.topic_partition in preparations.queues) or (
                            (walk or partition.log.prepares)
                            and (quick_bytes := quick_bytes - len(records)) < 0
                        ):
                            waiting.append(self._wait(rows, partition, records, verdict, walk))
                            row = PartitionResult(index)
                        else:
                            try:
                                result = partition.append(records, acks, verdict, False, walk)
                            except TakesLong:
                                waiting.append(self._wait(rows, partition, records, verdict, walk))
                                row = PartitionResult(index)
                            else:
                                if partition.log.reached_flush_messages:
                                    to_flush.append(_Unsynced(rows, len(rows), partition.log))
                                if acks == ACKS_ALL and partition.leadership is not None:
                                    _note(uncommitted, rows, len(rows), partition, result)
                                base_offset, _, append_time_ms, start_offset, _ = result
                                row = appended(index, base_offset, append_time_ms, start_offset)
                    except (KafkaError, OSError) as error:
                        row = self._failed(_refused(partition, error), partition)
                rows.append(row)
            results.append((topic, rows))
        if waiting or (to_flush and acks):
            return self._finish_later(acks, timeout_ms, results, waiting, to_flush, uncommitted)
        if uncommitted:
            pending = PendingAppend(results)
            _CommitWait(pending, uncommitted, timeout_ms, self.failures)
            return pending
        return results

    def _failed(self, row: PartitionResult, partition: Partition | None = None) -> PartitionResult:
        topic = "" if partition is None else partition.topic_partition.topic
        self.failures[topic, row.error_code] += 1
        return row

    def append_transactional(
        self, version: int, request: ProduceRequest, walk: bool
    ) -> Results | PendingAppend:
        _, acks, timeout_ms, topics = request
        replicas = self._replicas
        if continues(replicas, version, request):
            return self.append(version, acks, timeout_ms, topics, walk, verdict=ONGOING)
        try:
            transaction = TransactionalWrite(
                replicas, self._runtime.clock, self.config, self._ask_coordinator, version, request
            )
        except InvalidProducerIdMapping as error:
            refused = PartitionResult(-1, error.code.value, error_message=error.message)
            return [
                (topic, [refused._replace(partition=index) for index, _ in data]) for topic, data in topics
            ]
        turns = replicas.turns
        if turns.is_waiting(transaction.producer_id) or transaction.begin():
            turn = turns.join(transaction.producer_id)
            if turn is not None:
                return self._append_later(version, request, transaction, walk, turn)
            # Noted although refused: a later batch must not be the first of its partition.
            transaction.begin()
            message = "too many requests of this producer wait for the coordinator of its transactions; retry"
            transaction.refuse_all(ErrorCode.not_enough_replicas, message)
        return self.append(version, acks, timeout_ms, topics, walk, transaction)

    def _append_later(
        self,
        version: int,
        request: ProduceRequest,
        transaction: TransactionalWrite,
        walk: bool,
        turn: Turn,
    ) -> PendingAppend:
        """Once the coordinator has answered, and the request before this one is done."""
        # The buffer of the request is about to be reused.
        kept = [
            TopicData(topic, [(index, memoryview(bytes(records))) for index, records in data])
            for topic, data in request.topics
        ]
        pending = PendingAppend([])

        async def append() -> None:
            async with turn:
                try:
                    await transaction.settle()
                    outcome = self.append(version, request.acks, request.timeout_ms, kept, walk, transaction)
                except Exception as error:
                    pending.finish(error)
                    return
            if isinstance(outcome, PendingAppend):
                pending.results = outcome.results
                outcome.when_done(pending.finish)
            else:
                pending.results = outcome
                pending.finish()

        self._tasks.spawn(append(), "produce-transactional")
        return pending

    def _wait(
        self,
        rows: list[PartitionResult],
        partition: Partition,
        records: memoryview,
        verdict: Verification | None,
        walk: bool,
    ) -> _Waiting:
        turn = self._replicas.preparations.join(partition, records)
        # The buffer of the request is about to be reused.
        return _Waiting(rows, len(rows), partition, memoryview(bytes(records)), verdict, walk, turn)

    def _finish_later(
        self,
        acks: int,
        timeout_ms: int,
        results: Results,
        waiting: list[_Waiting],
        to_flush: list[_Unsynced],
        uncommitted: list[_Uncommitted],
    ) -> PendingAppend:
        pending = PendingAppend(results)

        async def finish() -> None:
            await asyncio.gather(
                *(self._append_waiting(acks, each, to_flush, uncommitted) for each in waiting)
            )
            for rows, at, partition_log in to_flush:
                try:
                    await partition_log.flush()
                except KafkaError as error:
                    rows[at] = PartitionResult(
                        rows[at].partition, error.code.value, error_message=error.message
                    )
            if uncommitted:
                _CommitWait(pending, uncommitted, timeout_ms, self.failures)
            else:
                pending.finish()

        self._tasks.spawn(finish(), "produce-finish")
        return pending

    async def _append_waiting(
        self, acks: int, each: _Waiting, to_flush: list[_Unsynced], uncommitted: list[_Uncommitted]
    ) -> None:
        rows, at, partition, records, verdict, walk, turn = each
        try:
            result = await self._replicas.preparations.append(
                self._runtime, turn, partition, records, acks, verdict, walk=walk
            )
            if partition.log.reached_flush_messages:
                to_flush.append(_Unsynced(rows, at, partition.log))
            if acks == ACKS_ALL and partition.leadership is not None:
                _note(uncommitted, rows, at, partition, result)
            rows[at] = appended(
                rows[at].partition, result.base_offset, result.log_append_time_ms, result.start_offset
            )
        except (KafkaError, OSError) as error:
            rows[at] = self._failed(_refused(partition, error), partition)
            if acks == 0:
                log.warning(
                    "records of a producer with acks=0, which cannot be told, were refused: %s", error
                )


class _CommitWait:
    """A request until all its records are committed, or its time is up. No task waits for it."""

    __slots__ = ("_failures", "_left", "_pending", "_timer", "_uncommitted", "_waiters")

    def __init__(
        self,
        pending: PendingAppend,
        uncommitted: list[_Uncommitted],
        timeout_ms: int,
        failures: Counter[tuple[str, int]],
    ) -> None:
        self._pending = pending
        self._failures = failures
        self._uncommitted = uncommitted
        self._left = len(uncommitted)
        self._timer = asyncio.get_running_loop().call_later(max(timeout_ms, 0) / 1000, self._expire)
        self._waiters = [
            commits.wait(end_offset, partial(self._committed, which))
            for which, (_, _, commits, end_offset) in enumerate(uncommitted)
        ]

    def _committed(self, which: int, error: KafkaError | None) -> None:
        if error is not None:
            self._set_error(which, error.code, error.message)
        self._left -= 1
        if not self._left:
            self._timer.cancel()
            self._pending.finish()

    def _expire(self) -> None:
        for which, waiter in enumerate(self._waiters):
            if waiter.then is not None:
                waiter.cancel()
                self._set_error(
                    which, ErrorCode.request_timed_out, "not all replicas in sync have the records in time"
                )
        self._pending.finish()

    def _set_error(self, which: int, code: ErrorCode, message: str) -> None:
        rows, at, _, _ = self._uncommitted[which]
        # Unless the records could not even be synced here.
        if not rows[at].error_code:
            rows[at] = rows[at]._replace(error_code=code.value, error_message=message)
            self._failures["", code.value] += 1


def _note(
    uncommitted: list[_Uncommitted],
    rows: list[PartitionResult],
    at: int,
    partition: Partition,
    result: AppendResult,
) -> None:
    leading = partition.leadership
    if leading is not None and result.last_offset >= partition.high_watermark:
        uncommitted.append(_Uncommitted(rows, at, leading.commits, result.last_offset + 1))


def _missing(partitions: HostedTopic | None, index: int, *, by_id: bool) -> PartitionResult:
    if partitions is None:
        return PartitionResult(index, _UNKNOWN_TOPIC_ID if by_id else _UNKNOWN_TOPIC_OR_PARTITION)
    error = partitions.why_missing(index)
    return PartitionResult(index, error.code.value, error_message=error.message)


def _refused(partition: Partition, error: KafkaError | OSError) -> PartitionResult:
    topic, index = partition.topic_partition
    if isinstance(error, KafkaError):
        return PartitionResult(
            index,
            error.code.value,
            log_start_offset=-1 if isinstance(error, _WITHOUT_START_OFFSET) else partition.log_start_offset,
            error_message=error.message,
            record_errors=error.record_errors if isinstance(error, RefusedRecords) else (),
        )
    log.error("cannot append to %s-%d: %s; free or repair the disk", topic, index, error)
    return PartitionResult(index, _STORAGE_ERROR, error_message=str(error))
