"""`ottla mirror` between two brokers: what arrives, under which names, and what happens when parts end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation, NewPartitions
from tests.integration.mirror.mirrors import (
    admin_of,
    allow,
    allowed,
    committed,
    configs_of,
    consume,
    create,
    mirroring,
    partition_count,
    position_of,
    produce,
    properties,
    read,
    records_of,
    set_config,
    slots_of,
    transact,
    values_of,
    wait_until,
)

import ottla.testing
from ottla.cli.main import main
from ottla.client.admin.topics import Partition
from ottla.mirror.formats import read_checkpoint, read_heartbeat, read_offset_sync
from ottla.testing import InProcessBroker

IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
GUARDED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
COMPACTED_AT_ONCE = {"internal__segment__bytes": 10_000, "min__cleanable__dirty__ratio": 0.01}


@pytest.fixture(scope="module")
def source() -> Iterator[InProcessBroker]:
    with ottla.testing.broker(set={"log.cleaner.backoff.ms": 50, **GUARDED}) as broker:
        yield broker


@pytest.fixture(scope="module")
def target() -> Iterator[InProcessBroker]:
    with ottla.testing.broker(set=GUARDED) as broker:
        yield broker


def test_records_arrive_as_they_are(source: InProcessBroker, target: InProcessBroker) -> None:
    here, there = source.bootstrap_servers, target.bootstrap_servers
    create(here, "whole")
    values = [f"value {number}" for number in range(1000)]
    for codec in ("none", "lz4", "zstd", "gzip", "snappy"):
        produce(here, "whole", values, compression__type=codec, linger__ms=5)
    with mirroring(properties(here, there, topics="whole")):
        found = read(there, "a.whole", 5 * len(values))
        produce(here, "whole", ["the last", "of all"])
        found = read(there, "a.whole", 5 * len(values) + 2)
    assert found == read(here, "whole", 5 * len(values) + 2)
    assert values_of(found)[0][-1] == "the last"


def test_what_was_aborted_stays_behind(source: InProcessBroker, target: InProcessBroker) -> None:
    here, there = source.bootstrap_servers, target.bootstrap_servers
    create(here, "deals", 1)
    for number in range(6):
        transact(here, "deals", [f"{number}-{each}" for each in range(3)], commit=number % 2 == 0)
    with mirroring(properties(here, there, topics="deals")):
        found = read(there, "a.deals", 9, 1)
    assert values_of(found) == [[f"{number}-{each}" for number in (0, 2, 4) for each in range(3)]]
    assert found == read(here, "deals", 9, 1)


def test_compacted_and_stamped_by_the_broker(source: InProcessBroker, target: InProcessBroker) -> None:
    """Batches with records missing in between, and those whose time is the broker's, are written anew."""
    here, there = source.bootstrap_servers, target.bootstrap_servers
    create(here, "stamped", message__timestamp__type="LogAppendTime")
    create(here, "latest", 1, cleanup__policy="compact", **COMPACTED_AT_ONCE)
    produce(here, "stamped", [f"{number}" for number in range(50)])
    for _ in range(4):
        produce(here, "latest", [f"{number}" for number in range(200)], 1, linger__ms=20, batch__size=4000)
    wait_until(lambda: len(read(here, "latest", 800, 1, wait_s=0.5)[0]) < 700, "compacted")
    set_config(here, "latest", "cleanup.policy", "delete")
    kept = read(here, "latest", 800, 1, wait_s=1)
    with mirroring(properties(here, there, topics="stamped, latest")):
        stamped = read(there, "a.stamped", 50)
        assert read(there, "a.latest", len(kept[0]), 1) == kept
    # The time the source's broker gave is the time the record was created, for the target.
    wanted = [[each._replace(timestamp=(1, each.timestamp[1])) for each in rows]
              for rows in read(here, "stamped", 50)]  # fmt: skip
    assert stamped == wanted


