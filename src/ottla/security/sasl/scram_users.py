"""SCRAM credentials as the cluster's metadata has them: of users, and of delegation tokens."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from ottla.client.scram_keys import HASHES, ITERATIONS_MIN, ScramKeys, salted_password, scram_keys
from ottla.metadata.carried import CarriedKey
from ottla.metadata.delegation_tokens import token_hmac
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import RecordType
from ottla.runtime import Runtime
from ottla.security.sasl.scram import ScramCredential, TokenCredential

if TYPE_CHECKING:
    from ottla.metadata.foreign_records import DelegationTokenRecord, UserScramCredentialRecord

MECHANISM_NUMBERS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""In records and requests."""

SALT_BYTES = 24
TOKENS_KEPT_MAX = 10_000


class MetadataScramUsers:
    def __init__(
        self,
        runtime: Runtime,
        image: Callable[[], MetadataImage],
        cluster_id: str,
        token_secret: Callable[[], str | None],
    ) -> None:
        self._runtime = runtime
        self._image = image
        self._token_secret = token_secret
        # Nobody who has not logged in is told the cluster's id, so nobody can tell which salts are made up.
        self._salt_key = hashlib.sha256(b"made-up salt " + cluster_id.encode()).digest()
        self._salt_bytes = SALT_BYTES
        """Of the last that was a real one: those that are made up must not stand out."""
        self._of_tokens: dict[tuple[str, str], ScramCredential] = {}

    def credential(self, mechanism: str, name: str) -> ScramCredential | None:
        key = CarriedKey(RecordType.USER_SCRAM_CREDENTIAL, (MECHANISM_NUMBERS[mechanism], name))
        record = cast("UserScramCredentialRecord | None", self._image().carried.get(key))
        if record is None:
            return None
        self._salt_bytes = len(record.salt)
        return ScramCredential(
            record.salt, ScramKeys(record.stored_key, record.server_key), record.iterations
        )

    async def token_credential(self, mechanism: str, token_id: str) -> TokenCredential | None:
        key = CarriedKey(RecordType.DELEGATION_TOKEN, token_id)
        record = cast("DelegationTokenRecord | None", self._image().carried.get(key))
        secret = self._token_secret()
        if record is None or secret is None or record.expiration_timestamp <= self._runtime.clock.now_ms():
            return None
        credential = self._of_tokens.get((mechanism, token_id))
        if credential is None:
            salt = self._runtime.random.randbytes(SALT_BYTES)
            password = token_hmac(secret, token_id)
            credential = await self._runtime.offload.run(_derived, HASHES[mechanism], password, salt)
            if len(self._of_tokens) >= TOKENS_KEPT_MAX:
                self._of_tokens.clear()
            self._of_tokens[mechanism, token_id] = credential
        return TokenCredential(credential, record.owner, record.expiration_timestamp)

    def made_up_salt(self, mechanism: str, name: str) -> bytes:
        return hmac.digest(self._salt_key, f"{mechanism} {name}".encode(), "sha512")[: self._salt_bytes]


def _derived(hash_name: str, token: bytes, salt: bytes) -> ScramCredential:
    """Of a token, whose password is its HMAC in base64."""
    password = base64.b64encode(token).decode()
    salted = salted_password(hash_name, password, salt, ITERATIONS_MIN)
    return ScramCredential(salt, scram_keys(hash_name, salted), ITERATIONS_MIN)
