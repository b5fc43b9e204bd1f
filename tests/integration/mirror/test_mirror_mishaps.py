"""`ottla mirror` while something else goes wrong: what is not concerned goes on, and nothing comes twice."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewTopic
from tests.integration.mirror.mirrors import (
    QUIET,
    WAIT_S,
    admin_of,
    create,
    mirroring,
    position_of,
    produce,
    properties,
    read,
    values_of,
    wait_until,
)

import ottla.testing
from ottla.cli.main import main
from ottla.client.admin.topics import Partition
from ottla.client.cluster import ClusterClient
from ottla.mirror.fetching import Fetcher
from ottla.runtime.net import AsyncioNetwork
from ottla.testing import BrokerCluster, InProcessBroker

NEVER = 100_000


@pytest.fixture(scope="module")
def source() -> Iterator[InProcessBroker]:
    with ottla.testing.broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def target() -> Iterator[InProcessBroker]:
    with ottla.testing.broker() as broker:
        yield broker


def status(settings: Mapping[str, str], file: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    capsys.readouterr()
    assert main(["mirror", "status", str(file), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def test_a_topic_made_anew_between_two_looks_is_mirrored_once(
    source: InProcessBroker, target: InProcessBroker
) -> None:
    here, there = source.bootstrap_servers, target.bootstrap_servers
    create(here, "anew", 1)
    produce(here, "anew", [f"old {n}" for n in range(100)], 1)
    settings = properties(here, there, topics="anew", refresh__topics__interval__seconds=NEVER)
    with mirroring(settings):
        read(there, "a.anew", 100, 1)
        admin = admin_of(here)
        admin.delete_topics(["anew"])["anew"].result(30)
        create(here, "anew", 1)
        # More than there was, so that the offset where the mirror is exists again.
        fresh = [f"new {n}" for n in range(150)]
        produce(here, "anew", fresh, 1)
        read(there, "a.anew", 250, 1)
        # Behind these there is nothing more of what was before.
        produce(here, "anew", ["last"], 1)
        wait_until(lambda: position_of(there, "a", "anew") == len(fresh) + 1, "all is mirrored")
    (found,) = values_of(read(there, "a.anew", 251, 1))
    assert found == [*(f"old {n}" for n in range(100)), *fresh, "last"]


def test_an_offset_of_a_topic_that_is_gone_is_not_read_from_the_one_made_anew(
    source: InProcessBroker,
) -> None:
    """Also when nobody asked between the two."""
    here = source.bootstrap_servers
    place = Partition("again", 0)

    async def topic_id() -> UUID:
        async with ClusterClient(AsyncioNetwork(), here) as cluster:
            found = (await cluster.topics(["again"]))["again"].id
        assert found is not None
        return found

    async def read_on(known_id: UUID | None) -> tuple[int, bool]:
        """How many batches came, and whether the topic was told to be gone."""
        is_gone = asyncio.Event()
        async with ClusterClient(AsyncioNetwork(), here) as cluster:
            fetcher = Fetcher(cluster, "test", is_gone.set)
            fetcher.add({place: 100}, {"again": known_id})
            reading = asyncio.ensure_future(fetcher.run())
            told, taken = asyncio.ensure_future(is_gone.wait()), asyncio.ensure_future(fetcher.take(WAIT_S))
            await asyncio.wait({told, taken}, return_when=asyncio.FIRST_COMPLETED)
            batches = sum(len(chunk.batches) for chunk in taken.result()) if taken.done() else 0
            for task in (reading, told, taken):
                task.cancel()
            await asyncio.gather(reading, told, taken, return_exceptions=True)
        return batches, is_gone.is_set()

    create(here, "again", 1)
    first_id = asyncio.run(topic_id())
    admin = admin_of(here)
    admin.delete_topics(["again"])["again"].result(30)
    create(here, "again", 1)
    produce(here, "again", [str(n) for n in range(150)], 1)
    assert asyncio.run(read_on(first_id)) == (0, True)
    # What brokers without ids would give.
    batches, is_gone = asyncio.run(read_on(None))
    assert batches and not is_gone
    assert asyncio.run(read_on(asyncio.run(topic_id()))) == (batches, False)


def test_status_tells_of_what_was_deleted_before_it_was_mirrored(
    source: InProcessBroker, target: InProcessBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here, there = source.bootstrap_servers, target.bootstrap_servers
    create(here, "short", 1)
    produce(here, "short", [str(n) for n in range(30)], 1)
    settings = properties(here, there, topics="short", emit__heartbeats__enabled="false")
    with mirroring(settings):
        wait_until(lambda: position_of(there, "a", "short") == 30, "mirrored")
    produce(here, "short", [str(n) for n in range(30, 60)], 1)
    admin = admin_of(here)
    for deleted in admin.delete_records([TopicPartition("short", 0, 50)]).values():
        deleted.result(30)

    found = status(settings, tmp_path / "mm2.properties", capsys)
    assert [row["lag"] for row in found["partitions"] if row["topic"] == "short"] == [10]
    assert any(
        "up to 20 records of short-0, from offset 30 on, were deleted" in each for each in found["outOfSync"]
    )
    with mirroring(settings):
        wait_until(lambda: position_of(there, "a", "short") == 60, "mirrored")
    assert values_of(read(there, "a.short", 40, 1)) == [[str(n) for n in (*range(30), *range(50, 60))]]


def test_a_topic_that_the_target_cannot_have_keeps_no_other_from_being_mirrored(
    source: InProcessBroker,
    target: InProcessBroker,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    here, there = source.bootstrap_servers, target.bootstrap_servers
    # With a prefix its name is longer than names may be.
    long = "long".ljust(249, "x")
    create(here, long, 1)
    create(here, "fits", 1)
    produce(here, "fits", ["one"], 1)
    settings = properties(here, there, topics="long.*, fits")
    with mirroring(settings):
        assert values_of(read(there, "a.fits", 1, 1)) == [["one"]]
    assert f"a.{long} cannot be made in the target" in caplog.text
    assert f"topic a.{long} does not exist in b" in status(settings, tmp_path / "mm2", capsys)["outOfSync"]


def test_partitions_without_a_leader_keep_no_others_from_going_on(
    target: InProcessBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = target.bootstrap_servers
    with BrokerCluster(relayed=False) as cluster:
        here = cluster.bootstrap_servers
        admin = admin_of(here)
        admin.create_topics([NewTopic("alone", 3, 1)])["alone"].result(30)
        leaders = [cluster.leader("alone", number) for number in range(3)]
        controller = cluster.controller()
        dead = next(number for number, leader in enumerate(leaders) if leader is not controller)
        living = [number for number in range(3) if leaders[number] is not leaders[dead]]
        produce(here, "alone", [str(n) for n in range(3)], 3)
        # One part, so that all partitions are in one transaction.
        settings = properties(here, there, topics="alone", tasks__max=1)
        with mirroring(settings):
            read(there, "a.alone", 3, 3)
        leaders[dead].kill9()

        def is_leaderless() -> bool:
            found = admin_of(here).list_topics("alone", timeout=30).topics["alone"]
            return bool(found.partitions[dead].leader < 0)

        wait_until(is_leaderless, "without a leader")
        with mirroring(settings):
            producer = Producer({"bootstrap.servers": here, **QUIET})
            for number in living:
                producer.produce("alone", "more", partition=number)
            assert producer.flush(WAIT_S) == 0
            started = time.monotonic()
            found = values_of(read(there, "a.alone", 3 + len(living), 3, wait_s=30))
            assert [found[number][-1] for number in living] == ["more"] * len(living)
            told = status(settings, tmp_path / "mm2.properties", capsys)
            # Nobody waited for what cannot be had.
            assert time.monotonic() - started < 40
        ends = {row["partition"]: row["endOffset"] for row in told["partitions"] if row["topic"] == "alone"}
        assert ends == {dead: None, **dict.fromkeys(living, 2)}
        assert any(f"alone-{dead} has no leader" in each for each in told["outOfSync"])
        leaders[dead].launch()
        leaders[dead].wait_ready()
        with mirroring(settings):
            produce(here, "alone", ["a", "b", "c"], 3)
            found = values_of(read(there, "a.alone", 6 + len(living), 3))
        assert [len(each) for each in found] == [2 if number == dead else 3 for number in range(3)]
