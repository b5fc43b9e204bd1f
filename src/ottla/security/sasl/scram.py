"""SCRAM-SHA-256 and SCRAM-SHA-512: the client proves that it knows a password, and the broker does the same.

Credentials are records of the metadata. Of a user that nobody knows a login takes the same way as of any
other, with a salt made up, and fails where a wrong password does. With `tokenauth` the client has a
delegation token instead: its id is the name, its HMAC the password.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable
from typing import NamedTuple, Protocol

from ottla.client.scram_keys import HASHES, ITERATIONS_MIN, ScramKeys, attributes, xor
from ottla.security.sasl.exchange import Granted, LoginRefused, refused

# Names have no `=` in them, or there would be more ways to read a message than time to try them.
_FIRST = re.compile(r"(?P<header>[ny],(?:a=(?P<authzid>[^,]*))?,)(?P<bare>n=(?P<name>[^,]*),r=(?P<nonce>[^,]+)(?P<rest>(?:,[A-Za-z0-9]+=[^,]*)*))")  # fmt: skip  # noqa: E501
_FINAL = re.compile(
    r"(?P<bare>c=(?P<binding>[^,]*),r=(?P<nonce>[^,]+)(?:,[A-Za-z0-9]+=[^,]*)*),p=(?P<proof>[^,]+)"
)


class ScramCredential(NamedTuple):
    salt: bytes
    keys: ScramKeys
    iterations: int


class TokenCredential(NamedTuple):
    credential: ScramCredential
    owner: str
    """The principal."""
    expires_at_ms: int


class ScramUsers(Protocol):
    """Whose credentials there are."""

    def credential(self, mechanism: str, name: str) -> ScramCredential | None: ...

    async def token_credential(self, mechanism: str, token_id: str) -> TokenCredential | None: ...

    def made_up_salt(self, mechanism: str, name: str) -> bytes:
        """Always the same for a name, as that of a credential is."""
        ...


class ScramExchange:
    def __init__(self, mechanism: str, users: ScramUsers, nonce: Callable[[], str]) -> None:
        self._mechanism = mechanism
        self._hash = HASHES[mechanism]
        self._users = users
        self._nonce = nonce()
        self._asked: _Asked | None = None

    async def respond(self, message: bytes) -> bytes | Granted:
        try:
            text = message.decode()
        except UnicodeDecodeError:
            raise self._refused("a message is not UTF-8") from None
        return await self._first(text) if self._asked is None else self._final(text, self._asked)

    async def _first(self, text: str) -> bytes:
        found = _FIRST.fullmatch(text)
        if found is None:
            raise self._refused("its first message is no such message of SCRAM")
        name = found["name"].replace("=2C", ",").replace("=3D", "=")
        if found["authzid"] not in (None, "", found["name"]):
            raise self._refused(f"user {name!r} wants to be somebody else")
        extensions = attributes(found["rest"])
        principal, expires_at_ms = f"User:{name}", None
        by_token = extensions.get("tokenauth", "").lower() == "true"
        if by_token:
            token = await self._users.token_credential(self._mechanism, name)
            credential = None if token is None else token.credential
            if token is not None:
                principal, expires_at_ms = token.owner, token.expires_at_ms
        else:
            credential = self._users.credential(self._mechanism, name)
        salt = self._users.made_up_salt(self._mechanism, name) if credential is None else credential.salt
        iterations = ITERATIONS_MIN if credential is None else credential.iterations
        server_first = f"r={found['nonce']}{self._nonce},s={base64.b64encode(salt).decode()},i={iterations}"
        self._asked = _Asked(
            name,
            found["header"],
            f"{found['bare']},{server_first}",
            credential,
            Granted(principal, expires_at_ms=expires_at_ms, by_token=by_token),
        )
        return server_first.encode()

    def _final(self, text: str, asked: _Asked) -> Granted:
        found = _FINAL.fullmatch(text)
        if found is None:
            raise self._refused("its last message is no such message of SCRAM")
        try:
            binding = base64.b64decode(found["binding"], validate=True)
            proof = base64.b64decode(found["proof"], validate=True)
        except (binascii.Error, ValueError):
            raise self._refused("its proof is not base64") from None
        # Older librdkafka says its own part of the nonce twice, and Apache Kafka looks at the end alone.
        if not found["nonce"].endswith(self._nonce) or binding != asked.header.encode():
            raise self._refused("its last message does not belong to its first one")
        if asked.credential is None:
            raise self._refused(f"user {asked.name!r} has no {self._mechanism} credential")
        keys = asked.credential.keys
        signed = f"{asked.signed},{found['bare']}".encode()
        signature = hmac.digest(keys.stored, signed, self._hash)
        is_known = len(proof) == len(signature) and hmac.compare_digest(
            hashlib.new(self._hash, xor(proof, signature)).digest(), keys.stored
        )
        if not is_known:
            raise self._refused(f"user {asked.name!r} was refused")
        verifier = base64.b64encode(hmac.digest(keys.server, signed, self._hash)).decode()
        return asked.granted._replace(message=f"v={verifier}".encode())

    def _refused(self, detail: str) -> LoginRefused:
        return refused(self._mechanism, detail)


class _Asked(NamedTuple):
    """What is remembered between the two messages."""

    name: str
    header: str
    signed: str
    credential: ScramCredential | None
    granted: Granted
