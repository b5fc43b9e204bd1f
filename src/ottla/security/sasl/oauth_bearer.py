"""OAUTHBEARER (RFC 7628): the client shows a token that somebody else has signed."""

from __future__ import annotations

import re
from typing import Protocol

from ottla.security.sasl.exchange import Granted, LoginRefused

_FIRST = re.compile(
    r"n,(?:a=(?P<authzid>[^,]*))?,\x01(?:[A-Za-z]+=[^\x01]*\x01)*?"
    r"auth=Bearer +(?P<token>[-_~+/.A-Za-z0-9]+=*)\x01(?:[A-Za-z]+=[^\x01]*\x01)*\x01",
    re.IGNORECASE,
)
_REFUSAL = b'{"status":"invalid_token"}'


class BearerTokens(Protocol):
    async def verify(self, token: str) -> Granted:
        """Raises LoginRefused."""
        ...


class OAuthBearerExchange:
    """A refusal takes two steps: the client is told why in JSON, acknowledges that, and fails."""

    def __init__(self, tokens: BearerTokens) -> None:
        self._tokens = tokens
        self._refusal: LoginRefused | None = None

    async def respond(self, message: bytes) -> bytes | Granted:
        if self._refusal is not None:
            raise self._refusal
        found = _FIRST.fullmatch(message.decode(errors="replace"))
        if found is None:
            raise LoginRefused("Invalid OAUTHBEARER client first message")
        try:
            granted = await self._tokens.verify(found["token"])
        except LoginRefused as refusal:
            self._refusal = refusal
            return _REFUSAL
        authorization_id = found["authzid"] or ""
        if authorization_id and granted.principal != f"User:{authorization_id}":
            raise LoginRefused(
                "Authentication failed: Client requested an authorization id that is different from the "
                "token's principal name"
            )
        return granted
