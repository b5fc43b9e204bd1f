"""CreateDelegationToken (versions 1 to 3), RenewDelegationToken, ExpireDelegationToken (1 to 2) and
DescribeDelegationToken (1 to 3): what a principal gives to others, so that they can log in as it for a while.

The active controller answers all but the last. Asked for by somebody whom nobody knows, or who has come with
a token itself: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.

Create: v2 flexible · v3 for an owner other than who asks (KIP-373) · Describe: v3 who asked for the token
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from kio.schema.create_delegation_token.v3.request import CreateDelegationTokenRequest
from kio.schema.create_delegation_token.v3.response import CreateDelegationTokenResponse
from kio.schema.describe_delegation_token.v3.request import DescribeDelegationTokenRequest
from kio.schema.describe_delegation_token.v3.response import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenResponse,
)
from kio.schema.expire_delegation_token.v2.request import ExpireDelegationTokenRequest
from kio.schema.expire_delegation_token.v2.response import ExpireDelegationTokenResponse
from kio.schema.renew_delegation_token.v2.request import RenewDelegationTokenRequest
from kio.schema.renew_delegation_token.v2.response import RenewDelegationTokenResponse
from kio.static.primitive import i64

from ottla.controller.delegation_tokens import TokenSettings
from ottla.handlers.authorized import may, require
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.registry import handles
from ottla.handlers.session import ANONYMOUS, Session
from ottla.metadata.delegation_tokens import delegation_tokens, token_hmac
from ottla.metadata.foreign_records import DelegationTokenRecord
from ottla.wire.acls import AclResource, Operation
from ottla.wire.api import ApiKey
from ottla.wire.errors import DelegationTokenRequestNotAllowed, ErrorCode, KafkaError
from ottla.wire.times import moment

_NO_TIME = moment(-1)


def _refuse_creation(
    context: RequestContext, request: CreateDelegationTokenRequest, error: KafkaError
) -> CreateDelegationTokenResponse:
    owner, requester = _parts(_owner(context.session, request)), _parts(context.session.principal)
    return CreateDelegationTokenResponse(
        error_code=error.code,
        principal_type=owner[0],
        principal_name=owner[1],
        token_requester_principal_type=requester[0],
        token_requester_principal_name=requester[1],
        issue_timestamp=_NO_TIME,
        expiry_timestamp=_NO_TIME,
        max_timestamp=_NO_TIME,
        token_id="",
        hmac=b"",
        throttle_time=context.session.throttle_time,
    )


def _refuse_change(response: Callable[..., Any]) -> Callable[..., Any]:
    def refuse(context: RequestContext, request: Any, error: KafkaError) -> Any:
        return response(
            error_code=error.code,
            expiry_timestamp=_NO_TIME,
            throttle_time=context.session.throttle_time,
        )

    return refuse


@handles(ApiKey.CREATE_DELEGATION_TOKEN, _refuse_creation)
async def create_delegation_token(
    broker: Broker, context: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    _check_may_ask(context.session)
    requester = context.session.principal
    owner = _owner(context.session, request)
    if owner != requester:
        require(context, Operation.CREATE_TOKENS, AclResource.USER, owner)
    made = await broker.controller.create_delegation_token(
        owner,
        requester,
        [f"{each.principal_type}:{each.principal_name}" for each in request.renewers],
        _milliseconds(request.max_lifetime),
    )
    token = made.token
    return CreateDelegationTokenResponse(
        error_code=ErrorCode.none,
        principal_type=_parts(owner)[0],
        principal_name=_parts(owner)[1],
        token_requester_principal_type=_parts(requester)[0],
        token_requester_principal_name=_parts(requester)[1],
        issue_timestamp=moment(token.issue_timestamp),
        expiry_timestamp=moment(token.expiration_timestamp),
        max_timestamp=moment(token.max_timestamp),
        token_id=token.token_id,
        hmac=made.hmac,
        throttle_time=context.session.throttle_time,
    )


@handles(ApiKey.RENEW_DELEGATION_TOKEN, _refuse_change(RenewDelegationTokenResponse))
async def renew_delegation_token(
    broker: Broker, context: RequestContext, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    _check_may_ask(context.session)
    expires_ms = await broker.controller.renew_delegation_token(
        request.hmac, context.session.principal, _milliseconds(request.renew_period)
    )
    return RenewDelegationTokenResponse(
        error_code=ErrorCode.none,
        expiry_timestamp=moment(expires_ms),
        throttle_time=context.session.throttle_time,
    )


@handles(ApiKey.EXPIRE_DELEGATION_TOKEN, _refuse_change(ExpireDelegationTokenResponse))
async def expire_delegation_token(
    broker: Broker, context: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    _check_may_ask(context.session)
    expires_ms = await broker.controller.expire_delegation_token(
        request.hmac, context.session.principal, _milliseconds(request.expiry_time_period)
    )
    return ExpireDelegationTokenResponse(
        error_code=ErrorCode.none,
        expiry_timestamp=moment(expires_ms),
        throttle_time=context.session.throttle_time,
    )


def _refuse_description(
    context: RequestContext, request: DescribeDelegationTokenRequest, error: KafkaError
) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(
        error_code=error.code, tokens=(), throttle_time=context.session.throttle_time
    )


@handles(ApiKey.DESCRIBE_DELEGATION_TOKEN, _refuse_description)
def describe_delegation_token(
    broker: Broker, context: RequestContext, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    _check_may_ask(context.session)
    secret = TokenSettings.from_config(broker.config).known_secret
    owners = request.owners
    asked = None if owners is None else {f"{each.principal_type}:{each.principal_name}" for each in owners}
    tokens = [
        token
        for token in delegation_tokens(broker.metadata.image)
        if (asked is None or token.owner in asked) and _is_shown(context, token)
    ]
    tokens.sort(key=lambda token: token.token_id)
    return DescribeDelegationTokenResponse(
        error_code=ErrorCode.none,
        tokens=tuple(_described(token, secret) for token in tokens),
        throttle_time=context.session.throttle_time,
    )


def _is_shown(context: RequestContext, token: DelegationTokenRecord) -> bool:
    """To those it is for; who describes a token gets it."""
    return (
        context.session.principal in (token.owner, token.requester, *token.renewers)
        or may(context, Operation.DESCRIBE, AclResource.DELEGATION_TOKEN, token.token_id, quietly=True)
        or may(context, Operation.DESCRIBE_TOKENS, AclResource.USER, token.owner, quietly=True)
    )


def _described(token: DelegationTokenRecord, secret: str) -> DescribedDelegationToken:
    owner, requester = _parts(token.owner), _parts(token.requester)
    return DescribedDelegationToken(
        principal_type=owner[0],
        principal_name=owner[1],
        token_requester_principal_type=requester[0],
        token_requester_principal_name=requester[1],
        issue_timestamp=i64(token.issue_timestamp),
        expiry_timestamp=i64(token.expiration_timestamp),
        max_timestamp=i64(token.max_timestamp),
        token_id=token.token_id,
        hmac=token_hmac(secret, token.token_id),
        renewers=tuple(
            DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name)
            for kind, name in map(_parts, token.renewers)
        ),
    )


def _check_may_ask(session: Session) -> None:
    if session.is_by_token or session.principal == ANONYMOUS:
        raise DelegationTokenRequestNotAllowed(
            "only who has logged in, and not with a token, may ask for one"
        )


def _owner(session: Session, request: CreateDelegationTokenRequest) -> str:
    if request.owner_principal_name:
        return f"{request.owner_principal_type}:{request.owner_principal_name}"
    return session.principal


def _parts(principal: str) -> tuple[str, str]:
    kind, _, name = principal.partition(":")
    return kind, name


def _milliseconds(period: timedelta) -> int:
    return period // timedelta(milliseconds=1)
