"""Produce (versions 3–13): append each partition's records, answer with the offsets they got.

The append itself is synchronous and finished when this returns, so the request's buffer can be reused at
once. One replica means that what is appended is committed: acks=1 and acks=all are answered alike. acks=0
has no answer; an error then closes the connection, which is how such a producer learns of it.

Records that have to be compressed anew, or of which too many have to be looked at, wait until that was done
elsewhere, see `preparation`; so do all that come for the same partition meanwhile. With acks=0 only the
broker's log tells of an error then.

The first records of a transaction on a partition wait for its coordinator, see `verification`; later ones of
the same producer wait behind them.

Acknowledged means written, not synced, as in Apache Kafka. Where flush.messages asks for a sync after so many
records, the answer waits for it; requests that wait at the same time share one.
"""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple, TypeAlias

from ottla.handlers.context import Broker
from ottla.handlers.registry import handles
from ottla.handlers.reply import PendingReply
from ottla.handlers.verification import Refusal, TransactionalWrite, continues
from ottla.log.examination import TakesLong
from ottla.log.log import PartitionLog
from ottla.log.verification import ONGOING, Verification
from ottla.replication.manager import HostedTopic
from ottla.replication.partition import Partition
from ottla.replication.preparation import Preparations
from ottla.replication.turns import Turn
from ottla.runtime.disk import ReadableBuffer
from ottla.wire import produce as codec
from ottla.wire.api import ApiKey
from ottla.wire.errors import (
    CorruptMessage,
    ErrorCode,
    InvalidProducerIdMapping,
    KafkaError,
    RecordListTooLarge,
    RecordTooLarge,
    RefusedRecords,
    StorageError,
    UnknownTopicOrPartition,
)
from ottla.wire.frame import MalformedFrame
from ottla.wire.produce import PartitionResult, ProduceRequest, TopicData

log = logging.getLogger(__name__)

_UNKNOWN_TOPIC_OR_PARTITION = ErrorCode.unknown_topic_or_partition.value
_UNKNOWN_TOPIC_ID = ErrorCode.unknown_topic_id.value
_STORAGE_ERROR = ErrorCode.kafka_storage_error.value

# As in Apache Kafka: with these errors an answer does not say where the log begins.
_WITHOUT_START_OFFSET = (
    CorruptMessage,
    RecordListTooLarge,
    RecordTooLarge,
    StorageError,
    UnknownTopicOrPartition,
)
# Of records that have to be looked at or compressed anew: as much of one request as the event loop may do.
QUICK_REQUEST_BYTES_MAX = 128 * 1024

Results = list[tuple[bytes, list[PartitionResult]]]


class _Waiting(NamedTuple):
    """Records that are appended later, and where their result belongs."""

    rows: list[PartitionResult]
    at: int
    partition: Partition
    records: memoryview
    verdict: Verification | None
    walk: bool
    turn: Turn


class _Unsynced(NamedTuple):
    """A log that has to be synced first, and which result depends on it."""

    rows: list[PartitionResult]
    at: int
    log: PartitionLog


_Written: TypeAlias = tuple[Results, list[_Unsynced], list[_Waiting]]
"""What to answer; the logs to sync, and the records to append, before that. Plain for its cost."""


@handles(ApiKey.PRODUCE)
def produce(
    broker: Broker, version: int, frame: memoryview, at: int, listener: str = ""
) -> list[ReadableBuffer] | PendingReply | None:
    request = codec.parse(frame, at, version)
    transactional_id, acks, _, topics = request
    walk = listener in broker.config.walking_listeners
    if transactional_id is not None:
        return _produce_transactional(broker, version, request, walk)
    written = _write(broker, version, acks, topics, walk)
    if acks and not written[1] and not written[2]:
        return [codec.encode(version, written[0])]
    return _answer(broker, version, acks, written)


