"""Controllers and brokers in processes of their own."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from raw_client import RawConnection, api_versions

from ottla.config.local_cluster import HOST
from ottla.runtime.net import free_ports
from ottla.testing import BrokerProcess
from ottla.wire.api import ApiKey

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
CONTROLLER, BROKERS = 100, (1, 2)


class Member(BrokerProcess):
    def __init__(self, directory: Path, node_id: int, port: int, quorum: str, *options: str) -> None:
        super().__init__(data_dir=str(directory / str(node_id)), port=port)
        self._file = directory / f"{node_id}.properties"
        is_controller = node_id == CONTROLLER
        lines = [
            f"process.roles={'controller' if is_controller else 'broker'}",
            f"node.id={node_id}",
            f"listeners={'CONTROLLER' if is_controller else 'PLAINTEXT'}://{HOST}:{port}",
            "controller.listener.names=CONTROLLER",
            quorum,
            f"log.dirs={self.data_dir}",
            # Of two brokers: without it, a consumer that leaves looks for a coordinator in vain, and long.
            "offsets.topic.replication.factor=1",
        ]
        self._file.write_text("\n".join(lines) + "\n")
        run("kafka-storage", "format", "-t", CLUSTER_ID, "-c", str(self._file), *options)

    def _arguments(self) -> list[str]:
        return [str(self._file)]


def run(*arguments: str) -> str:
    command = [sys.executable, "-m", "ottla.cli.main", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture(params=["voters", "bootstrap"])
def members(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[int, Member]]:
    ports = free_ports(HOST, 3)
    address = f"{HOST}:{ports[0]}"
    options: dict[int, str] = {}
    if request.param == "voters":
        quorum = f"controller.quorum.voters={CONTROLLER}@{address}"
    else:
        quorum = f"controller.quorum.bootstrap.servers={address}"
        options = {CONTROLLER: "--standalone", 1: "--no-initial-controllers", 2: "--no-initial-controllers"}
    with ExitStack() as stack:
        found = {}
        for node_id, port in zip((CONTROLLER, *BROKERS), ports, strict=True):
            given = (options[node_id],) if node_id in options else ()
            found[node_id] = Member(tmp_path, node_id, port, quorum, *given)
            stack.callback(found[node_id].close)
        for member in found.values():
            member.launch()
        for member in found.values():
            member.wait_ready()
        yield found


def test_a_controller_and_brokers_that_are_nothing_else(members: dict[int, Member]) -> None:
    controller, first, second = members[CONTROLLER], members[1], members[2]
    admin = AdminClient({"bootstrap.servers": second.bootstrap_servers})
    for made in admin.create_topics([NewTopic("orders", 4, 1)]).values():
        made.result(30)
    # The broker that is asked may read of it a moment later than the controller has answered.
    give_up_at = time.monotonic() + 30
    while "orders" not in (found := admin.list_topics(timeout=20)).topics:
        assert time.monotonic() < give_up_at
    assert found.brokers.keys() == set(BROKERS)
    assert {partition.leader for partition in found.topics["orders"].partitions.values()} == set(BROKERS)

    errors: list[object] = []
    producer = Producer({"bootstrap.servers": first.bootstrap_servers})
    for number in range(40):
        value, partition = b"%d" % number, number % 4
        producer.produce("orders", value, partition=partition, on_delivery=lambda e, _: errors.append(e))
    assert producer.flush(30) == 0
    assert errors == [None] * 40
    consumer = Consumer({"bootstrap.servers": first.bootstrap_servers, "group.id": "readers"})
    consumer.assign([TopicPartition("orders", partition, 0) for partition in range(4)])
    read: set[bytes] = set()
    while len(read) < 40:
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        read.add(message.value())
    consumer.close()

    # Each listener has what belongs to it, and says so.
    with RawConnection(controller.bootstrap_servers) as connection:
        of_controller = set(api_versions(connection))
    with RawConnection(first.bootstrap_servers) as connection:
        of_broker = set(api_versions(connection))
    assert {ApiKey.VOTE, ApiKey.BROKER_REGISTRATION, ApiKey.FETCH} <= of_controller
    assert not {ApiKey.PRODUCE, ApiKey.JOIN_GROUP, ApiKey.METADATA} & of_controller
    assert not {ApiKey.VOTE, ApiKey.BROKER_REGISTRATION} & of_broker
    at = controller.bootstrap_servers
    told = run("kafka-metadata-quorum", "--bootstrap-controller", at, "describe", "--status")
    assert ["LeaderId:", str(CONTROLLER)] in [line.split() for line in told.splitlines()]
    for member in (second, first, controller):
        assert member.stop() == 0
