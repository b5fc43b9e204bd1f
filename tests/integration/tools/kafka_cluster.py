"""A cluster of Apache Kafka, and its own tools to run beside ours."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import kafka_peer
from bench.brokers import started
from bench.kafka_peer import ApacheKafka, KafkaDistribution
from bench.maven import CACHE, fetch_jars

TOOL_TIMEOUT_S = 60
TOOLS = "org.apache.kafka.tools."
CLASSES = {
    "topics": f"{TOOLS}TopicCommand",
    "configs": "kafka.admin.ConfigCommand",
    "get-offsets": f"{TOOLS}GetOffsetShell",
    "delete-records": f"{TOOLS}DeleteRecordsCommand",
    "log-dirs": f"{TOOLS}LogDirsCommand",
    "cluster": f"{TOOLS}ClusterTool",
    "broker-api-versions": f"{TOOLS}BrokerApiVersionsCommand",
    "features": f"{TOOLS}FeatureCommand",
    "metadata-quorum": f"{TOOLS}MetadataQuorumCommand",
    "console-consumer": f"{TOOLS}consumer.ConsoleConsumer",
    "consumer-groups": f"{TOOLS}consumer.group.ConsumerGroupCommand",
    "client-metrics": f"{TOOLS}ClientMetricsCommand",
    "transactions": f"{TOOLS}TransactionsCommand",
    "reassign-partitions": f"{TOOLS}reassign.ReassignPartitionsCommand",
    "leader-election": f"{TOOLS}LeaderElectionCommand",
    "replica-verification": f"{TOOLS}ReplicaVerificationTool",
    "dump-log": f"{TOOLS}DumpLogSegments",
    "metadata-shell": "org.apache.kafka.shell.MetadataShell",
    "storage": "kafka.tools.StorageTool",
    "verifiable-producer": f"{TOOLS}VerifiableProducer",
    "verifiable-consumer": f"{TOOLS}VerifiableConsumer",
    "producer-perf-test": f"{TOOLS}ProducerPerformance",
    "consumer-perf-test": f"{TOOLS}ConsumerPerformance",
    "e2e-latency": f"{TOOLS}EndToEndLatency",
}


@dataclass(frozen=True)
class Cluster:
    distribution: KafkaDistribution
    bootstrap_servers: str
    data_dir: Path

    def theirs(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """What Kafka's own tool of that name says."""
        return self.distribution.run_tool(CLASSES[name], *arguments, timeout_s=TOOL_TIMEOUT_S)

    def their_shell(self, *arguments: str) -> list[str]:
        """The metadata shell is a jar of its own, with what it needs."""
        home = CACHE / "kafka-shell" / kafka_peer.VERSION
        artifact = f"org.apache.kafka:kafka-shell:{kafka_peer.VERSION}"
        libs = fetch_jars(home, f"the shell of Apache Kafka {kafka_peer.VERSION}", artifact)
        kafka = self.distribution
        argv = kafka.argv(CLASSES["metadata-shell"], *arguments, heap=("-Xmx256M",), log4j="tools.properties")
        argv[argv.index("-cp") + 1] = f"{libs}/*:{kafka.libs}/*"
        done = subprocess.run(argv, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()


@contextmanager
def running_cluster(directory: Path) -> Iterator[Cluster]:
    """PeerUnavailable where there is no Kafka to be had."""
    distribution = kafka_peer.fetch()
    with started(ApacheKafka(distribution), str(directory), directory.parent / "kafka.out") as kafka:
        yield Cluster(distribution, f"127.0.0.1:{kafka.port}", directory)


def normal(text: str) -> list[str]:
    """Lines without what only lays them out."""
    lines = (re.sub(r"\s+", " ", line).strip() for line in text.splitlines())
    return [line for line in lines if line]


def measured(lines: list[str]) -> list[str]:
    """Numbers with a fraction and moments in time are what was measured; counts stay."""
    moment = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}")
    return [re.sub(r"\d+\.\d+(E-?\d+)?", "#", moment.sub("@", line)) for line in lines]
