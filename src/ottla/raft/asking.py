"""Requests to other members of the quorum on the wire, and their answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, assert_never

from ottla.client.peer import Peer
from ottla.metadata.snapshot import SnapshotId
from ottla.metadata.uuids import METADATA_TOPIC_ID
from ottla.raft.messages import (
    AddVoterRequest,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Position,
    QuorumEpochResponse,
    RemoveVoterRequest,
    Request,
    Response,
    UpdateVoterRequest,
    UpgradeRequest,
    VoterChangeResponse,
    VoteRequest,
    VoteResponse,
)
from ottla.raft.settings import QuorumSettings
from ottla.wire.api import METADATA_TOPIC, ApiKey
from ottla.wire.errors import ErrorCode

FETCH_WAIT_MS = 500
FETCH_BYTES_MAX = 8 * 1024 * 1024
SNAPSHOT_PART_BYTES_MAX = 1024 * 1024
FIRST_VOTE_VERSION_WITH_PRE_VOTE = 2
NO_OFFSET = -1


class RefusedByPeer(Exception):
    """The answer as a whole is an error."""


Learn = Callable[[int, str, int], None]
"""Node id, host and port of a leader."""


async def ask(peer: Peer, request: Request, settings: QuorumSettings, learn: Learn) -> Response:
    """Raises RefusedByPeer, and whatever `Peer.ask` does."""
    match request:
        case VoteRequest():
            return await _vote(peer, request, settings, learn)
        case BeginQuorumEpochRequest():
            key, values = ApiKey.BEGIN_QUORUM_EPOCH, _begin_epoch(request, settings)
            return _quorum_epoch(await peer.ask(key, values), learn)
        case EndQuorumEpochRequest():
            key, values = ApiKey.END_QUORUM_EPOCH, _end_epoch(request, settings)
            return _quorum_epoch(await peer.ask(key, values), learn)
        case FetchRequest():
            return _fetched(await peer.ask(ApiKey.FETCH, _fetch(request, settings)), learn)
        case FetchSnapshotRequest():
            values = _fetch_snapshot(request, settings)
            return _fetched_snapshot(await peer.ask(ApiKey.FETCH_SNAPSHOT, values), learn)
        case UpdateVoterRequest():
            if ApiKey.UPDATE_RAFT_VOTER not in peer.versions:
                # A leader of an older version needs not know.
                return VoterChangeResponse(ErrorCode.unsupported_version, request.epoch, None)
            answer = await peer.ask(ApiKey.UPDATE_RAFT_VOTER, _update_voter(request, settings))
            leader = answer.current_leader
            return VoterChangeResponse(answer.error_code, leader.leader_epoch, _somebody(leader.leader_id))
        case AddVoterRequest():
            answer = await peer.ask(ApiKey.ADD_RAFT_VOTER, _add_voter(request, settings))
            return VoterChangeResponse(answer.error_code, 0, None, answer.error_message)
        case RemoveVoterRequest():
            answer = await peer.ask(ApiKey.REMOVE_RAFT_VOTER, _remove_voter(request, settings))
            return VoterChangeResponse(answer.error_code, 0, None, answer.error_message)
        case UpgradeRequest():
            raise TypeError("only an administrator asks for that")
        case _:
            assert_never(request)


async def _vote(peer: Peer, request: VoteRequest, settings: QuorumSettings, learn: Learn) -> VoteResponse:
    if request.pre_vote and peer.version(ApiKey.VOTE) < FIRST_VOTE_VERSION_WITH_PRE_VOTE:
        # It would take the question for a candidacy.
        return VoteResponse(ErrorCode.unsupported_version, request.epoch, None)
    voter = request.voter
    partition = {
        "partition_index": 0,
        "replica_epoch": request.epoch,
        "replica_id": request.candidate.id,
        "replica_directory_id": request.candidate.directory_id,
        "voter_directory_id": None if voter is None else voter.directory_id,
        "last_offset_epoch": request.log_end.epoch,
        "last_offset": request.log_end.offset,
        "pre_vote": request.pre_vote,
    }
    values = {
        "cluster_id": settings.cluster_id,
        "voter_id": -1 if voter is None else voter.id,
        "topics": _topics(partition),
    }
    answer = await peer.ask(ApiKey.VOTE, values)
    told = _partition(answer, answer.topics, learn)
    return VoteResponse(told.error_code, told.leader_epoch, _somebody(told.leader_id), told.vote_granted)


def _begin_epoch(request: BeginQuorumEpochRequest, settings: QuorumSettings) -> dict[str, Any]:
    voter = request.voter
    partition = {
        "partition_index": 0,
        "voter_directory_id": None if voter is None else voter.directory_id,
        "leader_id": request.leader_id,
        "leader_epoch": request.epoch,
    }
    return {
        "cluster_id": settings.cluster_id,
        "voter_id": -1 if voter is None else voter.id,
        "topics": _topics(partition),
        "leader_endpoints": _endpoints(settings),
    }


def _end_epoch(request: EndQuorumEpochRequest, settings: QuorumSettings) -> dict[str, Any]:
    partition = {
        "partition_index": 0,
        "leader_id": request.leader_id,
        "leader_epoch": request.epoch,
        "preferred_successors": tuple(key.id for key in request.successors),
        "preferred_candidates": [
            {"candidate_id": key.id, "candidate_directory_id": key.directory_id} for key in request.successors
        ],
    }
    return {
        "cluster_id": settings.cluster_id,
        "topics": _topics(partition),
        "leader_endpoints": _endpoints(settings),
    }


def _fetch(request: FetchRequest, settings: QuorumSettings) -> dict[str, Any]:
    partition = {
        "partition": 0,
        "current_leader_epoch": request.epoch,
        "fetch_offset": request.offset,
        "last_fetched_epoch": request.last_epoch,
        "log_start_offset": NO_OFFSET,
        "partition_max_bytes": FETCH_BYTES_MAX,
        "replica_directory_id": request.replica.directory_id,
        "high_watermark": NO_OFFSET if request.high_watermark is None else request.high_watermark,
    }
    return {
        "cluster_id": settings.cluster_id,
        "replica_id": request.replica.id,
        "replica_state": {"replica_id": request.replica.id, "replica_epoch": -1},
        "max_wait": FETCH_WAIT_MS,
        "min_bytes": 0,
        "max_bytes": FETCH_BYTES_MAX,
        "topics": [{"topic": METADATA_TOPIC, "topic_id": METADATA_TOPIC_ID, "partitions": [partition]}],
        "forgotten_topics_data": [],
    }


def _fetch_snapshot(request: FetchSnapshotRequest, settings: QuorumSettings) -> dict[str, Any]:
    partition = {
        "partition": 0,
        "current_leader_epoch": request.epoch,
        "snapshot_id": {"end_offset": request.snapshot.offset, "epoch": request.snapshot.epoch},
        "position": request.position,
        "replica_directory_id": request.replica.directory_id,
    }
    return {
        "cluster_id": settings.cluster_id,
        "replica_id": request.replica.id,
        "max_bytes": SNAPSHOT_PART_BYTES_MAX,
        "topics": [{"name": METADATA_TOPIC, "partitions": [partition]}],
    }


def _update_voter(request: UpdateVoterRequest, settings: QuorumSettings) -> dict[str, Any]:
    key, versions = request.voter.key, request.voter.kraft_versions
    return {
        "cluster_id": settings.cluster_id,
        "current_leader_epoch": request.epoch,
        "voter_id": key.id,
        "voter_directory_id": key.directory_id,
        "listeners": _endpoints(settings),
        "k_raft_version_feature": {
            "min_supported_version": versions.min,
            "max_supported_version": versions.max,
        },
    }


def _add_voter(request: AddVoterRequest, settings: QuorumSettings) -> dict[str, Any]:
    key = request.voter.key
    return {
        "cluster_id": settings.cluster_id,
        "timeout": settings.timeouts.request,
        "voter_id": key.id,
        "voter_directory_id": key.directory_id,
        "listeners": _endpoints(settings),
        "ack_when_committed": False,
    }


def _remove_voter(request: RemoveVoterRequest, settings: QuorumSettings) -> dict[str, Any]:
    return {
        "cluster_id": settings.cluster_id,
        "voter_id": request.voter.id,
        "voter_directory_id": request.voter.directory_id,
    }


def _quorum_epoch(answer: Any, learn: Learn) -> QuorumEpochResponse:
    told = _partition(answer, answer.topics, learn)
    return QuorumEpochResponse(told.error_code, told.leader_epoch, _somebody(told.leader_id))


def _fetched(answer: Any, learn: Learn) -> FetchResponse:
    told = _partition(answer, answer.responses, learn)
    diverging, snapshot = told.diverging_epoch, told.snapshot_id
    return FetchResponse(
        told.error_code,
        told.current_leader.leader_epoch,
        _somebody(told.current_leader.leader_id),
        None if told.high_watermark < 0 else told.high_watermark,
        Position(diverging.epoch, diverging.end_offset) if diverging.epoch >= 0 else None,
        SnapshotId(snapshot.end_offset, snapshot.epoch) if snapshot.epoch >= 0 else None,
        told.records or None,
    )


def _fetched_snapshot(answer: Any, learn: Learn) -> FetchSnapshotResponse:
    told = _partition(answer, answer.topics, learn)
    snapshot = told.snapshot_id
    return FetchSnapshotResponse(
        told.error_code,
        told.current_leader.leader_epoch,
        _somebody(told.current_leader.leader_id),
        SnapshotId(snapshot.end_offset, snapshot.epoch),
        told.size,
        told.position,
        bytes(told.unaligned_records or b""),
    )


def _topics(partition: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"topic_name": METADATA_TOPIC, "partitions": [partition]}]


def _endpoints(settings: QuorumSettings) -> list[dict[str, Any]]:
    return [{"name": each.name, "host": each.host, "port": each.port} for each in settings.endpoints]


def _partition(answer: Any, topics: Sequence[Any], learn: Learn) -> Any:
    """All that was asked for is one partition."""
    if answer.error_code != ErrorCode.none:
        raise RefusedByPeer(answer.error_code.name.upper())
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        raise RefusedByPeer("it does not tell of the partition that was asked for")
    for node in answer.node_endpoints:
        learn(node.node_id, node.host, node.port)
    return topics[0].partitions[0]


def _somebody(node_id: int) -> int | None:
    return None if node_id < 0 else node_id
