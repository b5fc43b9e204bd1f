"""Credentials of users for SCRAM: described, set and deleted."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ottla.client.cluster import ClusterClient
from ottla.client.errors import raise_for_code
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode

MECHANISMS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
ITERATIONS_MIN = 4096
ITERATIONS_MAX = 16384

_HASHES = {1: "sha256", 2: "sha512"}
_SALT_BYTES = 24


class Password(NamedTuple):
    text: str
    iterations: int = ITERATIONS_MIN


async def describe_credentials(cluster: ClusterClient, user: str | None = None) -> dict[str, dict[str, int]]:
    """Iterations by mechanism, of one user or of all."""
    users = None if user is None else [{"name": user}]
    answer = await cluster.ask(None, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": users}, about="")
    names = {number: name for name, number in MECHANISMS.items()}
    found: dict[str, dict[str, int]] = {}
    for result in answer.results:
        if result.error_code == ErrorCode.resource_not_found:
            continue
        raise_for_code(result.error_code, result.error_message, result.user)
        found[result.user] = {
            names.get(info.mechanism, "UNKNOWN"): info.iterations for info in result.credential_infos
        }
    return found


async def alter_credentials(
    cluster: ClusterClient, user: str, added: Mapping[str, Password], deleted: Iterable[str] = ()
) -> None:
    """Both by mechanism."""
    answer = await cluster.ask(
        None,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        {
            "deletions": [{"name": user, "mechanism": MECHANISMS[name]} for name in deleted],
            "upsertions": [_upsertion(user, MECHANISMS[name], password) for name, password in added.items()],
        },
        about="",
    )
    for result in answer.results:
        raise_for_code(result.error_code, result.error_message, result.user)


def _upsertion(user: str, mechanism: int, password: Password) -> dict[str, Any]:
    salt = secrets.token_bytes(_SALT_BYTES)
    # The password itself never leaves this process.
    salted = hashlib.pbkdf2_hmac(_HASHES[mechanism], password.text.encode(), salt, password.iterations)
    return {
        "name": user,
        "mechanism": mechanism,
        "iterations": password.iterations,
        "salt": salt,
        "salted_password": salted,
    }
