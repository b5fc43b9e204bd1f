"""The broker's half of SCRAM against the client's, and against those who do it wrong."""

from __future__ import annotations

import asyncio

import pytest

from ottla.client.sasl import scram
from ottla.client.scram_keys import HASHES, salted_password, scram_keys
from ottla.security.sasl.exchange import Granted, LoginRefused
from ottla.security.sasl.scram import ScramCredential, ScramExchange, TokenCredential

SALT = b"pepper"


def credential(mechanism: str, password: str, iterations: int = 4096) -> ScramCredential:
    salted = salted_password(HASHES[mechanism], password, SALT, iterations)
    return ScramCredential(SALT, scram_keys(HASHES[mechanism], salted), iterations)


class Users:
    def credential(self, mechanism: str, name: str) -> ScramCredential | None:
        return credential(mechanism, "secret", 5000) if name == "a,b=c" else None

    async def token_credential(self, mechanism: str, token_id: str) -> TokenCredential | None:
        if token_id != "token":
            return None
        return TokenCredential(credential(mechanism, "hmac"), "User:owner", 77)

    def made_up_salt(self, mechanism: str, name: str) -> bytes:
        return b"made up"


def log_in(
    mechanism: str,
    name: str,
    password: str,
    *,
    is_token: bool = False,
    change: tuple[bytes, bytes] = (b"", b""),
) -> Granted:
    """`change` is made to the client's last message."""
    server = ScramExchange(mechanism, Users(), lambda: "server")
    client = scram(HASHES[mechanism], name, password, lambda: "client", is_token=is_token)

    async def talk() -> Granted:
        challenge = await server.respond(next(client))
        assert isinstance(challenge, bytes)
        granted = await server.respond(client.send(challenge).replace(*change))
        assert isinstance(granted, Granted)
        return granted

    granted = asyncio.run(talk())
    if change == (b"", b""):
        with pytest.raises(StopIteration):
            # The client is convinced that the broker knows the password, too.
            client.send(granted.message)
    return granted


@pytest.mark.parametrize("mechanism", HASHES)
def test_both_sides_are_convinced(mechanism: str) -> None:
    granted = log_in(mechanism, "a,b=c", "secret")
    assert (granted.principal, granted.by_token, granted.expires_at_ms) == ("User:a,b=c", False, None)


def test_a_token_stands_for_its_owner_until_it_expires() -> None:
    granted = log_in("SCRAM-SHA-512", "token", "hmac", is_token=True)
    assert (granted.principal, granted.by_token, granted.expires_at_ms) == ("User:owner", True, 77)
    with pytest.raises(LoginRefused):
        log_in("SCRAM-SHA-512", "token", "hmac")
    with pytest.raises(LoginRefused):
        log_in("SCRAM-SHA-512", "a,b=c", "secret", is_token=True)


@pytest.mark.parametrize(
    ("name", "password", "change"),
    [
        ("a,b=c", "wrong", (b"", b"")),
        ("unknown", "secret", (b"", b"")),
        ("a,b=c", "secret", (b"clientserver", b"clientother")),
        ("a,b=c", "secret", (b"c=biws", b"c=eSws")),
        ("a,b=c", "secret", (b"p=", b"p=AAAA")),
        ("a,b=c", "secret", (b"p=", b"p=!!")),
        ("a,b=c", "secret", (b",p=", b",q=")),
    ],
)
def test_all_others_are_told_the_same(name: str, password: str, change: tuple[bytes, bytes]) -> None:
    with pytest.raises(LoginRefused) as refused:
        log_in("SCRAM-SHA-256", name, password, change=change)
    assert str(refused.value) == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism "
        "SCRAM-SHA-256"
    )


@pytest.mark.timeout(10)
def test_a_message_that_can_be_read_in_many_ways_takes_no_time() -> None:
    exchange = ScramExchange("SCRAM-SHA-512", Users(), lambda: "nonce")
    with pytest.raises(LoginRefused):
        asyncio.run(exchange.respond(b"n,,n=a,r=b" + b",x==" * 2000 + b",z"))
    exchange = ScramExchange("SCRAM-SHA-512", Users(), lambda: "nonce")
    asyncio.run(exchange.respond(b"n,,n=a,r=b"))
    with pytest.raises(LoginRefused):
        asyncio.run(exchange.respond(b"c=biws,r=bnonce" + b",x==" * 2000 + b",z"))
