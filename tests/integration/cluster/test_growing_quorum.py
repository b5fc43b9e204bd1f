"""A quorum that begins with one voter, grows to three and shrinks again, with the tools, under load."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from quorum_members import Member, described, run, wait_until

from ottla.config.local_cluster import HOST
from ottla.runtime.net import free_ports


@pytest.fixture
def members(tmp_path: Path) -> Iterator[list[Member]]:
    ports = free_ports(HOST, 6)
    servers = ",".join(f"{HOST}:{port}" for port in ports[3:])
    with ExitStack() as stack:
        found = [
            Member(tmp_path, node_id, (ports[node_id - 1], ports[node_id + 2]), servers)
            for node_id in (1, 2, 3)
        ]
        for member in found:
            stack.callback(member.close)
        yield found


class Load:
    """Somebody who produces all the time."""

    def __init__(self, servers: str) -> None:
        self.failures: list[object] = []
        self.acknowledged = 0
        self._ends = threading.Event()
        self._producer = Producer({"bootstrap.servers": servers, "acks": "all"})
        self._thread = threading.Thread(target=self._produce)

    def _produce(self) -> None:
        while not self._ends.wait(0.01):
            self._producer.produce("orders", b"x", on_delivery=self._delivered)
            self._producer.poll(0)
        assert self._producer.flush(60) == 0

    def _delivered(self, error: object, _: object) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.failures.append(error)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()


def test_from_one_voter_to_three_and_back_to_another_one(members: list[Member]) -> None:
    first, second, third = members
    first.format("--standalone")
    second.format("--no-initial-controllers")
    third.format("--no-initial-controllers")
    first.launch()
    first.wait_ready()
    at = first.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": at})
    admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(30)
    status = described(at)
    assert status["CurrentVoters"] == [
        {"id": 1, "directoryId": first.directory_id, "endpoints": [f"CONTROLLER://{first.controller}"]}
    ]
    with Load(at) as load:
        for member in (second, third):
            member.launch()
        for member in (second, third):
            member.wait_ready()
            adding = ("kafka-metadata-quorum", "--bootstrap-server", at, "--command-config", str(member.file))
            assert "DRY RUN of adding controller" in run(*adding, "add-controller", "--dry-run")
            told = run(*adding, "add-controller")
            assert f"Added controller {member.id} with directory id {member.directory_id}" in told
            assert "is already part of the set of voters" in run(*adding, "add-controller", status=1)
        voters = described(at)["CurrentVoters"]
        assert [(voter["id"], voter["directoryId"]) for voter in voters] == [
            (member.id, member.directory_id) for member in members
        ]
        # The first of them leaves the quorum, which it leads; asked of a controller this time.
        removing = ("remove-controller", "-i", "1", "-d", first.directory_id)
        quorum = ("kafka-metadata-quorum", "--bootstrap-controller", second.controller)
        assert "DRY RUN of removing KRaft controller 1" in run(*quorum, *removing, "--dry-run")
        assert "Removed KRaft controller 1" in run(*quorum, *removing)
        wait_until(lambda: described(at)["LeaderId"] in {2, 3})
        status = described(at)
        assert [voter["id"] for voter in status["CurrentVoters"]] == [2, 3]
        assert 1 in [observer["id"] for observer in status["CurrentObservers"]]
        admin.create_topics([NewTopic("made-by-others", 1, 1)])["made-by-others"].result(30)
        run(*quorum, "remove-controller", "-i", "3", "-d", third.directory_id)
        wait_until(lambda: described(at)["LeaderId"] == 2)
        assert [voter["id"] for voter in described(at)["CurrentVoters"]] == [2]
        told = run(*quorum, "remove-controller", "-i", "2", "-d", second.directory_id, status=1)
        assert "Cannot remove voter 2" in told
    assert not load.failures
    assert load.acknowledged > 100
    # All of it is still so after a restart.
    assert second.stop() == 0
    second.launch()
    second.wait_ready()
    wait_until(lambda: described(second.bootstrap_servers)["LeaderId"] == 2)
    for member in (first, third, second):
        assert member.stop() == 0


def test_a_voter_that_lost_its_disk_is_another_replica(members: list[Member]) -> None:
    ids = ["J8aAPcfLQt2bqs1JT0rMgQ", "K8aAPcfLQt2bqs1JT0rMgQ", "L8aAPcfLQt2bqs1JT0rMgQ"]
    initial = ",".join(
        f"{member.id}@{member.controller}:{directory_id}"
        for member, directory_id in zip(members, ids, strict=True)
    )
    for member in members:
        member.format("--initial-controllers", initial)
        member.launch()
    for member in members:
        member.wait_ready()
    assert [member.directory_id for member in members] == ids
    _, second, third = members
    at = second.bootstrap_servers
    assert third.stop() == 0
    shutil.rmtree(str(third.data_dir))
    # Nobody would know which cluster it is of.
    with pytest.raises(Exception, match="format"):
        third.start()
    third.format("--no-initial-controllers")
    third.launch()
    third.wait_ready()
    assert third.directory_id not in ids
    status = described(at)
    assert [voter["directoryId"] for voter in status["CurrentVoters"]] == ids
    (observer,) = status["CurrentObservers"]
    assert (observer["id"], observer["directoryId"]) == (3, third.directory_id)
    # The one that is gone has to be removed before the id can be a voter's again.
    quorum = ("kafka-metadata-quorum", "--bootstrap-server", at)
    adding = (*quorum, "--command-config", str(third.file), "add-controller")
    assert "is already part of the set of voters" in run(*adding, status=1)
    run(*quorum, "remove-controller", "-i", "3", "-d", ids[2])
    run(*adding)
    voters = described(at)["CurrentVoters"]
    assert [voter["directoryId"] for voter in voters] == [*ids[:2], third.directory_id]
