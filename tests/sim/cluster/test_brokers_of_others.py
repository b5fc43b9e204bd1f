"""Another process's broker on the controller's listener: what brokers send there is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias
from uuid import UUID

from ottla.client.connections import Connections
from ottla.client.peer import Peer
from ottla.config import BrokerConfig
from ottla.metadata.features import supported_features
from ottla.node import Node
from ottla.runtime import Runtime
from ottla.sim.world import SimWorld
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode

PROPERTIES = {
    "node.id": "1",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "controller.quorum.voters": "1@c1:9093",
    "log.dirs": "/data",
}


Connect: TypeAlias = Callable[[], Awaitable[Peer]]


def with_controller(scenario: Callable[[Node, Connect], Coroutine[Any, Any, None]]) -> None:
    with SimWorld(1) as world:
        nodes: list[Node] = []

        async def boot(runtime: Runtime) -> None:
            node = Node(runtime, BrokerConfig.from_properties(PROPERTIES))
            await node.start()
            nodes.append(node)

        async def on_another_host() -> None:
            connections = Connections(world.runtime("b2").net, {"client.id": "broker-2"}, 2.0)

            async def connect() -> Peer:
                """Anew, as the process of a broker that comes back does."""
                connections.close()
                return await connections.peer("c1", 9093)

            listening = await world.runtime("b2").net.listen(asyncio.Protocol, "", 9092)
            await scenario(nodes[0], connect)
            await listening.close()
            connections.close()

        async def run() -> None:
            await world.start("c1", boot)
            await world.spawn("b2", on_another_host())

        world.run(run())


def registration(node: Node, broker_id: int) -> dict[str, Any]:
    return {
        "broker_id": broker_id,
        "cluster_id": node.cluster_id,
        "incarnation_id": UUID(int=9000 + broker_id),
        "listeners": [{"name": "PLAINTEXT", "host": f"b{broker_id}", "port": 9092, "security_protocol": 0}],
        "features": [
            {
                "name": feature.name,
                "min_supported_version": feature.min_supported_version,
                "max_supported_version": feature.max_supported_version,
            }
            for feature in supported_features()
        ],
        "rack": None,
        "log_dirs": [UUID(int=700 + broker_id)],
        "previous_broker_epoch": -1,
    }


async def heartbeat(peer: Peer, broker_id: int, epoch: int, *, shutdown: bool = False) -> Any:
    return await peer.ask(
        ApiKey.BROKER_HEARTBEAT,
        {
            "broker_id": broker_id,
            "broker_epoch": epoch,
            "current_metadata_offset": epoch + 1000,
            "want_fence": False,
            "want_shut_down": shutdown,
        },
    )


def test_it_registers_leads_says_who_is_in_sync_and_goes() -> None:
    async def scenario(node: Node, connect: Connect) -> None:
        peer = await connect()
        epochs = {}
        for broker_id in (2, 3):
            answer = await peer.ask(ApiKey.BROKER_REGISTRATION, registration(node, broker_id))
            assert answer.error_code is ErrorCode.none
            epochs[broker_id] = answer.broker_epoch
            answer = await heartbeat(peer, broker_id, answer.broker_epoch)
            assert (answer.error_code, answer.is_fenced, answer.is_caught_up) == (ErrorCode.none, False, True)

        answer = await peer.ask(ApiKey.ALLOCATE_PRODUCER_IDS, {"broker_id": 2, "broker_epoch": epochs[2]})
        assert (answer.error_code, answer.producer_id_len) == (ErrorCode.none, 1000)

        assignments = [{"partition_index": 0, "broker_ids": [2, 3]}]
        topic = {
            "name": "t",
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": assignments,
            "configs": [],
        }
        answer = await peer.ask(
            ApiKey.CREATE_TOPICS, {"topics": [topic], "timeout": 5000, "validate_only": False}
        )
        [created] = answer.topics
        assert created.error_code is ErrorCode.none

        answer = await peer.ask(
            ApiKey.ALTER_PARTITION,
            {
                "broker_id": 2,
                "broker_epoch": epochs[2],
                "topics": [
                    {
                        "topic_id": created.topic_id,
                        "partitions": [
                            {
                                "partition_index": 0,
                                "leader_epoch": 0,
                                "partition_epoch": 0,
                                "leader_recovery_state": 0,
                                "new_isr_with_epochs": [{"broker_id": 2, "broker_epoch": epochs[2]}],
                            }
                        ],
                    }
                ],
            },
        )
        [partition] = answer.topics[0].partitions
        assert (partition.error_code, partition.isr, partition.partition_epoch) == (ErrorCode.none, (2,), 1)

        # With it goes the only one in sync.
        while not (await heartbeat(peer, 2, epochs[2], shutdown=True)).should_shut_down:
            await heartbeat(peer, 3, epochs[3])
            await asyncio.sleep(0.1)
        answer = await peer.ask(
            ApiKey.ELECT_LEADERS,
            {
                "election_type": 0,
                "topic_partitions": [{"topic": "t", "partitions": [0]}],
                "timeout": 5000,
            },
        )
        [result] = answer.replica_election_results[0].partition_result
        assert result.error_code is ErrorCode.preferred_leader_not_available
        answer = await peer.ask(
            ApiKey.ELECT_LEADERS, {"election_type": 1, "topic_partitions": None, "timeout": 5000}
        )
        [result] = answer.replica_election_results[0].partition_result
        assert result.error_code is ErrorCode.none

        answer = await peer.ask(ApiKey.UNREGISTER_BROKER, {"broker_id": 2})
        assert answer.error_code is ErrorCode.none
        answer = await heartbeat(peer, 2, epochs[2])
        assert answer.error_code is ErrorCode.stale_broker_epoch

    with_controller(scenario)


def test_it_is_fenced_when_it_falls_silent_and_the_controllers_own_broker_is_not() -> None:
    async def scenario(node: Node, connect: Connect) -> None:
        peer = await connect()
        answer = await peer.ask(ApiKey.BROKER_REGISTRATION, registration(node, 2))
        await heartbeat(peer, 2, answer.broker_epoch)
        topic = {
            "name": "t",
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [
                {"partition_index": 0, "broker_ids": [2, 1]},
                {"partition_index": 1, "broker_ids": [1, 2]},
            ],
            "configs": [],
        }
        await peer.ask(ApiKey.CREATE_TOPICS, {"topics": [topic], "timeout": 5000, "validate_only": False})

        image = node._broker.metadata.image
        assert [p.leader for p in image.topics["t"].partitions] == [2, 1]
        await asyncio.sleep(12)
        image = node._broker.metadata.image
        assert image.brokers[2].fenced and image.brokers[1].active
        assert [(p.leader, p.isr) for p in image.topics["t"].partitions] == [(1, (1,)), (1, (1,))]

    with_controller(scenario)


def test_it_is_fenced_at_once_when_nobody_listens_where_it_was() -> None:
    async def scenario(node: Node, connect: Connect) -> None:
        peer = await connect()
        nowhere = {**registration(node, 3), "listeners": registration(node, 2)["listeners"]}
        nowhere["listeners"][0]["port"] = 9999
        answer = await peer.ask(ApiKey.BROKER_REGISTRATION, nowhere)
        await heartbeat(peer, 3, answer.broker_epoch)
        await asyncio.sleep(1)
        assert node._broker.metadata.image.brokers[3].active, "heard of, whether it can be reached or not"
        await connect()
        await asyncio.sleep(0.1)
        assert node._broker.metadata.image.brokers[3].fenced

    with_controller(scenario)


def test_a_connection_that_is_gone_says_sooner_that_it_died() -> None:
    async def scenario(node: Node, connect: Connect) -> None:
        peer = await connect()
        answer = await peer.ask(ApiKey.BROKER_REGISTRATION, registration(node, 2))
        await heartbeat(peer, 2, answer.broker_epoch)
        # Back at once: nothing happened.
        peer = await connect()
        await asyncio.sleep(0.5)
        assert not (await heartbeat(peer, 2, answer.broker_epoch)).is_fenced
        await asyncio.sleep(4)
        assert node._broker.metadata.image.brokers[2].active
        assert not (await heartbeat(peer, 2, answer.broker_epoch)).is_fenced
        # And not back.
        await connect()
        await asyncio.sleep(0.9)
        assert node._broker.metadata.image.brokers[2].active
        await asyncio.sleep(0.5)
        assert node._broker.metadata.image.brokers[2].fenced

    with_controller(scenario)
