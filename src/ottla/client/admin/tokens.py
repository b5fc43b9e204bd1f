"""Delegation tokens: created, listed, renewed and ended."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from ottla.client.cluster import ClusterClient
from ottla.wire.api import ApiKey

AS_LONG_AS_ALLOWED = -1
AT_ONCE = -1


class Principal(NamedTuple):
    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


class Token(NamedTuple):
    id: str
    hmac: bytes
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issued: datetime
    expires: datetime
    ends: datetime
    """It cannot be renewed beyond this."""


async def describe_tokens(cluster: ClusterClient, owners: Sequence[Principal] | None = None) -> list[Token]:
    """All that the asking user may see."""
    asked = [_named(owner) for owner in owners] if owners else None
    answer = await cluster.ask(None, ApiKey.DESCRIBE_DELEGATION_TOKEN, {"owners": asked}, about="")
    return [
        _token(token, tuple(Principal(each.principal_type, each.principal_name) for each in token.renewers))
        for token in answer.tokens
    ]


async def create_token(
    cluster: ClusterClient,
    owner: Principal | None,
    renewers: Sequence[Principal],
    life_ms: int = AS_LONG_AS_ALLOWED,
) -> Token:
    """Of the asking user, unless another owner is named."""
    kind, name = owner if owner is not None else (None, None)
    values = {
        "owner_principal_type": kind,
        "owner_principal_name": name,
        "renewers": [_named(renewer) for renewer in renewers],
        "max_lifetime": life_ms,
    }
    answer = await cluster.ask(None, ApiKey.CREATE_DELEGATION_TOKEN, values, about="")
    return _token(answer, tuple(renewers))


async def renew_token(cluster: ClusterClient, hmac: bytes, for_ms: int = AS_LONG_AS_ALLOWED) -> datetime:
    """When it expires then."""
    values = {"hmac": hmac, "renew_period": for_ms}
    answer = await cluster.ask(None, ApiKey.RENEW_DELEGATION_TOKEN, values, about="")
    expires: datetime = answer.expiry_timestamp
    return expires


async def expire_token(cluster: ClusterClient, hmac: bytes, in_ms: int = AT_ONCE) -> datetime:
    values = {"hmac": hmac, "expiry_time_period": in_ms}
    answer = await cluster.ask(None, ApiKey.EXPIRE_DELEGATION_TOKEN, values, about="")
    expires: datetime = answer.expiry_timestamp
    return expires


def _named(principal: Principal) -> dict[str, str]:
    return {"principal_type": principal.type, "principal_name": principal.name}


def _token(answer: Any, renewers: tuple[Principal, ...]) -> Token:
    return Token(
        answer.token_id,
        answer.hmac,
        Principal(answer.principal_type, answer.principal_name),
        Principal(answer.token_requester_principal_type, answer.token_requester_principal_name),
        renewers,
        _moment(answer.issue_timestamp),
        _moment(answer.expiry_timestamp),
        _moment(answer.max_timestamp),
    )


def _moment(value: datetime | int) -> datetime:
    """Some versions have a time, others milliseconds."""
    return value if isinstance(value, datetime) else datetime.fromtimestamp(value / 1000).astimezone()
