"""Three nodes are one cluster: whoever is asked, all know of it, and one of them may be gone."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest
from sim_cluster import CLIENT, SimCluster

from ottla.client.connections import Connections
from ottla.sim.world import SimWorld
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode


async def ask_alone(cluster: SimCluster, number: int, api_key: ApiKey, values: dict[str, Any]) -> Any:
    """On a connection of its own, where it waits for nothing that was asked before."""
    connections = Connections(cluster.world.runtime(CLIENT).net, {"client.id": CLIENT}, 5)
    peer = await connections.peer(cluster.host(number), 9092)
    return await peer.ask(api_key, values)


@pytest.mark.parametrize("seed", range(3))
def test_topics_are_created_by_way_of_any_broker(seed: int) -> None:
    with SimWorld(seed) as world:
        cluster = SimCluster(world)

        async def scenario() -> None:
            assert len(cluster.controllers()) == 1
            for number in cluster.numbers:
                await cluster.create_topic(number, f"by-{number}")
            await cluster.wait_seen([1, 2, 3], ["by-1", "by-2", "by-3"])

        cluster.run(scenario)


def test_every_controller_is_registered_and_anew_when_it_is_back() -> None:
    with SimWorld(8) as world:
        cluster = SimCluster(world)

        async def scenario() -> None:
            async def wait_registered(before: dict[int, UUID]) -> dict[int, UUID]:
                async with asyncio.timeout(60):
                    while True:
                        controllers = cluster.nodes[1]._broker.metadata.image.controllers
                        found = {number: each.incarnation_id for number, each in controllers.items()}
                        if found.keys() == {1, 2, 3} and all(found[n] != before[n] for n in before):
                            return found
                        await asyncio.sleep(0.1)

            found = await wait_registered({})
            ports = [
                each.end_points[0].port
                for each in cluster.nodes[1]._broker.metadata.image.controllers.values()
            ]
            assert ports == [9093, 9093, 9093]
            cluster.crash(3)
            await cluster.restart(3)
            await wait_registered({3: found[3]})

        cluster.run(scenario)


@pytest.mark.parametrize("seed", range(3))
def test_the_cluster_goes_on_without_its_controller_and_takes_it_back(seed: int) -> None:
    with SimWorld(seed) as world:
        cluster = SimCluster(world)

        async def scenario() -> None:
            [lost] = cluster.controllers()
            others = [number for number in cluster.numbers if number != lost]
            await cluster.create_topic(lost, "before")
            cluster.crash(lost)
            for number in others:
                await cluster.create_topic(number, f"without-{number}", replicas=2)
            topics = sorted(["before", *(f"without-{number}" for number in others)])
            await cluster.wait_seen(others, topics)
            [controller] = cluster.controllers()
            assert controller in others
            await cluster.restart(lost)
            await cluster.wait_seen([1, 2, 3], topics)

        cluster.run(scenario)


@pytest.mark.parametrize("seed", range(3))
def test_a_controller_that_is_replaced_has_the_next_one_answer_its_clients(seed: int) -> None:
    """They asked a broker, and need not know that it was the active controller."""
    with SimWorld(seed) as world:
        cluster = SimCluster(world)

        async def scenario() -> None:
            [replaced] = cluster.controllers()
            others = [cluster.host(number) for number in cluster.numbers if number != replaced]
            await cluster.create_topic(replaced, "before")
            world.network.partition([cluster.host(replaced)], others)
            topic = {"name": "by-the-next", "num_partitions": 3, "replication_factor": 1}
            retention = {"name": "retention.ms", "config_operation": 0, "value": "5"}
            setting = {"resource_type": 2, "resource_name": "before", "configs": [retention]}
            looked_for = {"topics": [{"name": "looked-for"}], "allow_auto_topic_creation": True}
            asked = asyncio.gather(
                ask_alone(cluster, replaced, ApiKey.CREATE_TOPICS, {"topics": [topic], "timeout": 60_000}),
                ask_alone(cluster, replaced, ApiKey.METADATA, looked_for),
                ask_alone(cluster, replaced, ApiKey.INCREMENTAL_ALTER_CONFIGS, {"resources": [setting]}),
            )

            async def is_replaced() -> bool:
                return replaced not in cluster.controllers() and len(cluster.controllers()) == 1

            await cluster.wait(is_replaced)
            world.network.heal()
            created, metadata, changed = await asked
            assert created.topics[0].error_code is ErrorCode.none
            assert changed.responses[0].error_code is ErrorCode.none
            assert metadata.topics[0].error_code is not ErrorCode.not_controller
            await cluster.wait_seen([1, 2, 3], ["before", "by-the-next", "looked-for"])

        cluster.run(scenario)


@pytest.mark.parametrize("of_controller", [True, False])
def test_a_broker_that_stops_in_order_is_let_go_at_once(of_controller: bool) -> None:
    with SimWorld(5) as world:
        cluster = SimCluster(world)

        async def scenario() -> None:
            await cluster.create_topic(1, "orders")
            [controller] = cluster.controllers()
            leaving = next(n for n in cluster.numbers if (n == controller) is of_controller)
            others = [number for number in cluster.numbers if number != leaving]
            await cluster.stop(leaving)
            # Well before anybody could notice its silence.
            await cluster.wait_seen(others, ["orders"])
            for number in others:
                image = cluster.nodes[number]._broker.metadata.image
                leaders = {part.leader for part in image.topics["orders"].partitions}
                assert leaders <= {*others}
            await cluster.restart(leaving)
            await cluster.wait_seen([1, 2, 3], ["orders"])

        cluster.run(scenario)


@pytest.mark.parametrize("beside_controller", [False, True])
def test_a_broker_that_is_not_known_any_more_registers_anew(beside_controller: bool) -> None:
    with SimWorld(6) as world:
        cluster = SimCluster(world)

        async def scenario() -> None:
            [controller] = cluster.controllers()
            other = next(number for number in cluster.numbers if (number == controller) == beside_controller)
            active = cluster.nodes[controller]._broker

            def epoch() -> int:
                known = active.metadata.image.brokers.get(other)
                return -1 if known is None else known.epoch

            before = epoch()
            await world.spawn(cluster.host(controller), active.controller.unregister_broker(other))
            assert epoch() == -1

            async def is_back() -> bool:
                return epoch() > before and not active.metadata.image.brokers[other].fenced

            await cluster.wait(is_back)
            await cluster.wait_seen([1, 2, 3], [])
            # What it asks on its own account is asked in its new epoch.
            assert (await cluster.nodes[other]._allocate_producer_ids()).start >= 0

        cluster.run(scenario)
