"""`kafka-run-class`: courses and older documents start tools by the names of their Java classes."""

from __future__ import annotations

import argparse

from ottla.cli.framework.errors import ToolError
from ottla.cli.framework.mistyped import did_you_mean
from ottla.cli.framework.tool import Argument, Tool

# By the last part of the name: packages have changed over the years (kafka.tools, kafka.admin,
# org.apache.kafka.tools and below), classes have not.
_TOOLS = {
    "BrokerApiVersionsCommand": "broker-api-versions",
    "ClientMetricsCommand": "client-metrics",
    "ClusterTool": "cluster",
    "ConfigCommand": "configs",
    "ConnectDistributed": "connect-distributed",
    "ConnectStandalone": "connect-standalone",
    "ConsoleConsumer": "console-consumer",
    "ConsoleProducer": "console-producer",
    "ConsoleShareConsumer": "console-share-consumer",
    "ConsumerGroupCommand": "consumer-groups",
    "ConsumerPerformance": "consumer-perf-test",
    "DelegationTokenCommand": "delegation-tokens",
    "DeleteRecordsCommand": "delete-records",
    "DumpLogSegments": "dump-log",
    "EndToEndLatency": "e2e-latency",
    "FeatureCommand": "features",
    "GetOffsetShell": "get-offsets",
    "Kafka": "server-start",
    "LeaderElectionCommand": "leader-election",
    "LogDirsCommand": "log-dirs",
    "MetadataQuorumCommand": "metadata-quorum",
    "MetadataShell": "metadata-shell",
    "MirrorMaker": "connect-mirror-maker",
    "PreferredReplicaLeaderElectionCommand": "preferred-replica-election",
    "ProducerPerformance": "producer-perf-test",
    "ReassignPartitionsCommand": "reassign-partitions",
    "ReplicaVerificationTool": "replica-verification",
    "ShareGroupCommand": "share-groups",
    "StorageTool": "storage",
    "StreamsResetter": "streams-application-reset",
    "TopicCommand": "topics",
    "TransactionsCommand": "transactions",
    "VerifiableConsumer": "verifiable-consumer",
    "VerifiableProducer": "verifiable-producer",
}


def run(given: argparse.Namespace) -> int:
    from ottla.cli.framework.run import run_tool

    package, _, short_name = given.class_name.rpartition(".")
    name = _TOOLS.get(short_name.removesuffix("$"))
    if name is None or (package and not package.removeprefix("org.apache.").startswith("kafka")):
        raise ToolError(
            f"there is no tool for the class {given.class_name}{did_you_mean(short_name, _TOOLS)} "
            f"These are known, in any package of Kafka: {', '.join(_TOOLS)}"
        )
    return run_tool(name, given.arguments, f"{given.prog} {given.class_name}")


TOOL = Tool(
    name="run-class",
    description="Run the tool that goes by the name of a Java class, such as kafka.tools.GetOffsetShell.",
    run=run,
    arguments=(
        Argument("class_name", "the class, with or without its package"),
        Argument("arguments", "what the tool itself takes", rest=True),
    ),
    options=(),
    examples=(
        "kafka.tools.GetOffsetShell --bootstrap-server localhost:9092 --topic orders",
        "kafka.admin.ConsumerGroupCommand --bootstrap-server localhost:9092 --list",
    ),
)