def _answer(
    broker: Broker, version: int, acks: int, written: _Written
) -> list[ReadableBuffer] | PendingReply | None:
    results, to_flush, waiting = written
    if acks == 0:
        if waiting:
            broker.tasks.spawn(_finish(broker, acks, written), "produce-unacknowledged")
        return None
    if to_flush or waiting:
        return _answer_later(broker, version, acks, written)
    return [codec.encode(version, results)]


def _write(
    broker: Broker,
    version: int,
    acks: int,
    topics: list[TopicData],
    walk: bool,
    transaction: TransactionalWrite | None = None,
    verdict: Verification | Refusal | None = None,
) -> _Written:
    """`transaction` has a verdict on each partition; without, `verdict` is on all of them.

    With `walk` every record is looked at, whatever its topic asks for.
    """
    preparations = broker.replicas.preparations
    quick_bytes = QUICK_REQUEST_BYTES_MAX
    by_id = version >= codec.FIRST_WITH_TOPIC_IDS
    lookup = broker.replicas.by_id if by_id else broker.replicas.by_name
    results: Results = []
    to_flush: list[_Unsynced] = []
    waiting: list[_Waiting] = []
    failed: PartitionResult | None = None
    for topic, data in topics:
        partitions = lookup.get(topic)
        rows: list[PartitionResult] = []
        for index, records in data:
            partition = partitions.get(index) if partitions is not None else None
            if acks not in (-1, 0, 1):
                row = PartitionResult(index, ErrorCode.invalid_required_acks.value)
            elif partition is None:
                row = _missing(partitions, index, by_id=by_id)
            elif partition.is_internal:
                row = PartitionResult(index, ErrorCode.invalid_topic_exception.value)
            else:
                if transaction is not None:
                    verdict = transaction.of(partition)
                try:
                    if verdict is not None and isinstance(verdict, Refusal):
                        row = PartitionResult(index, verdict.code.value, error_message=verdict.message)
                    elif (preparations.queues and partition.topic_partition in preparations.queues) or (
                        (walk or partition.log.prepares) and (quick_bytes := quick_bytes - len(records)) < 0
                    ):
                        waiting.append(_wait(preparations, rows, partition, records, verdict, walk))
                        row = PartitionResult(index)
                    else:
                        try:
                            result = partition.append(records, acks, verdict, walk=walk)
                        except TakesLong:
                            waiting.append(_wait(preparations, rows, partition, records, verdict, walk))
                            row = PartitionResult(index)
                        else:
                            if partition.log.reached_flush_messages:
                                to_flush.append(_Unsynced(rows, len(rows), partition.log))
                            row = PartitionResult(
                                index, 0, result.base_offset, result.log_append_time_ms, result.start_offset
                            )
                except (KafkaError, OSError) as error:
                    row = _refused(partition, error)
            if row.error_code:
                failed = row
            rows.append(row)
        results.append((topic, rows))
    written = results, to_flush, waiting
    if acks == 0 and failed is not None:
        _answer(broker, version, acks, written)
        raise MalformedFrame(f"a producer with acks=0 cannot be told of error {failed.error_code}")
    return written


def _wait(
    preparations: Preparations,
    rows: list[PartitionResult],
    partition: Partition,
    records: memoryview,
    verdict: Verification | None,
    walk: bool,
) -> _Waiting:
    turn = preparations.join(partition, records)
    # The buffer of the request is about to be reused.
    return _Waiting(rows, len(rows), partition, memoryview(bytes(records)), verdict, walk, turn)


def _missing(partitions: HostedTopic | None, index: int, *, by_id: bool) -> PartitionResult:
    if partitions is None:
        return PartitionResult(index, _UNKNOWN_TOPIC_ID if by_id else _UNKNOWN_TOPIC_OR_PARTITION)
    if (reason := partitions.offline.get(index)) is not None:
        return PartitionResult(index, _STORAGE_ERROR, error_message=f"the partition is offline: {reason}")
    return PartitionResult(index, _UNKNOWN_TOPIC_OR_PARTITION)


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


