"""Quotas of users, clients and addresses, and credentials of users, as `kafka-configs` names them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from ottla.cli.cluster.admin import Admin
from ottla.cli.framework.errors import ToolError
from ottla.client.admin import credentials, quotas
from ottla.client.admin.credentials import ITERATIONS_MAX, ITERATIONS_MIN, MECHANISMS, Password
from ottla.client.admin.quotas import CLIENT_ID, IP, USER, Quotas
from ottla.wire.api import ApiKey

__all__ = [
    "MECHANISMS",
    "alter_credentials",
    "alter_quotas",
    "describe_credentials",
    "describe_quotas",
    "title",
]

Entities: TypeAlias = Sequence[tuple[str, str | None]]
"""Kinds with names: "" for the default of a kind, None for every one there is."""

KINDS = {"users": USER, "clients": CLIENT_ID, "ips": IP}
_CREDENTIAL = re.compile(r"(?:iterations=(-?[0-9]*),)?password=(.*)")
_TITLES = {USER: "user-principal", CLIENT_ID: "client-id", IP: "ip"}


def title(entity: Mapping[str, str | None]) -> str:
    parts = []
    for kind, shown in _TITLES.items():
        if kind in entity:
            name = entity[kind]
            parts.append(f"{shown} '{name}'" if name else f"the default {shown}")
    return ", ".join(parts)


def describe_quotas(admin: Admin, entities: Entities) -> list[Quotas]:
    _require(admin, ApiKey.DESCRIBE_CLIENT_QUOTAS, "quotas")
    return admin.call(quotas.describe_quotas, _named(entities))


def alter_quotas(admin: Admin, entities: Entities, added: Mapping[str, str], deleted: Iterable[str]) -> None:
    _require(admin, ApiKey.ALTER_CLIENT_QUOTAS, "quotas")
    values: dict[str, float] = {}
    for key, text in added.items():
        try:
            values[key] = float(text)
        except ValueError:
            raise ToolError(f"Cannot parse quota configuration value for {key}: {text}") from None
    gone = list(deleted)
    if gone:
        present = {key for found in describe_quotas(admin, entities) for key in found.values}
        if unknown := [key for key in gone if key not in present]:
            raise ToolError(f"Invalid config(s): {','.join(unknown)}")
    admin.call(quotas.alter_quotas, _named(entities), values, gone)


def describe_credentials(admin: Admin, user: str | None) -> dict[str, dict[str, int]]:
    """Iterations by mechanism, of one user or of all."""
    _require(admin, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, "credentials")
    return admin.call(credentials.describe_credentials, user)


def alter_credentials(admin: Admin, user: str, added: Mapping[str, str], deleted: Iterable[str]) -> None:
    _require(admin, ApiKey.ALTER_USER_SCRAM_CREDENTIALS, "credentials")
    passwords = {mechanism: _password(mechanism, text) for mechanism, text in added.items()}
    admin.call(credentials.alter_credentials, user, passwords, deleted)


def _password(mechanism: str, text: str) -> Password:
    given = _CREDENTIAL.fullmatch(text)
    if given is None:
        raise ToolError(f"Invalid credential property {mechanism}={text}")
    iterations = int(given[1]) if given[1] not in {None, "", "-1"} else ITERATIONS_MIN
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        bound = f"less than the minimum {ITERATIONS_MIN}"
        if iterations > ITERATIONS_MAX:
            bound = f"more than the maximum {ITERATIONS_MAX}"
        raise ToolError(f"Iterations {iterations} is {bound} for {mechanism}")
    return Password(given[2], iterations)


def _named(entities: Entities) -> dict[str, str | None]:
    return {KINDS[kind]: name for kind, name in entities}


def _require(admin: Admin, api: ApiKey, what: str) -> None:
    if not admin.serves(api):
        raise ToolError(f"{admin.peer().address} has no {what}: it does not serve {api.name}")
