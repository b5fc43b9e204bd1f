"""ControllerRegistration, version 0: a controller says where it listens and what it supports (KIP-919).

Which levels of features the cluster may have depends on all of its nodes.
"""

from __future__ import annotations

from uuid import UUID

from kio.schema.controller_registration.v0.request import ControllerRegistrationRequest
from kio.schema.controller_registration.v0.response import ControllerRegistrationResponse

from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.refusal import answer_with
from ottla.handlers.registry import handles
from ottla.metadata.cluster_records import RegisterControllerRecord
from ottla.metadata.records import Endpoint, SupportedFeature
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode

_NO_ID = UUID(int=0)


@handles(ApiKey.CONTROLLER_REGISTRATION, answer_with(ControllerRegistrationResponse), of_controller=True)
async def register_controller(
    broker: Broker, context: RequestContext, request: ControllerRegistrationRequest
) -> ControllerRegistrationResponse:
    await broker.controller.register_controller(
        RegisterControllerRecord(
            controller_id=request.controller_id,
            incarnation_id=request.incarnation_id or _NO_ID,
            end_points=tuple(
                Endpoint(
                    name=listener.name,
                    host=listener.host,
                    port=listener.port,
                    security_protocol=listener.security_protocol,
                )
                for listener in request.listeners
            ),
            features=tuple(
                SupportedFeature(
                    name=feature.name,
                    min_supported_version=feature.min_supported_version,
                    max_supported_version=feature.max_supported_version,
                )
                for feature in request.features
            ),
        )
    )
    return ControllerRegistrationResponse(
        throttle_time=context.session.throttle_time, error_code=ErrorCode.none, error_message=None
    )
