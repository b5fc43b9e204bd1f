"""WriteTxnMarkers, versions 1 and 2: a coordinator, or an operator with a hanging transaction, ends it here.

Markers for partitions of committed offsets go through the group coordinator, which then lets the offsets
count or drops them. While it is not ready the answer is NOT_LEADER_OR_FOLLOWER, which coordinators of
transactions retry.

v2 transaction version, which decides how the producer epoch of a marker is checked
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Iterator

from kio.schema.write_txn_markers.v2.request import WritableTxnMarker, WriteTxnMarkersRequest
from kio.schema.write_txn_markers.v2.response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)

from ottla.coordinator.host.committed import wait_committed
from ottla.handlers.authorized import may
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.registry import handles
from ottla.metadata.internal_topics import OFFSETS_TOPIC
from ottla.runtime.turns import in_turns
from ottla.wire.acls import AclResource, Operation
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError

_COORDINATOR_NOT_READY = {
    ErrorCode.coordinator_not_available,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.not_coordinator,
}


@handles(ApiKey.WRITE_TXN_MARKERS)
async def write_txn_markers(
    broker: Broker, context: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    # Operators end hanging transactions, brokers the others.
    if not may(context, Operation.ALTER, AclResource.CLUSTER, quietly=True) and not may(
        context, Operation.CLUSTER_ACTION, AclResource.CLUSTER
    ):
        return await _answer(request, itertools.repeat(ErrorCode.cluster_authorization_failed))
    # All are written before the first is waited for: replicas take them together.
    written = [
        _write(broker, marker, topic.name, index)
        async for marker in in_turns(request.markers)
        async for topic in in_turns(marker.topics)
        async for index in in_turns(topic.partition_indexes)
    ]
    return await _answer(request, iter([await _code(each) for each in written]))


async def _answer(request: WriteTxnMarkersRequest, codes: Iterator[ErrorCode]) -> WriteTxnMarkersResponse:
    """With a code for each partition, in the order of the request."""
    results = []
    async for marker in in_turns(request.markers):
        topics = []
        async for topic in in_turns(marker.topics):
            rows = [
                WritableTxnMarkerPartitionResult(partition_index=index, error_code=next(codes))
                async for index in in_turns(topic.partition_indexes)
            ]
            topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=tuple(rows)))
        results.append(WritableTxnMarkerResult(producer_id=marker.producer_id, topics=tuple(topics)))
    return WriteTxnMarkersResponse(markers=tuple(results))


def _write(
    broker: Broker, marker: WritableTxnMarker, topic: str, index: int
) -> Awaitable[None] | KafkaError | None:
    """What is still to be waited for, or why it is refused; None: nothing."""
    ending = (
        marker.producer_id,
        marker.producer_epoch,
        marker.coordinator_epoch,
        marker.transaction_result,
        marker.transaction_version,
    )
    try:
        partition = broker.replicas.leading(topic, index)
        if topic == OFFSETS_TOPIC:
            return asyncio.ensure_future(broker.groups.complete_transaction(index, *ending))
        partition.append_marker(*ending)
        return wait_committed(partition)
    except KafkaError as error:
        return error


async def _code(written: Awaitable[None] | KafkaError | None) -> ErrorCode:
    try:
        if isinstance(written, KafkaError):
            raise written
        if written is not None:
            await written
    except KafkaError as error:
        return ErrorCode.not_leader_or_follower if error.code in _COORDINATOR_NOT_READY else error.code
    return ErrorCode.none
