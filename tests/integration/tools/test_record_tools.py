"""Tools that write, read and measure, and those for consumer groups, against a live broker."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ottla.testing import InProcessBroker

HEAD = [
    *("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"),
    *("CONSUMER-ID", "HOST", "CLIENT-ID"),
]


def test_headers_keys_and_nulls_go_in_and_out(on: Any) -> None:
    reading = ["parse.key=true", "parse.headers=true", "null.marker=NULL", "key.separator=|"]
    arguments = [word for text in reading for word in ("--reader-property", text)]
    written = on(
        "console-producer",
        "--topic",
        "full",
        "--json",
        *arguments,
        stdin="a:1,b:NULL\tk1|v1\nNULL\tNULL|NULL\n",
    )
    assert written.data == {"topic": "full", "sent": 2, "failed": 0}
    printing = ["print.key=true", "print.headers=true", "print.offset=true", "print.partition=true"]
    arguments = [word for text in printing for word in ("--formatter-property", text)]
    read = on("console-consumer", "--topic", "full", "--from-beginning", "--max-messages", "2", *arguments)
    assert read.lines == [
        "Partition:0\tOffset:0\ta:1,b:null\tk1\tv1",
        "Partition:0\tOffset:1\tNO_HEADERS\tnull\tnull",
    ]
    assert read.err == "Processed a total of 2 messages\n"


def test_a_line_without_its_key_is_refused(on: Any, topic: str) -> None:
    refused = on(
        "console-producer", "--topic", topic, "--reader-property", "parse.key=true", stdin="no key\n"
    )
    assert refused.status == 1
    assert refused.err == "ottla console-producer: No key separator found on line number 1: 'no key'\n"


def test_a_part_of_a_partition_is_read(on: Any, topic: str) -> None:
    part = on(
        "console-consumer", "--topic", topic, "--partition", "0", "--offset", "7", "--max-messages", "2"
    )
    assert part.lines == ["v7", "v8"]
    place = ("--topic", topic, "--partition", "0", "--offset", "8")
    rest = on("console-consumer", *place, "--timeout-ms", "300", "--json")
    assert [json.loads(line)["key"] for line in rest.lines] == ["k8", "k9"]
    missing = on("console-consumer", "--topic", topic, "--partition", "5", "--offset", "0")
    assert (missing.status, missing.err) == (1, f"ottla console-consumer: topic {topic} has no partition 5\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "exactly one of --topic or --include"),
        (("--topic", "t", "--offset", "3"), "The partition is required when offset is specified."),
        (("--topic", "t", "--partition", "0", "--offset", "x"), "The provided offset value 'x' is incorrect"),
        (("--topic", "t", "--partition", "0", "--group", "g"), "Options group and partition"),
        (("--topic", "t", "--formatter", "Nonsense"), "--formatter Nonsense is unknown"),
    ],
)
def test_what_a_consumer_cannot_do(on: Any, arguments: tuple[str, ...], message: str) -> None:
    refused = on("console-consumer", *arguments)
    assert refused.status == 1
    assert message in refused.err


def test_a_group_is_described_reset_and_deleted(on: Any, topic: str, tmp_path: Path) -> None:
    group = f"group-of-{topic}"

    def groups(*arguments: str) -> Any:
        return on("consumer-groups", "--group", group, *arguments)

    read = on(
        "console-consumer", "--topic", topic, "--group", group, "--from-beginning", "--max-messages", "4"
    )
    assert read.lines == ["v0", "v1", "v2", "v3"]
    assert group in on("consumer-groups", "--list").lines
    described = groups("--describe")
    assert described.lines[1].split() == HEAD
    assert described.lines[2].split() == [group, topic, "0", "4", "10", "6", "-", "-", "-"]
    assert f"Consumer group '{group}' has no active members." in described.err
    state = groups("--describe", "--state").lines[-1].split()
    assert state[0] == group
    assert state[-2:] == ["Empty", "0"]

    dry = groups("--reset-offsets", "--topic", topic, "--shift-by", "-2")
    assert dry.lines[-1].split() == [group, topic, "0", "2"]
    assert groups("--describe", "--json").data[0]["CURRENT-OFFSET"] == 4
    for form, expected in (
        (["--to-earliest"], 0),
        (["--to-offset", "99"], 10),
        (["--shift-by", "-3"], 7),
        (["--to-datetime", "2001-01-01T00:00:00.000"], 0),
        (["--by-duration", "PT0S"], 10),
        (["--to-current"], 10),
        (["--to-latest"], 10),
    ):
        done = groups("--reset-offsets", "--all-topics", "--execute", *form)
        assert done.status == 0, done.err
        assert groups("--describe", "--json").data[0]["CURRENT-OFFSET"] == expected, form
    exported = groups("--reset-offsets", "--all-topics", "--to-offset", "6", "--export")
    assert exported.lines[0] == f"{topic},0,6"
    plan = tmp_path / "plan.csv"
    plan.write_text(exported.lines[0] + "\n")
    assert groups("--reset-offsets", "--from-file", str(plan), "--execute").status == 0
    assert groups("--describe", "--json").data[0]["LAG"] == 4

    removed = groups("--delete-offsets", "--topic", topic)
    assert removed.lines[0] == f"Request succeeded for deleting offsets from group {group}."
    assert groups("--delete").out == (f"Deletion of requested consumer groups ('{group}') was successful.\n")
    gone = groups("--describe")
    assert gone.status == 1
    assert f"Consumer group '{group}' does not exist." in gone.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--describe",), "--describe needs --group or --all-groups"),
        (("--reset-offsets", "--to-latest"), "--reset-offsets needs --group or --all-groups"),
        (("--delete-offsets", "--all-groups", "--topic", "t"), "--delete-offsets needs --group"),
        (("--delete-offsets", "--group", "a", "--group", "b", "--topic", "t"), "one group at a time"),
    ],
)
def test_which_groups_are_meant_is_asked_for(on: Any, arguments: tuple[str, ...], message: str) -> None:
    refused = on("consumer-groups", *arguments)
    assert refused.status == 1
    assert message in refused.err


def test_members_of_a_group_that_runs(on: Any, broker: InProcessBroker, topic: str) -> None:
    from confluent_kafka import Consumer

    group = f"members-of-{topic}"
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "client.id": "shown",
                "auto.offset.reset": "earliest"}  # fmt: skip
    consumer = Consumer(settings)
    try:
        consumer.subscribe([topic])
        assert consumer.poll(20) is not None
        head, row = on("consumer-groups", "--describe", "--group", group, "--members", "--verbose").lines[1:]
        assert head.split()[:5] == ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
        assert row.split()[3:5] == ["shown", "1"]
        assert f"{topic}:0" in row
        refused = on("consumer-groups", "--reset-offsets", "--group", group, "--topic", topic, "--to-latest")
        assert "is inactive, but the current state is Stable" in refused.err
        assert on("consumer-groups", "--delete", "--group", group).status == 1
    finally:
        consumer.close()


def test_offsets_formatter(on: Any, topic: str) -> None:
    group = f"formatted-{topic}"
    on("console-consumer", "--topic", topic, "--group", group, "--from-beginning", "--max-messages", "1")
    shown = on(
        "console-consumer", "--topic", "__consumer_offsets", "--partition", "0", "--from-beginning",
        "--timeout-ms", "500", "--formatter", "org.apache.kafka.tools.consumer.OffsetsMessageFormatter",
    )  # fmt: skip
    commits = [json.loads(line) for line in shown.lines]
    (commit,) = [item for item in commits if item["key"]["data"]["group"] == group][-1:]
    assert commit["key"] == {"type": 1, "data": {"group": group, "topic": topic, "partition": 0}}
    assert commit["value"]["data"]["offset"] == 1


def test_perf_tools(on: Any, topic: str) -> None:
    produced = on(
        "producer-perf-test", "--topic", topic, "--num-records", "5000", "--record-size", "50",
        "--throughput", "-1",
    )  # fmt: skip
    assert re.search(r"^5000 records sent, [\d.]+ records/sec \([\d.]+ MB/sec\), .* 99.9th\.$", produced.out)
    assert on("get-offsets", "--topic", topic).out == f"{topic}:0:5010\n"
    consumed = on("consumer-perf-test", "--topic", topic, "--num-records", "5000")
    assert consumed.lines[0].startswith("start.time, end.time, data.consumed.in.MB")
    assert consumed.lines[1].split(", ")[4] == "5000"
    both = ("--record-size", "1", "--payload-monotonic")
    refused = on("producer-perf-test", "--topic", topic, "--num-records", "1", "--throughput", "1", *both)
    assert "exactly one of --record-size" in refused.err


def test_end_to_end_latency(on: Any, tool: Any, broker: InProcessBroker) -> None:
    shape = ("--topic", "e2e", "--num-records", "20", "--producer-acks", "all", "--record-size", "30")
    measured = on("e2e-latency", *shape, "--record-key-size", "4", "--num-headers", "1")
    assert re.search(r"^Avg latency: [\d.]+ ms$", measured.out, re.MULTILINE)
    assert re.search(r"^Percentiles: 50th = \d+, 99th = \d+, 99.9th = \d+$", measured.out, re.MULTILINE)
    old = tool("e2e-latency", broker.bootstrap_servers, "e2e", "5", "1", "10")
    assert old.status == 0
    assert (
        "Please use '1' or 'all'" in tool("e2e-latency", broker.bootstrap_servers, "e2e", "5", "0", "9").err
    )


def test_verifiable_tools(on: Any) -> None:
    written = on("verifiable-producer", "--topic", "verified", "--max-messages", "5", "--value-prefix", "7")
    events = [json.loads(line) for line in written.lines]
    names = [event["name"] for event in events]
    assert names == ["startup_complete", *["producer_send_success"] * 5, "shutdown_complete", "tool_data"]
    assert [event["value"] for event in events[1:6]] == [f"7.{number}" for number in range(5)]
    assert events[-1]["acked"] == 5
    read = on(
        "verifiable-consumer",
        "--topic",
        "verified",
        "--group-id",
        "verifiers",
        "--max-messages",
        "5",
        "--verbose",
    )
    events = [json.loads(line) for line in read.lines]
    values = [event["value"] for event in events if event["name"] == "record_data"]
    assert values == [f"7.{number}" for number in range(5)]
    committed = [event for event in events if event["name"] == "offsets_committed"]
    assert committed[-1]["offsets"] == [{"topic": "verified", "partition": 0, "offset": 5}]
    assert committed[-1]["success"] is True


def test_the_old_name_of_bootstrap_server(tool: Any, broker: InProcessBroker) -> None:
    servers = broker.bootstrap_servers
    for name, arguments in (
        ("console-producer", ["--topic", "old"]),
        (
            "producer-perf-test",
            ["--topic", "old", "--num-records", "5", "--record-size", "9", "--throughput", "9999"],
        ),
        ("consumer-perf-test", ["--topic", "old", "--num-records", "5"]),
        ("get-offsets", ["--topic", "old"]),
    ):
        separate = tool(name, *arguments, "--broker-list", servers, stdin="a line\n")
        joined = tool(name, *arguments, f"--broker-list={servers}", stdin="a line\n")
        for outcome in (separate, joined):
            assert outcome.status == 0, outcome.err
            assert f"ottla {name}: --broker-list is the old name of --bootstrap-server\n" in outcome.err
    assert joined.out == "old:0:12\n"


def test_a_tool_by_the_name_of_its_class(on: Any, topic: str) -> None:
    found = on("run-class", "kafka.tools.GetOffsetShell", "--topic", topic, "--time", "-1")
    assert (found.status, found.out) == (0, f"{topic}:0:10\n")


def test_a_share_group_releases_rejects_and_accepts(on: Any, topic: str) -> None:
    group = ("--topic", topic, "--group", f"{topic}-sharers")
    earliest = ("--add-config", "share.auto.offset.reset=earliest")
    assert on("configs", "--alter", "--group", f"{topic}-sharers", *earliest).status == 0
    shown = ("--formatter-property", "print.delivery=true")
    released = on("console-share-consumer", *group, *shown, "--release", "--max-messages", "2")
    assert released.lines == ["Delivery:1\tv0", "Delivery:1\tv1"]
    rejected = on("console-share-consumer", *group, *shown, "--reject", "--max-messages", "3")
    assert rejected.lines == ["Delivery:2\tv0", "Delivery:2\tv1", "Delivery:2\tv2"]
    accepted = on("console-share-consumer", *group, "--max-messages", "7", "--json")
    assert [json.loads(line)["value"] for line in accepted.lines] == [f"v{n}" for n in range(3, 10)]
    both = on("console-share-consumer", *group, "--reject", "--release")
    assert "At most one of --reject and --release" in both.err
