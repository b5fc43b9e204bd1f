"""The first message of OAUTHBEARER (RFC 7628): what is taken for a token, and what is no message at all."""

from __future__ import annotations

import asyncio

import pytest

from ottla.security.sasl.exchange import Granted, LoginRefused
from ottla.security.sasl.oauth_bearer import OAuthBearerExchange


class Tokens:
    async def verify(self, token: str) -> Granted:
        return Granted(f"User:{token}")


def respond(message: bytes) -> bytes | Granted:
    return asyncio.run(OAuthBearerExchange(Tokens()).respond(message))


@pytest.mark.parametrize(
    "message",
    [
        b"n,,\x01auth=Bearer abc.d-e_f==\x01\x01",
        b"n,a=abc.d-e_f==,\x01host=here\x01AUTH=bearer  abc.d-e_f==\x01port=\x01\x01",
    ],
)
def test_the_token_is_found_among_the_pairs(message: bytes) -> None:
    assert respond(message) == Granted("User:abc.d-e_f==")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"y,,\x01auth=Bearer a\x01\x01",
        b"n,,\x01auth=Bearer a\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Basic a\x01\x01",
        b"n,,\x01host=here\x01\x01",
        b"n,,\x01=x\x01auth=Bearer a\x01\x01",
        b"n,,\x01\x01auth=Bearer a\x01\x01",
        b"n,a=other,\x01auth=Bearer a\x01\x01",
        b"n,,\x01" + b"auth=Bearer x\x01" * 4600 + b"!",
    ],
)
@pytest.mark.timeout(10)
def test_anything_else_is_refused_at_once(message: bytes) -> None:
    with pytest.raises(LoginRefused):
        respond(message)
