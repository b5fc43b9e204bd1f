"""ListOffsets, versions 1 to 11: the offset at a position in time.

Positions: -2 earliest, -1 latest (high watermark, or last stable offset for read_committed), -3 the record
with the largest timestamp, -4 earliest on local disk (= earliest: there is no tiered storage), -5 latest in
tiered storage and -6 earliest not yet uploaded (-1 without tiered storage), and else the first record with at
least that timestamp. A position nothing matches gives offset -1. A partition named twice is refused.

A leader that was just elected may not know yet how far its predecessor had committed: until its high
watermark has reached where its epoch began, consumers are told to ask again (KIP-207), or they would see the
end of the log go back.

v2 isolation level, throttle time · v4 leader epochs · v5 OFFSET_NOT_AVAILABLE · v6 flexible · v7 position -3
v8 -4 · v9 -5 · v10 time-out for tiered storage (ignored) · v11 -6
"""

from __future__ import annotations

from collections import Counter
from enum import IntEnum

from kio.schema.list_offsets.v11.request import ListOffsetsPartition, ListOffsetsRequest
from kio.schema.list_offsets.v11.response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kio.static.primitive import i32, i64

from ottla.handlers.authorized import may
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.registry import handles
from ottla.log.types import TimestampOffset
from ottla.replication.partition import Partition
from ottla.runtime.turns import in_turns
from ottla.wire.acls import AclResource, Operation
from ottla.wire.api import ApiKey
from ottla.wire.errors import (
    ErrorCode,
    InvalidRequest,
    KafkaError,
    LeaderNotAvailable,
    OffsetNotAvailable,
    UnsupportedVersion,
)


class Position(IntEnum):
    """Timestamps with a meaning of their own."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


FIRST_VERSION: dict[int, int] = {
    Position.LATEST: 1,
    Position.EARLIEST: 1,
    Position.MAX_TIMESTAMP: 7,
    Position.EARLIEST_LOCAL: 8,
    Position.LATEST_TIERED: 9,
    Position.EARLIEST_PENDING_UPLOAD: 11,
}
NEVER = 1 << 15
TIERED: set[int] = {Position.LATEST_TIERED, Position.EARLIEST_PENDING_UPLOAD}
FIRST_WITH_OFFSET_NOT_AVAILABLE = 5

CONSUMER = -1
DEBUGGING = -2
"""Tools that compare replicas ask each of them."""
READ_COMMITTED = 1
NOWHERE = TimestampOffset(-1, -1, -1)


@handles(ApiKey.LIST_OFFSETS)
async def list_offsets(
    broker: Broker, context: RequestContext, request: ListOffsetsRequest
) -> ListOffsetsResponse:
    times_named: Counter[tuple[str, int]] = Counter(
        (topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions
    )

    async def answer(topic: str, asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        try:
            if times_named[topic, asked.partition_index] > 1:
                raise InvalidRequest(f"Partition {topic}-{asked.partition_index} is named twice")
            if asked.timestamp < 0 and context.version < FIRST_VERSION.get(asked.timestamp, NEVER):
                raise UnsupportedVersion(f"Position {asked.timestamp} needs a newer ListOffsets version")
            partition = _partition(broker, request, topic, asked)
            may_be_behind = request.replica_id == CONSUMER and partition.may_be_behind
            if may_be_behind and int(asked.timestamp) == Position.LATEST:
                raise _behind(partition, context.version)
            found = await _find(broker, partition, asked.timestamp, _readable_end(partition, request))
            if may_be_behind and found is NOWHERE and int(asked.timestamp) not in TIERED:
                raise _behind(partition, context.version)
        except KafkaError as error:
            return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=error.code)
        return ListOffsetsPartitionResponse(
            partition_index=asked.partition_index,
            error_code=ErrorCode.none,
            timestamp=i64(found.timestamp_ms),
            offset=i64(found.offset),
            leader_epoch=i32(found.leader_epoch),
        )

    topics = []
    async for topic in in_turns(request.topics):
        if may(context, Operation.DESCRIBE, AclResource.TOPIC, topic.name):
            rows = [await answer(topic.name, asked) async for asked in in_turns(topic.partitions)]
        else:
            rows = [
                ListOffsetsPartitionResponse(
                    partition_index=asked.partition_index, error_code=ErrorCode.topic_authorization_failed
                )
                async for asked in in_turns(topic.partitions)
            ]
        topics.append((topic.name, rows))
    return ListOffsetsResponse(
        throttle_time=context.session.throttle_time,
        topics=tuple(
            ListOffsetsTopicResponse(name=name, partitions=tuple(partitions)) for name, partitions in topics
        ),
    )


def _partition(
    broker: Broker, request: ListOffsetsRequest, topic: str, asked: ListOffsetsPartition
) -> Partition:
    if request.replica_id != DEBUGGING:
        return broker.replicas.leading(topic, asked.partition_index, asked.current_leader_epoch)
    found = broker.replicas.partition(topic, asked.partition_index)
    found.check_leader_epoch(asked.current_leader_epoch)
    return found


def _readable_end(partition: Partition, request: ListOffsetsRequest) -> int:
    """Consumers see what is committed; replicas and debugging tools see everything."""
    if request.replica_id != CONSUMER:
        return partition.log.next_offset
    if request.isolation_level == READ_COMMITTED:
        return partition.last_stable_offset
    return partition.high_watermark


def _behind(partition: Partition, version: int) -> KafkaError:
    error = OffsetNotAvailable if version >= FIRST_WITH_OFFSET_NOT_AVAILABLE else LeaderNotAvailable
    return error(
        f"{partition.topic_partition}: how far the former leader had committed is not known yet; retry"
    )


async def _find(broker: Broker, partition: Partition, position: int, end: int) -> TimestampOffset:
    log = partition.log
    match position:
        case Position.LATEST:
            return TimestampOffset(-1, end, partition.leader_epoch)
        case Position.EARLIEST | Position.EARLIEST_LOCAL:
            return TimestampOffset(-1, log.start_offset, log.epoch_at(log.start_offset))
        case Position.MAX_TIMESTAMP:
            async with broker.replicas.look_ups:
                found = await log.max_timestamp_offset()
            return found if found is not None and found.offset < end else NOWHERE
        case _ if position in TIERED:
            return NOWHERE
        case _:
            async with broker.replicas.look_ups:
                return await log.offset_for_timestamp(position, end) or NOWHERE
