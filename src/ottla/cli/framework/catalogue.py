"""Every tool by name, grouped by what a person wants to do. Each is a module of `tools`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.cli.framework.tool import Tool

PURPOSES: dict[str, dict[str, str]] = {
    "Run a broker": {
        "start": "run a broker in the foreground",
        "stop": "stop the broker of a data directory",
        "server-start": "run a broker, with the flags of kafka-server-start",
        "server-stop": "stop brokers, with the flags of kafka-server-stop",
        "storage": "prepare and inspect data directories",
    },
    "Work with topics": {
        "topics": "create, list, describe, grow and delete topics",
        "configs": "see and change settings of topics, brokers and groups",
        "get-offsets": "see where partitions begin and end",
        "delete-records": "delete the oldest records of partitions",
    },
    "Write and read records": {
        "console-producer": "write lines from standard input to a topic",
        "console-consumer": "print the records of topics",
        "console-share-consumer": "print the records that a member of a share group gets",
        "verifiable-producer": "write numbered records, reporting each in JSON",
        "verifiable-consumer": "read records in a group, reporting in JSON",
    },
    "Look after consumers": {
        "consumer-groups": "see lag and members, reset offsets, delete groups",
        "share-groups": "see where share groups are, reset offsets, delete groups",
        "client-metrics": "see and change which clients push which metrics",
    },
    "Look after producers": {
        "transactions": "see transactions, find and abort those that hang",
    },
    "Look after schemas": {
        "schema-registry": "run a schema registry with Confluent's REST API",
    },
    "Run pipelines": {
        "run": "run streams applications on Spark",
        "examples": "copy the examples to a directory",
        "streams-application-reset": "let a streams application start anew",
        "connect": "run connectors, managed over Kafka Connect's REST API",
        "connect-distributed": "the same, with the flags of Kafka's connect-distributed",
        "connect-standalone": "run the connectors of property files, in one process",
        "mirror": "copy topics, settings and groups from cluster to cluster",
        "connect-mirror-maker": "the same, with the flags of Kafka's connect-mirror-maker",
    },
    "Keep strangers out": {
        "acls": "see and change access rules",
        "certs": "make certificates for development, and settings to go with them",
        "delegation-tokens": "create, renew, expire and list delegation tokens",
    },
    "Inspect a cluster": {
        "console": "look after clusters in a browser",
        "top": "see at a glance what a cluster does",
        "dashboards": "write dashboards for Grafana and alerts for Prometheus",
        "cluster": "show the cluster's id and its endpoints",
        "broker-api-versions": "list the APIs that each broker serves",
        "features": "show the features of the cluster",
        "metadata-quorum": "show the state of the metadata quorum",
        "log-dirs": "show what the log directories of brokers hold",
    },
    "Look after replicas": {
        "reassign-partitions": "move replicas to other brokers or directories",
        "leader-election": "elect leaders of partitions",
        "preferred-replica-election": "what older courses call leader-election",
        "replica-verification": "compare the replicas of topics",
    },
    "Inspect files": {
        "dump-log": "print segments, indexes and snapshots as text",
        "metadata-shell": "walk through the metadata of a cluster as through files",
    },
    "Measure": {
        "producer-perf-test": "measure how fast records are written",
        "consumer-perf-test": "measure how fast records are read",
        "e2e-latency": "measure the time from producer to consumer",
    },
    "Shell": {
        "run-class": "run the tool that goes by the name of a class of Kafka's",
        "completion": "print a completion script for a shell",
    },
}

# These have no Kafka-named executable: they are Ottla's own.
OWN = {
    "certs",
    "completion",
    "connect",
    "console",
    "dashboards",
    "examples",
    "mirror",
    "run",
    "schema-registry",
    "start",
    "stop",
    "top",
}
# Kafka's executables of these names have no kafka- before them.
UNPREFIXED = {"connect-distributed", "connect-mirror-maker", "connect-standalone"}

NAMES = tuple(name for tools in PURPOSES.values() for name in tools)


def executable(name: str) -> str:
    return name if name in UNPREFIXED else f"kafka-{name}"


EXECUTABLES = tuple(executable(name) for name in NAMES if name not in OWN)


def load(name: str) -> Tool:
    module = importlib.import_module(f"ottla.cli.tools.{name.replace('-', '_')}")
    tool: Tool = module.TOOL
    return tool


def overview() -> str:
    """The commands as `ottla --help` lists them."""
    width = max(len(name) for tools in PURPOSES.values() for name in tools) + 2
    lines: list[str] = []
    for purpose, tools in PURPOSES.items():
        lines += ["", f"{purpose}:"]
        lines += [f"  {name:{width}}{summary}" for name, summary in tools.items()]
    return "\n".join(lines)