def test_a_mirror_goes_on_where_it_was(source: InProcessBroker, target: InProcessBroker) -> None:
    here, there = source.bootstrap_servers, target.bootstrap_servers
    create(here, "long")
    settings = properties(here, there, topics="long")
    sent: list[str] = []
    for part in range(3):
        with mirroring(settings):
            values = [f"{part}-{number}" for number in range(100)]
            sent += values
            produce(here, "long", values)
            read(there, "a.long", len(sent))
    assert values_of(read(there, "a.long", len(sent) + 1, wait_s=1)) == [sent[0::2], sent[1::2]]
    positions = records_of(there, "mm2-offsets.a.internal")
    key = b'["MirrorSourceConnector",{"cluster":"a","partition":0,"topic":"long"}]'
    last = [json.loads(value or b"") for found, value in positions if found == key][-1]
    assert last["offset"] == 149


def test_new_topics_partitions_and_settings(source: InProcessBroker, target: InProcessBroker) -> None:
    here, there = source.bootstrap_servers, target.bootstrap_servers
    create(here, "grown-0", 1, retention__ms=123_456_789, cleanup__policy="compact,delete")
    with mirroring(properties(here, there, topics="grown.*")):
        wait_until(lambda: partition_count(there, "a.grown-0") == 1, "made")
        found = configs_of(there, "a.grown-0")
        assert (found["retention.ms"], found["cleanup.policy"]) == ("123456789", "compact,delete")
        create(here, "grown-1", 1)
        admin = admin_of(here)
        admin.create_partitions([NewPartitions("grown-0", 3)])["grown-0"].result(30)
        set_config(here, "grown-0", "retention.ms", "1000000000")
        produce(here, "grown-0", ["x", "y", "z"], 3)
        produce(here, "grown-1", ["new"], 1)
        assert values_of(read(there, "a.grown-0", 3, 3)) == [["x"], ["y"], ["z"]]
        assert values_of(read(there, "a.grown-1", 1, 1)) == [["new"]]
        wait_until(lambda: configs_of(there, "a.grown-0")["retention.ms"] == "1000000000", "set")


def test_a_topic_made_anew_is_mirrored_from_its_beginning(
    source: InProcessBroker, target: InProcessBroker
) -> None:
    here, there = source.bootstrap_servers, target.bootstrap_servers
    create(here, "again", 1)
    produce(here, "again", ["old 1", "old 2"], 1)
    settings = properties(here, there, topics="again")
    with mirroring(settings):
        read(there, "a.again", 2, 1)
    admin = admin_of(here)
    admin.delete_topics(["again"])["again"].result(30)
    create(here, "again", 1)
    produce(here, "again", ["new 1", "new 2", "new 3"], 1)
    with mirroring(settings):
        assert values_of(read(there, "a.again", 5, 1)) == [["old 1", "old 2", "new 1", "new 2", "new 3"]]


def test_both_ways_without_a_loop(source: InProcessBroker, target: InProcessBroker) -> None:
    here, there = source.bootstrap_servers, target.bootstrap_servers
    for servers in (here, there):
        create(servers, "shared", 1)
    with mirroring(properties(here, there, topics=".*shared") | {"b->a.enabled": "true"}):
        produce(here, "shared", ["from a"], 1)
        produce(there, "shared", ["from b"], 1)
        assert values_of(read(there, "a.shared", 1, 1)) == [["from a"]]
        assert values_of(read(here, "b.shared", 1, 1)) == [["from b"]]
        # Heartbeats go round, too: they are written to one side and arrive on the other.
        wait_until(lambda: partition_count(there, "a.heartbeats"), "mirrored heartbeats")
        beats = [read_heartbeat(key, value or b"") for key, value in records_of(there, "heartbeats")]
        assert {(beat.source, beat.target) for beat in beats} == {("a", "b")}
        for servers in (here, there):
            names = set(admin_of(servers).list_topics(timeout=30).topics)
            assert not {"a.b.shared", "b.a.shared", "a.a.shared", "b.b.shared"} & names


