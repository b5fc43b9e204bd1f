"""DescribeCluster, versions 0 to 2: the brokers, the cluster id, and whom to send controller requests to.

Every broker takes controller requests, so the controller named is the broker that answers. Only broker
endpoints can be described here; controllers have their own listener.

v1 endpoint type (KIP-919) · v2 fenced brokers on request (KIP-1073)
"""

from __future__ import annotations

from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.describe_cluster.v2.response import DescribeClusterBroker, DescribeClusterResponse
from kio.schema.types import BrokerId
from kio.static.primitive import i32

from ottla.handlers.authorized import CLUSTER_OPERATIONS, NOT_ASKED
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.nodes import nodes_on
from ottla.handlers.registry import handles
from ottla.handlers.throttle import NOT_THROTTLED
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode

BROKERS = 1
CONTROLLERS = 2


@handles(ApiKey.DESCRIBE_CLUSTER)
def describe_cluster(
    broker: Broker, context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    if request.endpoint_type != BROKERS:
        known = request.endpoint_type == CONTROLLERS
        return DescribeClusterResponse(
            throttle_time=NOT_THROTTLED,
            error_code=ErrorCode.mismatched_endpoint_type if known else ErrorCode.unsupported_endpoint_type,
            error_message=(
                f"This listener describes brokers (endpoint type {BROKERS}), not {request.endpoint_type}."
            ),
            cluster_id="",
            brokers=(),
        )
    asked = request.include_cluster_authorized_operations
    return DescribeClusterResponse(
        throttle_time=NOT_THROTTLED,
        error_code=ErrorCode.none,
        cluster_id=broker.cluster_id,
        controller_id=BrokerId(broker.node_id),
        brokers=tuple(
            DescribeClusterBroker(
                broker_id=BrokerId(node.id),
                host=node.host,
                port=i32(node.port),
                rack=node.rack,
                is_fenced=node.fenced,
            )
            for node in nodes_on(broker.controller.image, context.listener).values()
            if not node.fenced or request.include_fenced_brokers
        ),
        cluster_authorized_operations=CLUSTER_OPERATIONS if asked else NOT_ASKED,
    )
