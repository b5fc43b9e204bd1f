"""Three brokers, three replicas: what is acknowledged by all in sync outlives any one of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sim_cluster import CLIENT, SimCluster

from ottla.client.connections import Connections
from ottla.records.batch import iter_headers
from ottla.records.records import Record, encode_batch, iter_records
from ottla.sim.world import SimWorld
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode

TOPIC = "orders"


class Producer:
    """Sends until it is acknowledged, with acks=all; never the same value for another record."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._connections = Connections(cluster.world.runtime(CLIENT).net, {"client.id": "producer"}, 5)
        self.acknowledged: list[bytes] = []

    async def send(self, value: bytes) -> None:
        records = encode_batch([Record(b"k", value, 0)])
        data = {"index": 0, "records": records}
        request = {
            "acks": -1,
            "timeout": 2000,
            "topic_data": [{"name": TOPIC, "partition_data": [data]}],
        }

        async def sent() -> bool:
            leader = leader_of(self._cluster)
            if leader not in self._cluster.nodes:
                return False
            async with asyncio.timeout(5):
                peer = await self._connections.peer(self._cluster.host(leader), 9092)
                answer = await peer.ask(ApiKey.PRODUCE, request, version_max=12)
            [row] = answer.responses[0].partition_responses
            return bool(row.error_code is ErrorCode.none)

        await self._cluster.wait(sent)
        self.acknowledged.append(value)


def leader_of(cluster: SimCluster) -> int:
    for node in cluster.nodes.values():
        state = state_of(node)
        if state is not None:
            return int(state.leader)
    return -1


def state_of(node: Any) -> Any:
    topic = node._broker.metadata.image.topics.get(TOPIC)
    return None if topic is None else topic.partitions[0]


def log_of(node: Any) -> Any:
    found = node._broker.replicas.find(TOPIC, 0)
    return None if found is None else found.log


def data_of(node: Any) -> bytes:
    log = log_of(node)
    return bytes(log.read(log.start_offset, 1 << 30, upto=log.next_offset))


def values_of(data: bytes) -> list[bytes | None]:
    view = memoryview(data)
    return [
        record.value
        for at, header in iter_headers(view)
        for record in iter_records(view[at : at + header.size])
    ]


async def wait_equal(cluster: SimCluster) -> bytes:
    """All replicas have the same bytes, and all are in sync."""

    async def equal() -> bool:
        nodes = list(cluster.nodes.values())
        if any(log_of(node) is None for node in nodes):
            return False
        in_sync = all(len(state_of(node).isr) == len(cluster.numbers) for node in nodes)
        return in_sync and len({data_of(node) for node in nodes}) == 1

    await cluster.wait(equal)
    return data_of(next(iter(cluster.nodes.values())))


@pytest.mark.parametrize("seed", range(3, 9))
def test_nothing_acknowledged_is_lost_when_leaders_crash(seed: int) -> None:
    with SimWorld(seed) as world:
        cluster = SimCluster(world, min_insync_replicas="2")

        async def scenario() -> None:
            await cluster.create_topic(1, TOPIC)
            producer = Producer(cluster)
            for turn in range(3):
                for number in range(5):
                    await producer.send(b"%d-%d" % (turn, number))
                leader = leader_of(cluster)
                cluster.crash(leader)
                for number in range(5):
                    await producer.send(b"%d-%d-after" % (turn, number))
                await cluster.restart(leader)
            data = await wait_equal(cluster)
            stored = values_of(data)
            assert {*producer.acknowledged} <= {*stored}
            first = [stored.index(value) for value in producer.acknowledged]
            assert first == sorted(first)

        cluster.run(scenario)


@pytest.mark.parametrize("seed", range(3, 6))
def test_a_replica_that_was_away_catches_up(seed: int) -> None:
    with SimWorld(seed) as world:
        cluster = SimCluster(world, min_insync_replicas="2")

        async def scenario() -> None:
            await cluster.create_topic(1, TOPIC)
            producer = Producer(cluster)
            await producer.send(b"with all")
            away = next(number for number in cluster.numbers if number != leader_of(cluster))
            cluster.crash(away)
            for number in range(10):
                await producer.send(b"%d" % number)
            await cluster.restart(away)
            data = await wait_equal(cluster)
            assert {*producer.acknowledged} <= {*values_of(data)}

        cluster.run(scenario)


@pytest.mark.parametrize("lost", [1, 2])
@pytest.mark.parametrize("seed", range(3, 6))
def test_the_broker_beside_the_only_controller_replicates_like_others(seed: int, lost: int) -> None:
    with SimWorld(seed) as world:
        cluster = SimCluster(world, voters=1, min_insync_replicas="2")

        async def scenario() -> None:
            await cluster.create_topic(2, TOPIC)
            producer = Producer(cluster)
            await producer.send(b"with all")
            cluster.crash(lost)
            await cluster.restart(lost)
            await producer.send(b"with all again")
            data = await wait_equal(cluster)
            assert {*producer.acknowledged} <= {*values_of(data)}

        cluster.run(scenario)
