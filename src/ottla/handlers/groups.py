"""The classic group protocol: JoinGroup (versions 0 to 9), SyncGroup (0 to 5), Heartbeat (0 to 4), LeaveGroup
(0 to 5), and the view of tools on groups of any protocol: ListGroups (0 to 5), DescribeGroups (0 to 6),
DeleteGroups (0 to 2).

JoinGroup: v1 rebalance time-out · v4 a new member first gets its id (KIP-394) · v5 static members (KIP-345) ·
v8 reason · v9 skip assignment. LeaveGroup: v3 many members at once. ListGroups: v4 states, v5 types.
DescribeGroups: v6 GROUP_ID_NOT_FOUND instead of a dead group.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
from kio.schema.delete_groups.v2.response import DeletableGroupResult, DeleteGroupsResponse
from kio.schema.describe_groups.v6.request import DescribeGroupsRequest
from kio.schema.describe_groups.v6.response import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from kio.schema.heartbeat.v4.request import HeartbeatRequest as WireHeartbeat
from kio.schema.heartbeat.v4.response import HeartbeatResponse
from kio.schema.join_group.v9.request import JoinGroupRequest
from kio.schema.join_group.v9.response import JoinGroupResponse, JoinGroupResponseMember
from kio.schema.leave_group.v5.response import LeaveGroupResponse, MemberResponse
from kio.schema.list_groups.v5.request import ListGroupsRequest
from kio.schema.list_groups.v5.response import ListedGroup, ListGroupsResponse
from kio.schema.sync_group.v5.request import SyncGroupRequest
from kio.schema.sync_group.v5.response import SyncGroupResponse
from kio.schema.types import GroupId
from kio.static.primitive import i32

from ottla.coordinator.groups.commands import (
    HeartbeatRequest,
    JoinReply,
    JoinRequest,
    LeavingMember,
    SyncRequest,
)
from ottla.handlers.authorized import NOT_ASKED, may, operations_on, require
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.outcome import error_message
from ottla.handlers.refusal import answer_with
from ottla.handlers.registry import handles
from ottla.runtime.turns import in_turns, slices_in_turns
from ottla.wire.acls import AclResource, Operation
from ottla.wire.api import ApiKey
from ottla.wire.errors import (
    CoordinatorLoadInProgress,
    ErrorCode,
    GroupIdNotFound,
    InconsistentGroupProtocol,
    KafkaError,
)

FIRST_WITH_REBALANCE_TIMEOUT = 1
FIRST_WITH_REQUIRED_MEMBER_ID = 4
FIRST_WITH_NULL_PROTOCOL_NAME = 7
FIRST_WITH_SKIP_ASSIGNMENT = 9
FIRST_SYNC_WITH_PROTOCOL = 5
FIRST_LEAVE_OF_MANY = 3
FIRST_DESCRIBE_WITH_NOT_FOUND = 6


def milliseconds(duration: timedelta) -> int:
    return round(duration.total_seconds() * 1000)


def _refused_join(context: RequestContext, request: JoinGroupRequest, error: KafkaError) -> JoinGroupResponse:
    return _joined(context, JoinReply(error.code, request.member_id))


def _joined(context: RequestContext, reply: JoinReply) -> JoinGroupResponse:
    protocol_name = reply.protocol_name
    if protocol_name is None and context.version < FIRST_WITH_NULL_PROTOCOL_NAME:
        protocol_name = ""
    return JoinGroupResponse(
        throttle_time=context.session.throttle_time,
        error_code=reply.error,
        generation_id=i32(reply.generation),
        protocol_type=reply.protocol_type,
        protocol_name=protocol_name,
        leader=reply.leader,
        skip_assignment=reply.skip_assignment,
        member_id=reply.member_id,
        members=tuple(
            JoinGroupResponseMember(member_id=member_id, group_instance_id=instance_id, metadata=metadata)
            for member_id, instance_id, metadata in reply.members
        ),
    )


@handles(ApiKey.JOIN_GROUP, _refused_join)
async def join_group(broker: Broker, context: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse:
    session_timeout_ms = milliseconds(request.session_timeout)
    has_rebalance_timeout = context.version >= FIRST_WITH_REBALANCE_TIMEOUT
    reply = await broker.groups.join(
        JoinRequest(
            group_id=request.group_id,
            member_id=request.member_id,
            protocol_type=request.protocol_type,
            protocols=tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=(
                milliseconds(request.rebalance_timeout) if has_rebalance_timeout else session_timeout_ms
            ),
            instance_id=request.group_instance_id,
            client_id=context.session.client_id or "",
            client_host=context.session.client_host,
            reason=request.reason,
            requires_known_member_id=context.version >= FIRST_WITH_REQUIRED_MEMBER_ID,
            can_skip_assignment=context.version >= FIRST_WITH_SKIP_ASSIGNMENT,
        )
    )
    return _joined(context, reply)


@handles(ApiKey.SYNC_GROUP, answer_with(SyncGroupResponse, assignment=b""))
async def sync_group(broker: Broker, context: RequestContext, request: SyncGroupRequest) -> SyncGroupResponse:
    if context.version >= FIRST_SYNC_WITH_PROTOCOL and None in (request.protocol_type, request.protocol_name):
        raise InconsistentGroupProtocol("SyncGroup names no protocol, which it must since version 5")
    reply = await broker.groups.sync(
        SyncRequest(
            group_id=request.group_id,
            member_id=request.member_id,
            generation=request.generation_id,
            instance_id=request.group_instance_id,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignments=tuple((item.member_id, item.assignment) for item in request.assignments),
        )
    )
    return SyncGroupResponse(
        throttle_time=context.session.throttle_time,
        error_code=reply.error,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol_name,
        assignment=reply.assignment,
    )


@handles(ApiKey.HEARTBEAT, answer_with(HeartbeatResponse))
async def heartbeat(broker: Broker, context: RequestContext, request: WireHeartbeat) -> HeartbeatResponse:
    try:
        error = await broker.groups.heartbeat(
            HeartbeatRequest(
                request.group_id, request.member_id, request.generation_id, request.group_instance_id
            )
        )
    except CoordinatorLoadInProgress:
        error = ErrorCode.none  # nobody is fenced before the group is known, so all is well
    return HeartbeatResponse(throttle_time=context.session.throttle_time, error_code=error)


@handles(ApiKey.LEAVE_GROUP, answer_with(LeaveGroupResponse, members=()))
async def leave_group(broker: Broker, context: RequestContext, request: Any) -> LeaveGroupResponse:
    is_many = context.version >= FIRST_LEAVE_OF_MANY
    leaving = (
        tuple(
            LeavingMember(member.member_id, member.group_instance_id, getattr(member, "reason", None))
            for member in request.members
        )
        if is_many
        else (LeavingMember(request.member_id),)
    )
    left = [
        member
        async for some in slices_in_turns(leaving)
        for member in await broker.groups.leave(request.group_id, tuple(some))
    ]
    return LeaveGroupResponse(
        throttle_time=context.session.throttle_time,
        error_code=ErrorCode.none if is_many else left[0].error,
        members=tuple(
            MemberResponse(
                member_id=member.member_id, group_instance_id=member.instance_id, error_code=member.error
            )
            for member in left
        ),
    )


@handles(ApiKey.LIST_GROUPS, answer_with(ListGroupsResponse, groups=()))
async def list_groups(
    broker: Broker, context: RequestContext, request: ListGroupsRequest
) -> ListGroupsResponse:
    is_operator = may(context, Operation.DESCRIBE, AclResource.CLUSTER, quietly=True)
    groups = tuple(
        ListedGroup(
            group_id=GroupId(group.group_id),
            protocol_type=group.protocol_type,
            group_state=group.state,
            group_type=group.type,
        )
        for group in await broker.groups.list(request.states_filter, request.types_filter)
        if is_operator or may(context, Operation.DESCRIBE, AclResource.GROUP, group.group_id, quietly=True)
    )
    return ListGroupsResponse(
        throttle_time=context.session.throttle_time, error_code=ErrorCode.none, groups=groups
    )


@handles(ApiKey.DESCRIBE_GROUPS)
async def describe_groups(
    broker: Broker, context: RequestContext, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    async def describe(group_id: str) -> DescribedGroup:
        operations = NOT_ASKED
        try:
            require(context, Operation.DESCRIBE, AclResource.GROUP, group_id)
            if request.include_authorized_operations:
                operations = operations_on(context, AclResource.GROUP, group_id)
            group = await broker.groups.describe(group_id)
        except KafkaError as error:
            is_dead = isinstance(error, GroupIdNotFound) and context.version < FIRST_DESCRIBE_WITH_NOT_FOUND
            return DescribedGroup(
                error_code=ErrorCode.none if is_dead else error.code,
                error_message=error_message(error),
                group_id=GroupId(group_id),
                group_state="Dead" if isinstance(error, GroupIdNotFound) else "",
                protocol_type="",
                protocol_data="",
                members=(),
                authorized_operations=operations,
            )
        return DescribedGroup(
            error_code=ErrorCode.none,
            group_id=GroupId(group_id),
            group_state=group.state,
            protocol_type=group.protocol_type,
            protocol_data=group.protocol_name,
            members=tuple(
                DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=member.metadata,
                    member_assignment=member.assignment,
                )
                for member in group.members
            ),
            authorized_operations=operations,
        )

    return DescribeGroupsResponse(
        throttle_time=context.session.throttle_time,
        groups=tuple([await describe(group_id) async for group_id in in_turns(request.groups)]),
    )


@handles(ApiKey.DELETE_GROUPS)
async def delete_groups(
    broker: Broker, context: RequestContext, request: DeleteGroupsRequest
) -> DeleteGroupsResponse:
    async def delete(group_id: str) -> DeletableGroupResult:
        error = ErrorCode.none
        try:
            require(context, Operation.DELETE, AclResource.GROUP, group_id)
            await broker.groups.delete_group(group_id)
        except KafkaError as raised:
            error = raised.code
        return DeletableGroupResult(group_id=GroupId(group_id), error_code=error)

    results = [await delete(name) async for name in in_turns(request.groups_names)]
    return DeleteGroupsResponse(throttle_time=context.session.throttle_time, results=tuple(results))
