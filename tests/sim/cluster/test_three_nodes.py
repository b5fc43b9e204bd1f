"""Three nodes are one cluster: whoever is asked, all know of it, and one of them may be gone."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest
from sim_cluster import SimCluster

from ottla.sim.world import SimWorld


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
