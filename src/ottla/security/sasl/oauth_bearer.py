"""OAUTHBEARER (RFC 7628): the client shows a token that somebody else has signed."""

from __future__ import annotations

import re
from typing import Protocol

from ottla.security.sasl.exchange import Granted, LoginRefused

_HEADER = re.compile(r"n,(?:a=(?P<authzid>[^,]*))?,")
_PAIR = re.compile(r"(?P<name>[A-Za-z]+)=(?P<value>.*)", re.DOTALL)
_TOKEN = re.compile(r"Bearer +(?P<token>[-_~+/.A-Za-z0-9]+=*)", re.IGNORECASE)
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
        found = _read(message.decode(errors="replace"))
        if found is None:
            raise LoginRefused("Invalid OAUTHBEARER client first message")
        authorization_id, token = found
        try:
            granted = await self._tokens.verify(token)
        except LoginRefused as refusal:
            self._refusal = refusal
            return _REFUSAL
        if authorization_id and granted.principal != f"User:{authorization_id}":
            raise LoginRefused(
                "Authentication failed: Client requested an authorization id that is different from the "
                "token's principal name"
            )
        return granted


def _read(text: str) -> tuple[str, str] | None:
    """Authorization id and token of a client's first message: a header and pairs, each with a byte 1 behind
    it, and one more at the end."""
    head, _, rest = text.partition("\x01")
    header = _HEADER.fullmatch(head)
    if header is None or not rest.endswith("\x01\x01"):
        return None
    pairs = [_PAIR.fullmatch(pair) for pair in rest[:-2].split("\x01")]
    named = [(pair["name"].lower(), pair["value"]) for pair in pairs if pair is not None]
    token = next((_TOKEN.fullmatch(value) for name, value in named if name == "auth"), None)
    if len(named) < len(pairs) or token is None:
        return None
    return header["authzid"] or "", token["token"]
