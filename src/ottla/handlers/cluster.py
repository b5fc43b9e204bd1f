"""DescribeCluster, versions 0 to 2: the brokers, the cluster id, and whom to send controller requests to.

Every broker takes controller requests, so the controller named is the broker that answers. On a listener for
clients brokers are described; on one of the controller quorum its voters, and who leads them.

v1 endpoint type (KIP-919) · v2 fenced brokers on request (KIP-1073)
"""

from __future__ import annotations

from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.describe_cluster.v2.response import DescribeClusterBroker, DescribeClusterResponse
from kio.schema.types import BrokerId
from kio.static.primitive import i8, i32

from ottla.handlers.authorized import NOT_ASKED, may, operations_on
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.nodes import NOBODY, nodes_on, whom_to_ask
from ottla.handlers.registry import CONTROLLER_REGISTRY, handles
from ottla.wire.acls import AclResource, Operation
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode

BROKERS = 1
CONTROLLERS = 2


@handles(ApiKey.DESCRIBE_CLUSTER)
def describe_cluster(
    broker: Broker, context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    to_controllers = context.session.served is CONTROLLER_REGISTRY
    served = CONTROLLERS if to_controllers else BROKERS
    if request.endpoint_type != served:
        known = request.endpoint_type in {BROKERS, CONTROLLERS}
        return DescribeClusterResponse(
            throttle_time=context.session.throttle_time,
            error_code=ErrorCode.mismatched_endpoint_type if known else ErrorCode.unsupported_endpoint_type,
            error_message=(
                f"This listener describes {'controllers' if to_controllers else 'brokers'} (endpoint type "
                f"{served}), not {request.endpoint_type}."
            ),
            cluster_id="",
            brokers=(),
        )
    if to_controllers:
        return _describe_controllers(broker, context, request)
    nodes = nodes_on(broker.metadata.image, context.session.listener)
    alive = [node.id for node in nodes.values() if not node.fenced]
    return DescribeClusterResponse(
        throttle_time=context.session.throttle_time,
        error_code=ErrorCode.none,
        cluster_id=broker.cluster_id,
        controller_id=BrokerId(whom_to_ask(broker.node_id, alive)),
        brokers=tuple(
            DescribeClusterBroker(
                broker_id=BrokerId(node.id),
                host=node.host,
                port=i32(node.port),
                rack=node.rack,
                is_fenced=node.fenced,
            )
            for node in nodes.values()
            if not node.fenced or request.include_fenced_brokers
        ),
        cluster_authorized_operations=_operations(context, request),
    )


def _operations(context: RequestContext, request: DescribeClusterRequest) -> i32:
    if not request.include_cluster_authorized_operations:
        return NOT_ASKED
    if not may(context, Operation.DESCRIBE, AclResource.CLUSTER):
        return i32(0)
    return operations_on(context, AclResource.CLUSTER)


def _describe_controllers(
    broker: Broker, context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    if not may(context, Operation.ALTER, AclResource.CLUSTER):
        return DescribeClusterResponse(
            throttle_time=context.session.throttle_time,
            error_code=ErrorCode.cluster_authorization_failed,
            endpoint_type=i8(CONTROLLERS),
            cluster_id="",
            brokers=(),
        )
    quorum = broker.quorum.describe()
    voters = [(voter.key.id, broker.quorum.address(voter.key.id)) for voter in quorum.voter_set.voters]
    return DescribeClusterResponse(
        throttle_time=context.session.throttle_time,
        error_code=ErrorCode.none,
        endpoint_type=i8(CONTROLLERS),
        cluster_id=broker.cluster_id,
        controller_id=BrokerId(NOBODY if quorum.leader_id is None else quorum.leader_id),
        brokers=tuple(
            DescribeClusterBroker(
                broker_id=BrokerId(voter_id),
                host=address[0],
                port=i32(address[1]),
                rack=None,
                is_fenced=False,
            )
            for voter_id, address in voters
            if address is not None
        ),
        cluster_authorized_operations=_operations(context, request),
    )
