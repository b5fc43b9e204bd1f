"""`ottla run --status`: asks the applications that are announced on a cluster how they are."""

from __future__ import annotations

import argparse
import json
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any

from ottla.cli.framework.errors import ToolError
from ottla.cli.framework.output import Table, columns, show

if TYPE_CHECKING:
    from ottla.client.applications import Announcement

_TIMEOUT_S = 10.0
_COLUMNS = ("Query", "State", "Batch", "Rows/s", "Lag", "Batch ms", "Dropped", "Restarts")


def show_status(given: argparse.Namespace) -> int:
    """1 if an application that should run does not answer, or has failed."""
    from ottla.cli.cluster.admin import cluster
    from ottla.cli.framework.properties import merged
    from ottla.client.applications import announced

    properties = merged("command-property", given.command_config, given.command_property)
    with cluster(given, properties) as admin:
        found = admin.call(announced)
    wanted = given.application_id
    if wanted and all(each.application_id != wanted for each in found):
        names = ", ".join(each.application_id for each in found) or "none"
        raise ToolError(
            f"{wanted} is not announced on {given.bootstrap_server}; announced: {names}. Applications that "
            "run with --http are."
        )
    statuses = [_status(each) for each in found if not wanted or each.application_id == wanted]
    tables = [_table(status) for status in statuses]
    lines = [line for table in tables for line in (table.title, *columns([table.columns, *table.rows], "  "))]
    show(given, statuses, lines or ["no application is announced; those that run with --http are"], tables)
    return int(any(status["state"] in {"UNREACHABLE", "ERROR"} for status in statuses))


def _status(told: Announcement) -> dict[str, Any]:
    place = {
        "applicationId": told.application_id,
        "url": told.url,
        "host": told.host,
        "pid": told.pid,
        "startedMs": told.started_ms,
    }
    url = f"{told.url}/topology/{urllib.parse.quote(told.application_id)}"
    try:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"{told.url} is no HTTP address")
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - HTTP, checked above
            return {**place, **json.load(answer)}
    except (OSError, ValueError) as error:
        return {**place, "state": "UNREACHABLE", "failure": str(error), "queries": [], "nodes": []}


def _table(status: dict[str, Any]) -> Table:
    title = f"{status['applicationId']}: {status['state']}, process {status['pid']} on {status['host']}"
    if status.get("paused"):
        title += ", paused"
    if status.get("failure"):
        title += f": {status['url']} does not answer ({status['failure']})"
    return Table(_COLUMNS, [_row(status, query) for query in status["queries"]], title)


def _row(status: dict[str, Any], query: dict[str, Any]) -> tuple[Any, ...]:
    last = query["lastBatch"] or {}
    dropped = sum(
        sum(node["dropped"].values()) for node in status["nodes"] if node["query"] == query["query"]
    )
    state = query["state"] if not query["failure"] else f"{query['state']}: {query['failure']}"
    return (
        query["query"],
        state,
        last.get("batch", "–"),
        round(last.get("rowsPerSecond", 0)),
        "–" if query["lag"] is None else query["lag"],
        last.get("durationMs", "–"),
        dropped + query["lateRows"],
        query["restarts"],
    )
