"""Apache Kafka's own tools for replicas and ours on three brokers of Ottla: the same output.

What changes the cluster is done by each with a topic of its own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bench import kafka_peer
from bench.maven import PeerUnavailable
from confluent_kafka import Producer
from kafka_cluster import CLASSES, TOOL_TIMEOUT_S, normal
from tests.integration.cluster.steps import create, partitions, wait

from ottla.testing import BrokerCluster

pytestmark = [pytest.mark.maven, pytest.mark.slow, pytest.mark.timeout(400)]

Run = Callable[..., list[str]]
MOVE = {0: [1, 3], 1: [2, 1]}
BACK = {0: [1, 2], 1: [2, 3]}


@pytest.fixture(scope="module")
def brokers() -> Iterator[BrokerCluster]:
    """Topics `ours` and `theirs` are alike: the first partition has ten megabytes."""
    with BrokerCluster() as running:
        for topic in "ours", "theirs":
            create(running, topic, *BACK.values())
            producer = Producer({"bootstrap.servers": running.bootstrap_servers})
            for _ in range(200):
                producer.produce(topic, os.urandom(50_000), partition=0)
            assert producer.flush(60) == 0
        yield running


@pytest.fixture
def run(brokers: BrokerCluster, tool: Any, tmp_path: Path) -> Run:
    """One of both tools, with its own topic in the place of `@`; what it prints, without its layout."""
    try:
        distribution = kafka_peer.fetch()
    except PeerUnavailable as error:
        pytest.skip(str(error))
    for whose in "ours", "theirs":
        for name, placed in (("move", MOVE), ("back", BACK), ("order", {0: [2, 1]})):
            plan = [{"topic": whose, "partition": each, "replicas": on} for each, on in placed.items()]
            (tmp_path / f"{whose}-{name}").write_text(json.dumps({"version": 1, "partitions": plan}))

    def run_one(whose: str, name: str, *arguments: str) -> list[str]:
        words = [word.replace("@", whose) for word in (*arguments, "--bootstrap-server")]
        words.append(brokers.bootstrap_servers)
        if whose == "ours":
            done = tool(name, *words)
            status, said = done.status, done.out
        else:
            theirs = distribution.run_tool(CLASSES[name], *words, timeout_s=TOOL_TIMEOUT_S)
            status, said = theirs.returncode, theirs.stdout
        assert status == 0, said
        return normal(said.replace(whose, "@"))

    return run_one


@pytest.fixture
def compare(run: Run) -> Callable[..., tuple[list[str], list[str]]]:
    return lambda name, *words: (run("ours", name, *words), run("theirs", name, *words))


def test_moves_under_way(run: Run, brokers: BrokerCluster, tmp_path: Path) -> None:
    def steps(whose: str) -> Iterator[list[str]]:
        def moved(plan: str, *words: str) -> list[str]:
            chosen = ("--reassignment-json-file", f"{tmp_path}/@-{plan}")
            return run(whose, "reassign-partitions", *words, *chosen)

        # So slow that it is not done before it is cancelled.
        yield moved("move", "--execute", "--throttle", "1000")
        # The other partition is empty.
        wait(lambda: sorted(partitions(brokers, whose)[1][1]) == [1, 2])
        yield moved("move", "--verify")
        yield run(whose, "reassign-partitions", "--list")
        yield moved("move", "--execute", "--additional", "--throttle", "2000")
        # Kafka forgets the end of a line here.
        yield [" ".join(moved("move", "--cancel")).replace("active.C", "active. C")]
        wait(lambda: sorted(partitions(brokers, whose)[0][1]) == [1, 2])
        yield moved("back", "--verify")

    ours, theirs = list(steps("ours")), list(steps("theirs"))
    assert ours == theirs
    assert "Reassignment of partition @-0 is still in progress." in ours[1]
    assert ours[2] == ["Current partition reassignments:", "@-0: replicas: 1,3,2. adding: 3. removing: 2."]


def test_elections(compare: Any, tmp_path: Path) -> None:
    ours, theirs = compare(
        "reassign-partitions", "--execute", "--reassignment-json-file", f"{tmp_path}/@-order"
    )
    assert ours == theirs
    chosen = ("--topic", "@", "--partition", "0")
    for kind in "preferred", "preferred", "unclean":
        ours, theirs = compare("leader-election", "--election-type", kind, *chosen)
        assert ours == theirs
        assert ours


def test_directories_and_brokers(compare: Any) -> None:
    for more in ((), ("--broker-list", "2")):
        ours, theirs = compare("log-dirs", "--describe", "--topic-list", "@", *more)
        assert ours[:-1] == theirs[:-1]
        assert shown(ours[-1]) == shown(theirs[-1])
    ours, theirs = compare("cluster", "list-endpoints")
    assert ours == theirs


def shown(line: str) -> list[Any]:
    """Free of order; what a topic holds is not the same to the byte."""
    found = []
    for broker in json.loads(line)["brokers"]:
        for directory in broker["logDirs"]:
            held = sorted(
                (each["partition"], each["size"] > 0, each["offsetLag"], each["isFuture"])
                for each in directory["partitions"]
            )
            found.append((broker["broker"], directory["logDir"], directory["error"], held))
    return sorted(found)
