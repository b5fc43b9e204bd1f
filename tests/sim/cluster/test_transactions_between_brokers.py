"""What brokers ask each other about transactions, asked of a whole broker over a simulated network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

import pytest

from ottla.client.cluster import ClusterClient
from ottla.client.transaction import Transactions
from ottla.coordinator.transactions.other_brokers import OtherBrokers
from ottla.coordinator.transactions.remote_markers import RemoteMarkers, Told
from ottla.coordinator.transactions.remote_verification import Asked, RemoteVerification
from ottla.log.types import TopicPartition
from ottla.metadata.change import between
from ottla.metadata.image import BrokerImage, MetadataImage
from ottla.metadata.records import Endpoint
from ottla.records.markers import Marker
from ottla.records.producer import ProducerIdentity
from ottla.runtime.tasks import TaskScope
from ottla.sim.broker import PORT, broker
from ottla.sim.world import SimWorld
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode, NetworkException

A, B, GONE = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("gone", 0)
TX = "tx"


def image_with(host: str, *, epoch: int = 1, fenced: bool = False) -> MetadataImage:
    """Broker 1 is there, broker 2 has no listener for others."""
    endpoints = (Endpoint(name="PLAINTEXT", host=host, port=PORT, security_protocol=0),)

    def of(broker_id: int, endpoints: tuple[Endpoint, ...]) -> BrokerImage:
        return BrokerImage(broker_id, epoch, UUID(int=1), endpoints, (), None, fenced, False, ())

    return MetadataImage(brokers={1: of(1, endpoints), 2: of(2, ())})


class Asking:
    """Broker 7, on a host of its own."""

    def __init__(self, world: SimWorld, scope: TaskScope) -> None:
        self.world = world
        self.image = image_with("b1")
        self.others = OtherBrokers(
            world.runtime("b7").net, lambda: self.image, listener="PLAINTEXT", properties={}, timeout_s=5
        )
        self.markers = RemoteMarkers(self.others.ask, scope)
        self.verification = RemoteVerification(self.others.ask, scope)
        self.cluster = ClusterClient(world.runtime("b7").net, f"b1:{PORT}")

    def learn(self, image: MetadataImage) -> None:
        before, self.image = self.image, image
        self.others.apply(between(before, image))

    async def begin(self) -> ProducerIdentity:
        """A transaction of a client that is about to write to A."""
        topic = {"name": "orders", "num_partitions": 2, "replication_factor": 1}
        await self.cluster.ask(None, ApiKey.CREATE_TOPICS, {"topics": [topic], "timeout": 5000})
        transactions = Transactions(self.cluster, TX)
        return await transactions.begin()

    async def ask(
        self, producer: ProducerIdentity, *partitions: TopicPartition, add: bool, name: str = TX
    ) -> dict[TopicPartition, ErrorCode]:
        return await self.verification.verify(1, Asked(name, producer, partitions, add))


def run(scenario: Callable[[Asking], Coroutine[Any, Any, None]], seed: int = 1) -> None:
    with SimWorld(seed) as world:
        failures: list[BaseException] = []

        async def asking() -> None:
            scope = TaskScope("b7", lambda _, error: failures.append(error))
            peer = Asking(world, scope)
            try:
                await scenario(peer)
            finally:
                peer.others.close()
                peer.cluster.close()
                await scope.close()

        async def all_of_it() -> None:
            world.start("b1", broker())
            await world.spawn("b7", asking())

        world.run(all_of_it())
        assert not failures


def test_a_coordinator_is_asked_and_told_by_another_broker() -> None:
    async def scenario(peer: Asking) -> None:
        producer = await peer.begin()
        assert await peer.ask(producer, A, add=False) == {A: ErrorCode.transaction_abortable}
        assert await peer.ask(producer, A, add=True) == {A: ErrorCode.none}
        assert await peer.ask(producer, A, B, add=False) == {
            A: ErrorCode.none,
            B: ErrorCode.transaction_abortable,
        }
        older = producer._replace(epoch=producer.epoch - 1)
        assert await peer.ask(older, A, add=False) == {A: ErrorCode.producer_fenced}
        unknown = await peer.ask(producer, A, add=False, name="nobody")
        assert unknown == {A: ErrorCode.invalid_producer_id_mapping}

    run(scenario)


def test_a_leader_takes_markers_of_another_broker() -> None:
    async def scenario(peer: Asking) -> None:
        producer = await peer.begin()

        def told(producer_id: int, *partitions: TopicPartition, coordinator_epoch: int = 3) -> Told:
            return Told(Marker(producer_id, producer.epoch + 1, coordinator_epoch, True), 2, partitions)

        first, second = await asyncio.gather(
            peer.markers.write(1, told(producer.id, GONE, A)),
            peer.markers.write(1, told(producer.id + 1, A, B)),
        )
        assert first == {GONE: ErrorCode.unknown_topic_or_partition, A: ErrorCode.none}
        assert second == {A: ErrorCode.none, B: ErrorCode.none}
        late = await peer.markers.write(1, told(producer.id, A, coordinator_epoch=2))
        assert late == {A: ErrorCode.transaction_coordinator_fenced}

    run(scenario)


def test_who_cannot_be_reached_is_said_and_found_again_where_it_is_then() -> None:
    async def scenario(peer: Asking) -> None:
        producer = await peer.begin()
        for broker_id, why in ((2, "no listener PLAINTEXT"), (3, "no broker 3")):
            with pytest.raises(NetworkException, match=why):
                await peer.verification.verify(broker_id, Asked(TX, producer, [A], add=True))
        peer.image = image_with("nowhere")
        with pytest.raises(NetworkException, match="broker 1"):
            await peer.ask(producer, A, add=True)
        peer.image = image_with("b1")
        assert await peer.ask(producer, A, add=True) == {A: ErrorCode.none}
        peer.world.crash("b1", power_loss=False)
        with pytest.raises(NetworkException, match="broker 1"):
            await peer.ask(producer, A, add=False)
        peer.world.restart("b1")
        deadline = asyncio.get_running_loop().time() + 30
        codes: dict[TopicPartition, ErrorCode] = {}
        while codes != {A: ErrorCode.none} and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.1)
            try:
                codes = await peer.ask(producer, A, add=False)
            except NetworkException:
                continue
        assert codes == {A: ErrorCode.none}

    run(scenario)


@pytest.mark.parametrize(
    ("learned", "why"),
    [
        (image_with("b1", fenced=True), "broker 1 is fenced"),
        (image_with("b1", epoch=2), "before it was started anew"),
        (MetadataImage(), "no broker 1"),
    ],
)
def test_who_is_gone_as_the_cluster_says_is_not_waited_for(learned: MetadataImage, why: str) -> None:
    """A machine without power ends no connection."""

    async def scenario(peer: Asking) -> None:
        producer = await peer.begin()
        assert await peer.ask(producer, A, add=True) == {A: ErrorCode.none}
        peer.world.network.partition(["b1"], ["b7"])
        clock = asyncio.get_running_loop().time
        began = clock()
        asked = asyncio.ensure_future(peer.ask(producer, A, add=False))
        await asyncio.sleep(1)
        peer.learn(image_with("b1"))
        await asyncio.sleep(1)
        assert not asked.done()
        peer.learn(learned)
        with pytest.raises(NetworkException, match=why):
            await asked
        assert clock() - began < 3
        # The next is asked over a connection of its own, at once.
        peer.world.network.heal()
        peer.learn(image_with("b1", epoch=3))
        assert await peer.ask(producer, A, add=False) == {A: ErrorCode.none}

    run(scenario)
