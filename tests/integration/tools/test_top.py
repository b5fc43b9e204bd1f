"""`ottla top` of a broker that works: by lines, as JSON, on a terminal; of Apache Kafka, too."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, ShareConsumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.cli.main import main
from ottla.runtime.net import free_ports
from ottla.testing import BrokerProcess


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    (port,) = free_ports("127.0.0.1", 1)
    with BrokerProcess({"ottla.metrics.listener": f"127.0.0.1:{port}"}) as running:
        servers = {"bootstrap.servers": running.bootstrap_servers}
        admin = AdminClient(servers)
        for made in admin.create_topics([NewTopic("busy", 2, 1), NewTopic("idle", 1, 1)]).values():
            made.result(20)
        consumer = Consumer({**servers, "group.id": "late", "enable.auto.commit": False})
        consumer.commit(offsets=[TopicPartition("busy", 0, 0)], asynchronous=False)
        consumer.close()
        yield running


@pytest.fixture
def load(broker: BrokerProcess) -> Iterator[None]:
    stopping = threading.Event()

    def write() -> None:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        while not stopping.wait(0.01):
            producer.produce("busy", bytes(1000), partition=0)
            producer.flush(20)

    writer = threading.Thread(target=write)
    writer.start()
    yield
    stopping.set()
    writer.join(30)


def arguments(broker: BrokerProcess, *more: str) -> list[str]:
    return [
        "top",
        "--bootstrap-server",
        broker.bootstrap_servers,
        "--interval",
        "0.7",
        "--iterations",
        "1",
        *more,
    ]


@pytest.mark.usefixtures("load")
def test_lines_begin_with_what_they_are_of(broker: BrokerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments(broker)) == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert re.match(
        r"1 brokers, 3 topics, \d+ partitions \(0 without a leader\), [\d,]+ records/s", lines[0][1]
    )
    brokers = [line for line in lines if line[0] == "broker"]
    assert [line[2:4] for line in brokers] == [[broker.bootstrap_servers, "controller"]]
    topics = [line for line in lines if line[0] == "topic"]
    assert topics[0][1:3] == ["busy", "2"], "the busiest first"
    assert int(topics[0][3].replace(",", "")) > 5
    assert topics[0][4].endswith("kB/s")
    (group,) = (line for line in lines if line[0] == "group")
    assert group[1:3] == ["late", "Empty"]
    assert int(group[3].replace(",", "")) > 5
    assert [line for line in lines if line[0] == "request" and line[1] == "ListOffsets"], "from its metrics"


@pytest.mark.usefixtures("load")
def test_json(broker: BrokerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments(broker, "--json", "--rows", "1")) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["partitions_without_leader"] == 0
    assert [each["topic"] for each in found["topics"]] == ["busy"]
    assert found["topics"][0]["records"] > 5
    assert found["topics"][0]["bytes"] > 1000 * found["topics"][0]["records"]
    assert found["groups"][0]["lag"] > 0


def test_on_a_terminal_there_are_tables(broker: BrokerProcess) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "ottla.cli.main", *arguments(broker)],
        stdout=theirs,
        env={**os.environ, "COLUMNS": "120"},
    ) as shown:
        os.close(theirs)
        text = b""
        try:
            while part := os.read(ours, 65536):
                text += part
        except OSError:
            pass  # It has ended.
        os.close(ours)
    assert shown.returncode == 0
    for title in ("Brokers", "Busiest topics", "Groups that lag most", "Slowest requests"):
        assert title.encode() in text


def test_share_groups_are_groups_too(broker: BrokerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    servers = {"bootstrap.servers": broker.bootstrap_servers}
    producer = Producer(servers)
    member = ShareConsumer({**servers, "group.id": "sharers"})
    member.subscribe(["idle"])

    def told() -> tuple[str, int]:
        assert main(arguments(broker, "--interval", "0.1", "--json")) == 0
        groups = {each["group"]: each for each in json.loads(capsys.readouterr().out)["groups"]}
        return (groups["sharers"]["state"], groups["sharers"]["lag"]) if "sharers" in groups else ("", 0)

    until = time.monotonic() + 60
    try:
        while (found := told())[0] != "Stable" or found[1] < 1:
            assert time.monotonic() < until, found
            member.poll(0.2)
            producer.produce("idle", b"x")
            assert producer.flush(20) == 0
    finally:
        member.close()


def test_metrics_with_a_password_are_asked_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    (port,) = free_ports("127.0.0.1", 1)
    closed = {
        "ottla.metrics.listener": f"127.0.0.1:{port}",
        "ottla.metrics.username": "me",
        "ottla.metrics.password": "a/b c",
    }
    with BrokerProcess(closed) as broker:
        url = f"http://me:a%2Fb%20c@127.0.0.1:{port}/metrics"
        assert main(arguments(broker, "--interval", "0.1", "--json", "--metrics", url)) == 0
    told = capsys.readouterr().out
    assert {each["broker"] for each in json.loads(told)["slow_requests"]} == {f"127.0.0.1:{port}"}


@pytest.mark.parametrize(
    ("given", "said"), [(("--interval", "0"), "--interval 0"), (("--iterations", "0"), "--iterations 0")]
)
def test_what_makes_no_sense_is_named(
    broker: BrokerProcess, given: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["top", "--bootstrap-server", broker.bootstrap_servers, *given]) != 0
    assert said in capsys.readouterr().err
