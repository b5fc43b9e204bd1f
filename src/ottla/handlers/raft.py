"""What members of the metadata quorum ask each other: Vote (versions 0 to 2), BeginQuorumEpoch and
EndQuorumEpoch (0 and 1), Fetch (15 to 18) and FetchSnapshot (0 and 1), all about `__cluster_metadata-0`.

Vote, BeginQuorumEpoch, EndQuorumEpoch, FetchSnapshot v1 and Fetch v17 directory ids, and where the leader
listens (KIP-853) · Vote v2 asking beforehand (KIP-996) · Fetch v18 what the follower knows to be committed
(KIP-1166)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kio.schema.begin_quorum_epoch.v1 import request as begin_request
from kio.schema.begin_quorum_epoch.v1 import response as begin_response
from kio.schema.end_quorum_epoch.v1 import request as end_request
from kio.schema.end_quorum_epoch.v1 import response as end_response
from kio.schema.fetch.v18 import request as fetch_request
from kio.schema.fetch.v18 import response as fetch_response
from kio.schema.fetch_snapshot.v1 import request as snapshot_request
from kio.schema.fetch_snapshot.v1 import response as snapshot_response
from kio.schema.types import BrokerId, TopicName
from kio.schema.vote.v2 import request as vote_request
from kio.schema.vote.v2 import response as vote_response
from kio.static.primitive import Records, i32, i64, u16

from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.refusal import answer_with
from ottla.handlers.registry import handles
from ottla.metadata.snapshot import SnapshotId
from ottla.metadata.uuids import METADATA_TOPIC_ID
from ottla.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Position,
    QuorumEpochResponse,
    Response,
    VoteRequest,
    VoteResponse,
)
from ottla.raft.voters import ReplicaKey
from ottla.wire.api import METADATA_TOPIC, ApiKey
from ottla.wire.errors import ErrorCode, InconsistentClusterId, InvalidRequest

NOBODY = -1
NO_OFFSET = -1
WAIT_MS_MAX = 60_000


@handles(ApiKey.VOTE, answer_with(vote_response.VoteResponse, topics=()), of_controller=True)
async def vote(
    broker: Broker, context: RequestContext, request: vote_request.VoteRequest
) -> vote_response.VoteResponse:
    _check_cluster(broker, request.cluster_id)
    asked = _only_partition(request.topics)
    told = await broker.quorum.answer(
        VoteRequest(
            asked.replica_epoch,
            ReplicaKey(asked.replica_id, asked.replica_directory_id),
            Position(asked.last_offset_epoch, asked.last_offset),
            asked.pre_vote,
            _key(request.voter_id, asked.voter_directory_id),
        )
    )
    assert isinstance(told, VoteResponse)
    partition = vote_response.PartitionData(
        partition_index=i32(0),
        error_code=told.error,
        leader_id=_leader(told),
        leader_epoch=i32(told.epoch),
        vote_granted=told.granted,
    )
    return vote_response.VoteResponse(
        error_code=ErrorCode.none,
        topics=(vote_response.TopicData(topic_name=TopicName(METADATA_TOPIC), partitions=(partition,)),),
        node_endpoints=_endpoints(broker, told, vote_response.NodeEndpoint),
    )


@handles(
    ApiKey.BEGIN_QUORUM_EPOCH,
    answer_with(begin_response.BeginQuorumEpochResponse, topics=()),
    of_controller=True,
)
async def begin_quorum_epoch(
    broker: Broker, context: RequestContext, request: begin_request.BeginQuorumEpochRequest
) -> begin_response.BeginQuorumEpochResponse:
    _check_cluster(broker, request.cluster_id)
    asked = _only_partition(request.topics)
    _learn_leader(broker, asked.leader_id, request.leader_endpoints)
    voter = _key(request.voter_id, asked.voter_directory_id)
    told = await broker.quorum.answer(BeginQuorumEpochRequest(asked.leader_epoch, asked.leader_id, voter))
    assert isinstance(told, QuorumEpochResponse)
    partition = begin_response.PartitionData(
        partition_index=i32(0),
        error_code=told.error,
        leader_id=_leader(told),
        leader_epoch=i32(told.epoch),
    )
    return begin_response.BeginQuorumEpochResponse(
        error_code=ErrorCode.none,
        topics=(begin_response.TopicData(topic_name=TopicName(METADATA_TOPIC), partitions=(partition,)),),
        node_endpoints=_endpoints(broker, told, begin_response.NodeEndpoint),
    )


@handles(
    ApiKey.END_QUORUM_EPOCH, answer_with(end_response.EndQuorumEpochResponse, topics=()), of_controller=True
)
async def end_quorum_epoch(
    broker: Broker, context: RequestContext, request: end_request.EndQuorumEpochRequest
) -> end_response.EndQuorumEpochResponse:
    _check_cluster(broker, request.cluster_id)
    asked = _only_partition(request.topics)
    _learn_leader(broker, asked.leader_id, request.leader_endpoints)
    successors = tuple(
        ReplicaKey(each.candidate_id, each.candidate_directory_id) for each in asked.preferred_candidates
    )
    told = await broker.quorum.answer(EndQuorumEpochRequest(asked.leader_epoch, asked.leader_id, successors))
    assert isinstance(told, QuorumEpochResponse)
    partition = end_response.PartitionData(
        partition_index=i32(0),
        error_code=told.error,
        leader_id=_leader(told),
        leader_epoch=i32(told.epoch),
    )
    return end_response.EndQuorumEpochResponse(
        error_code=ErrorCode.none,
        topics=(end_response.TopicData(topic_name=TopicName(METADATA_TOPIC), partitions=(partition,)),),
        node_endpoints=_endpoints(broker, told, end_response.NodeEndpoint),
    )


@handles(ApiKey.FETCH, answer_with(fetch_response.FetchResponse, responses=()), of_controller=True)
async def fetch(
    broker: Broker, context: RequestContext, request: fetch_request.FetchRequest
) -> fetch_response.FetchResponse:
    _check_cluster(broker, request.cluster_id)
    if [topic.topic_id for topic in request.topics] != [METADATA_TOPIC_ID]:
        raise InvalidRequest(f"only {METADATA_TOPIC}-0 can be fetched here")
    asked = _partition_zero(request.topics[0].partitions, "partition")
    wait_ms = int(request.max_wait.total_seconds() * 1000)
    told = await broker.quorum.fetch(
        FetchRequest(
            asked.current_leader_epoch,
            ReplicaKey(request.replica_state.replica_id, asked.replica_directory_id),
            asked.fetch_offset,
            asked.last_fetched_epoch,
            asked.high_watermark if asked.high_watermark >= 0 else None,
        ),
        min(max(wait_ms, 0), WAIT_MS_MAX),
        request.max_bytes,
    )
    return fetch_response.FetchResponse(
        throttle_time=context.session.throttle_time,
        error_code=ErrorCode.none,
        responses=(
            fetch_response.FetchableTopicResponse(
                topic_id=METADATA_TOPIC_ID, partitions=(_fetched(broker, told),)
            ),
        ),
        node_endpoints=_endpoints(broker, told, fetch_response.NodeEndpoint, i32),
    )


def _fetched(broker: Broker, told: FetchResponse) -> fetch_response.PartitionData:
    diverging, snapshot = fetch_response.EpochEndOffset(), fetch_response.SnapshotId()
    if told.diverging is not None:
        diverging = fetch_response.EpochEndOffset(
            epoch=i32(told.diverging.epoch), end_offset=i64(told.diverging.offset)
        )
    if told.snapshot is not None:
        snapshot = fetch_response.SnapshotId(
            end_offset=i64(told.snapshot.offset), epoch=i32(told.snapshot.epoch)
        )
    return fetch_response.PartitionData(
        partition_index=i32(0),
        error_code=told.error,
        high_watermark=i64(NO_OFFSET if told.high_watermark is None else told.high_watermark),
        last_stable_offset=i64(NO_OFFSET),
        log_start_offset=i64(broker.quorum.start_offset),
        diverging_epoch=diverging,
        current_leader=fetch_response.LeaderIdAndEpoch(leader_id=_leader(told), leader_epoch=i32(told.epoch)),
        snapshot_id=snapshot,
        aborted_transactions=None,
        records=Records(told.records or b""),
    )


@handles(
    ApiKey.FETCH_SNAPSHOT, answer_with(snapshot_response.FetchSnapshotResponse, topics=()), of_controller=True
)
async def fetch_snapshot(
    broker: Broker, context: RequestContext, request: snapshot_request.FetchSnapshotRequest
) -> snapshot_response.FetchSnapshotResponse:
    _check_cluster(broker, request.cluster_id)
    if [topic.name for topic in request.topics] != [METADATA_TOPIC]:
        raise InvalidRequest(f"only {METADATA_TOPIC}-0 can be fetched here")
    asked = _partition_zero(request.topics[0].partitions, "partition")
    told = await broker.quorum.fetch_snapshot(
        FetchSnapshotRequest(
            asked.current_leader_epoch,
            ReplicaKey(request.replica_id, asked.replica_directory_id),
            SnapshotId(asked.snapshot_id.end_offset, asked.snapshot_id.epoch),
            asked.position,
        ),
        request.max_bytes,
    )
    partition = _fetched_snapshot(told)
    return snapshot_response.FetchSnapshotResponse(
        throttle_time=context.session.throttle_time,
        error_code=ErrorCode.none,
        topics=(snapshot_response.TopicSnapshot(name=TopicName(METADATA_TOPIC), partitions=(partition,)),),
        node_endpoints=_endpoints(broker, told, snapshot_response.NodeEndpoint),
    )


def _fetched_snapshot(told: FetchSnapshotResponse) -> snapshot_response.PartitionSnapshot:
    offset, epoch = (NO_OFFSET, -1) if told.snapshot is None else told.snapshot
    return snapshot_response.PartitionSnapshot(
        index=i32(0),
        error_code=told.error,
        snapshot_id=snapshot_response.SnapshotId(end_offset=i64(offset), epoch=i32(epoch)),
        current_leader=snapshot_response.LeaderIdAndEpoch(
            leader_id=_leader(told), leader_epoch=i32(told.epoch)
        ),
        size=i64(told.size),
        position=i64(told.position),
        unaligned_records=Records(told.data or b""),
    )


def _check_cluster(broker: Broker, cluster_id: str | None) -> None:
    if cluster_id is not None and cluster_id != broker.cluster_id:
        raise InconsistentClusterId(
            f"this node is of the cluster {broker.cluster_id}, not of {cluster_id}; format the directories "
            "of all nodes of a cluster with the same id"
        )


def _only_partition(topics: Sequence[Any]) -> Any:
    if [topic.topic_name for topic in topics] != [METADATA_TOPIC]:
        raise InvalidRequest(f"only {METADATA_TOPIC}-0 has a quorum")
    return _partition_zero(topics[0].partitions, "partition_index")


def _partition_zero(partitions: Sequence[Any], index: str) -> Any:
    if [getattr(partition, index) for partition in partitions] != [0]:
        raise InvalidRequest(f"only {METADATA_TOPIC}-0 has a quorum")
    return partitions[0]


def _key(node_id: int, directory_id: Any) -> ReplicaKey | None:
    """Whom the request is for; older versions do not say."""
    return None if node_id < 0 else ReplicaKey(node_id, directory_id)


def _learn_leader(broker: Broker, leader_id: int, endpoints: Sequence[Any]) -> None:
    named = [each for each in endpoints if each.name.upper() == broker.quorum.settings.listener]
    for endpoint in (named or list(endpoints))[:1]:
        broker.quorum.learn_address(leader_id, endpoint.host, endpoint.port)


def _leader(told: Response) -> BrokerId:
    return BrokerId(NOBODY if told.leader_id is None else told.leader_id)


def _endpoints(broker: Broker, told: Response, node: Any, port: Any = u16) -> tuple[Any, ...]:
    """Where the leader listens for other nodes."""
    address = None if told.leader_id is None else broker.quorum.address(told.leader_id)
    if told.leader_id is None or address is None:
        return ()
    return (node(node_id=BrokerId(told.leader_id), host=address[0], port=port(address[1])),)
