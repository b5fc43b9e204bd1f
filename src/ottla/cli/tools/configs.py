"""`kafka-configs`: settings of topics, brokers, groups and clients, quotas and credentials."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.cli.framework import properties
from ottla.cli.framework.errors import ToolError
from ottla.cli.framework.output import Table, show
from ottla.cli.framework.tool import BOOTSTRAP_SERVER, COMMAND_CONFIG, Option, Tool

if TYPE_CHECKING:
    from ottla.cli.cluster.admin import Admin
    from ottla.client.admin.configs import Setting


class _Kind(NamedTuple):
    resource: int
    dynamic_source: int
    singular: str


# The number of the resource, the source of values that were set on it, its name for one.
_KINDS = {
    "topics": _Kind(2, 1, "topic"),
    "brokers": _Kind(4, 2, "broker"),
    "broker-loggers": _Kind(8, 6, "broker-logger"),
    "client-metrics": _Kind(16, 7, "client-metric"),
    "groups": _Kind(32, 8, "group"),
}
_BROKER_DEFAULTS_SOURCE = 3
_CLIENT_KINDS = {"users": "user", "clients": "client", "ips": "ip"}
_QUOTAS = {
    "users": {"producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"},
    "ips": {"connection_creation_rate"},
}
_FLAGS = {
    "topic": "topics",
    "broker": "brokers",
    "broker_logger": "broker-loggers",
    "client_metrics": "client-metrics",
    "group": "groups",
    "user": "users",
    "client": "clients",
    "ip": "ips",
}
_KEY = re.compile(r"[$a-zA-Z0-9._-]*")
# Commas and equals signs inside square brackets belong to the value.
_OUTSIDE_BRACKETS = r"(?=[^\]]*(?:\[|$))"


def run(given: argparse.Namespace) -> int:
    from ottla.cli.cluster.admin import cluster

    if given.describe == given.alter:
        raise ToolError("Command must include exactly one action: --describe, --alter")
    entities = _entities(given)
    kind, name = entities[0]
    if given.describe:
        for option in ("add_config", "add_config_file", "delete_config"):
            if getattr(given, option):
                raise ToolError(f"--{option.replace('_', '-')} cannot be used with --describe")
        with cluster(given) as admin:
            if kind in _CLIENT_KINDS:
                _describe_clients(given, admin, entities)
            else:
                _describe(given, admin, kind, name)
        return 0
    if any(name is None for _, name in entities) or name is None:
        raise ToolError(f"An entity name must be specified with --alter of {kind}")
    if given.add_config and given.add_config_file:
        raise ToolError("Only one of --add-config or --add-config-file must be specified")
    added, deleted = _added(given), _deleted(given)
    if not added and not deleted:
        raise ToolError(
            "At least one of --add-config, --add-config-file, or --delete-config must be specified "
            "with --alter"
        )
    with cluster(given) as admin:
        if kind in _CLIENT_KINDS:
            _alter_clients(given, admin, entities, added, deleted)
        else:
            _alter(given, admin, kind, name, added, deleted)
    return 0


def _entities(given: argparse.Namespace) -> list[tuple[str, str | None]]:
    """Kinds and names: "" for the defaults of a kind, None for every one there is. Users lead."""
    chosen: list[tuple[str, str | None]] = []
    for flag, kind in _FLAGS.items():
        if getattr(given, flag) is not None:
            chosen.append((kind, getattr(given, flag)))
    for flag, kind in (("broker", "brokers"), ("user", "users"), ("client", "clients"), ("ip", "ips")):
        if getattr(given, f"{flag}_defaults"):
            chosen.append((kind, ""))
    names: list[str | None] = [*given.entity_name, *([""] if given.entity_default else [])]
    if len(names) > len(given.entity_type):
        raise ToolError("--entity-name and --entity-default need an --entity-type each")
    names += [None] * (len(given.entity_type) - len(names))
    chosen += zip(given.entity_type, names, strict=True)
    if not chosen:
        raise ToolError("At least one entity type must be specified")
    kinds = {kind for kind, _ in chosen}
    if len(chosen) > 1 and (kinds != {"users", "clients"} or len(chosen) > 2):
        raise ToolError("give one entity only; just users and clients can be combined")
    for kind, name in chosen:
        _check_entity(kind, name)
    return sorted(chosen, key=lambda entity: entity[0], reverse=True)


def _check_entity(kind: str, name: str | None) -> None:
    if kind in _CLIENT_KINDS:
        return
    if kind not in _KINDS:
        known = ", ".join([*_KINDS, *_CLIENT_KINDS])
        raise ToolError(f"Invalid entity type {kind}, the entity type must be one of {known}")
    if kind in {"brokers", "broker-loggers"} and name and not name.isdecimal():
        raise ToolError(f"The entity name for {kind} must be a valid integer broker id, found: {name}")
    if name == "" and kind != "brokers":
        raise ToolError(f"{kind} have no defaults in the cluster")


def _describe_clients(
    given: argparse.Namespace, admin: Admin, entities: list[tuple[str, str | None]]
) -> None:
    from ottla.cli.cluster import client_configs
    from ottla.metadata.java_text import double
    from ottla.wire.api import ApiKey

    lines: list[str] = []
    data: list[dict[str, Any]] = []
    for quotas in client_configs.describe_quotas(admin, entities):
        values = ", ".join(f"{name}={double(value)}" for name, value in quotas.values.items())
        lines.append(f"Quota configs for {client_configs.title(quotas.entity)} are {values}")
        data.append({"entity": quotas.entity, "quotas": quotas.values})
    # Credentials are a user's alone, not those of a user with a client, and nobody's defaults.
    (kind, user), *others = entities
    has_credentials = admin.serves(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS)
    if kind == "users" and not others and user != "" and has_credentials:
        for name, mechanisms in client_configs.describe_credentials(admin, user).items():
            values = ", ".join(f"{name}=iterations={count}" for name, count in mechanisms.items())
            lines.append(f"SCRAM credential configs for user-principal '{name}' are {values}")
            data.append({"entity": {"user": name}, "credentials": mechanisms})
    show(given, data, lines)


def _alter_clients(
    given: argparse.Namespace,
    admin: Admin,
    entities: list[tuple[str, str | None]],
    added: dict[str, str],
    deleted: list[str],
) -> None:
    from ottla.cli.cluster import client_configs

    kind, name = entities[0]
    named = {*added, *deleted}
    quotas = _QUOTAS["ips" if kind == "ips" else "users"]
    credentials = named & set(client_configs.MECHANISMS) if kind == "users" and len(entities) == 1 else set()
    if unknown := sorted(named - quotas - credentials):
        allowed = "quota and SCRAM credential configs" if kind == "users" else "quota configs"
        raise ToolError(
            f"Only {allowed} can be changed for {kind}. Unexpected config names: {','.join(unknown)}"
        )
    if not credentials:
        client_configs.alter_quotas(admin, entities, added, deleted)
    elif credentials != named:
        raise ToolError("Cannot alter both quota and SCRAM credential configs simultaneously for users")
    elif not name:
        raise ToolError("Credentials are a user's own: --entity-default and --user-defaults have none")
    else:
        client_configs.alter_credentials(admin, name, added, deleted)
    kind, name = entities[-1]
    line = (
        f"Completed updating config for {_CLIENT_KINDS[kind]} {name}."
        if name
        else f"Completed updating default config for {kind} in the cluster."
    )
    show(given, {"entities": dict(entities), "set": sorted(added), "deleted": deleted}, [line])


def _describe(given: argparse.Namespace, admin: Admin, kind: str, name: str | None) -> None:
    from ottla.client.admin.configs import describe_configs

    present = _names(admin, kind)
    if name is not None and name not in present and not given.all:
        singular = _KINDS[kind].singular
        line = f"The {singular} '{name}' doesn't exist and doesn't have dynamic config."
        show(given, [], [line])
        return
    names = [name] if name is not None else present
    lines: list[str] = []
    tables: list[Table] = []
    data = []
    for entity in names:
        # Only the broker itself knows what stands in its file.
        node = int(entity) if kind in {"brokers", "broker-loggers"} and entity else None
        settings = admin.call(describe_configs, _KINDS[kind].resource, [entity], synonyms=True, node=node)[
            entity
        ]
        shown = sorted(setting for setting in settings if given.all or _is_dynamic(kind, entity, setting))
        title = _title(kind, entity, everything=given.all)
        lines += [title, *(_line(setting) for setting in shown)]
        tables.append(Table(("Name", "Value", "Source"), [_row(setting) for setting in shown], title))
        configs = {setting.name: setting.value for setting in shown}
        data.append({"type": _KINDS[kind].singular, "name": entity, "configs": configs})
    show(given, data, lines, tables)


def _names(admin: Admin, kind: str) -> list[str]:
    from ottla.client.admin.configs import list_config_resources
    from ottla.client.admin.topics import list_topics
    from ottla.wire.api import ApiKey

    if kind == "topics":
        return list(admin.call(list_topics))
    if kind in {"brokers", "broker-loggers"}:
        return [*(str(node) for node in admin.nodes()), *([""] if kind == "brokers" else [])]
    names = set(admin.call(list_config_resources, _KINDS[kind].resource))
    if kind == "groups" and admin.serves(ApiKey.LIST_GROUPS):
        from ottla.client.admin.groups import list_groups

        names |= {group.id for group in admin.call(list_groups)}
    return sorted(names)


def _is_dynamic(kind: str, entity: str, setting: Setting) -> bool:
    source = _BROKER_DEFAULTS_SOURCE if kind == "brokers" and not entity else _KINDS[kind].dynamic_source
    return setting.source == source


def _title(kind: str, entity: str, *, everything: bool) -> str:
    if not entity:
        return f"Default configs for {kind} in the cluster are:"
    return f"{'All' if everything else 'Dynamic'} configs for {_KINDS[kind].singular} {entity} are:"


def _line(setting: Setting) -> str:
    from ottla.client.admin.configs import SOURCES

    synonyms = ", ".join(
        f"{SOURCES[synonym.source]}:{synonym.name}={_text(synonym.value)}" for synonym in setting.synonyms
    )
    sensitive = str(setting.sensitive).lower()
    return f"  {setting.name}={_text(setting.value)} sensitive={sensitive} synonyms={{{synonyms}}}"


def _row(setting: Setting) -> tuple[str, str, str]:
    from ottla.client.admin.configs import SOURCES

    return setting.name, _text(setting.value), SOURCES[setting.source].lower()


def _text(value: str | None) -> str:
    return "null" if value is None else value


def _alter(
    given: argparse.Namespace, admin: Admin, kind: str, name: str, added: dict[str, str], deleted: list[str]
) -> None:
    from ottla.client.admin.configs import alter_configs

    node = int(name) if kind in {"brokers", "broker-loggers"} and name else None
    admin.call(alter_configs, _KINDS[kind].resource, name, added, deleted, node=node)
    line = (
        f"Completed updating config for {_KINDS[kind].singular} {name}."
        if name
        else f"Completed updating default config for {kind} in the cluster."
    )
    show(given, {"type": _KINDS[kind].singular, "name": name, "set": added, "deleted": deleted}, [line])


def _added(given: argparse.Namespace) -> dict[str, str]:
    added: dict[str, str] = {}
    if given.add_config_file:
        added = properties.read_properties(given.add_config_file)
    if given.add_config:
        for part in re.split("," + _OUTSIDE_BRACKETS, given.add_config):
            key, separator, value = part.partition("=")
            if not separator:
                raise ToolError(
                    f"--add-config {part}: must be key=value, or key=[value1,value2] for a value with commas"
                )
            added[key.strip()] = value.strip().removeprefix("[").removesuffix("]").strip()
    for key in added:
        if not _KEY.fullmatch(key):
            raise ToolError(f"Invalid character found for config key: {key}")
    return added


def _deleted(given: argparse.Namespace) -> list[str]:
    return [name.strip() for text in given.delete_config for name in text.split(",")]


TOOL = Tool(
    name="configs",
    description="See and change settings of topics, brokers, groups and clients, quotas and credentials.",
    run=run,
    options=(
        BOOTSTRAP_SERVER,
        COMMAND_CONFIG,
        Option("describe", "list settings"),
        Option("alter", "change settings"),
        Option("all", "list all settings, not only those that were changed"),
        Option(
            "entity-type",
            "topics, brokers, broker-loggers, groups, client-metrics, users, clients or ips; users and "
            "clients may be combined",
            "TYPE",
            repeats=True,
        ),
        Option("entity-name", "its name or id; one for each --entity-type", "NAME", repeats=True),
        Option("entity-default", "the defaults of all entities of the type"),
        Option("add-config", "settings to set, as k1=v1,k2=[v1,v2],k3=v3", "SETTINGS"),
        Option("add-config-file", "a properties file with settings to set", "FILE"),
        Option("delete-config", "names of settings to remove", "K1,K2", repeats=True),
        Option("topic", "a topic", "NAME"),
        Option("broker", "a broker", "ID"),
        Option("broker-defaults", "the defaults of all brokers"),
        Option("broker-logger", "the loggers of a broker", "ID"),
        Option("group", "a group", "ID"),
        Option("client-metrics", "a client metrics resource", "NAME"),
        Option("user", "a user's quotas and credentials", "NAME"),
        Option("user-defaults", "the defaults of all users"),
        Option("client", "a client's quotas", "ID"),
        Option("client-defaults", "the defaults of all clients"),
        Option("ip", "an address's quotas", "ADDRESS"),
        Option("ip-defaults", "the defaults of all addresses"),
    ),
    examples=(
        "--bootstrap-server localhost:9092 --describe --topic orders --all",
        "--bootstrap-server localhost:9092 --alter --topic orders --add-config retention.ms=3600000",
    ),
)
