"""Delegation tokens: made, renewed, expired, and removed once they have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ottla.config import BrokerConfig
from ottla.config.key import LONG_MAX
from ottla.controller.command import Result
from ottla.metadata.delegation_tokens import delegation_tokens, token_hmac, token_with_hmac
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import MetadataRecord
from ottla.wire.errors import (
    DelegationTokenAuthDisabled,
    DelegationTokenExpired,
    DelegationTokenNotFound,
    DelegationTokenOwnerMismatch,
    InvalidPrincipalType,
)

if TYPE_CHECKING:
    from ottla.metadata.foreign_records import DelegationTokenRecord

REMOVED_AT_ONCE_MAX = 1000
_USER = "User:"


class MadeToken(NamedTuple):
    token: DelegationTokenRecord
    hmac: bytes


class TokenSettings(NamedTuple):
    secret: str | None
    lifetime_max_ms: int
    renewed_for_ms: int

    @classmethod
    def from_config(cls, config: BrokerConfig) -> TokenSettings:
        return cls(
            config.optional_string("delegation.token.secret.key"),
            config.integer("delegation.token.max.lifetime.ms"),
            config.integer("delegation.token.expiry.time.ms"),
        )

    @property
    def known_secret(self) -> str:
        if not self.secret:
            raise DelegationTokenAuthDisabled("set delegation.token.secret.key on all nodes to have tokens")
        return self.secret


def create_token(
    settings: TokenSettings,
    token_id: str,
    owner: str,
    requester: str,
    renewers: Sequence[str],
    lifetime_ms: int,
    now_ms: int,
) -> Result[MadeToken]:
    """`lifetime_ms` of nothing or less stands for as long as the settings allow."""
    from ottla.metadata.foreign_records import DelegationTokenRecord

    secret = settings.known_secret
    if not all(renewer.startswith(_USER) for renewer in renewers):
        raise InvalidPrincipalType("renewers must be principals of type User")
    lifetime_max_ms = settings.lifetime_max_ms
    if lifetime_ms > 0:
        lifetime_max_ms = min(lifetime_max_ms, lifetime_ms)
    ends_ms = _later(now_ms, lifetime_max_ms)
    token = DelegationTokenRecord(
        owner=owner,
        requester=requester,
        renewers=tuple(renewers),
        issue_timestamp=now_ms,
        max_timestamp=ends_ms,
        expiration_timestamp=min(ends_ms, _later(now_ms, settings.renewed_for_ms)),
        token_id=token_id,
    )
    return Result([token], MadeToken(token, token_hmac(secret, token_id)))


def renew_token(
    image: MetadataImage, settings: TokenSettings, shown: bytes, principal: str, period_ms: int, now_ms: int
) -> Result[int]:
    """When it expires now."""
    token = _found(image, settings, shown)
    _check_alive(token, now_ms)
    _check_may_renew(token, principal)
    period_max_ms = settings.renewed_for_ms
    if period_ms > 0:
        period_max_ms = min(period_max_ms, period_ms)
    return _expiring(token, _later(now_ms, period_max_ms))


def expire_token(
    image: MetadataImage, settings: TokenSettings, shown: bytes, principal: str, period_ms: int, now_ms: int
) -> Result[int]:
    """When it expires now; below zero, at once."""
    from ottla.metadata.foreign_records import RemoveDelegationTokenRecord

    token = _found(image, settings, shown)
    _check_may_renew(token, principal)
    if period_ms < 0:
        return Result([RemoveDelegationTokenRecord(token_id=token.token_id)], now_ms)
    _check_alive(token, now_ms)
    return _expiring(token, _later(now_ms, period_ms))


def remove_expired(image: MetadataImage, now_ms: int) -> Result[None]:
    from ottla.metadata.foreign_records import RemoveDelegationTokenRecord

    expired = sorted(token.token_id for token in delegation_tokens(image) if _is_over(token, now_ms))
    records: list[MetadataRecord] = [
        RemoveDelegationTokenRecord(token_id=token_id) for token_id in expired[:REMOVED_AT_ONCE_MAX]
    ]
    return Result(records, None)


def _found(image: MetadataImage, settings: TokenSettings, shown: bytes) -> DelegationTokenRecord:
    token = token_with_hmac(image, settings.known_secret, shown)
    if token is None:
        raise DelegationTokenNotFound("no delegation token has this HMAC")
    return token


def _expiring(token: DelegationTokenRecord, at_ms: int) -> Result[int]:
    expires_ms = min(token.max_timestamp, at_ms)
    return Result([replace(token, expiration_timestamp=expires_ms)], expires_ms)


def _check_alive(token: DelegationTokenRecord, now_ms: int) -> None:
    if _is_over(token, now_ms):
        raise DelegationTokenExpired("the delegation token has expired")


def _check_may_renew(token: DelegationTokenRecord, principal: str) -> None:
    if principal != token.owner and principal not in token.renewers:
        raise DelegationTokenOwnerMismatch("only the owner of a token and its renewers may change it")


def _is_over(token: DelegationTokenRecord, now_ms: int) -> bool:
    return token.max_timestamp < now_ms or token.expiration_timestamp < now_ms


def _later(now_ms: int, period_ms: int) -> int:
    return min(now_ms + period_ms, LONG_MAX)
