"""The cluster that `ottla.testing` gives to tests: brokers that are killed, paused and come back."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from ottla.testing import BrokerCluster


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
    assert state(single[1].pid) == "T"
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
