"""ShareAcknowledge (versions 1 to 2): what became of records that a member of a share group had acquired.

Answered once it is stored. With epoch -1 the session ends, and what the member still has is released.
Version 2 has renewals (KIP-1222), and tells for how long records are locked.
"""

from __future__ import annotations

from kio.schema.share_acknowledge.v2.request import ShareAcknowledgeRequest
from kio.schema.share_acknowledge.v2.response import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from kio.schema.types import BrokerId
from kio.static.primitive import i32

from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.outcome import error_code, error_message
from ottla.handlers.refusal import answer_with
from ottla.handlers.registry import handles
from ottla.handlers.share_requests import (
    acknowledge,
    acknowledgements_of,
    current_leader,
    member_of,
    milliseconds,
    named_partitions,
)
from ottla.handlers.throttle import NOT_THROTTLED
from ottla.replication.share.sessions import FINAL_EPOCH, INITIAL_EPOCH
from ottla.runtime.turns import in_turns
from ottla.wire.api import ApiKey
from ottla.wire.current_leader import NodeEndpoint as Endpoint
from ottla.wire.errors import InvalidShareSessionEpoch


@handles(
    ApiKey.SHARE_ACKNOWLEDGE,
    answer_with(
        ShareAcknowledgeResponse, acquisition_lock_timeout=NOT_THROTTLED, responses=(), node_endpoints=()
    ),
)
async def share_acknowledge(
    broker: Broker, context: RequestContext, request: ShareAcknowledgeRequest
) -> ShareAcknowledgeResponse:
    member = member_of(broker, request)
    groups = broker.share_groups
    epoch = request.share_session_epoch
    if epoch == INITIAL_EPOCH:
        raise InvalidShareSessionEpoch("a session is opened by ShareFetch, not by ShareAcknowledge")
    if epoch == FINAL_EPOCH:
        groups.sessions.find(member)
    else:
        groups.sessions.use(member, epoch)
    named = await named_partitions(request.topics)
    outcomes = await acknowledge(
        broker, context, member, acknowledgements_of(named), is_renewal=request.is_renew_ack
    )
    if epoch == FINAL_EPOCH and (session := groups.sessions.close(member)) is not None:
        await groups.end(session)
    topics: dict[object, list[PartitionData]] = {}
    nodes: dict[int, Endpoint] = {}
    async for of in in_turns(named):
        error = outcomes.get(of)
        leader = current_leader(broker, context, of, error)
        if leader is not None and leader.node is not None:
            nodes[leader.node.node_id] = leader.node
        row = PartitionData(
            partition_index=i32(of.partition),
            error_code=error_code(error),
            error_message=error_message(error),
            current_leader=LeaderIdAndEpoch(
                leader_id=i32(-1 if leader is None else leader.leader_id),
                leader_epoch=i32(-1 if leader is None else leader.leader_epoch),
            ),
        )
        topics.setdefault(of.topic_id, []).append(row)
    return ShareAcknowledgeResponse(
        throttle_time=context.session.throttle_time,
        error_code=error_code(None),
        acquisition_lock_timeout=milliseconds(groups.settings_of(member.group_id).lock_duration_ms),
        responses=tuple(
            ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=tuple(rows))  # type: ignore[arg-type]
            for topic_id, rows in topics.items()
        ),
        node_endpoints=tuple(
            NodeEndpoint(node_id=BrokerId(node.node_id), host=node.host, port=i32(node.port), rack=node.rack)
            for node in nodes.values()
        ),
    )
