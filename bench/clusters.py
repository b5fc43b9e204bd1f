"""Clusters of several nodes on this machine: all of Apache Kafka, or of both kinds, with the same settings.

Every node has its settings in a file of its own. The nodes of either kind are started, killed, paused and
stopped by the same names, which are those of `ottla.testing`.
"""

from __future__ import annotations

import random
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Self

from bench.brokers import BrokerFailed
from bench.kafka_peer import FORMAT_TIMEOUT_S, SERVER_HEAP, KafkaDistribution
from ottla.config.local_cluster import HOST, LocalNode, local_nodes, local_properties, properties_text
from ottla.metadata.meta_properties import prepare
from ottla.metadata.uuids import random_uuid, uuid_text
from ottla.runtime.disk import PosixDisk
from ottla.runtime.net import free_ports
from ottla.testing.cluster import BrokerCluster, ClusterBroker

RACK = "machine"
CHECKPOINT = "bootstrap.checkpoint"
READY = "Kafka Server started"
# Three virtual machines at once, on a machine that has something else to do.
READY_SECONDS_MAX = 180.0
LOOK_S = 0.05
# Ottla takes both of these from the other settings; Apache Kafka wants them said.
FOR_KAFKA = {
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}


class KafkaNode(ClusterBroker):
    """One of Apache Kafka's nodes. `heap` is what its JVM is given besides the flags of its scripts."""

    def __init__(
        self, node: LocalNode, distribution: KafkaDistribution, heap: tuple[str, ...] = SERVER_HEAP
    ) -> None:
        super().__init__(node, "info", {}, None)
        self._argv = distribution.argv(
            "kafka.Kafka", node.properties_file, heap=heap, log4j="server.properties"
        )
        self._said_before = 0
        self._launched_at = 0.0

    def launch(self) -> None:
        if self.is_running:
            raise RuntimeError("the node is already running")
        self._forget()
        with open(self._log_path, "a") as output:
            self._said_before = output.tell()
            self._launched_at = time.monotonic()
            self._process = subprocess.Popen(self._argv, stdout=output, stderr=output, text=True)

    def wait_ready(self, timeout_seconds: float = READY_SECONDS_MAX) -> Self:
        while not self._is_ready():
            late = time.monotonic() - self._launched_at > timeout_seconds
            if late or not self.is_running:
                raise BrokerFailed(f"node {self.id} of Apache Kafka did not start:\n{self.log[-4000:]}")
            time.sleep(LOOK_S)
        self.seconds_to_ready = time.monotonic() - self._launched_at
        return self

    def _is_ready(self) -> bool:
        with open(self._log_path, errors="replace") as file:
            file.seek(self._said_before)
            return READY in file.read()


class NodeCluster(BrokerCluster):
    """Nodes of either kind. `kafka` are the ids of those that are Apache Kafka's, `voters` of the quorum."""

    def __init__(
        self,
        distribution: KafkaDistribution,
        kafka: Sequence[int],
        *,
        nodes: int = 3,
        voters: Sequence[int] | None = None,
        settings: Mapping[str, str] | None = None,
        heap: tuple[str, ...] = SERVER_HEAP,
    ) -> None:
        self._own_dir = tempfile.mkdtemp(prefix="cluster-")
        self.data_dir = self._own_dir
        self._links = None
        ports = free_ports(HOST, 2 * nodes)
        self.nodes = local_nodes(self.data_dir, ports[:nodes], ports[nodes:])
        self.voters = [node for node in self.nodes if voters is None or node.id in voters]
        self.cluster_id = uuid_text(random_uuid(random.SystemRandom()))
        self._settings = dict(settings or {})
        self._distribution = distribution
        self._heap = heap
        self.brokers = {node.id: self._make(node, is_kafka=node.id in kafka) for node in self.nodes}

    def _as_a_broker(self) -> Mapping[str, str]:
        return {}

    def _make(self, node: LocalNode, *, is_kafka: bool) -> ClusterBroker:
        Path(node.directory).mkdir()
        prepare(PosixDisk(), random.SystemRandom(), [node.data_dir], node.id, self.cluster_id)
        if is_kafka:
            Path(node.data_dir, CHECKPOINT).write_bytes(formatted_checkpoint(self._distribution))
        return self._place(node, is_kafka=is_kafka)

    def _place(self, node: LocalNode, *, is_kafka: bool) -> ClusterBroker:
        properties = local_properties(node, self.nodes, RACK, self._settings)
        properties["controller.quorum.voters"] = ",".join(voter.voter for voter in self.voters)
        if node not in self.voters:
            properties["process.roles"] = "broker"
            properties["listeners"] = f"PLAINTEXT://{node.address}"
        if is_kafka:
            properties = {**FOR_KAFKA, **properties}
        Path(node.properties_file).write_text(properties_text(properties, f"node {node.id}"))
        if is_kafka:
            return KafkaNode(node, self._distribution, self._heap)
        return ClusterBroker(node, "info", {}, None)

    def is_kafka(self, node_id: int) -> bool:
        return isinstance(self.brokers[node_id], KafkaNode)

    def exchange(self, node_id: int) -> ClusterBroker:
        """The other kind of node on the same directory; it is not started."""
        (node,) = (node for node in self.nodes if node.id == node_id)
        before = self.brokers[node_id]
        before.close()
        after = self._place(node, is_kafka=not isinstance(before, KafkaNode))
        self.brokers[node_id] = after
        return after


@cache
def formatted_checkpoint(distribution: KafkaDistribution) -> bytes:
    """With which a new cluster of Apache Kafka begins: the features that its storage tool turns on.

    It is the same for all nodes, and the tool takes seconds.
    """
    with tempfile.TemporaryDirectory() as directory:
        (node,) = local_nodes(directory, [9092], [9093])
        Path(node.directory).mkdir()
        properties = {**FOR_KAFKA, **local_properties(node, [node], RACK, {})}
        Path(node.properties_file).write_text(properties_text(properties, "only formatted"))
        cluster_id = uuid_text(random_uuid(random.SystemRandom()))
        done = distribution.run_tool(
            "kafka.tools.StorageTool",
            "format",
            f"--cluster-id={cluster_id}",
            f"--config={node.properties_file}",
            timeout_s=FORMAT_TIMEOUT_S,
        )
        if done.returncode:
            raise BrokerFailed(f"formatting for Apache Kafka failed: {done.stdout}{done.stderr}")
        return Path(node.data_dir, CHECKPOINT).read_bytes()
