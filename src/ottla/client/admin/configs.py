"""Settings of topics, brokers, groups and clients' metrics: described, changed, and who has any."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.client.cluster import ClusterClient
from ottla.client.errors import raise_for_code
from ottla.wire.api import ApiKey

# Kinds of resources.
TOPIC = 2
BROKER = 4
BROKER_LOGGER = 8
CLIENT_METRICS = 16
GROUP = 32

# Where a value comes from, by number.
SOURCES = (
    "UNKNOWN",
    "DYNAMIC_TOPIC_CONFIG",
    "DYNAMIC_BROKER_CONFIG",
    "DYNAMIC_DEFAULT_BROKER_CONFIG",
    "STATIC_BROKER_CONFIG",
    "DEFAULT_CONFIG",
    "DYNAMIC_BROKER_LOGGER_CONFIG",
    "DYNAMIC_CLIENT_METRICS_CONFIG",
    "DYNAMIC_GROUP_CONFIG",
)
DEFAULT_SOURCE = 5

_SET = 0
_DELETE = 1


class Synonym(NamedTuple):
    name: str
    value: str | None
    source: int


class Setting(NamedTuple):
    name: str
    value: str | None
    source: int
    sensitive: bool
    read_only: bool
    synonyms: tuple[Synonym, ...]
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        return self.source == DEFAULT_SOURCE


async def describe_configs(
    cluster: ClusterClient,
    kind: int,
    names: Sequence[str],
    *,
    synonyms: bool = False,
    documentation: bool = False,
    node: int | None = None,
) -> dict[str, list[Setting]]:
    """Settings of each resource, in the order of the answer. `node`: only a broker knows its file."""
    if not names:
        return {}
    answer = await cluster.ask(
        node,
        ApiKey.DESCRIBE_CONFIGS,
        {
            "resources": [
                {"resource_type": kind, "resource_name": name, "configuration_keys": None} for name in names
            ],
            "include_synonyms": synonyms,
            "include_documentation": documentation,
        },
        about="",
    )
    found: dict[str, list[Setting]] = {}
    for result in answer.results:
        raise_for_code(result.error_code, result.error_message, result.resource_name)
        found[result.resource_name] = [
            Setting(
                config.name,
                config.value,
                config.config_source,
                config.is_sensitive,
                config.read_only,
                tuple(Synonym(item.name, item.value, item.source) for item in config.synonyms),
                config.documentation,
            )
            for config in result.configs
        ]
    return found


async def alter_configs(
    cluster: ClusterClient,
    kind: int,
    name: str,
    added: Mapping[str, str],
    deleted: Iterable[str] = (),
    *,
    node: int | None = None,
) -> None:
    """Sets some, gives others back their defaults, and leaves the rest of the resource as it is."""
    operations = [{"name": key, "config_operation": _DELETE, "value": None} for key in deleted]
    operations += [{"name": key, "config_operation": _SET, "value": value} for key, value in added.items()]
    answer = await cluster.ask(
        node,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        {"resources": [{"resource_type": kind, "resource_name": name, "configs": operations}]},
        about="",
    )
    for response in answer.responses:
        raise_for_code(response.error_code, response.error_message, "")


async def list_config_resources(cluster: ClusterClient, kind: int) -> list[str]:
    """Names of resources that have settings of their own."""
    answer = await cluster.ask(None, ApiKey.LIST_CONFIG_RESOURCES, {"resource_types": [kind]}, about="")
    return sorted(
        resource.resource_name for resource in answer.config_resources if resource.resource_type == kind
    )
