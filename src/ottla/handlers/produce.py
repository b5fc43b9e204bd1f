"""Produce (versions 3–13): append each partition's records, answer with the offsets they got.

The append itself is synchronous and finished when this returns, so the request's buffer can be reused at
once. One replica means that what is appended is committed: acks=1 and acks=all are answered alike. acks=0
has no answer; an error then closes the connection, which is how such a producer learns of it.

Acknowledged means written, not synced, as in Apache Kafka. Where flush.messages asks for a sync after so many
records, the answer waits for it; requests that wait at the same time share one.
"""

from __future__ import annotations

import logging

from ottla.handlers.context import Broker
from ottla.handlers.registry import handles
from ottla.handlers.reply import PendingReply
from ottla.log.log import PartitionLog
from ottla.runtime.disk import ReadableBuffer
from ottla.wire import produce as codec
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.frame import MalformedFrame
from ottla.wire.produce import PartitionResult

log = logging.getLogger(__name__)

_UNKNOWN_TOPIC_OR_PARTITION = ErrorCode.unknown_topic_or_partition.value
_UNKNOWN_TOPIC_ID = ErrorCode.unknown_topic_id.value
_STORAGE_ERROR = ErrorCode.kafka_storage_error.value


@handles(ApiKey.PRODUCE)
def produce(
    broker: Broker, version: int, frame: memoryview, at: int
) -> list[ReadableBuffer] | PendingReply | None:
    _, acks, _, topics = codec.parse(frame, at, version)
    by_id = version >= codec.FIRST_WITH_TOPIC_IDS
    lookup = broker.replicas.by_id if by_id else broker.replicas.by_name
    results = []
    to_flush: list[PartitionLog] = []
    failed: PartitionResult | None = None
    for topic, data in topics:
        partitions = lookup.get(topic)
        rows = []
        for index, records in data:
            partition = partitions.get(index) if partitions is not None else None
            if acks not in (-1, 0, 1):
                row = PartitionResult(index, ErrorCode.invalid_required_acks.value)
            elif partition is None:
                unknown = _UNKNOWN_TOPIC_ID if by_id and partitions is None else _UNKNOWN_TOPIC_OR_PARTITION
                row = PartitionResult(index, unknown)
            elif partition.is_internal:
                row = PartitionResult(index, ErrorCode.invalid_topic_exception.value)
            else:
                try:
                    result = partition.append(records, acks)
                    if partition.log.reached_flush_messages:
                        to_flush.append(partition.log)
                    row = PartitionResult(
                        index, 0, result.base_offset, result.log_append_time_ms, result.start_offset
                    )
                except KafkaError as error:
                    row = PartitionResult(index, error.code.value, error_message=error.message)
                except OSError as error:
                    topic_name = partition.topic_partition.topic
                    log.error("cannot append to %s-%d: %s; free or repair the disk", topic_name, index, error)
                    row = PartitionResult(index, _STORAGE_ERROR, error_message=str(error))
            if row.error_code:
                failed = row
            rows.append(row)
        results.append((topic, rows))
    if acks == 0:
        if failed is not None:
            raise MalformedFrame(f"a producer with acks=0 cannot be told of error {failed.error_code}")
        return None
    body: list[ReadableBuffer] = [codec.encode(version, results)]
    return _after_flush(broker, to_flush, body) if to_flush else body


def _after_flush(broker: Broker, logs: list[PartitionLog], body: list[ReadableBuffer]) -> PendingReply:
    async def flush() -> None:
        for partition_log in logs:
            await partition_log.flush()
        reply.complete(body)

    # Only the waiting can be cancelled. A sync that fails ends the node: the kernel may have dropped data.
    reply = PendingReply(on_cancel=lambda: None)
    broker.tasks.spawn(flush(), "produce-flush")
    return reply