def _answer_later(broker: Broker, version: int, acks: int, written: _Written) -> PendingReply:
    async def finish() -> None:
        await _finish(broker, acks, written)
        reply.complete([codec.encode(version, written[0])])

    # Only the waiting can be cancelled.
    reply = PendingReply(on_cancel=lambda: None)
    broker.tasks.spawn(finish(), "produce-finish")
    return reply


async def _finish(broker: Broker, acks: int, written: _Written) -> None:
    """Append what waits, then sync what has to be."""
    _, to_flush, waiting = written
    await asyncio.gather(*(_append_waiting(broker, acks, each, to_flush) for each in waiting))
    for rows, at, partition_log in to_flush:
        try:
            await partition_log.flush()
        except KafkaError as error:
            rows[at] = PartitionResult(rows[at].partition, error.code.value, error_message=error.message)


async def _append_waiting(broker: Broker, acks: int, each: _Waiting, to_flush: list[_Unsynced]) -> None:
    rows, at, partition, records, verdict, walk, turn = each
    try:
        result = await broker.replicas.preparations.append(
            broker.runtime, turn, partition, records, acks, verdict, walk=walk
        )
        if partition.log.reached_flush_messages:
            to_flush.append(_Unsynced(rows, at, partition.log))
        rows[at] = PartitionResult(
            rows[at].partition, 0, result.base_offset, result.log_append_time_ms, result.start_offset
        )
    except (KafkaError, OSError) as error:
        rows[at] = _refused(partition, error)
        if acks == 0:
            log.warning("records of a producer with acks=0, which cannot be told, were refused: %s", error)


def _produce_transactional(
    broker: Broker, version: int, request: ProduceRequest, walk: bool
) -> list[ReadableBuffer] | PendingReply | None:
    if continues(broker, version, request):
        known = _write(broker, version, request.acks, request.topics, walk, verdict=ONGOING)
        return _answer(broker, version, request.acks, known)
    try:
        transaction = TransactionalWrite(broker, version, request)
    except InvalidProducerIdMapping as error:
        if request.acks == 0:
            raise MalformedFrame(error.message) from error
        refused = PartitionResult(-1, error.code.value, error_message=error.message)
        rows = [
            (topic, [refused._replace(partition=index) for index, _ in data])
            for topic, data in request.topics
        ]
        return [codec.encode(version, rows)]
    turns = broker.replicas.turns
    if turns.is_waiting(transaction.producer_id) or transaction.begin():
        turn = turns.join(transaction.producer_id)
        if turn is not None:
            return _write_later(broker, version, request, transaction, walk, turn)
        # Noted although refused: a later batch must not be the first of its partition.
        transaction.begin()
        message = "too many requests of this producer wait for the coordinator of its transactions; retry"
        transaction.refuse_all(ErrorCode.not_enough_replicas, message)
    written = _write(broker, version, request.acks, request.topics, walk, transaction)
    return _answer(broker, version, request.acks, written)


def _write_later(
    broker: Broker,
    version: int,
    request: ProduceRequest,
    transaction: TransactionalWrite,
    walk: bool,
    turn: Turn,
) -> PendingReply | None:
    """Once the coordinator has answered, and the request before this one is done."""
    # The buffer of the request is about to be reused.
    kept = [
        TopicData(topic, [(index, memoryview(bytes(records))) for index, records in data])
        for topic, data in request.topics
    ]
    reply = PendingReply(on_cancel=lambda: None)

    async def write() -> None:
        async with turn:
            try:
                await transaction.settle()
                written = _write(broker, version, request.acks, kept, walk, transaction)
            except Exception as error:
                reply.fail(error)
                return
        await _finish(broker, request.acks, written)
        reply.complete([codec.encode(version, written[0])])

    broker.tasks.spawn(write(), "produce-transactional")
    return reply if request.acks != 0 else None
