"""Offsets inside transactions, over the wire of a whole broker: when they are seen, and by whom."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import Any

import pytest

from ottla.sim.broker import PORT, broker
from ottla.sim.client import RequestFailed, SimClient
from ottla.sim.transactions import NEW, OLD, SimProducer, Versions
from ottla.sim.world import SimWorld, simulate
from ottla.wire.errors import ErrorCode

UNSTABLE = ErrorCode.unstable_offset_commit
FENCED = (ErrorCode.invalid_producer_epoch, ErrorCode.producer_fenced)


async def started(world: SimWorld) -> SimClient:
    world.start("b1", broker({"offsets.topic.num.partitions": "2"}))
    await asyncio.sleep(1)
    client = SimClient(world.runtime("c1"), "b1", PORT)
    await client.create_topic("t", partitions=2)
    schema = import_module("kio.schema.find_coordinator.v3.request")
    await client.send(schema.FindCoordinatorRequest(key="g", key_type=0))
    await asyncio.sleep(1)
    return client


def producer(world: SimWorld, versions: Versions, host: str = "c1") -> SimProducer:
    client = SimClient(world.runtime(host), "b1", PORT)
    return SimProducer(world.runtime(host), client, "id", versions=versions)


async def offset(client: SimClient, *, version: int, stable: bool, everything: bool = False) -> Any:
    """The offset of partition 0 of `t`, or the error; None where it is not listed."""
    schema = import_module(f"kio.schema.offset_fetch.v{version}.request")
    if version < 8:
        topics = (schema.OffsetFetchRequestTopic(name="t", partition_indexes=(0,)),)
        request = schema.OffsetFetchRequest(
            group_id="g", topics=None if everything else topics, require_stable=stable
        )
        answer = await client.send(request)
    else:
        topics = (schema.OffsetFetchRequestTopics(name="t", partition_indexes=(0,)),)
        group = schema.OffsetFetchRequestGroup(group_id="g", topics=None if everything else topics)
        answer = (
            await client.send(schema.OffsetFetchRequest(groups=(group,), require_stable=stable))
        ).groups[0]
    assert answer.error_code is ErrorCode.none
    for topic in answer.topics:
        (partition,) = topic.partitions
        return (
            int(partition.committed_offset)
            if partition.error_code is ErrorCode.none
            else partition.error_code
        )
    return None


@pytest.mark.parametrize("version", [7, 8, 9])
@pytest.mark.parametrize("versions", [OLD, NEW], ids=["old", "new"])
def test_readers_of_stable_offsets_wait_for_the_end(versions: Versions, version: int) -> None:
    async def scenario(world: SimWorld) -> None:
        client = await started(world)
        writer = producer(world, versions)
        await writer.init()
        for expected, committed in ((5, True), (5, False), (7, True)):
            before = await offset(client, version=version, stable=True)
            await writer.send_offsets("g", "t", {0: expected + (not committed)})
            assert await offset(client, version=version, stable=True) is UNSTABLE
            assert await offset(client, version=version, stable=False) == before
            if before >= 0:
                assert await offset(client, version=version, stable=True, everything=True) is UNSTABLE
                assert await offset(client, version=version, stable=False, everything=True) == before
            await writer.end(committed=committed)
            await asyncio.sleep(1)
            for everything in (False, True):
                found = await offset(client, version=version, stable=True, everything=everything)
                assert found == expected

    simulate(scenario)


@pytest.mark.parametrize("versions", [OLD, NEW], ids=["old", "new"])
def test_a_zombie_commits_no_offsets(versions: Versions) -> None:
    async def scenario(world: SimWorld) -> None:
        client = await started(world)
        zombie, successor = producer(world, versions), producer(world, versions, "c2")
        await zombie.init()
        await zombie.send_offsets("g", "t", {0: 3})
        await successor.init()
        with pytest.raises(RequestFailed) as refused:
            await zombie.send_offsets("g", "t", {0: 4})
        assert refused.value.code in FENCED
        await asyncio.sleep(1)
        assert await offset(client, version=8, stable=True) == -1, "the zombie's transaction was aborted"

    simulate(scenario)


@pytest.mark.parametrize("versions", [OLD, NEW], ids=["old", "new"])
def test_open_transactions_survive_a_restart(versions: Versions) -> None:
    async def scenario(world: SimWorld) -> None:
        client = await started(world)
        writer = producer(world, versions)
        await writer.init()
        await writer.send_offsets("g", "t", {0: 3})
        world.crash("b1", power_loss=False)
        world.restart("b1")
        await asyncio.sleep(2)
        assert await offset(client, version=8, stable=True) is UNSTABLE
        await writer.end(committed=True)
        await asyncio.sleep(1)
        assert await offset(client, version=8, stable=True) == 3
        world.crash("b1", power_loss=False)
        world.restart("b1")
        await asyncio.sleep(2)
        assert await offset(client, version=8, stable=True) == 3

    simulate(scenario)


def test_without_adding_the_group_first_older_clients_are_refused() -> None:
    async def scenario(world: SimWorld) -> None:
        client = await started(world)
        writer = producer(world, OLD._replace(add_offsets=None))
        await writer.init()
        with pytest.raises(RequestFailed) as refused:
            await writer.send_offsets("g", "t", {0: 3})
        assert refused.value.code is ErrorCode.invalid_txn_state
        assert await offset(client, version=8, stable=True) == -1

    simulate(scenario)
