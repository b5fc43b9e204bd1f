"""Settings of anything that has some: where each value comes from, and what it means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ottla.client.admin import configs
from ottla.console.clusters import Cluster
from ottla.console.problems import Refused


async def shown_settings(cluster: Cluster, kind: int, name: str) -> list[dict[str, Any]]:
    """Those that differ from their defaults first."""
    node = int(name) if kind == configs.BROKER and name else None
    found = await configs.describe_configs(
        cluster.client, kind, [name], synonyms=True, documentation=True, node=node
    )
    settings = found.get(name, [])
    return [
        {
            "name": setting.name,
            "value": setting.value,
            "source": configs.SOURCES[setting.source] if setting.source < len(configs.SOURCES) else "UNKNOWN",
            "isDefault": setting.is_default,
            "isSensitive": setting.sensitive,
            "isReadOnly": setting.read_only,
            "default": next(
                (same.value for same in setting.synonyms if same.source == configs.DEFAULT_SOURCE), None
            ),
            "doc": setting.documentation,
        }
        for setting in sorted(settings, key=lambda setting: (setting.is_default, setting.name))
    ]


async def changed_settings(
    cluster: Cluster, kind: int, name: str, added: Mapping[str, str], deleted: Sequence[str]
) -> dict[str, Any]:
    if not added and not deleted:
        raise Refused("nothing is to be changed: give set or delete")
    node = int(name) if kind == configs.BROKER and name else None
    await configs.alter_configs(cluster.client, kind, name, added, deleted, node=node)
    return {"set": dict(added), "deleted": list(deleted)}
