"""`kafka-share-groups` against a broker: groups that its members left, where they are, and their end."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.metadata.uuids import uuid_text
from ottla.testing import InProcessBroker

sys.path.insert(0, str(Path(__file__).parents[1] / "share"))
from group_calls import GroupCalls
from share_member import ACCEPT, Member, create_topic, produce


@pytest.fixture(scope="module")
def calls(broker: InProcessBroker) -> GroupCalls:
    servers = broker.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic("jobs", 2, 1)])["jobs"].result(20)
    producer = Producer({"bootstrap.servers": servers})
    for _ in range(4):
        producer.produce("jobs", b"x", partition=0)
    producer.flush()
    return GroupCalls(servers)


def test_a_group_is_listed_described_reset_and_deleted(on: Any, calls: GroupCalls) -> None:
    def described(*more: str) -> Any:
        return on("share-groups", "--describe", "--group", "workers", *more)

    def reset(*more: str) -> Any:
        return on("share-groups", "--reset-offsets", "--group", "workers", *more)

    calls.join("workers", "worker-1", "jobs")
    listed = on("share-groups", "--list", "--state")
    # Other tests have left groups on this broker.
    rows = [line.split() for line in listed.lines]
    assert rows[0] == ["GROUP", "STATE"]
    assert ["workers", "Stable"] in rows
    members = described("--members", "--verbose", "--json").data
    assert [(m["CONSUMER-ID"], m["#PARTITIONS"], m["ASSIGNMENT"]) for m in members] == [
        ("worker-1", 2, "jobs:0,1")
    ]
    (state,) = described("--state", "--verbose", "--json").data
    assert (state["STATE"], state["#MEMBERS"], state["GROUP-EPOCH"]) == (
        "Stable",
        1,
        state["ASSIGNMENT-EPOCH"],
    )
    busy = reset("--all-topics", "--to-earliest")
    assert "Share group 'workers' is not empty." in busy.err
    assert "NON_EMPTY_GROUP" in on("share-groups", "--delete", "--group", "workers").out
    calls.beat("workers", "worker-1", -1)

    planned = reset("--all-topics", "--to-latest")
    assert [line.split() for line in planned.lines if line][1:] == [
        ["workers", "jobs", "0", "4"],
        ["workers", "jobs", "1", "0"],
    ]
    offsets = described("--json").data
    assert [(row["START-OFFSET"], row["LAG"]) for row in offsets] == [("-", "-"), ("-", "-")], "only a plan"
    on(
        "share-groups",
        "--reset-offsets",
        "--group",
        "workers",
        "--topic",
        "jobs:0",
        "--to-offset",
        "1",
        "--execute",
    )
    offsets = described("--verbose", "--json").data
    assert [(row["PARTITION"], row["START-OFFSET"], row["LAG"]) for row in offsets] == [
        (0, 1, 3),
        (1, "-", "-"),
    ]

    forgotten = on("share-groups", "--delete-offsets", "--group", "workers", "--topic", "jobs")
    assert "Request succeeded for deleting offsets from group workers." in forgotten.out
    assert described().err.endswith("has no offset information.\n")
    deleted = on("share-groups", "--delete", "--all-groups")
    assert "'workers'" in deleted.out
    assert deleted.out.endswith(") was successful.\n")
    gone = described("--members")
    assert (gone.status, "Share group 'workers' does not exist." in gone.err) == (1, True)
    assert "is not a share group" in on("share-groups", "--delete", "--group", "workers").out


def test_states_are_dumped_as_apache_kafka_does(tool: Any, tmp_path: Path) -> None:
    with InProcessBroker(data_dir=str(tmp_path)) as broker:
        topic_id = create_topic(broker.bootstrap_servers, "jobs")
        produce(broker.bootstrap_servers, "jobs", "a", "b")
        member = Member(broker.bootstrap_servers, "workers", topic_id)
        with member.connection:
            member.initialize()
            member.fetch(wait_ms=20_000)
            member.acknowledge([(0, 0, [ACCEPT])])
    logs = tmp_path.glob("__share_group_state-*/00000000000000000000.log")
    (written,) = [str(path) for path in logs if path.stat().st_size]
    dumped = tool("dump-log", "--share-group-state-decoder", "--files", written)
    records = [line.partition(" key: ")[2] for line in dumped.lines if " key: " in line]
    place = f'"data":{{"groupId":"workers","topicId":"{uuid_text(topic_id)}","partition":0}}}}'
    assert re.fullmatch(
        rf'\{{"type":"0",{place} payload: \{{"version":"0","data":\{{"snapshotEpoch":0,"stateEpoch":1,'
        r'"leaderEpoch":-1,"startOffset":0,"deliveryCompleteCount":0,"createTimestamp":\d+,'
        r'"writeTimestamp":\d+,"stateBatches":\[\]}}',
        records[0],
    )
    batch = '{"firstOffset":0,"lastOffset":0,"deliveryState":2,"deliveryCount":1}'
    stored = f'"startOffset":0,"deliveryCompleteCount":1,"stateBatches":[{batch}]}}}}'
    assert any(record.startswith(f'{{"type":"1",{place}') and record.endswith(stored) for record in records)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "exactly one of"),
        (("--list", "--describe"), "exactly one of"),
        (("--describe",), "--describe needs --group or --all-groups"),
        (("--reset-offsets", "--all-groups", "--to-latest"), "--reset-offsets needs --group"),
        (("--delete-offsets", "--group", "a", "--group", "b", "--topic", "t"), "one group at a time"),
        (("--delete-offsets", "--group", "a"), "needs --topic"),
        (("--describe", "--group", "a", "--members", "--state"), "at most one of"),
        (("--reset-offsets", "--group", "a"), "--reset-offsets needs exactly one of --to-offset"),
    ],
)
def test_wrong_arguments(on: Any, arguments: tuple[str, ...], message: str) -> None:
    refused = on("share-groups", *arguments)
    assert refused.status != 0
    assert message in refused.err
