"""Three brokers on hosts of their own lose each other: in both directions, in one, each from each.

Whoever is in the minority accepts nothing that all in sync have to have, and what it took from those who ask
for less is gone after the network has healed. The others go on.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.integration.cluster.faults import Gaps, keeping_logs, wait_in_sync
from tests.integration.cluster.operations import wait_same_bytes
from tests.integration.cluster.workload import (
    PARTITIONS,
    TOPICS,
    WAIT_S,
    WRITTEN,
    Workload,
    create_topics,
    read_all,
)
from tests.soak.namespaces import Hosts, unavailable

from ottla.config.local_cluster import LocalNode, local_nodes, local_properties, properties_text
from ottla.metadata.meta_properties import make_dir, prepare
from ottla.metadata.uuids import random_uuid, uuid_text
from ottla.runtime.disk import PosixDisk
from ottla.testing import BrokerCluster
from ottla.testing.cluster import ClusterBroker
from ottla.testing.settings import cluster_properties

PORT, CONTROLLER_PORT = 9092, 9093
CUT_S = 6.0
"""Longer than it takes to notice, and to elect others."""
MINORITY = "minority"
PROBED = "probed"
CLIENTS = "clients"
"""The host of those who stay with the majority."""
OUTSIDE = "outside"
"""The host of those who are left with the minority."""

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]


class HostedBroker(ClusterBroker):
    def __init__(self, node: LocalNode, hosts: Hosts) -> None:
        super().__init__(node, "info", {}, None)
        self.host = str(node.id)
        self._hosts = hosts

    @property
    def bootstrap_servers(self) -> str:
        return f"{self._hosts.addresses[self.host]}:{PORT}"

    def _command(self) -> list[str]:
        return [*self._hosts.command(self.host), *super()._command()]


class HostedCluster(BrokerCluster):
    """A broker on each host but the clients'."""

    def __init__(self, hosts: Hosts, directory: Path) -> None:
        self.data_dir, self._own_dir, self._links = str(directory), None, None
        nodes = local_nodes(self.data_dir, [PORT] * 3, [CONTROLLER_PORT] * 3)
        disk, chance = PosixDisk(), random.SystemRandom()
        self.cluster_id = uuid_text(random_uuid(chance))
        voters = ",".join(f"{node.id}@{hosts.addresses[str(node.id)]}:{CONTROLLER_PORT}" for node in nodes)
        self._written: dict[str, str] = {}
        for node in nodes:
            address = hosts.addresses[str(node.id)]
            properties = local_properties(node, nodes, "rack", cluster_properties(None)) | {
                "listeners": f"PLAINTEXT://{address}:{PORT},CONTROLLER://{address}:{CONTROLLER_PORT}",
                "controller.quorum.voters": voters,
            }
            self._written = properties
            make_dir(disk, node.directory)
            Path(node.properties_file).write_text(properties_text(properties, "a host of its own"))
            prepare(disk, chance, [node.data_dir], node.id, self.cluster_id)
        self.brokers = {node.id: HostedBroker(node, hosts) for node in nodes}


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    reason = unavailable()
    if reason is not None:
        pytest.skip(reason)
    made = Hosts(["1", "2", "3", CLIENTS, OUTSIDE])
    try:
        with made.inside(CLIENTS):
            yield made
    finally:
        made.close()


class MinorityClients:
    """They only know of one broker, which believes that it leads."""

    def __init__(self, broker: ClusterBroker, partition: int) -> None:
        self.accepted: dict[str, int] = {"all": 0, "1": 0}
        self._partition = partition
        self._producers = {
            acks: Producer(
                {
                    "bootstrap.servers": broker.bootstrap_servers,
                    "acks": acks,
                    "message.timeout.ms": int(CUT_S * 1000),
                    "log_level": 0,
                }
            )
            for acks in self.accepted
        }
        for producer in self._producers.values():
            producer.list_topics(WRITTEN, 10)

    def write(self) -> None:
        for acks, producer in self._producers.items():

            def told(error: object, message: object, acks: str = acks) -> None:
                self.accepted[acks] += error is None

            for _ in range(20):
                producer.produce(
                    WRITTEN, f"{MINORITY} {acks}".encode(), partition=self._partition, on_delivery=told
                )
        for producer in self._producers.values():
            producer.flush(CUT_S + 10)


