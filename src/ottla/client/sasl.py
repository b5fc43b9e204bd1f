"""The client's side of SASL: each mechanism is a generator of messages that is sent the broker's answers."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable, Generator
from typing import TypeAlias

from ottla.client.scram_keys import (
    ITERATIONS_MIN,
    attributes,
    client_key,
    salted_password,
    scram_keys,
    xor,
)

Exchange: TypeAlias = Generator[bytes, bytes, None]
"""Yields what to send; ValueError when the answer sent in is not the one a true broker would give."""

_GS2_HEADER = "n,,"  # no channel binding, no other identity
_BARE_MARK = "\x01"


def plain(username: str, password: str) -> Exchange:
    yield f"\0{username}\0{password}".encode()


def oauth_bearer(token: str) -> Exchange:
    refusal = yield f"{_GS2_HEADER}{_BARE_MARK}auth=Bearer {token}{_BARE_MARK}{_BARE_MARK}".encode()
    if refusal:
        raise ValueError(f"refused the token: {refusal.decode(errors='replace')}")


def scram(
    hash_name: str, username: str, password: str, nonce: Callable[[], str], *, is_token: bool = False
) -> Exchange:
    """RFC 5802 with SHA-256 or SHA-512: the password never crosses the wire and the broker proves itself.

    With a delegation token, its id and its HMAC take the place of name and password.
    """
    name = username.replace("=", "=3D").replace(",", "=2C")
    own_nonce = nonce()
    first_bare = f"n={name},r={own_nonce}" + (",tokenauth=true" if is_token else "")
    server_first = (yield f"{_GS2_HEADER}{first_bare}".encode()).decode()
    challenge = attributes(server_first)
    if not challenge.get("r", "").startswith(own_nonce):
        raise ValueError("answered SCRAM with a nonce that is not ours: this is no broker we asked")
    iterations = int(challenge["i"])
    if iterations < ITERATIONS_MIN:
        raise ValueError(f"asks for {iterations} SCRAM iterations, fewer than {ITERATIONS_MIN}")
    salted = salted_password(hash_name, password, base64.b64decode(challenge["s"]), iterations)
    keys = scram_keys(hash_name, salted)
    final_bare = f"c={base64.b64encode(_GS2_HEADER.encode()).decode()},r={challenge['r']}"
    signed = f"{first_bare},{server_first},{final_bare}".encode()
    proof = xor(client_key(hash_name, salted), hmac.digest(keys.stored, signed, hash_name))
    server_final = attributes((yield f"{final_bare},p={base64.b64encode(proof).decode()}".encode()).decode())
    if "e" in server_final:
        raise ValueError(f"refused the credentials: {server_final['e']}")
    expected = hmac.digest(keys.server, signed, hash_name)
    if not hmac.compare_digest(base64.b64decode(server_final.get("v", "")), expected):
        raise ValueError("does not know the password it checks: this is no broker we may trust")
