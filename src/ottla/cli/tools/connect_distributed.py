"""`connect-distributed`: `ottla connect` with the flags of Kafka's script."""

from __future__ import annotations

import argparse

from ottla.cli.framework.properties import pairs, read_properties
from ottla.cli.framework.tool import Argument, Tool
from ottla.cli.tools.connect import LOG_LEVEL, OVERRIDE, serve


def run(given: argparse.Namespace) -> int:
    settings = read_properties(given.properties_file)
    return serve(given, {**settings, **pairs("override", given.override)})


TOOL = Tool(
    name="connect-distributed",
    description="Run a Connect worker whose state lies in topics.",
    run=run,
    arguments=(Argument("properties_file", "the worker's properties file"),),
    options=(OVERRIDE, LOG_LEVEL),
    examples=("connect-distributed.properties",),
)
