"""Brokers that live and die under an active controller: sessions, fencing, balance, in their time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest
from metadata_node import ENDPOINT, HOST, MetadataNode

from ottla.controller.alter_partition import InSync, IsrChange
from ottla.controller.brokers import BrokerRegistration
from ottla.controller.heartbeats import BrokerHeartbeat
from ottla.controller.topics import NewTopic
from ottla.metadata.features import supported_features
from ottla.metadata.records import NO_LEADER
from ottla.raft.driver import Leadership
from ottla.sim.world import SimWorld
from ottla.wire.errors import (
    BrokerIdNotRegistered,
    DuplicateBrokerRegistration,
    InvalidRequest,
    NotController,
    StaleBrokerEpoch,
)

SESSION_SECONDS = 9


def registration(broker_id: int, *, life: int = 0) -> BrokerRegistration:
    return BrokerRegistration(
        broker_id=broker_id,
        incarnation_id=UUID(int=10_000 + 100 * broker_id + life),
        endpoints=(ENDPOINT,),
        directories=(UUID(int=200 + broker_id),),
        features=supported_features(),
        beside_controller=False,
    )


class Brokers:
    """Of other processes: they only register and send heartbeats."""

    def __init__(self, node: MetadataNode) -> None:
        self.node = node
        self.beating: dict[int, asyncio.Task[None]] = {}

    async def start(self, broker_id: int, *, life: int = 0) -> None:
        epoch = await self.node.controller.register_broker(registration(broker_id, life=life))
        await self.heartbeat(broker_id, epoch)
        self.beating[broker_id] = asyncio.ensure_future(self._beat(broker_id, epoch))

    def die(self, broker_id: int) -> None:
        self.beating.pop(broker_id).cancel()

    async def heartbeat(self, broker_id: int, epoch: int, *, shutdown: bool = False) -> bool:
        reply = await self.node.controller.heartbeat(
            BrokerHeartbeat(broker_id, epoch, self.node.image.offset, wants_shutdown=shutdown)
        )
        return reply.should_shut_down

    async def _beat(self, broker_id: int, epoch: int) -> None:
        while True:
            await asyncio.sleep(2)
            await self.heartbeat(broker_id, epoch)


def in_a_cluster(scenario: Callable[[MetadataNode, Brokers], Awaitable[None]], **properties: str) -> None:
    with SimWorld(1) as world:
        node = MetadataNode(world, **properties)

        async def run() -> None:
            await node.start()
            running = world.spawn(HOST, node.controller.run())
            brokers = Brokers(node)
            await scenario(node, brokers)
            for broker_id in list(brokers.beating):
                brokers.die(broker_id)
            assert not running.done(), "it goes on whatever happens"
            running.cancel()

        world.run(run())
        assert node.failures == []


def test_a_broker_that_falls_silent_is_fenced_and_others_take_over() -> None:
    async def scenario(node: MetadataNode, brokers: Brokers) -> None:
        await brokers.start(2)
        await brokers.start(3)
        created = await node.controller.create_topics(
            [NewTopic("t", assignments=((0, (2, 3)), (1, (3, 2)))), NewTopic("u", assignments=((0, (2,)),))]
        )
        assert [outcome.error for outcome in created] == [None, None]
        brokers.die(2)
        await asyncio.sleep(SESSION_SECONDS - 1)
        assert node.image.brokers[2].active
        await asyncio.sleep(5)
        assert node.image.brokers[2].fenced
        assert node.image.brokers[1].active and node.image.brokers[3].active
        assert [p.leader for p in node.image.topics["t"].partitions] == [3, 3]
        assert node.image.topics["u"].partitions[0].leader == NO_LEADER
        await brokers.start(2, life=1)
        assert [p.leader for p in node.image.topics["t"].partitions] == [3, 3]
        assert node.image.topics["u"].partitions[0].leader == 2

    in_a_cluster(scenario)


def test_another_of_the_same_id_waits_for_the_end_of_the_session() -> None:
    async def scenario(node: MetadataNode, brokers: Brokers) -> None:
        await brokers.start(2)
        old = node.image.brokers[2].epoch
        brokers.die(2)
        with pytest.raises(DuplicateBrokerRegistration):
            await brokers.start(2, life=1)
        await asyncio.sleep(SESSION_SECONDS + 3)
        await brokers.start(2, life=1)
        with pytest.raises(StaleBrokerEpoch):
            await brokers.heartbeat(2, old)
        assert node.image.brokers[2].active

    in_a_cluster(scenario)


def test_leadership_goes_back_to_preferred_replicas_in_time() -> None:
    async def scenario(node: MetadataNode, brokers: Brokers) -> None:
        await brokers.start(2)
        await brokers.start(3)
        await node.controller.create_topics([NewTopic("t", assignments=((0, (2, 3)),))])
        epoch = node.image.brokers[2].epoch
        while not await brokers.heartbeat(2, epoch, shutdown=True):
            await asyncio.sleep(1)
        brokers.die(2)
        assert node.image.topics["t"].partitions[0].leader == 3
        await asyncio.sleep(SESSION_SECONDS + 3)
        await brokers.start(2, life=1)
        state = node.image.topics["t"].partitions[0]
        [outcome] = await node.controller.alter_partitions(
            3,
            node.image.brokers[3].epoch,
            [
                IsrChange(
                    node.image.topics["t"].id,
                    0,
                    state.leader_epoch,
                    state.partition_epoch,
                    (InSync(3), InSync(2, node.image.brokers[2].epoch)),
                )
            ],
        )
        assert outcome.error is None
        assert node.image.topics["t"].partitions[0].leader == 3
        await asyncio.sleep(70)
        assert node.image.topics["t"].partitions[0].leader == 2

    in_a_cluster(scenario, leader_imbalance_check_interval_seconds="60")


def test_a_controller_that_takes_over_hears_of_brokers_anew() -> None:
    async def scenario(node: MetadataNode, brokers: Brokers) -> None:
        await brokers.start(2)
        brokers.die(2)
        epoch = node.image.brokers[2].epoch
        await asyncio.sleep(SESSION_SECONDS - 2)
        node.controller.on_leadership(Leadership(node.quorum.epoch, None))
        with pytest.raises(NotController):
            await brokers.heartbeat(2, epoch)
        await asyncio.sleep(20)
        assert node.image.brokers[2].active
        node.controller.on_leadership(Leadership(node.quorum.epoch, 1))
        await asyncio.sleep(SESSION_SECONDS - 1)
        assert node.image.brokers[2].active
        await asyncio.sleep(4)
        assert node.image.brokers[2].fenced

    in_a_cluster(scenario)


def test_the_broker_beside_a_controller_that_is_gone_gets_less_time() -> None:
    async def scenario(node: MetadataNode, brokers: Brokers) -> None:
        await node.world.runtime(HOST).net.listen(asyncio.Protocol, "", ENDPOINT.port)
        await brokers.start(2)
        await brokers.start(3)
        node.controller.on_leadership(Leadership(node.quorum.epoch, 2))
        brokers.die(2)
        brokers.die(3)
        node.controller.on_leadership(Leadership(node.quorum.epoch, None))
        node.controller.on_leadership(Leadership(node.quorum.epoch, 1))
        await asyncio.sleep(0.9)
        assert node.image.brokers[2].active
        await asyncio.sleep(0.5)
        assert node.image.brokers[2].fenced
        assert node.image.brokers[3].active

    in_a_cluster(scenario)


def test_the_broker_beside_the_controller_joins_others_and_is_there_at_once() -> None:
    with SimWorld(3) as world:
        node = MetadataNode(world)

        async def run() -> None:
            await node.start()
            await Brokers(node).node.controller.register_broker(registration(2))
            first_epoch = node.broker_epoch
            await node.stop()
            await node.restart()
            assert node.broker_epoch > first_epoch
            assert node.image.brokers[1].active
            assert node.image.brokers[2].fenced

        world.run(run())


def test_a_broker_is_forgotten_but_not_the_only_one() -> None:
    async def scenario(node: MetadataNode, brokers: Brokers) -> None:
        before = node.image
        with pytest.raises(InvalidRequest, match="Broker 1 is the only one"):
            await node.controller.unregister_broker(1)
        assert node.image is before
        await brokers.start(2)
        brokers.die(2)
        await node.controller.unregister_broker(2)
        assert sorted(node.image.brokers) == [1]
        # Its session is gone with it: the same id may come again at once.
        await brokers.start(2, life=1)
        with pytest.raises(BrokerIdNotRegistered):
            await node.controller.unregister_broker(3)

    in_a_cluster(scenario)


def test_a_broker_with_very_many_partitions_is_fenced_in_several_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ottla.controller.active.RECORDS_MAX", 60)

    async def scenario(node: MetadataNode, brokers: Brokers) -> None:
        await brokers.start(2)
        await brokers.start(3)
        for number in range(5):
            assignments = tuple((index, (2, 3)) for index in range(30))
            await node.controller.create_topics([NewTopic(f"t{number}", assignments=assignments)])
        brokers.die(2)
        await asyncio.sleep(SESSION_SECONDS + 3)
        assert node.image.brokers[2].fenced
        assert {p.leader for topic in node.image.topics.values() for p in topic.partitions} == {3}

    in_a_cluster(scenario)
