"""`connect-standalone`: a worker with the connectors of files, which keeps its offsets in a file."""

from __future__ import annotations

import argparse
import json

from ottla.cli.framework.errors import ToolError
from ottla.cli.framework.properties import pairs, read_properties
from ottla.cli.framework.tool import Argument, Tool
from ottla.cli.tools.connect import LOG_LEVEL, OVERRIDE, serve


def run(given: argparse.Namespace) -> int:
    settings = read_properties(given.properties_file)
    connectors = [_connector(path) for path in given.connector_file]
    return serve(given, {**settings, **pairs("override", given.override)}, connectors, stands_alone=True)


def _connector(path: str) -> dict[str, str]:
    """Of a properties file, or of JSON as REST takes it."""
    if not path.endswith(".json"):
        config = read_properties(path)
    else:
        try:
            with open(path, encoding="utf-8") as file:
                found = json.load(file)
        except OSError as error:
            raise ToolError(f"{path}: {error.strerror}") from None
        except ValueError as error:
            raise ToolError(f"{path}: not JSON: {error}") from None
        config = {**found.get("config", found)}
        if "name" in found:
            config["name"] = found["name"]
    if not config.get("name"):
        raise ToolError(f"{path}: name is missing: each connector has one")
    return config


TOOL = Tool(
    name="connect-standalone",
    description="Run connectors in one process, with their offsets in a file.",
    run=run,
    arguments=(
        Argument("properties_file", "the worker's properties file"),
        Argument("connector_file", "properties or JSON files of connectors", many=True),
    ),
    options=(OVERRIDE, LOG_LEVEL),
    examples=("connect-standalone.properties connect-file-source.properties",),
)
