"""WriteTxnMarkers, versions 1 and 2: a coordinator, or an operator with a hanging transaction, ends it here.

Markers for partitions of committed offsets go through the group coordinator, which then lets the offsets
count or drops them. While it is not ready the answer is NOT_LEADER_OR_FOLLOWER, which coordinators of
transactions retry.

v2 transaction version, which decides how the producer epoch of a marker is checked
"""

from __future__ import annotations

from kio.schema.write_txn_markers.v2.request import WritableTxnMarker, WriteTxnMarkersRequest
from kio.schema.write_txn_markers.v2.response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)

from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.registry import handles
from ottla.metadata.internal_topics import OFFSETS_TOPIC
from ottla.runtime.turns import in_turns
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
    results = []
    async for marker in in_turns(request.markers):
        topics = []
        async for topic in in_turns(marker.topics):
            rows = []
            async for index in in_turns(topic.partition_indexes):
                error = await _write(broker, marker, topic.name, index)
                rows.append(WritableTxnMarkerPartitionResult(partition_index=index, error_code=error))
            topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=tuple(rows)))
        results.append(WritableTxnMarkerResult(producer_id=marker.producer_id, topics=tuple(topics)))
    return WriteTxnMarkersResponse(markers=tuple(results))


async def _write(broker: Broker, marker: WritableTxnMarker, topic: str, index: int) -> ErrorCode:
    try:
        partition = broker.replicas.partition(topic, index)
        if topic == OFFSETS_TOPIC:
            await broker.groups.complete_transaction(
                index,
                marker.producer_id,
                marker.producer_epoch,
                marker.coordinator_epoch,
                marker.transaction_result,
                marker.transaction_version,
            )
        else:
            partition.append_marker(
                marker.producer_id,
                marker.producer_epoch,
                marker.coordinator_epoch,
                marker.transaction_result,
                marker.transaction_version,
            )
            if partition.log.reached_flush_messages:
                await partition.log.flush()
    except KafkaError as error:
        return ErrorCode.not_leader_or_follower if error.code in _COORDINATOR_NOT_READY else error.code
    return ErrorCode.none
