"""`connect-mirror-maker`: `ottla mirror` with the flags of Kafka's script."""

from __future__ import annotations

import argparse

from ottla.cli.framework.properties import pairs, read_properties
from ottla.cli.framework.tool import Argument, Tool
from ottla.cli.tools.connect import LOG_LEVEL, OVERRIDE
from ottla.cli.tools.mirror import CLUSTERS, serve


def run(given: argparse.Namespace) -> int:
    return serve(given, {**read_properties(given.properties_file), **pairs("override", given.override)})


TOOL = Tool(
    name="connect-mirror-maker",
    description="Mirror topics from cluster to cluster.",
    run=run,
    arguments=(Argument("properties_file", "clusters and what goes from which to which"),),
    options=(CLUSTERS, OVERRIDE, LOG_LEVEL),
    examples=("mm2.properties", "mm2.properties --clusters backup"),
)