def wait_majority_serves(majority: list[ClusterBroker]) -> None:
    """New clients, who wait for no answer from before."""
    servers = ",".join(broker.bootstrap_servers for broker in majority)
    settings = {"bootstrap.servers": servers, "acks": "all", "message.timeout.ms": int(WAIT_S * 1000)}
    producer = Producer({**settings, "log_level": 0})
    errors: list[object] = []
    for partition in range(PARTITIONS):
        producer.produce(
            PROBED, b"?", partition=partition, on_delivery=lambda error, message: errors.append(error)
        )
    assert producer.flush(WAIT_S) == 0
    assert errors == [None] * PARTITIONS


def test_partitions(hosts: Hosts, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def say(text: str) -> None:
        with capfd.disabled():
            print(text, flush=True)

    with ExitStack() as stack:
        cluster = stack.enter_context(HostedCluster(hosts, tmp_path))
        stack.enter_context(keeping_logs(cluster, tmp_path))
        servers = cluster.bootstrap_servers
        create_topics(servers, [*TOPICS, PROBED])
        workload = Workload(servers)
        workload.start()
        stack.callback(workload.stop)
        workload.wait_begun()
        gaps = Gaps()

        def others(name: str) -> list[str]:
            return [each for each in ("1", "2", "3") if each != name]

        def leader() -> ClusterBroker:
            return cluster.leader(WRITTEN, 0)

        def cut_from(find: Callable[[], ClusterBroker], *, hears: bool, is_heard: bool) -> None:
            """In one direction, or both."""
            broker = find()
            name, clients = str(broker.id), None
            if broker is leader():
                with hosts.inside(OUTSIDE):
                    clients = MinorityClients(broker, 0)
                hosts.part([OUTSIDE], others(name))
            for other in (*others(name), CLIENTS):
                if not is_heard:
                    hosts.lose(name, other)
                if not hears:
                    hosts.lose(other, name)
            began = time.monotonic()
            wait_majority_serves([cluster[int(other)] for other in others(name)])
            say(f"the majority serves after {time.monotonic() - began:.1f} s")
            if clients is not None:
                clients.write()
                assert clients.accepted["all"] == 0, "the minority has acknowledged what it alone has"
                say(f"the minority took {clients.accepted['1']} records with acks=1, none with acks=all")

        def each_from_each() -> None:
            for name in ("1", "2", "3"):
                hosts.part([name], others(name))
            # What was acknowledged just before is heard of just after.
            time.sleep(1)
            before = [len(writer.acknowledged) for writer in workload.writers]
            time.sleep(CUT_S)
            after = [len(writer.acknowledged) for writer in workload.writers]
            assert after == before, "brokers that are alone acknowledge what they alone have"

        cuts: dict[str, Callable[[], None]] = {
            "each from each": each_from_each,
            **{
                f"{who} {how}": lambda find=find, ways=ways: cut_from(find, hears=ways[0], is_heard=ways[1])
                for who, find in (("leader", leader), ("controller", cluster.controller))
                for how, ways in (
                    ("cut off", (False, False)),
                    ("not heard", (True, False)),
                    ("hears nobody", (False, True)),
                )
            },
        }
        for kind, cut in cuts.items():
            began = time.monotonic()
            cut()
            hosts.heal()
            wait_in_sync(servers)
            workload.wait_going_on()
            records = gaps.add(kind, "records", workload.writers, began)
            transactions = gaps.add(kind, "transactions", workload.transactors, began)
            say(f"{kind}: records {records:.2f} s, transactions {transactions:.2f} s")

        found = [value for partition in range(PARTITIONS) for value in read_all(servers, WRITTEN, partition)]
        left = [value for value in found if value.startswith(MINORITY)]
        assert not left, f"{len(left)} records of the minority survived: {left[:3]}"
        say(workload.finish())
        say(f"replicas are the same: {wait_same_bytes(cluster, [*TOPICS, PROBED])} bytes each")
        say(str(gaps))
