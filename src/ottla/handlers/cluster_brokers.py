"""BrokerRegistration (versions 0 to 4), BrokerHeartbeat (0 to 2), UnregisterBroker (0): brokers come and go.

What brokers ask the active controller, and the administrator who wants one forgotten.

BrokerRegistration: v1 brokers that migrate from ZooKeeper, which are refused · v2 directories · v3 the epoch
before a clean shutdown · v4 features that start at level 0
BrokerHeartbeat: v1 directories that failed · v2 directories that are to get nothing new, which has no effect
"""

from __future__ import annotations

from functools import partial
from uuid import UUID

from kio.schema.broker_heartbeat.v2.request import BrokerHeartbeatRequest
from kio.schema.broker_heartbeat.v2.response import BrokerHeartbeatResponse
from kio.schema.broker_registration.v4.request import BrokerRegistrationRequest
from kio.schema.broker_registration.v4.response import BrokerRegistrationResponse
from kio.schema.unregister_broker.v0.request import UnregisterBrokerRequest
from kio.schema.unregister_broker.v0.response import UnregisterBrokerResponse
from kio.static.primitive import i64

from ottla.controller.brokers import BrokerRegistration
from ottla.controller.heartbeats import BrokerHeartbeat
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.refusal import answer_with
from ottla.handlers.registry import handles
from ottla.metadata.records import Endpoint, SupportedFeature
from ottla.wire.api import ApiKey
from ottla.wire.errors import BrokerIdNotRegistered, ErrorCode, InconsistentClusterId

_NO_ID = UUID(int=0)


@handles(ApiKey.BROKER_REGISTRATION, answer_with(BrokerRegistrationResponse), of_controller=True)
async def register_broker(
    broker: Broker, context: RequestContext, request: BrokerRegistrationRequest
) -> BrokerRegistrationResponse:
    if request.cluster_id != broker.cluster_id:
        raise InconsistentClusterId(
            f"Broker {request.broker_id} belongs to the cluster {request.cluster_id}, this is "
            f"{broker.cluster_id}; format its directories for this cluster, or point it at its own"
        )
    if request.is_migrating_zk_broker:
        raise BrokerIdNotRegistered("Controller does not support registering ZK brokers.")
    registration = BrokerRegistration(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id or _NO_ID,
        endpoints=tuple(
            Endpoint(
                name=listener.name,
                host=listener.host,
                port=listener.port,
                security_protocol=listener.security_protocol,
            )
            for listener in request.listeners
        ),
        directories=tuple(directory or _NO_ID for directory in request.log_dirs),
        rack=request.rack,
        features=tuple(
            SupportedFeature(
                name=feature.name,
                min_supported_version=feature.min_supported_version,
                max_supported_version=feature.max_supported_version,
            )
            for feature in request.features
        ),
        previous_epoch=request.previous_broker_epoch,
        beside_controller=False,
    )
    epoch = await broker.controller.register_broker(registration)
    return BrokerRegistrationResponse(
        throttle_time=context.session.throttle_time, error_code=ErrorCode.none, broker_epoch=i64(epoch)
    )


@handles(
    ApiKey.BROKER_HEARTBEAT, answer_with(BrokerHeartbeatResponse, should_shut_down=False), of_controller=True
)
async def heartbeat(
    broker: Broker, context: RequestContext, request: BrokerHeartbeatRequest
) -> BrokerHeartbeatResponse:
    # Should the broker's process die, this is how the controller hears of it first.
    context.session.on_closed = partial(
        broker.controller.cut_off_broker, request.broker_id, request.broker_epoch
    )
    reply = await broker.controller.heartbeat(
        BrokerHeartbeat(
            broker_id=request.broker_id,
            broker_epoch=request.broker_epoch,
            metadata_offset=request.current_metadata_offset,
            wants_fence=request.want_fence,
            wants_shutdown=request.want_shut_down,
            offline_directories=tuple(directory or _NO_ID for directory in request.offline_log_dirs),
        )
    )
    return BrokerHeartbeatResponse(
        throttle_time=context.session.throttle_time,
        error_code=ErrorCode.none,
        is_caught_up=reply.is_caught_up,
        is_fenced=reply.is_fenced,
        should_shut_down=reply.should_shut_down,
    )


@handles(ApiKey.UNREGISTER_BROKER, answer_with(UnregisterBrokerResponse))
async def unregister_broker(
    broker: Broker, context: RequestContext, request: UnregisterBrokerRequest
) -> UnregisterBrokerResponse:
    await broker.controller.unregister_broker(request.broker_id)
    return UnregisterBrokerResponse(
        throttle_time=context.session.throttle_time, error_code=ErrorCode.none, error_message=None
    )
