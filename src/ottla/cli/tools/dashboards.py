"""`ottla dashboards`: what Grafana shows and what Prometheus tells of a cluster, as files to begin with."""

from __future__ import annotations

import argparse
import json
import os

from ottla.cli.framework.errors import ToolError
from ottla.cli.framework.output import show
from ottla.cli.framework.tool import Argument, Option, Tool
from ottla.cli.monitoring.alerts import rules
from ottla.cli.monitoring.dashboards import DASHBOARDS, dashboard


def run(given: argparse.Namespace) -> int:
    files = {"ottla-alerts.yml": rules(given.job)}
    for uid, (title, rows) in DASHBOARDS.items():
        files[f"{uid}.json"] = json.dumps(dashboard(uid, title, rows, given.job), indent=2) + "\n"
    paths = {os.path.join(given.directory, name): text for name, text in files.items()}
    there = [path for path in paths if os.path.exists(path)]
    if there and not given.force:
        raise ToolError(
            f"{', '.join(there)}: there already; give --force to replace what may have been changed"
        )
    try:
        os.makedirs(given.directory, exist_ok=True)
        for path, text in paths.items():
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise ToolError(f"{given.directory}: cannot be written to: {error.strerror}") from None
    show(given, list(paths), list(paths))
    return 0


TOOL = Tool(
    name="dashboards",
    description="Write dashboards for Grafana and alert rules for Prometheus to a directory.",
    run=run,
    arguments=(Argument("directory", "where they go; made if it is not there"),),
    options=(
        Option("job", "under which name Prometheus scrapes the brokers", "NAME", default="ottla"),
        Option("force", "replace files that are there already"),
    ),
    examples=("monitoring", "monitoring --job kafka"),
    notes="Import the JSON files in Grafana; name ottla-alerts.yml in rule_files of prometheus.yml.",
)
