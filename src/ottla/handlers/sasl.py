"""SaslHandshake, versions 0 and 1, and SaslAuthenticate, versions 0 to 2: a client proves who it is.

The first names a mechanism, the second carries its messages; after version 0 of the first they come without
any header, as before KIP-152. On a listener that asks nobody who they are both are ILLEGAL_SASL_STATE. A
failed login is answered late, says no more than that it failed, and ends the connection.

SaslAuthenticate: v1 how long the session may last (KIP-368) · v2 flexible
"""

from __future__ import annotations

import logging

from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
from kio.schema.sasl_authenticate.v2.response import SaslAuthenticateResponse
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest
from kio.schema.sasl_handshake.v1.response import SaslHandshakeResponse

from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.registry import handles
from ottla.security.sasl.authentication import IllegalStep, LoginRefused
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.times import period

log = logging.getLogger(__name__)


@handles(ApiKey.SASL_HANDSHAKE)
async def sasl_handshake(
    broker: Broker, context: RequestContext, request: SaslHandshakeRequest
) -> SaslHandshakeResponse:
    authentication = context.session.authentication
    if authentication is None:
        return SaslHandshakeResponse(error_code=ErrorCode.illegal_sasl_state, mechanisms=())
    if authentication.give_up():
        await authentication.delay_refusal()
        return SaslHandshakeResponse(error_code=ErrorCode.illegal_sasl_state, mechanisms=())
    is_taken = authentication.begin(request.mechanism, takes_raw_tokens=context.version == 0)
    return SaslHandshakeResponse(
        error_code=ErrorCode.none if is_taken else ErrorCode.unsupported_sasl_mechanism,
        mechanisms=authentication.mechanisms,
    )


@handles(ApiKey.SASL_AUTHENTICATE)
async def sasl_authenticate(
    broker: Broker, context: RequestContext, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    authentication = context.session.authentication
    if authentication is None:
        message = "SaslAuthenticate request received after successful authentication"
        return SaslAuthenticateResponse(
            error_code=ErrorCode.illegal_sasl_state, error_message=message, auth_bytes=b""
        )
    try:
        answer = await authentication.step(request.auth_bytes)
    except LoginRefused as refusal:
        await authentication.delay_refusal()
        is_illegal = isinstance(refusal, IllegalStep)
        return SaslAuthenticateResponse(
            error_code=ErrorCode.illegal_sasl_state if is_illegal else ErrorCode.sasl_authentication_failed,
            error_message=str(refusal),
            auth_bytes=b"",
        )
    return SaslAuthenticateResponse(
        error_code=ErrorCode.none,
        error_message=None,
        auth_bytes=answer.message,
        session_lifetime=period(answer.lifetime_ms),
    )
