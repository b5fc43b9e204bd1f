"""`kafka-preferred-replica-election`: what older courses have instead of `kafka-leader-election`."""

from __future__ import annotations

import argparse

from ottla.cli.framework.tool import BOOTSTRAP_SERVER, COMMAND_CONFIG, Option, Tool
from ottla.cli.tools import leader_election


def run(given: argparse.Namespace) -> int:
    given.election_type = "preferred"
    given.topic = given.partition = None
    given.all_topic_partitions = given.path_to_json_file is None
    return leader_election.run(given)


TOOL = Tool(
    name="preferred-replica-election",
    description="Have partitions led by their preferred replicas again. kafka-leader-election does more.",
    run=run,
    options=(
        BOOTSTRAP_SERVER,
        COMMAND_CONFIG,
        Option("admin.config", "the old name of --command-config", "FILE"),
        Option("path-to-json-file", "partitions, as for kafka-leader-election; all without it", "FILE"),
    ),
    examples=("--bootstrap-server localhost:9092",),
)
