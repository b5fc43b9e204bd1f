"""Quotas of users, clients and addresses, and credentials of users: described and changed."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from ottla.cli.cluster.admin import Admin
from ottla.cli.framework.errors import ToolError, check
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode

Entities: TypeAlias = Sequence[tuple[str, str | None]]
"""Kinds with names: "" for the default of a kind, None for every one there is."""

KINDS = {"users": "user", "clients": "client-id", "ips": "ip"}
MECHANISMS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
_HASHES = {1: "sha256", 2: "sha512"}
_ITERATIONS_MIN = 4096
_ITERATIONS_MAX = 16384
_SALT_BYTES = 24
_CREDENTIAL = re.compile(r"(?:iterations=(-?[0-9]*),)?password=(.*)")
_TITLES = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}
_EXACT, _DEFAULT, _ANY = 0, 1, 2


class Quotas(NamedTuple):
    entity: dict[str, str | None]
    values: dict[str, float]

    @property
    def title(self) -> str:
        parts = []
        for kind, title in _TITLES.items():
            if kind in self.entity:
                name = self.entity[kind]
                parts.append(f"{title} '{name}'" if name else f"the default {title}")
        return ", ".join(parts)


def describe_quotas(admin: Admin, entities: Entities) -> list[Quotas]:
    _require(admin, ApiKey.DESCRIBE_CLIENT_QUOTAS, "quotas")
    components = [
        {
            "entity_type": KINDS[kind],
            "match_type": _ANY if name is None else _EXACT if name else _DEFAULT,
            "match": name or None,
        }
        for kind, name in entities
    ]
    answer = admin.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, {"components": components, "strict": True})
    return [
        Quotas(
            {part.entity_type: part.entity_name for part in entry.entity},
            {value.key: value.value for value in entry.values},
        )
        for entry in answer.entries or ()
    ]


def alter_quotas(admin: Admin, entities: Entities, added: Mapping[str, str], deleted: Iterable[str]) -> None:
    _require(admin, ApiKey.ALTER_CLIENT_QUOTAS, "quotas")
    operations: list[dict[str, Any]] = []
    for key, text in added.items():
        try:
            operations.append({"key": key, "value": float(text), "remove": False})
        except ValueError:
            raise ToolError(f"Cannot parse quota configuration value for {key}: {text}") from None
    gone = list(deleted)
    if gone:
        present = {key for quotas in describe_quotas(admin, entities) for key in quotas.values}
        if unknown := [key for key in gone if key not in present]:
            raise ToolError(f"Invalid config(s): {','.join(unknown)}")
    operations += [{"key": key, "value": 0.0, "remove": True} for key in gone]
    parts = [{"entity_type": KINDS[kind], "entity_name": name or None} for kind, name in entities]
    answer = admin.ask(ApiKey.ALTER_CLIENT_QUOTAS, {"entries": [{"entity": parts, "ops": operations}]})
    for entry in answer.entries:
        check(entry.error_code, entry.error_message)


def describe_credentials(admin: Admin, user: str | None) -> dict[str, dict[str, int]]:
    """Iterations by mechanism, of one user or of all."""
    _require(admin, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, "credentials")
    users = None if user is None else [{"name": user}]
    answer = admin.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": users})
    names = {number: name for name, number in MECHANISMS.items()}
    found: dict[str, dict[str, int]] = {}
    for result in answer.results:
        if result.error_code == ErrorCode.resource_not_found:
            continue
        check(result.error_code, result.error_message, result.user)
        found[result.user] = {
            names.get(info.mechanism, "UNKNOWN"): info.iterations for info in result.credential_infos
        }
    return found


def alter_credentials(admin: Admin, user: str, added: Mapping[str, str], deleted: Iterable[str]) -> None:
    _require(admin, ApiKey.ALTER_USER_SCRAM_CREDENTIALS, "credentials")
    answer = admin.ask(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        {
            "deletions": [{"name": user, "mechanism": MECHANISMS[name]} for name in deleted],
            "upsertions": [_upsertion(user, name, text) for name, text in added.items()],
        },
    )
    for result in answer.results:
        check(result.error_code, result.error_message, result.user)


def _upsertion(user: str, mechanism: str, text: str) -> dict[str, Any]:
    given = _CREDENTIAL.fullmatch(text)
    if given is None:
        raise ToolError(f"Invalid credential property {mechanism}={text}")
    iterations = int(given[1]) if given[1] not in {None, "", "-1"} else _ITERATIONS_MIN
    if not _ITERATIONS_MIN <= iterations <= _ITERATIONS_MAX:
        bound = f"less than the minimum {_ITERATIONS_MIN}"
        if iterations > _ITERATIONS_MAX:
            bound = f"more than the maximum {_ITERATIONS_MAX}"
        raise ToolError(f"Iterations {iterations} is {bound} for {mechanism}")
    number = MECHANISMS[mechanism]
    salt = secrets.token_bytes(_SALT_BYTES)
    # The password itself never leaves this process.
    salted = hashlib.pbkdf2_hmac(_HASHES[number], given[2].encode(), salt, iterations)
    return {
        "name": user,
        "mechanism": number,
        "iterations": iterations,
        "salt": salt,
        "salted_password": salted,
    }


def _require(admin: Admin, api: ApiKey, what: str) -> None:
    if not admin.serves(api):
        raise ToolError(f"{admin.peer().address} has no {what}: it does not serve {api.name}")
