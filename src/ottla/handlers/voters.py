"""AddRaftVoter, versions 0 and 1, RemoveRaftVoter and UpdateRaftVoter: who votes in the metadata quorum
(KIP-853).

The first two are what administrators ask for, and nodes that join by themselves (KIP-1186); the last is what
a voter says of itself when it has moved. Only the leader of the quorum can change its voters, and only one at
a time; REQUEST_TIMED_OUT says that it may be asked again.

AddRaftVoter v1 an answer before the change is committed, for who is needed to commit it
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from kio.schema.add_raft_voter.v1.request import AddRaftVoterRequest
from kio.schema.add_raft_voter.v1.response import AddRaftVoterResponse
from kio.schema.remove_raft_voter.v0.request import RemoveRaftVoterRequest
from kio.schema.remove_raft_voter.v0.response import RemoveRaftVoterResponse
from kio.schema.types import BrokerId
from kio.schema.update_raft_voter.v0.request import UpdateRaftVoterRequest
from kio.schema.update_raft_voter.v0.response import CurrentLeader, UpdateRaftVoterResponse
from kio.static.primitive import i32

from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.refusal import answer_with
from ottla.handlers.registry import handles
from ottla.raft.messages import UpdateVoterRequest
from ottla.raft.voters import KRaftVersions, Listener, ReplicaKey, Voter
from ottla.wire.api import ApiKey
from ottla.wire.errors import InconsistentClusterId, InvalidRequest, KafkaError

NOBODY = -1


@handles(ApiKey.ADD_RAFT_VOTER, answer_with(AddRaftVoterResponse))
async def add_raft_voter(
    broker: Broker, context: RequestContext, request: AddRaftVoterRequest
) -> AddRaftVoterResponse:
    _check_cluster(broker, request.cluster_id)
    key = _key("Add", request.voter_id, request.voter_directory_id)
    listeners = _listeners(request.listeners)
    _check_listeners(broker, listeners)
    told = await broker.quorum.voters.add(Voter(key, listeners), wait=request.ack_when_committed)
    return AddRaftVoterResponse(
        throttle_time=context.session.throttle_time, error_code=told.error, error_message=told.message
    )


@handles(ApiKey.REMOVE_RAFT_VOTER, answer_with(RemoveRaftVoterResponse))
async def remove_raft_voter(
    broker: Broker, context: RequestContext, request: RemoveRaftVoterRequest
) -> RemoveRaftVoterResponse:
    _check_cluster(broker, request.cluster_id)
    told = await broker.quorum.voters.remove(_key("Remove", request.voter_id, request.voter_directory_id))
    return RemoveRaftVoterResponse(
        throttle_time=context.session.throttle_time, error_code=told.error, error_message=told.message
    )


def _refuse_update(context: RequestContext, request: UpdateRaftVoterRequest, error: KafkaError) -> Any:
    nobody = CurrentLeader(host="", port=i32(0))
    return UpdateRaftVoterResponse(
        throttle_time=context.session.throttle_time, error_code=error.code, current_leader=nobody
    )


@handles(ApiKey.UPDATE_RAFT_VOTER, _refuse_update, of_controller=True)
async def update_raft_voter(
    broker: Broker, context: RequestContext, request: UpdateRaftVoterRequest
) -> UpdateRaftVoterResponse:
    _check_cluster(broker, request.cluster_id)
    key = _key("Update", request.voter_id, request.voter_directory_id)
    versions = KRaftVersions(
        request.k_raft_version_feature.min_supported_version,
        request.k_raft_version_feature.max_supported_version,
    )
    if not 0 <= versions.min <= versions.max:
        raise InvalidRequest(f"no versions of the quorum are supported by {key.id}: {versions}")
    listeners = _listeners(request.listeners)
    _check_listeners(broker, listeners)
    told = await broker.quorum.voters.update(
        UpdateVoterRequest(request.current_leader_epoch, Voter(key, listeners, versions))
    )
    address = None if told.leader_id is None else broker.quorum.address(told.leader_id)
    host, port = address or ("", 0)
    return UpdateRaftVoterResponse(
        throttle_time=context.session.throttle_time,
        error_code=told.error,
        current_leader=CurrentLeader(
            leader_id=BrokerId(NOBODY if told.leader_id is None else told.leader_id),
            leader_epoch=i32(told.epoch),
            host=host,
            port=i32(port),
        ),
    )


def _check_cluster(broker: Broker, cluster_id: str | None) -> None:
    if cluster_id is not None and cluster_id != broker.cluster_id:
        raise InconsistentClusterId(
            f'The given id "{cluster_id}" doesn\'t match the cluster id "{broker.cluster_id}"'
        )


def _key(what: str, voter_id: int, directory_id: UUID | None) -> ReplicaKey:
    if voter_id < 0 or directory_id is None:
        raise InvalidRequest(f"{what} voter request didn't include a valid voter")
    return ReplicaKey(voter_id, directory_id)


def _listeners(listeners: Sequence[Any]) -> tuple[Listener, ...]:
    return tuple(Listener(each.name, each.host, each.port) for each in listeners)


def _check_listeners(broker: Broker, listeners: Sequence[Listener]) -> None:
    wanted = broker.quorum.settings.listener
    if all(listener.name.upper() != wanted for listener in listeners):
        raise InvalidRequest(
            f"the endpoints {[listener.name for listener in listeners]} do not include the one for the "
            f"default listener {wanted}"
        )
