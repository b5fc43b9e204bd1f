"""DescribeAcls, CreateAcls, DeleteAcls, versions 1 to 3: the rules by which the authorizer decides.

Without an authorizer they say so. Tools that copy access rules between clusters, such as MirrorMaker, take
SECURITY_DISABLED for "nothing to copy".

v1 pattern types (KIP-290) · v2 flexible · v3 users as a resource type
"""

from __future__ import annotations

from itertools import groupby

from kio.schema.create_acls.v3.request import CreateAclsRequest
from kio.schema.create_acls.v3.response import AclCreationResult, CreateAclsResponse
from kio.schema.delete_acls.v3.request import DeleteAclsFilter, DeleteAclsRequest
from kio.schema.delete_acls.v3.response import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsResponse,
)
from kio.schema.describe_acls.v3.request import DescribeAclsRequest
from kio.schema.describe_acls.v3.response import AclDescription, DescribeAclsResource, DescribeAclsResponse
from kio.static.primitive import i8

from ottla.controller.acls import AclDeletion
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.outcome import error_code, error_message
from ottla.handlers.refusal import answer_with
from ottla.handlers.registry import handles
from ottla.runtime.turns import in_turns
from ottla.wire.acls import Acl, AclFilter
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode, InvalidRequest, KafkaError, SecurityDisabled


def _check_enabled(context: RequestContext) -> None:
    if context.session.authorizer is None:
        raise SecurityDisabled("No Authorizer is configured.")


def _pattern(acl: Acl) -> tuple[int, str, int]:
    return acl.resource_type, acl.resource_name, acl.pattern_type


@handles(ApiKey.DESCRIBE_ACLS, answer_with(DescribeAclsResponse, resources=()))
async def describe_acls(
    broker: Broker, context: RequestContext, request: DescribeAclsRequest
) -> DescribeAclsResponse:
    _check_enabled(context)
    wanted = _filter(request)
    if wanted.has_unknown:
        raise InvalidRequest("Unknown filter.")
    acls = broker.metadata.image.acls.by_id
    found = sorted([acl async for acl in in_turns(acls.values()) if wanted.matches(acl)])
    resources = [
        DescribeAclsResource(
            resource_type=i8(kind),
            resource_name=name,
            pattern_type=i8(pattern_type),
            acls=tuple(
                AclDescription(
                    principal=acl.principal,
                    host=acl.host,
                    operation=i8(acl.operation),
                    permission_type=i8(acl.permission),
                )
                for acl in of_resource
            ),
        )
        for (kind, name, pattern_type), of_resource in groupby(found, key=_pattern)
    ]
    return DescribeAclsResponse(
        throttle_time=context.session.throttle_time,
        error_code=ErrorCode.none,
        error_message=None,
        resources=tuple(resources),
    )


def _filter(asked: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    return AclFilter(
        asked.resource_type_filter,
        asked.resource_name_filter,
        asked.pattern_type_filter,
        asked.principal_filter,
        asked.host_filter,
        asked.operation,
        asked.permission_type,
    )


def _refused_creations(
    context: RequestContext, request: CreateAclsRequest, error: KafkaError
) -> CreateAclsResponse:
    refused = AclCreationResult(error_code=error.code, error_message=error_message(error))
    return CreateAclsResponse(
        throttle_time=context.session.throttle_time, results=(refused,) * len(request.creations)
    )


@handles(ApiKey.CREATE_ACLS, _refused_creations)
async def create_acls(
    broker: Broker, context: RequestContext, request: CreateAclsRequest
) -> CreateAclsResponse:
    _check_enabled(context)
    acls = [
        Acl(
            creation.resource_type,
            creation.resource_name,
            creation.resource_pattern_type,
            creation.principal,
            creation.host,
            creation.operation,
            creation.permission_type,
        )
        async for creation in in_turns(request.creations)
    ]
    errors = await broker.controller.create_acls(acls)
    results = [
        AclCreationResult(error_code=error_code(error), error_message=error_message(error))
        for error in errors
    ]
    return CreateAclsResponse(throttle_time=context.session.throttle_time, results=tuple(results))


def _refused_deletions(
    context: RequestContext, request: DeleteAclsRequest, error: KafkaError
) -> DeleteAclsResponse:
    refused = _deleted(AclDeletion(error=error))
    return DeleteAclsResponse(
        throttle_time=context.session.throttle_time, filter_results=(refused,) * len(request.filters)
    )


@handles(ApiKey.DELETE_ACLS, _refused_deletions)
async def delete_acls(
    broker: Broker, context: RequestContext, request: DeleteAclsRequest
) -> DeleteAclsResponse:
    _check_enabled(context)
    outcomes = await broker.controller.delete_acls([_filter(asked) for asked in request.filters])
    return DeleteAclsResponse(
        throttle_time=context.session.throttle_time,
        filter_results=tuple([_deleted(outcome) async for outcome in in_turns(outcomes)]),
    )


def _deleted(outcome: AclDeletion) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(
        error_code=error_code(outcome.error),
        error_message=error_message(outcome.error),
        matching_acls=tuple(
            DeleteAclsMatchingAcl(
                error_code=ErrorCode.none,
                error_message=None,
                resource_type=i8(acl.resource_type),
                resource_name=acl.resource_name,
                pattern_type=i8(acl.pattern_type),
                principal=acl.principal,
                host=acl.host,
                operation=i8(acl.operation),
                permission_type=i8(acl.permission),
            )
            for acl in outcome.deleted
        ),
    )
