"""`kafka-broker-api-versions`: the APIs each broker serves, and the version this side would use."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ottla.cli.framework.output import Table, show
from ottla.cli.framework.tool import BOOTSTRAP_SERVER, COMMAND_CONFIG, Tool

if TYPE_CHECKING:
    from ottla.cli.cluster.admin import Admin

# Votes, snapshots, registrations and the like: what brokers and controllers ask of each other.
_BETWEEN_NODES = {52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82}


def run(given: argparse.Namespace) -> int:
    from ottla.cli.cluster.admin import cluster

    with cluster(given) as admin:
        show_versions(given, admin)
    return 0


def show_versions(given: argparse.Namespace, admin: Admin) -> None:
    lines: list[str] = []
    tables: list[Table] = []
    data = []
    for node in admin.nodes().values():
        versions = admin.peer(node.id).versions
        title = f"{node.host}:{node.port} (id: {node.id} rack: {node.rack or 'null'} isFenced: false)"
        texts = [
            _text(key, *versions[key]) if key in versions else f"{api_name(key)}({key}): UNSUPPORTED"
            for key in sorted({*versions, *_client_apis()})
        ]
        lines.append(f"{title} -> (\n\t" + ",\n\t".join(texts) + "\n)")
        rows = [
            (key, api_name(key), low, high, _usable(key, low, high))
            for key, (low, high) in sorted(versions.items())
        ]
        tables.append(Table(("Key", "API", "From", "To", "Usable"), rows, title))
        apis = [
            {"key": key, "name": name, "min": low, "max": high, "usable": usable}
            for key, name, low, high, usable in rows
        ]
        data.append({"broker": node.id, "host": node.host, "port": node.port, "apis": apis})
    show(given, data, lines, tables)


def _client_apis() -> set[int]:
    """All that a client may ask of a broker; a broker need not have each."""
    from kio.schema.index import api_key_map

    return {int(key) for key in api_key_map} - _BETWEEN_NODES


def api_name(key: int) -> str:
    """As Apache Kafka writes it: ListOffsets."""
    from kio.schema.index import api_key_map

    name = api_key_map.get(key)
    return "UNKNOWN" if name is None else "".join(word.capitalize() for word in name.split("_"))


def _text(key: int, low: int, high: int) -> str:
    offered = str(low) if low == high else f"{low} to {high}"
    usable = _usable(key, low, high)
    return f"{api_name(key)}({key}): {offered}" + (f" [{usable}]" if usable else "")


def _usable(key: int, low: int, high: int) -> str:
    from ottla.client.messages import versions_known

    try:
        oldest, newest = versions_known(key)
    except KeyError:
        return ""
    if newest < low:
        return "unusable: node too new"
    if high < oldest:
        return "unusable: node too old"
    return f"usable: {min(newest, high)}"


TOOL = Tool(
    name="broker-api-versions",
    description="List the APIs that each broker serves, in which versions.",
    run=run,
    options=(BOOTSTRAP_SERVER, COMMAND_CONFIG),
    examples=("--bootstrap-server localhost:9092",),
)
