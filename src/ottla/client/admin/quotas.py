"""Quotas of users, clients and addresses: described and changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ottla.client.cluster import ClusterClient
from ottla.client.errors import raise_for_code
from ottla.wire.api import ApiKey

USER, CLIENT_ID, IP = KINDS = ("user", "client-id", "ip")

_EXACT, _DEFAULT, _ANY = 0, 1, 2


class Quotas(NamedTuple):
    entity: dict[str, str | None]
    """Names by kind; None for the default of a kind."""
    values: dict[str, float]


async def describe_quotas(
    cluster: ClusterClient, wanted: Mapping[str, str | None], *, strict: bool = True
) -> list[Quotas]:
    """`wanted` are kinds with names: "" for the default of a kind, None for every one there is.

    Strictly those kinds, or with others beside them.
    """
    components = [
        {
            "entity_type": kind,
            "match_type": _ANY if name is None else _EXACT if name else _DEFAULT,
            "match": name or None,
        }
        for kind, name in wanted.items()
    ]
    answer = await cluster.ask(
        None, ApiKey.DESCRIBE_CLIENT_QUOTAS, {"components": components, "strict": strict}, about=""
    )
    return [
        Quotas(
            {part.entity_type: part.entity_name for part in entry.entity},
            {value.key: value.value for value in entry.values},
        )
        for entry in answer.entries or ()
    ]


async def alter_quotas(
    cluster: ClusterClient,
    entity: Mapping[str, str | None],
    added: Mapping[str, float],
    deleted: Iterable[str] = (),
) -> None:
    """`entity` has names by kind; an empty one, or None, is the default of its kind."""
    operations: list[dict[str, Any]] = [
        {"key": key, "value": value, "remove": False} for key, value in added.items()
    ]
    operations += [{"key": key, "value": 0.0, "remove": True} for key in deleted]
    parts = [{"entity_type": kind, "entity_name": name or None} for kind, name in entity.items()]
    answer = await cluster.ask(
        None, ApiKey.ALTER_CLIENT_QUOTAS, {"entries": [{"entity": parts, "ops": operations}]}, about=""
    )
    for entry in answer.entries:
        raise_for_code(entry.error_code, entry.error_message, "")
