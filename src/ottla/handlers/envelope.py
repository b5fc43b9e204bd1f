"""Envelope, version 0: a client's request, handed on by the broker it was sent to (KIP-590).

It is answered as if the client had asked here. Only what the active controller answers may be handed on;
INVALID_REQUEST for anything else, NOT_CONTROLLER where this node is not the one, or is not any more
when it would have answered: the broker asks the next one then.
"""

from __future__ import annotations

import struct

from kio.schema.envelope.v0.request import EnvelopeRequest
from kio.schema.envelope.v0.response import EnvelopeResponse

from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.refusal import answer_with
from ottla.handlers.registry import CONTROLLER_REGISTRY, handles
from ottla.handlers.session import Session
from ottla.wire.api import ApiKey
from ottla.wire.envelopes import pack_answer, unpack_host, unpack_principal
from ottla.wire.errors import ErrorCode
from ottla.wire.frame import MalformedFrame
from ottla.wire.messages import SerialError, codec
from ottla.wire.primitives import skip_tags
from ottla.wire.refused_answers import is_for_another_controller

_HEADER = struct.Struct(">hhih")  # api key, version, correlation id, length of the client id


@handles(ApiKey.ENVELOPE, answer_with(EnvelopeResponse), of_controller=True)
async def envelope(broker: Broker, context: RequestContext, request: EnvelopeRequest) -> EnvelopeResponse:
    if not broker.controller.is_active:
        return EnvelopeResponse(error_code=ErrorCode.not_controller)
    frame = memoryview(request.request_data)
    try:
        session = _session(context, request)
        key, version, correlation_id, client_id_length = _HEADER.unpack_from(frame)
        api = CONTROLLER_REGISTRY.get(key)
        if api is None or not api.is_forwarded:
            return EnvelopeResponse(error_code=ErrorCode.invalid_request)
        if not api.min_version <= version <= api.max_version:
            return EnvelopeResponse(error_code=ErrorCode.unsupported_version)
        handler = api.load()
        message = codec(key, version)
        at = session.see_client_id(frame, client_id_length)
        if message.flexible:
            at = skip_tags(frame, at)
        inner = message.read(frame, at)
    except (MalformedFrame, SerialError, ValueError, LookupError, struct.error):
        return EnvelopeResponse(error_code=ErrorCode.invalid_request)
    result = handler(broker, RequestContext(session, version, correlation_id, api.key), inner)
    if api.is_async:
        result = await result
    if is_for_another_controller(api.key, result):
        return EnvelopeResponse(error_code=ErrorCode.not_controller)
    answer = pack_answer(correlation_id, message.response_header_flexible, message.write(result))
    return EnvelopeResponse(response_data=answer, error_code=ErrorCode.none)


def _session(context: RequestContext, request: EnvelopeRequest) -> Session:
    """The client's own, as far as the broker that it talks to has told of it."""
    session = Session(context.session.listener, unpack_host(request.client_host_address), 0)
    session.authorizer, session.quotas = context.session.authorizer, context.session.quotas
    if request.request_principal is not None:
        session.principal, session.is_by_token = unpack_principal(request.request_principal)
    return session
