"""`kafka-client-metrics`: which clients push which of their metrics to the cluster, and how often."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ottla.cli.framework.errors import ToolError
from ottla.cli.framework.output import Table, show
from ottla.cli.framework.tool import BOOTSTRAP_SERVER, COMMAND_CONFIG, Option, Tool

if TYPE_CHECKING:
    from ottla.cli.cluster.admin import Admin

_ACTIONS = ("alter", "delete", "describe", "list")
_SETTINGS = {"interval": "interval.ms", "metrics": "metrics", "match": "match"}
"""What an option of the tool sets."""
_MISPLACED = {
    "delete": ("generate_name", *_SETTINGS),
    "describe": ("generate_name", *_SETTINGS),
    "list": ("name", "generate_name", *_SETTINGS),
}


def run(given: argparse.Namespace) -> int:
    from ottla.cli.cluster.admin import cluster

    actions = [action for action in _ACTIONS if getattr(given, action)]
    if len(actions) != 1:
        raise ToolError("Command must include exactly one action: --alter, --delete, --describe or --list.")
    (action,) = actions
    for option in _MISPLACED.get(action, ()):
        if getattr(given, option) not in {None, False}:
            raise ToolError(f"--{option.replace('_', '-')} cannot be used with --{action}")
    if action == "alter":
        _check_altered(given)
    if action == "delete" and given.name is None:
        raise ToolError("A client metrics resource name must be specified with --delete.")
    with cluster(given) as admin:
        match action:
            case "alter":
                _alter(given, admin)
            case "delete":
                _delete(given, admin)
            case "describe":
                _describe(given, admin)
            case _:
                names = _names(admin)
                show(given, names, names)
    return 0


def _check_altered(given: argparse.Namespace) -> None:
    if (given.name is None) != given.generate_name:
        raise ToolError("One of --name or --generate-name must be specified with --alter.")
    if given.interval:
        try:
            int(given.interval)
        except ValueError:
            raise ToolError(
                f"--interval {given.interval}: must be a whole number of milliseconds, or empty to reset it"
            ) from None
    if all(getattr(given, option) is None for option in _SETTINGS):
        raise ToolError("give --interval, --metrics or --match with --alter; an empty value resets it")


def _alter(given: argparse.Namespace, admin: Admin) -> None:
    from ottla.client.admin.configs import CLIENT_METRICS, alter_configs

    name = _generated() if given.generate_name else given.name
    values = {key: getattr(given, option) for option, key in _SETTINGS.items()}
    added = {key: value for key, value in values.items() if value}
    deleted = [key for key, value in values.items() if value == ""]
    admin.call(alter_configs, CLIENT_METRICS, name, added, deleted)
    line = f"Altered client metrics config for {name}."
    show(given, {"name": name, "set": added, "deleted": deleted}, [line])


def _generated() -> str:
    import uuid

    from ottla.metadata.uuids import uuid_text

    return uuid_text(uuid.uuid4())


def _delete(given: argparse.Namespace, admin: Admin) -> None:
    """A resource is its settings: without any it is gone."""
    from ottla.client.admin.configs import CLIENT_METRICS, alter_configs

    deleted = [] if given.name not in _names(admin) else list(_settings(admin, given.name))
    if deleted:
        admin.call(alter_configs, CLIENT_METRICS, given.name, {}, deleted)
    line = f"Deleted client metrics config for {given.name}."
    show(given, {"name": given.name, "deleted": deleted}, [line])


def _describe(given: argparse.Namespace, admin: Admin) -> None:
    names = _names(admin)
    if given.name is not None:
        if given.name not in names:
            line = f"The client metric resource {given.name} doesn't exist and doesn't have dynamic config."
            show(given, [], [line])
            return
        names = [given.name]
    described = {name: _settings(admin, name) for name in names}
    lines: list[str] = []
    tables: list[Table] = []
    for name, settings in described.items():
        title = f"Client metrics configs for {name} are:"
        lines += [title, *(f"  {key}={value}" for key, value in settings.items())]
        tables.append(Table(("Name", "Value"), list(settings.items()), title))
    show(
        given,
        [{"name": name, "configs": settings} for name, settings in described.items()],
        lines,
        tables,
    )


def _names(admin: Admin) -> list[str]:
    from ottla.client.admin.configs import CLIENT_METRICS, list_config_resources

    return admin.call(list_config_resources, CLIENT_METRICS)


def _settings(admin: Admin, name: str) -> dict[str, str]:
    from ottla.client.admin.configs import CLIENT_METRICS, describe_configs

    described = admin.call(describe_configs, CLIENT_METRICS, [name])[name]
    return {setting.name: setting.value or "" for setting in described}


TOOL = Tool(
    name="client-metrics",
    description="See and change which clients push which of their metrics to the cluster.",
    run=run,
    options=(
        BOOTSTRAP_SERVER,
        COMMAND_CONFIG,
        Option("alter", "set what is given of --interval, --metrics and --match"),
        Option("delete", "delete the resource"),
        Option("describe", "show the settings of one resource, or of all"),
        Option("list", "list the resources"),
        Option("name", "the name of the resource", "NAME"),
        Option("generate-name", "use a new UUID as the name"),
        Option("interval", "milliseconds between two pushes; empty to reset it", "MS"),
        Option(
            "match",
            "which clients, by expressions for client_id, client_instance_id, client_software_name, "
            "client_software_version, client_source_address and client_source_port; empty for all",
            "K1=V1,K2=V2",
        ),
        Option("metrics", "beginnings of the names of metrics; empty to reset them", "M1,M2"),
    ),
    examples=(
        "--bootstrap-server localhost:9092 --alter --generate-name "
        "--metrics org.apache.kafka.producer. --interval 60000 --match client_id=orders.*",
        "--bootstrap-server localhost:9092 --describe",
    ),
)