def test_a_group_moves_to_the_target(source: InProcessBroker, target: InProcessBroker) -> None:
    """It is stopped in the middle of what it reads, and goes on with the very next record."""
    here, there = source.bootstrap_servers, target.bootstrap_servers
    create(here, "orders", 1)
    transact(here, "orders", ["never"], commit=False)
    values = [f"order {number}" for number in range(500)]
    settings = properties(here, there, topics="orders", groups="team", sync__group__offsets__enabled="true")
    with mirroring(settings):
        for start in range(0, 500, 50):
            produce(here, "orders", values[start : start + 50], 1)
        read(there, "a.orders", 500, 1)
        seen = consume(here, "orders", "team", 222)
        wait_until(lambda: committed(there, "team", "a.orders") >= 222, "translated")
        checkpoints = [read_checkpoint(key, value or b"") for key, value in
                       records_of(there, "a.checkpoints.internal")]  # fmt: skip
        syncs = records_of(here, "mm2-offset-syncs.b.internal")
        moved = consume(there, "a.orders", "team", 500 - 222)
    assert seen + moved == values
    mine = [each for each in checkpoints if each.partition == Partition("a.orders", 0)]
    assert mine[-1].group == "team"
    found = [read_offset_sync(key, value or b"") for key, value in syncs]
    assert any(each.partition == Partition("orders", 0) for each in found)


def test_a_group_moves_by_offset_syncs_alone(source: InProcessBroker, target: InProcessBroker) -> None:
    """Another process has mirrored: nothing is skipped, and little is read again."""
    here, there = source.bootstrap_servers, target.bootstrap_servers
    create(here, "bills", 1)
    values = [f"bill {number}" for number in range(300)]
    settings = properties(here, there, topics="bills", groups="office", sync__group__offsets__enabled="true")
    with mirroring(settings | {"emit.checkpoints.enabled": "false"}) as mirror:
        for end in range(50, 301, 50):
            produce(here, "bills", values[end - 50 : end], 1)
            wait_until(lambda end=end: mirror.flows[0].mirrored.records >= end, "mirrored")  # type: ignore[misc]
    seen = consume(here, "bills", "office", 250)
    with mirroring(settings):
        wait_until(lambda: committed(there, "office", "a.bills") > 0, "translated")
    moved = consume(there, "a.bills", "office", 300, last=values[-1])
    again = len(seen) + len(moved) - len(values)
    assert seen[: len(seen) - again] + moved == values
    assert 0 <= again <= 100


def test_processes_share_and_take_over(source: InProcessBroker, target: InProcessBroker) -> None:
    here, there = source.bootstrap_servers, target.bootstrap_servers
    create(here, "many", 8)
    settings = properties(here, there, topics="many", tasks__max=4)
    with mirroring(settings) as first:
        wait_until(lambda: len(slots_of(first)) == 4, "all of one")
        produce(here, "many", [f"{number}" for number in range(80)], 8)
        with mirroring(settings) as second:
            wait_until(lambda: len(slots_of(first)) == len(slots_of(second)) == 2, "half of each")
            produce(here, "many", [f"{number}" for number in range(80, 160)], 8)
            read(there, "a.many", 160, 8)
            assert second.flows[0].mirrored.records > 0
        wait_until(lambda: len(slots_of(first)) == 4, "taken over")
        produce(here, "many", [f"{number}" for number in range(160, 240)], 8)
        found = values_of(read(there, "a.many", 240, 8))
    assert found == [[f"{number}" for number in range(part, 240, 8)] for part in range(8)]


