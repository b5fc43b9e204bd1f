"""DescribeQuorum, versions 0 to 2: the metadata quorum's leader, voters, and how far each has come.

Only `__cluster_metadata-0` can be described; asking for anything else is answered with
UNKNOWN_TOPIC_OR_PARTITION for everything asked.

v1 when each replica last fetched and last was caught up (KIP-836) · v2 error messages, directory ids, nodes
(KIP-853)
"""

from __future__ import annotations

from kio.schema.describe_quorum.v2.request import DescribeQuorumRequest
from kio.schema.describe_quorum.v2.response import (
    DescribeQuorumResponse,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i32, i64

from ottla.controller.topic_names import CLUSTER_METADATA_TOPIC
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.registry import handles
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode

NO_LEADER = -1


@handles(ApiKey.DESCRIBE_QUORUM)
def describe_quorum(
    broker: Broker, context: RequestContext, request: DescribeQuorumRequest
) -> DescribeQuorumResponse:
    asked = [(topic.topic_name, p.partition_index) for topic in request.topics for p in topic.partitions]
    if asked != [(CLUSTER_METADATA_TOPIC, 0)]:
        return _unknown(request)
    quorum = broker.controller.describe_quorum()
    now_ms = broker.runtime.clock.now_ms()

    def state(voter_id: int) -> ReplicaState:
        progress = quorum.voters[voter_id]
        end_offset = -1 if progress is None else progress.acknowledged_offset
        fetched_at_ms = -1 if progress is None else progress.acknowledged_at_ms
        if voter_id == quorum.leader_id:
            end_offset, fetched_at_ms = quorum.log_end_offset, now_ms
        return ReplicaState(
            replica_id=BrokerId(voter_id),
            replica_directory_id=None,
            log_end_offset=i64(end_offset),
            last_fetch_timestamp=i64(fetched_at_ms),
            last_caught_up_timestamp=i64(fetched_at_ms if end_offset == quorum.log_end_offset else -1),
        )

    partition = PartitionData(
        partition_index=i32(0),
        error_code=ErrorCode.none,
        error_message=None,
        leader_id=BrokerId(NO_LEADER if quorum.leader_id is None else quorum.leader_id),
        leader_epoch=i32(quorum.epoch),
        high_watermark=i64(quorum.high_watermark),
        current_voters=tuple(state(voter_id) for voter_id in sorted(quorum.voters)),
        observers=(),
    )
    return DescribeQuorumResponse(
        error_code=ErrorCode.none,
        error_message=None,
        topics=(TopicData(topic_name=TopicName(CLUSTER_METADATA_TOPIC), partitions=(partition,)),),
        # A lone voter has no listener for other controllers.
        nodes=tuple(Node(node_id=BrokerId(voter_id), listeners=()) for voter_id in sorted(quorum.voters)),
    )


def _unknown(request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(
        error_code=ErrorCode.none,
        error_message=None,
        topics=tuple(
            TopicData(
                topic_name=topic.topic_name,
                partitions=tuple(
                    PartitionData(
                        partition_index=partition.partition_index,
                        error_code=ErrorCode.unknown_topic_or_partition,
                        error_message=f"Only {CLUSTER_METADATA_TOPIC}-0 has a quorum.",
                        leader_id=BrokerId(0),
                        leader_epoch=i32(0),
                        high_watermark=i64(0),
                        current_voters=(),
                        observers=(),
                    )
                    for partition in topic.partitions
                ),
            )
            for topic in request.topics
        ),
        nodes=(),
    )
