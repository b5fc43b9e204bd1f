"""The cluster that `ottla.testing` gives to tests: brokers that are killed, paused and come back."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import BrokerCluster

DELAY_S = 0.5
TRIES = 10
"""On a busy machine something may take as long for another reason."""


@pytest.fixture(scope="module")
def single() -> Iterator[BrokerCluster]:
    """What does not take several brokers is tested with one."""
    with BrokerCluster({"num.partitions": 2}, brokers=1) as cluster:
        yield cluster


def brokers_seen(servers: str) -> set[int]:
    return set(AdminClient({"bootstrap.servers": servers}).list_topics(timeout=20).brokers)


def state(pid: int) -> str:
    """T is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_broker_is_killed_and_comes_back(single: BrokerCluster) -> None:
    assert brokers_seen(single.bootstrap_servers) == {1}
    assert single.controller() is single[1]
    before = single.bootstrap_servers
    single[1].kill9()
    assert not single[1].is_running
    single.start()
    assert single[1].is_running
    assert single.bootstrap_servers == before
    assert brokers_seen(before) == {1}


def test_a_broker_that_died_by_itself_is_started_again(single: BrokerCluster) -> None:
    os.kill(single[1].pid, signal.SIGKILL)
    single[1]._running().wait(10)
    assert not single[1].is_running
    single.start()
    assert brokers_seen(single.bootstrap_servers) == {1}


def test_a_broker_is_paused_and_goes_on(single: BrokerCluster) -> None:
    single[1].pause()
    deadline = time.monotonic() + 10
    while state(single[1].pid) != "T":
        assert time.monotonic() < deadline
        time.sleep(0.01)
    single[1].resume()
    assert brokers_seen(single.bootstrap_servers) == {1}
    # One that is paused can be stopped all the same.
    single[1].pause()
    assert single[1].stop() == 0
    single.start()


def test_the_data_goes_with_the_cluster_unless_it_was_given_a_place(tmp_path: Path) -> None:
    with BrokerCluster(brokers=1) as cluster:
        path = Path(cluster.data_dir)
        assert (path / "broker-1/server.properties").exists()
    assert not path.exists()
    with BrokerCluster(brokers=1, data_dir=str(tmp_path / "kept")) as cluster:
        first = cluster.cluster_id
    with BrokerCluster(brokers=1, data_dir=str(tmp_path / "kept")) as cluster:
        assert cluster.cluster_id == first


def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="must be at least"), BrokerCluster({"log.segment.bytes": 1}, 1):
        pass


def write(servers: str, value: bytes) -> float:
    """Seconds until all in sync have it."""
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "log_level": 0})
    producer.produce("orders", b"before")
    assert producer.flush(60) == 0
    errors: list[object] = []
    began = time.monotonic()
    producer.produce("orders", value, on_delivery=lambda error, message: errors.append(error))
    assert producer.flush(60) == 0
    assert errors == [None]
    return time.monotonic() - began


def test_a_broker_is_cut_off_and_slowed_down(ottla_cluster: BrokerCluster) -> None:
    admin = AdminClient({"bootstrap.servers": ottla_cluster.bootstrap_servers})
    admin.create_topics([NewTopic("orders", 1, 3)])["orders"].result(30)
    ottla_cluster.wait_in_sync("orders", 3)
    servers = ottla_cluster.bootstrap_servers
    assert any(write(servers, b"espresso") < DELAY_S for _ in range(TRIES))

    lost = ottla_cluster.leader("orders")
    lost.isolate()
    assert lost.is_isolated
    ottla_cluster.wait_in_sync("orders", 2)
    assert ottla_cluster.leader("orders") is not lost
    assert ottla_cluster.controller() is not lost
    # The one that is cut off would still say that it leads.
    write(ottla_cluster.leader("orders").bootstrap_servers, b"ristretto")
    assert brokers_seen(lost.bootstrap_servers), "clients still reach it"
    assert lost.id not in ottla_cluster.in_sync("orders")

    lost.reconnect()
    ottla_cluster.wait_in_sync("orders", 3)
    leaders = (ottla_cluster.leader("orders"), ottla_cluster.controller())
    follower = next(broker for broker in ottla_cluster.brokers.values() if broker not in leaders)
    follower.slow(DELAY_S / 2)
    assert write(servers, b"lungo") >= DELAY_S
    follower.reconnect()
    assert any(write(servers, b"espresso") < DELAY_S for _ in range(TRIES))
    # Whoever is killed is missed as if nothing were in between.
    follower.kill9()
    ottla_cluster.wait_in_sync("orders", 2)
    follower.start()
    ottla_cluster.wait_in_sync("orders", 3)


def test_brokers_that_are_connected_directly_cannot_be_cut_off() -> None:
    cluster = BrokerCluster(brokers=1, relayed=False)
    try:
        with pytest.raises(RuntimeError, match="relayed=True"):
            cluster[1].isolate()
    finally:
        cluster.close()