def test_status_says_what_lags_and_what_differs(
    source: InProcessBroker, target: InProcessBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here, there = source.bootstrap_servers, target.bootstrap_servers
    create(here, "watched", 1)
    produce(here, "watched", ["1", "2", "3"], 1)
    settings = properties(here, there, topics="watched", heartbeats__replication__enabled="false")
    with mirroring(settings):
        read(there, "a.watched", 3, 1)
    produce(here, "watched", ["4", "5"], 1)
    set_config(there, "a.watched", "retention.ms", "77")
    file = tmp_path / "mm2.properties"
    file.write_text("".join(f"{name} = {value}\n" for name, value in settings.items()))
    assert main(["mirror", "status", str(file), "--json"]) == 0
    (status,) = json.loads(capsys.readouterr().out)
    assert (status["flow"], status["lag"], status["processes"]) == ("a->b", 2, 0)
    assert status["partitions"][0]["mirroredOffset"] == 3
    assert status["outOfSync"] == ["settings of a.watched should be: retention.ms unset"]
    assert main(["mirror", "status", str(file)]) == 0
    assert "a->b: 2 behind" in capsys.readouterr().out


def test_access_rules_let_readers_read(source: InProcessBroker, target: InProcessBroker) -> None:
    """Nobody but the mirror is to write to what is mirrored."""
    here, there = source.bootstrap_servers, target.bootstrap_servers
    create(here, "guarded", 1)
    allow(here, "guarded", "User:reader", AclOperation.READ)
    allow(here, "guarded", "User:owner", AclOperation.ALL)
    allow(here, "guarded", "User:writer", AclOperation.WRITE)
    with mirroring(properties(here, there, topics="guarded")):
        wait_until(lambda: len(allowed(there, "a.guarded")) == 2, "mirrored")
    assert allowed(there, "a.guarded") == {("User:reader", "READ"), ("User:owner", "READ")}


def test_a_partition_that_the_target_refuses_keeps_no_other_from_going_on(
    source: InProcessBroker, target: InProcessBroker, caplog: pytest.LogCaptureFixture
) -> None:
    here, there = source.bootstrap_servers, target.bootstrap_servers
    create(here, "large", 1)
    create(here, "small", 1)
    settings = properties(here, there, topics="large, small", tasks__max=1)
    with mirroring(settings | {"sync.topic.configs.enabled": "false"}):
        wait_until(lambda: partition_count(there, "a.large"), "made")
        set_config(there, "a.large", "max.message.bytes", "1000")
        produce(here, "large", ["x" * 5000], 1)
        produce(here, "small", ["goes through"], 1)
        assert values_of(read(there, "a.small", 1, 1)) == [["goes through"]]
        wait_until(lambda: "a.large-0" in caplog.text, "told")
    assert "raise max.message.bytes" in caplog.text
    set_config(there, "a.large", "max.message.bytes", "10000")
    with mirroring(settings):
        assert values_of(read(there, "a.large", 1, 1)) == [["x" * 5000]]


def test_the_way_back_begins_where_the_move_ended(source: InProcessBroker, target: InProcessBroker) -> None:
    here, there = source.bootstrap_servers, target.bootstrap_servers
    create(here, "moved", 1)
    produce(here, "moved", ["1", "2"], 1)
    names = {"replication.policy.class": IDENTITY, "topics": "moved"}
    with mirroring(properties(here, there) | names):
        read(there, "moved", 2, 1)
    back = properties(here, there) | names | {"a->b.enabled": "false", "b->a.enabled": "true"}
    back |= {"b.consumer.auto.offset.reset": "latest"}
    with mirroring(back):
        # Where it begins is written down, before there is anything to mirror.
        wait_until(lambda: position_of(here, "b", "moved"), "begun")
    produce(there, "moved", ["3", "4"], 1)
    with mirroring(back):
        assert values_of(read(here, "moved", 4, 1)) == [["1", "2", "3", "4"]]
    assert len(read(here, "moved", 5, 1, wait_s=1)[0]) == 4


def test_a_topic_deleted_in_the_target_is_made_again(
    source: InProcessBroker, target: InProcessBroker
) -> None:
    here, there = source.bootstrap_servers, target.bootstrap_servers
    create(here, "lost", 1)
    produce(here, "lost", ["before"], 1)
    with mirroring(properties(here, there, topics="lost")):
        read(there, "a.lost", 1, 1)
        admin = admin_of(there)
        admin.delete_topics(["a.lost"])["a.lost"].result(30)
        produce(here, "lost", ["after"], 1)
        assert values_of(read(there, "a.lost", 1, 1)) == [["after"]]
