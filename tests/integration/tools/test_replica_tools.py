"""Tools for replicas against one broker: what there is to see, and what cannot be."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.framework.run import INTERRUPTED
from ottla.testing import InProcessBroker


def plan(path: Path, *partitions: tuple[str, int, list[int]]) -> tuple[str, str]:
    """The option with a file that says so."""
    items = [{"topic": topic, "partition": number, "replicas": ids} for topic, number, ids in partitions]
    (path / "plan.json").write_text(json.dumps({"version": 1, "partitions": items}))
    return "--reassignment-json-file", str(path / "plan.json")


def topic_settings(on: Any, topic: str) -> dict[str, str]:
    (data,) = on("configs", "--describe", "--topic", topic, "--json").data
    settings: dict[str, str] = data["configs"]
    return settings


def test_a_move_to_where_it_is(on: Any, topic: str, tmp_path: Path, broker: InProcessBroker) -> None:
    assert on("reassign-partitions", "--list").out == "No partition reassignments found.\n"
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"topics": [{"topic": topic}]}))
    generated = on(
        "reassign-partitions", "--generate", "--topics-to-move-json-file", str(topics), "--broker-list", "1"
    )
    assert generated.lines[0] == "Current partition replica assignment"
    current = {"topic": topic, "partition": 0, "replicas": [1], "log_dirs": [broker.data_dir]}
    assert json.loads(generated.lines[1]) == {"version": 1, "partitions": [current]}
    assert json.loads(generated.lines[4])["partitions"] == [{**current, "log_dirs": ["any"]}]
    chosen = plan(tmp_path, (topic, 0, [1]))
    executed = on("reassign-partitions", "--execute", *chosen, "--throttle", "5000")
    assert executed.lines[-1] == f"Successfully started partition reassignment for {topic}-0"
    assert "The inter-broker throttle limit was set to 5000 B/s" in executed.lines
    assert topic_settings(on, topic)["leader.replication.throttled.replicas"] == "0:1"
    verified = on("reassign-partitions", "--verify", *chosen)
    assert f"Reassignment of partition {topic}-0 is completed." in verified.lines
    assert f"Clearing topic-level throttles on topic {topic}" in verified.lines
    assert topic_settings(on, topic) == {}
    cancelled = on("reassign-partitions", "--cancel", *chosen, "--preserve-throttles")
    assert cancelled.lines == [
        "None of the specified partition reassignments are active.",
        "None of the specified partition moves are active.",
    ]


def test_moves_that_cannot_be(on: Any, topic: str, tmp_path: Path) -> None:
    for partitions, message in (
        ((topic, 0, [1, 7]), "Unknown broker id 7"),
        ((topic, 5, [1]), f"Unable to find partition: {topic}-5"),
        (("nowhere", 0, [1]), "Topic nowhere not found."),
    ):
        refused = on("reassign-partitions", "--execute", *plan(tmp_path, partitions))
        assert refused.status == 1
        assert message in refused.err
    verified = on("reassign-partitions", "--verify", *plan(tmp_path, (topic, 0, [2])), "--preserve-throttles")
    assert verified.lines[1] == (
        f"There is no active reassignment of partition {topic}-0, but replica set is 1 rather than 2."
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "exactly one action"),
        (("--list", "--verify"), "exactly one action"),
        (("--execute",), "--execute needs --reassignment-json-file"),
        (("--generate", "--broker-list", "1"), "--generate needs --topics-to-move-json-file"),
        (("--list", "--throttle", "5"), 'Option "throttle" can\'t be used with action "list"'),
        (("--verify", "--reassignment-json-file", "f", "--additional"), 'Option "additional"'),
        (("--verify", "--reassignment-json-file", "/nowhere"), "/nowhere: No such file or directory"),
    ],
)
def test_what_does_not_go_together(on: Any, arguments: tuple[str, ...], message: str) -> None:
    refused = on("reassign-partitions", *arguments)
    assert refused.status == 1
    assert message in refused.err


def test_elections(on: Any, topic: str, tmp_path: Path) -> None:
    of_one = ("--topic", topic, "--partition", "0")
    elected = on("leader-election", "--election-type", "preferred", *of_one)
    assert elected.out == f"Valid replica already elected for partitions {topic}-0\n"
    assert on("leader-election", "--election-type", "UNCLEAN", *of_one).out == elected.out
    assert on("leader-election", "--election-type", "preferred", "--all-topic-partitions").out == ""
    assert on("preferred-replica-election").out == ""
    wanted = tmp_path / "partitions.json"
    wanted.write_text(json.dumps({"partitions": [{"topic": topic, "partition": n} for n in (0, 3)]}))
    both = on("leader-election", "--election-type", "preferred", "--path-to-json-file", str(wanted))
    assert both.status == 1
    assert both.lines[0] == elected.lines[0]
    assert f"Error completing leader election (PREFERRED) for partition: {topic}-3" in both.lines[1]
    assert "1 replica(s) could not be elected" in both.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--election-type", "any", "--all-topic-partitions"), "must be preferred or unclean"),
        (("--election-type", "preferred"), "One and only one of the following options is required"),
        (("--election-type", "preferred", "--topic", "t"), "Missing required option(s): partition"),
        (
            ("--election-type", "preferred", "--all-topic-partitions", "--partition", "1"),
            "Option partition is only allowed if topic is used",
        ),
    ],
)
def test_elections_that_cannot_be(on: Any, arguments: tuple[str, ...], message: str) -> None:
    refused = on("leader-election", *arguments)
    assert refused.status == 1
    assert message in refused.err


def test_a_broker_that_is_not_there_is_not_given_up(on: Any) -> None:
    refused = on("cluster", "unregister", "--id", "99")
    assert refused.status == 1
    assert "99 is not currently registered" in refused.err


def test_replicas_are_read_until_it_is_interrupted(topic: str, broker: InProcessBroker) -> None:
    command = [sys.executable, "-m", "ottla.cli.main", "replica-verification", "--topics-include", topic]
    command += ["--broker-list", broker.bootstrap_servers, "--time", "-2", "--report-interval-ms", "1"]
    command += ["--max-wait-ms", "10"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert "verification process is started" in running.stdout.readline()
        for line in running.stdout:
            if f"max lag is 0 for partition {topic}-0 at offset 10 among 1 partitions" in line:
                break
        running.send_signal(signal.SIGINT)
    assert running.returncode == INTERRUPTED


def test_topics_that_are_not_there_are_not_verified(tool: Any, broker: InProcessBroker) -> None:
    place = ("--broker-list", broker.bootstrap_servers)
    assert "No topics found" in tool("replica-verification", *place, "--topics-include", "nowhere").err
    assert "is an invalid regex" in tool("replica-verification", *place, "--topics-include", "(").err
