"""Delegation tokens: an id that the cluster's metadata knows, and the HMAC of it that its owner has."""

from __future__ import annotations

import hmac


def token_hmac(secret: str, token_id: str) -> bytes:
    """What stands for a password. Whoever has the secret can make it anew: it is stored nowhere."""
    return hmac.digest(secret.encode(), token_id.encode(), "sha512")
