"""The brokers that `ottla.testing` gives to tests."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import ottla.testing
from ottla.config import ConfigError
from ottla.runtime.disk import DiskLocked
from ottla.testing import BrokerProcess, InProcessBroker


def topics(servers: str) -> set[str]:
    admin = AdminClient({"bootstrap.servers": servers})
    return set(admin.list_topics(timeout=10).topics)


def create(servers: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(10)


def test_a_fresh_broker_is_ready_in_300_ms() -> None:
    with ottla.testing.broker():
        pass  # the first one pays for the imports
    durations = []
    for _ in range(5):
        began = time.perf_counter()
        with ottla.testing.broker() as broker:
            durations.append(time.perf_counter() - began)
            assert broker.port > 0
    # The best of five, because other tests run at the same time.
    assert min(durations) < 0.3


@pytest.mark.parametrize("round_", [1, 2])
def test_each_test_has_a_broker_of_its_own(ottla_broker: InProcessBroker, round_: int) -> None:
    assert topics(ottla_broker.bootstrap_servers) == set()
    create(ottla_broker.bootstrap_servers, "mine")
    assert topics(ottla_broker.bootstrap_servers) == {"mine"}


_seen: list[str] = []


@pytest.mark.parametrize("round_", [1, 2])
def test_the_session_broker_stays(ottla_broker_session: InProcessBroker, round_: int) -> None:
    _seen.append(ottla_broker_session.bootstrap_servers)
    assert set(_seen) == {ottla_broker_session.bootstrap_servers}


def test_the_data_goes_with_the_broker_unless_it_was_given_a_place(tmp_path: os.PathLike[str]) -> None:
    with ottla.testing.broker() as broker:
        path = broker.data_dir
        assert os.path.isdir(path)
    assert not os.path.exists(path)
    kept = f"{tmp_path}/kept"
    with ottla.testing.broker(data_dir=kept) as broker:
        create(broker.bootstrap_servers, "kept")
    with ottla.testing.broker(data_dir=kept) as broker:
        assert topics(broker.bootstrap_servers) == {"kept"}


def test_a_broker_can_go_down_and_come_back(ottla_broker: InProcessBroker) -> None:
    create(ottla_broker.bootstrap_servers, "stays")
    port = ottla_broker.port
    ottla_broker.stop()
    ottla_broker.start()
    assert ottla_broker.port == port
    assert topics(ottla_broker.bootstrap_servers) == {"stays"}


def test_settings_are_given_as_python_values() -> None:
    with ottla.testing.broker(set={"auto.create.topics.enable": False, "num.partitions": 4}) as broker:
        create(broker.bootstrap_servers, "asked-for")
        assert topics(broker.bootstrap_servers) == {"asked-for"}


def test_a_broker_that_cannot_start_says_why(ottla_broker: InProcessBroker) -> None:
    with (
        pytest.raises(ConfigError, match="must be at least"),
        ottla.testing.broker(set={"num.partitions": 0}),
    ):
        pass
    with pytest.raises(DiskLocked), ottla.testing.broker(data_dir=ottla_broker.data_dir):
        pass


@pytest.fixture
def process() -> Iterator[BrokerProcess]:
    with BrokerProcess() as running:
        yield running


def test_a_process_can_be_killed_and_started_again(process: BrokerProcess) -> None:
    create(process.bootstrap_servers, "survives")
    port, pid = process.port, process.pid
    process.restart()
    assert process.port == port
    assert process.pid != pid
    assert topics(process.bootstrap_servers) == {"survives"}
    assert process.stop() == 0


def test_a_process_that_cannot_start_says_why() -> None:
    broken = BrokerProcess({"num.partitions": 0})
    try:
        with pytest.raises(RuntimeError, match=r"num\.partitions=0: must be at least 1"):
            broken.start()
    finally:
        broken.close()


CTRL_C = """
import os, signal, sys, time
from ottla.testing import BrokerProcess

with BrokerProcess() as usual, BrokerProcess(survives_ctrl_c=True) as survivor:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.killpg(0, signal.SIGINT)
    while usual.is_running:
        time.sleep(0.01)
    usual.restart()
    # Had it been told, too, it would have ended by now.
    sys.exit(not survivor.is_running)
"""


def test_a_broker_survives_ctrl_c_if_it_is_to() -> None:
    ran = subprocess.run([sys.executable, "-c", CTRL_C], check=False, timeout=60, start_new_session=True)
    assert ran.returncode == 0
