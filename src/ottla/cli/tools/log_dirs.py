"""`kafka-log-dirs`: what the log directories of brokers hold."""

from __future__ import annotations

import argparse
import json
from typing import Any

from ottla.cli.framework.errors import ToolError, code_name
from ottla.cli.framework.output import Table, show
from ottla.cli.framework.tool import BOOTSTRAP_SERVER, COMMAND_CONFIG, Option, Tool


def run(given: argparse.Namespace) -> int:
    from ottla.cli.cluster.admin import cluster
    from ottla.client.admin.log_dirs import describe_log_dirs
    from ottla.wire.errors import ErrorCode

    wanted_topics = {name for name in given.topic_list.split(",") if name}
    try:
        wanted_brokers = {int(broker) for broker in given.broker_list.split(",") if broker}
    except ValueError:
        raise ToolError(f"--broker-list {given.broker_list}: must be numbers separated by commas") from None
    if not given.describe:
        raise ToolError("give --describe, the only action there is")
    brokers: list[dict[str, Any]] = []
    rows: list[tuple[Any, ...]] = []
    with cluster(given) as admin:
        present = list(admin.nodes())
        if missing := sorted(wanted_brokers - set(present)):
            raise ToolError(
                f"ERROR: The given brokers do not exist from --broker-list: {_ids(missing)}. "
                f"Current existent brokers: {_ids(present)}"
            )
        asked = [broker for broker in present if not wanted_brokers or broker in wanted_brokers]
        for broker in asked:
            directories = []
            for found in admin.call(describe_log_dirs, broker):
                partitions = [
                    {
                        "partition": str(held.partition),
                        "size": held.size_bytes,
                        "offsetLag": held.offset_lag,
                        "isFuture": held.is_future,
                    }
                    for held in found.replicas
                    if not wanted_topics or held.partition.topic in wanted_topics
                ]
                error = None if found.error_code == ErrorCode.none else code_name(found.error_code)
                directories.append({"partitions": partitions, "error": error, "logDir": found.path})
                rows += [
                    (broker, found.path, item["partition"], item["size"], item["offsetLag"])
                    for item in partitions
                ]
            brokers.append({"broker": broker, "logDirs": directories})
    data = {"brokers": brokers, "version": 1}
    lines = [
        "Querying brokers for log directories information",
        f"Received log directory information from brokers {_ids(asked)}",
        json.dumps(data, separators=(",", ":")),
    ]
    show(given, data, lines, [Table(("Broker", "Directory", "Partition", "Bytes", "Offset lag"), rows)])
    return 0


def _ids(brokers: list[int]) -> str:
    return ",".join(map(str, brokers))


TOOL = Tool(
    name="log-dirs",
    description="Show what the log directories of brokers hold.",
    run=run,
    options=(
        BOOTSTRAP_SERVER,
        COMMAND_CONFIG,
        Option("describe", "describe the log directories (required)"),
        Option("topic-list", "topics; all without it", "TOPIC,…", default=""),
        Option("broker-list", "brokers; all without it", "ID,…", default=""),
    ),
    examples=("--bootstrap-server localhost:9092 --describe --topic-list orders",),
)
