"""Apache Kafka's own `kafka-acls` against this broker, beside ours: the same rules, the same words."""

from __future__ import annotations

import re

import pytest
from bench import kafka_peer
from bench.maven import PeerUnavailable
from principals import Servers

from ottla.cli.main import main

# Fetching the jars for the first time is part of the test.
pytestmark = [pytest.mark.maven, pytest.mark.timeout(600)]

TOOL_TIMEOUT_S = 120


@pytest.fixture(scope="module")
def distribution() -> kafka_peer.KafkaDistribution:
    try:
        return kafka_peer.fetch()
    except PeerUnavailable as reason:
        pytest.skip(str(reason))


def normal(text: str) -> list[str]:
    """Entries of a resource, and resources, come in no order; how many empty lines there are says nothing."""
    return sorted(re.sub(r"^\s+", "", line.rstrip()) for line in text.splitlines() if line.strip())


STEPS = (
    (
        *("--add", "--allow-principal", "User:ann", "--allow-principal", "User:ben", "--producer"),
        *("--idempotent", "--topic", "orders", "--transactional-id", "t"),
    ),
    ("--add", "--allow-principal", "User:ann", "--consumer", "--topic", "orders", "--group", "*"),
    (
        *(
            "--add",
            "--deny-principal",
            "User:eve",
            "--deny-host",
            "10.0.0.1",
            "--operation",
            "DescribeConfigs",
        ),
        *("--topic", "ord", "--resource-pattern-type", "prefixed"),
    ),
    ("--list",),
    ("--list", "--topic", "orders", "--resource-pattern-type", "match"),
    ("--list", "--principal", "User:ben"),
    ("--remove", "--force", "--allow-principal", "User:ann", "--operation", "Write", "--topic", "orders"),
    ("--list", "--topic", "orders"),
    ("--remove", "--force", "--topic", "ord", "--resource-pattern-type", "any"),
    ("--list", "--group", "*"),
)


def test_both_tools_say_and_do_the_same(
    servers: Servers,
    distribution: kafka_peer.KafkaDistribution,
    capsys: pytest.CaptureFixture[str],
) -> None:
    said: dict[str, list[list[str]]] = {}
    place = ("--bootstrap-server", servers["admin"])
    cleanup = [("--topic", "orders"), ("--group", "*"), ("--transactional-id", "t"), ("--cluster",)]
    for whose in ("ours", "theirs"):
        said[whose] = []
        for arguments in STEPS:
            if whose == "ours":
                capsys.readouterr()
                assert main(["acls", *place, *arguments]) == 0
                text = capsys.readouterr().out
            else:
                done = distribution.run_tool(
                    "org.apache.kafka.tools.AclCommand", *place, *arguments, timeout_s=TOOL_TIMEOUT_S
                )
                assert done.returncode == 0, done.stdout + done.stderr
                text = done.stdout
            said[whose].append(normal(text))
        for resource in cleanup:
            assert main(["acls", *place, "--remove", "--force", *resource]) == 0
    for arguments, ours, theirs in zip(STEPS, said["ours"], said["theirs"], strict=True):
        assert ours == theirs, arguments
