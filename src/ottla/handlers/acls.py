"""DescribeAcls, CreateAcls, DeleteAcls, versions 1 to 3: there is no authorizer, and they say so.

Tools that copy access rules between clusters, such as MirrorMaker, take SECURITY_DISABLED for "nothing to
copy"; a request that is not known at all is an error to them, each time they ask.

v1 pattern types (KIP-290) · v2 flexible · v3 users as a resource type
"""

from __future__ import annotations

from kio.schema.create_acls.v3.request import CreateAclsRequest
from kio.schema.create_acls.v3.response import AclCreationResult, CreateAclsResponse
from kio.schema.delete_acls.v3.request import DeleteAclsRequest
from kio.schema.delete_acls.v3.response import DeleteAclsFilterResult, DeleteAclsResponse
from kio.schema.describe_acls.v3.request import DescribeAclsRequest
from kio.schema.describe_acls.v3.response import DescribeAclsResponse

from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.registry import handles
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode

_DISABLED = ErrorCode.security_disabled
_REASON = "No Authorizer is configured."


@handles(ApiKey.DESCRIBE_ACLS)
def describe_acls(
    broker: Broker, context: RequestContext, request: DescribeAclsRequest
) -> DescribeAclsResponse:
    return DescribeAclsResponse(
        throttle_time=context.session.throttle_time, error_code=_DISABLED, error_message=_REASON, resources=()
    )


@handles(ApiKey.CREATE_ACLS)
def create_acls(broker: Broker, context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    refused = AclCreationResult(error_code=_DISABLED, error_message=_REASON)
    return CreateAclsResponse(
        throttle_time=context.session.throttle_time, results=(refused,) * len(request.creations)
    )


@handles(ApiKey.DELETE_ACLS)
def delete_acls(broker: Broker, context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    refused = DeleteAclsFilterResult(error_code=_DISABLED, error_message=_REASON, matching_acls=())
    return DeleteAclsResponse(
        throttle_time=context.session.throttle_time, filter_results=(refused,) * len(request.filters)
    )
