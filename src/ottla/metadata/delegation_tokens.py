"""Delegation tokens: an id that the cluster's metadata knows, and the HMAC of it that its owner has."""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, cast

from ottla.metadata.image import MetadataImage
from ottla.metadata.records import RecordType

if TYPE_CHECKING:
    from ottla.metadata.foreign_records import DelegationTokenRecord


@lru_cache(maxsize=10_000)
def token_hmac(secret: str, token_id: str) -> bytes:
    """What stands for a password. Whoever has the secret can make it anew: it is stored nowhere."""
    return hmac.digest(secret.encode(), token_id.encode(), "sha512")


def delegation_tokens(image: MetadataImage) -> Iterator[DelegationTokenRecord]:
    """In no order; those that have expired, too, until they are removed."""
    for key, record in image.carried.items():
        if key.kind is RecordType.DELEGATION_TOKEN:
            yield cast("DelegationTokenRecord", record)


def token_with_hmac(image: MetadataImage, secret: str, shown: bytes) -> DelegationTokenRecord | None:
    for token in delegation_tokens(image):
        if hmac.compare_digest(token_hmac(secret, token.token_id), shown):
            return token
    return None
