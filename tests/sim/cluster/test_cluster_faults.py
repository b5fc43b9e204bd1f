"""Nodes crash, stop and lose each other while clients administer the cluster by way of all of them."""

from __future__ import annotations

import asyncio
import random

import pytest
from sim_cluster import SimCluster

from ottla.client.errors import ClusterUnreachable
from ottla.client.peer import PeerLost
from ottla.sim.world import SimWorld
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode

CLIENTS = 3
FAULTS = 3


class Administration:
    """Clients that create and delete topics of their own, and remember what they were promised."""

    def __init__(self, cluster: SimCluster, chance: random.Random) -> None:
        self._cluster = cluster
        self._chance = chance
        self.there: set[str] = set()
        self.gone: set[str] = set()
        self.is_over = False

    async def run(self, client: int) -> None:
        number = 0
        while not self.is_over:
            number += 1
            name = f"topic-{client}-{number}"
            topic = {"name": name, "num_partitions": 2, "replication_factor": 1}
            if await self._acknowledged(ApiKey.CREATE_TOPICS, {"topics": [topic], "timeout": 5000}):
                self.there.add(name)
                if self._chance.random() < 0.3:
                    self.there.discard(name)
                    named = {"topics": [{"name": name, "topic_id": None}], "timeout": 5000}
                    if await self._acknowledged(ApiKey.DELETE_TOPICS, named):
                        self.gone.add(name)
            await asyncio.sleep(self._chance.uniform(0.05, 0.4))

    async def _acknowledged(self, api_key: ApiKey, values: dict[str, object]) -> bool:
        broker = self._chance.choice(self._cluster.numbers)
        try:
            async with asyncio.timeout(10):
                answer = await self._cluster.ask(broker, api_key, values)
        except (ClusterUnreachable, PeerLost, TimeoutError):
            return False
        code = (answer.topics if api_key is ApiKey.CREATE_TOPICS else answer.responses)[0].error_code
        assert code is ErrorCode.none or code.retriable or code in _POSSIBLE, code
        return code is ErrorCode.none


# A request that was handed on twice because its first answer was lost; brokers that are all fenced.
_POSSIBLE = {
    ErrorCode.topic_already_exists,
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.invalid_replication_factor,
}


async def _fault(cluster: SimCluster, chance: random.Random) -> None:
    world = cluster.world
    victim = chance.choice(cluster.numbers)
    others = [cluster.host(number) for number in cluster.numbers if number != victim]
    match chance.choice(["crash", "crash", "stop", "lose", "lose one way"]):
        case "crash":
            cluster.crash(victim)
            await asyncio.sleep(chance.uniform(0.1, 6))
            await cluster.restart(victim)
        case "stop":
            await cluster.stop(victim)
            await asyncio.sleep(chance.uniform(0.1, 3))
            await cluster.restart(victim)
        case how:
            sides = [[cluster.host(victim)], others]
            chance.shuffle(sides)
            world.network.partition(*sides, one_way=how == "lose one way")
            await asyncio.sleep(chance.uniform(0.5, 12))
            world.network.heal()
    await asyncio.sleep(chance.uniform(0.1, 3))


@pytest.mark.parametrize("seed", range(2))
def test_what_was_acknowledged_stays_and_all_agree(seed: int) -> None:
    with SimWorld(seed) as world:
        cluster = SimCluster(world)
        chance = world.random("faults")
        work = Administration(cluster, world.random("administration"))

        async def scenario() -> None:
            clients = [asyncio.ensure_future(work.run(client)) for client in range(CLIENTS)]
            for _ in range(FAULTS):
                await _fault(cluster, chance)
            work.is_over = True
            await asyncio.gather(*clients)

            async def agree() -> bool:
                seen = [await cluster.seen_by(number) for number in cluster.numbers]
                brokers, topics = seen[0]
                return (
                    all(each == seen[0] for each in seen)
                    and brokers == [1, 2, 3]
                    and work.there <= {*topics}
                    and work.gone.isdisjoint(topics)
                )

            await cluster.wait(agree)
            assert work.there and work.gone
            images = [node._broker.metadata.image for node in cluster.nodes.values()]
            assert len({frozenset(image.topics.items()) for image in images}) == 1
            assert len(cluster.controllers()) == 1

        cluster.run(scenario)
