"""Whole nodes on simulated hosts that are one cluster, each of them broker and controller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from ottla.client.connections import Connections
from ottla.client.errors import ClusterUnreachable
from ottla.client.peer import PeerLost
from ottla.config import BrokerConfig
from ottla.metadata.meta_properties import prepare
from ottla.node import Node
from ottla.runtime import Runtime
from ottla.sim.world import SimWorld
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode

CLIENT = "client"
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
LIMIT_SECONDS = 60.0


class SimCluster:
    """`nodes` are those that run, by number; one is among them from when its start is over."""

    def __init__(self, world: SimWorld, count: int = 3, voters: int | None = None, **settings: str) -> None:
        """The first `voters` of them are broker and controller, the others only brokers."""
        self.world = world
        self.numbers = tuple(range(1, count + 1))
        self._voters = self.numbers[:voters]
        self.nodes: dict[int, Node] = {}
        self.failures: list[BaseException] = []
        self._settings = {name.replace("_", "."): value for name, value in settings.items()}
        self._connections = Connections(world.runtime(CLIENT).net, {"client.id": CLIENT}, 5)

    @staticmethod
    def host(number: int) -> str:
        return f"n{number}"

    def config(self, number: int) -> BrokerConfig:
        voters = ",".join(f"{each}@{self.host(each)}:9093" for each in self._voters)
        votes = number in self._voters
        return BrokerConfig.from_properties(
            {
                "node.id": str(number),
                "process.roles": "broker,controller" if votes else "broker",
                "controller.listener.names": "CONTROLLER",
                "listeners": "PLAINTEXT://:9092" + (",CONTROLLER://:9093" if votes else ""),
                "advertised.listeners": f"PLAINTEXT://{self.host(number)}:9092",
                "controller.quorum.voters": voters,
                "log.dirs": "/data",
                **self._settings,
            }
        )

    async def start(self) -> None:
        await asyncio.gather(*(self.start_node(number) for number in self.numbers))

    async def start_node(self, number: int) -> None:
        config = self.config(number)

        async def boot(runtime: Runtime) -> None:
            self.nodes.pop(number, None)
            prepare(runtime.disk, runtime.random, config.log_dirs, number, CLUSTER_ID)
            node = Node(runtime, config)
            await node.start()
            self.nodes[number] = node
            self.world.spawn(self.host(number), self._watch(node))

        await self.world.start(self.host(number), boot)

    async def _watch(self, node: Node) -> None:
        self.failures.append(await node.wait_failed())

    def crash(self, number: int) -> None:
        self.nodes.pop(number, None)
        self.world.crash(self.host(number), power_loss=True)

    async def restart(self, number: int) -> None:
        booting = self.world.restart(self.host(number))
        assert booting is not None
        await booting

    async def stop(self, number: int) -> None:
        """In good order."""
        await self.world.spawn(self.host(number), self.nodes.pop(number).stop())
        self.world.crash(self.host(number), power_loss=False)

    def controllers(self) -> list[int]:
        return [number for number, node in self.nodes.items() if node._broker.controller.is_active]

    async def ask(self, number: int, api_key: ApiKey, values: dict[str, Any]) -> Any:
        peer = await self._connections.peer(self.host(number), 9092)
        return await peer.ask(api_key, values)

    async def create_topic(self, number: int, name: str, replicas: int = 3) -> None:
        """By way of this broker, until it is there."""
        topic = {"name": name, "num_partitions": 3, "replication_factor": replicas}

        async def created() -> bool:
            answer = await self.ask(number, ApiKey.CREATE_TOPICS, {"topics": [topic], "timeout": 10_000})
            [result] = answer.topics
            assert result.error_code is ErrorCode.none or result.error_code.retriable, result
            return result.error_code is ErrorCode.none

        await self.wait(created)

    async def seen_by(self, number: int) -> tuple[list[int], list[str]]:
        """The brokers and topics that this broker tells clients of."""
        answer = await self.ask(number, ApiKey.METADATA, {"topics": None})
        return sorted(b.node_id for b in answer.brokers), sorted(t.name for t in answer.topics)

    async def wait(self, condition: Callable[[], Coroutine[Any, Any, bool]]) -> None:
        async with asyncio.timeout(LIMIT_SECONDS):
            while True:
                try:
                    if await condition():
                        return
                except (ClusterUnreachable, PeerLost):
                    pass
                await asyncio.sleep(0.05)

    async def wait_seen(self, numbers: list[int], topics: list[str]) -> None:
        """By all of these brokers: themselves and nobody else, and these topics."""
        for number in numbers:

            async def seen(number: int = number) -> bool:
                return await self.seen_by(number) == (numbers, topics)

            await self.wait(seen)

    def run(self, scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def all_of_it() -> None:
            await self.start()
            await self.world.spawn(CLIENT, scenario())
            assert not self.failures, self.failures

        self.world.run(all_of_it())
