"""DescribeQuorum, versions 0 to 2: the metadata quorum's leader, voters, and how far each has come.

Only `__cluster_metadata-0` can be described; asking for anything else is answered with
UNKNOWN_TOPIC_OR_PARTITION for everything asked. Only the leader knows how far everybody has come; others
answer with NOT_LEADER_OR_FOLLOWER.

v1 when each replica last fetched and last was caught up (KIP-836) · v2 error messages, directory ids, nodes
(KIP-853)
"""

from __future__ import annotations

from kio.schema.describe_quorum.v2.request import DescribeQuorumRequest
from kio.schema.describe_quorum.v2.response import (
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i32, i64, u16

from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.refusal import answer_with
from ottla.handlers.registry import handles
from ottla.log.types import METADATA_PARTITION
from ottla.raft.progress import Progress
from ottla.raft.voters import ReplicaKey
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode

NO_LEADER = -1


@handles(ApiKey.DESCRIBE_QUORUM, answer_with(DescribeQuorumResponse, topics=(), nodes=()))
def describe_quorum(
    broker: Broker, context: RequestContext, request: DescribeQuorumRequest
) -> DescribeQuorumResponse:
    asked = [(topic.topic_name, p.partition_index) for topic in request.topics for p in topic.partitions]
    if asked != [METADATA_PARTITION]:
        return _unknown(request)
    quorum = broker.quorum.describe()
    if not quorum.leads:
        return _refused(request, ErrorCode.not_leader_or_follower, "This node does not lead the quorum.")
    now_ms = broker.runtime.clock.now_ms()

    def state(replica: ReplicaKey, progress: Progress | None) -> ReplicaState:
        end_offset, fetched_at_ms, caught_up_at_ms = -1, -1, -1
        if replica.id == quorum.leader_id:
            end_offset, fetched_at_ms, caught_up_at_ms = quorum.log_end_offset, now_ms, now_ms
        elif progress is not None:
            end_offset, fetched_at_ms = progress.acknowledged_offset, progress.acknowledged_at_ms
            caught_up_at_ms = progress.caught_up_at_ms
        return ReplicaState(
            replica_id=BrokerId(replica.id),
            replica_directory_id=replica.directory_id,
            log_end_offset=i64(end_offset),
            last_fetch_timestamp=i64(fetched_at_ms),
            last_caught_up_timestamp=i64(caught_up_at_ms),
        )

    voters = quorum.voter_set.voters
    observers = sorted(quorum.observers.items(), key=lambda observer: observer[0].id)
    partition = PartitionData(
        partition_index=i32(0),
        error_code=ErrorCode.none,
        error_message=None,
        leader_id=BrokerId(NO_LEADER if quorum.leader_id is None else quorum.leader_id),
        leader_epoch=i32(quorum.epoch),
        high_watermark=i64(quorum.high_watermark),
        current_voters=tuple(state(voter.key, quorum.voters.get(voter.key.id)) for voter in voters),
        observers=tuple(state(replica, known) for replica, known in observers),
    )
    return DescribeQuorumResponse(
        error_code=ErrorCode.none,
        error_message=None,
        topics=(TopicData(topic_name=TopicName(METADATA_PARTITION.topic), partitions=(partition,)),),
        # A lone voter has no listener for other controllers.
        nodes=tuple(
            Node(
                node_id=BrokerId(voter.key.id),
                listeners=tuple(
                    Listener(name=each.name, host=each.host, port=u16(each.port)) for each in voter.listeners
                ),
            )
            for voter in voters
        ),
    )


def _unknown(request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    text = f"Only {METADATA_PARTITION} has a quorum."
    return _refused(request, ErrorCode.unknown_topic_or_partition, text)


def _refused(request: DescribeQuorumRequest, error: ErrorCode, text: str) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(
        error_code=ErrorCode.none,
        error_message=None,
        topics=tuple(
            TopicData(
                topic_name=topic.topic_name,
                partitions=tuple(
                    PartitionData(
                        partition_index=partition.partition_index,
                        error_code=error,
                        error_message=text,
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
