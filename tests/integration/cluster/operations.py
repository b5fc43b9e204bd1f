"""What operators do to a cluster that is in use: brokers come, go, and are replaced; nobody may notice."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from tests.integration.cluster.faults import Gaps, keeping_logs, wait_in_sync
from tests.integration.cluster.workload import (
    TOPICS,
    WAIT_S,
    Client,
    Workload,
    check_numbers,
    create_topics,
    read_all,
)

from ottla.config.local_cluster import LocalNode, local_properties, properties_text
from ottla.metadata.meta_properties import make_dir, prepare
from ottla.runtime.disk import PosixDisk
from ottla.runtime.net import free_ports
from ottla.testing import BrokerCluster, ClusterBroker
from ottla.testing.settings import cluster_properties

SPREAD = "spread"
MOVING_S_MAX = 300.0


class SpreadWriter(Client):
    """Numbers to many partitions in turn, idempotent, acknowledged by all in sync."""

    def __init__(self, servers: str, partitions: int) -> None:
        super().__init__(servers, f"writer of {SPREAD}")
        self._partitions = partitions
        self.acknowledged: dict[int, list[int]] = defaultdict(list)
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": int(WAIT_S * 1000),
                "log_level": 0,
            }
        )

    def work(self) -> None:
        number = 0
        while not self.stopping.is_set() and self.failure is None:
            for partition in range(self._partitions):
                self._producer.produce(SPREAD, str(number), partition=partition, on_delivery=self._delivered)
            number += 1
            self._producer.flush(WAIT_S + 10)
            self.stopping.wait(0.05)

    def _delivered(self, error: Any, message: Message) -> None:
        value, partition = message.value(), message.partition()
        if error is not None:
            self.failure = KafkaException(error)
        elif value is not None and partition is not None:
            self.acknowledged[partition].append(int(value))
            self.advanced.append(time.monotonic())

    def check(self) -> int:
        """How many there are. All that was acknowledged is there, in order, once."""
        for partition in range(self._partitions):
            found = [int(value) for value in read_all(self.servers, SPREAD, partition)]
            check_numbers(f"{SPREAD}-{partition}", self.acknowledged[partition], found)
        return sum(map(len, self.acknowledged.values()))


def tool(cluster: BrokerCluster, name: str, *arguments: str) -> str:
    """What one of Kafka's tools says."""
    command = [sys.executable, "-m", "ottla.cli.main", name, *arguments]
    servers = ["--bootstrap-server", cluster.bootstrap_servers]
    done = subprocess.run([*command, *servers], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{name} {arguments}: {done.stdout}{done.stderr}"
    return done.stdout


def add_broker(cluster: BrokerCluster, broker_id: int) -> ClusterBroker:
    """A broker that does not vote, with an empty directory, which is started."""
    first = next(iter(cluster.brokers.values()))
    (port,) = free_ports("127.0.0.1", 1)
    node = LocalNode(broker_id, f"{cluster.data_dir}/broker-{broker_id}", port, 0)
    voters = next(
        line.partition("=")[2]
        for line in Path(f"{first.data_dir}/../server.properties").read_text().splitlines()
        if line.startswith("controller.quorum.voters=")
    )
    properties = local_properties(node, [node], "test", cluster_properties(None)) | {
        "process.roles": "broker",
        "listeners": f"PLAINTEXT://{node.address}",
        "controller.quorum.voters": voters.replace("\\", ""),
    }
    make_dir(PosixDisk(), node.directory)
    Path(node.properties_file).write_text(properties_text(properties, "a broker that came later"))
    prepare(PosixDisk(), random.SystemRandom(), [node.data_dir], broker_id, cluster.cluster_id)
    broker = cluster.brokers[broker_id] = ClusterBroker(node, "info", {}, None)
    broker.start()
    return broker


def reassign(cluster: BrokerCluster, directory: Path, replicas: dict[tuple[str, int], Sequence[int]]) -> None:
    """With the tool, until it says that all is where it should be."""
    plan = {
        "version": 1,
        "partitions": [
            {"topic": topic, "partition": number, "replicas": list(wanted)}
            for (topic, number), wanted in replicas.items()
        ],
    }
    file = directory / "plan.json"
    file.write_text(json.dumps(plan))
    said = tool(cluster, "reassign-partitions", "--reassignment-json-file", str(file), "--execute")
    assert "Successfully started" in said, said
    deadline = time.monotonic() + MOVING_S_MAX
    while True:
        said = tool(cluster, "reassign-partitions", "--reassignment-json-file", str(file), "--verify")
        if "still in progress" not in said:
            break
        assert time.monotonic() < deadline, said
        time.sleep(0.5)
    assert said.count("is completed") == len(replicas), said
    wait_in_sync(_servers(cluster))


def replicas_on(cluster: BrokerCluster, broker_id: int) -> dict[tuple[str, int], list[int]]:
    """Partitions that a broker has replicas of, with all their replicas."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    return {
        (name, number): partition.replicas
        for name, topic in admin.list_topics(timeout=WAIT_S).topics.items()
        for number, partition in topic.partitions.items()
        if broker_id in partition.replicas
    }


def remove_broker(cluster: BrokerCluster, directory: Path, broker_id: int) -> None:
    """Its replicas go to others, it stops, and the cluster forgets it."""
    others = [each for each in cluster.brokers if each != broker_id]
    wanted = {}
    for place, replicas in replicas_on(cluster, broker_id).items():
        free = [each for each in others if each not in replicas]
        wanted[place] = [free[0] if each == broker_id else each for each in replicas]
    reassign(cluster, directory, wanted)
    assert not replicas_on(cluster, broker_id)
    assert cluster[broker_id].stop(60) == 0
    tool(cluster, "cluster", "unregister", "--id", str(broker_id))
    cluster.brokers.pop(broker_id).close()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    assert broker_id not in admin.list_topics(timeout=WAIT_S).brokers


def replace_with_empty_disk(cluster: BrokerCluster, broker_id: int) -> None:
    """As on a new machine with the settings of the old: all it had comes back from the others."""
    broker = cluster[broker_id]
    broker.kill9()
    shutil.rmtree(broker.data_dir)
    prepare(PosixDisk(), random.SystemRandom(), [broker.data_dir], broker_id, cluster.cluster_id)
    broker.start()
    wait_in_sync(_servers(cluster))


def segments(cluster: BrokerCluster, broker_id: int, topics: Sequence[str]) -> dict[str, bytes]:
    """Bytes of the log files of some topics on one broker."""
    return {
        f"{path.parent.name}/{path.name}": path.read_bytes()
        for topic in topics
        for path in sorted(Path(cluster[broker_id].data_dir).glob(f"{topic}-*/*.log"))
    }


def wait_same_bytes(cluster: BrokerCluster, topics: Sequence[str]) -> int:
    """Until all replicas of each partition are the same, while nobody writes; how many bytes they have."""
    deadline = time.monotonic() + WAIT_S
    while True:
        found: dict[str, list[bytes]] = defaultdict(list)
        for broker_id in cluster.brokers:
            for name, data in segments(cluster, broker_id, topics).items():
                found[name].append(data)
        differing = sorted(
            name for name, copies in found.items() if any(each != copies[0] for each in copies)
        )
        if not differing:
            return sum(len(copies[0]) for copies in found.values())
        assert time.monotonic() < deadline, f"replicas differ: {differing}"
        time.sleep(0.2)


def _servers(cluster: BrokerCluster) -> str:
    return ",".join(broker.bootstrap_servers for broker in cluster.brokers.values() if broker.is_running)


def run_operations(directory: Path, partitions: int, say: Callable[[str], None] = print) -> None:
    """AssertionError for what a client must not notice."""
    with BrokerCluster(data_dir=str(directory / "data"), relayed=False) as cluster, ExitStack() as stack:
        stack.enter_context(keeping_logs(cluster, directory))
        servers = cluster.bootstrap_servers
        create_topics(servers)
        create_topics(servers, [SPREAD], partitions)
        workload = Workload(servers)
        spread = SpreadWriter(servers, partitions)
        workload.start()
        stack.callback(workload.stop)
        spread.start()
        stack.callback(spread.stop)
        workload.wait_begun()
        gaps = Gaps()

        def done(what: str, began: float) -> None:
            workload.wait_going_on()
            spread.check_alive()
            gaps.add(what, "records", [*workload.writers, spread], began)
            gaps.add(what, "transactions", workload.transactors, began)
            say(f"{what}: {time.monotonic() - began:.1f} s")

        began = time.monotonic()
        add_broker(cluster, 4)
        wanted = {
            (SPREAD, number): [4, *sorted({1, 2, 3} - {number % 3 + 1})] for number in range(partitions)
        }
        reassign(cluster, directory, wanted)
        assert len(replicas_on(cluster, 4)) == partitions
        tool(cluster, "leader-election", "--election-type", "preferred", "--all-topic-partitions")
        assert cluster.leader(SPREAD, 0).id == 4
        done(f"add a broker, move {partitions} to it", began)

        began = time.monotonic()
        remove_broker(cluster, directory, 4)
        done("remove it", began)

        began = time.monotonic()
        replace_with_empty_disk(cluster, 2)
        done("replace one by an empty one", began)

        say(workload.finish())
        spread.stop()
        spread.check_ended()
        say(f"{spread.check()} records spread over {partitions} partitions")
        say(f"replicas are the same: {wait_same_bytes(cluster, [*TOPICS, SPREAD])} bytes each")
        say(str(gaps))
