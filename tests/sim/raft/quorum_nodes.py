"""Three voters and an observer with logs, files and connections, each on a host of the simulator."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from ottla.config import BrokerConfig
from ottla.config.listeners import Endpoint
from ottla.handlers.figures import RequestFigures
from ottla.handlers.registry import CONTROLLER_REGISTRY
from ottla.metadata.image import MetadataImage
from ottla.metadata.meta_properties import MetaProperties, make_dir
from ottla.metadata.publisher import MetadataPublisher
from ottla.metadata.records import TopicRecord
from ottla.raft.driver import Leadership, RaftDriver
from ottla.raft.metadata_log import wait_opened
from ottla.raft.roles import Role
from ottla.raft.settings import QuorumSettings
from ottla.raft.snapshots import SnapshotPolicy
from ottla.runtime import Runtime
from ottla.runtime.tasks import TaskScope
from ottla.server.listener import Server
from ottla.sim.world import SimWorld
from ottla.wire.errors import NotController

PORT = 9093
VOTERS = (1, 2, 3)
TIMEOUTS = {
    "controller.quorum.election.timeout.ms": "300",
    "controller.quorum.fetch.timeout.ms": "600",
    "controller.quorum.request.timeout.ms": "600",
    "controller.quorum.election.backoff.max.ms": "300",
}


class QuorumNode:
    """`boot` runs again for each process; the attributes are those of the newest one."""

    def __init__(self, world: SimWorld, node_id: int, segment_bytes: int | None, **properties: str) -> None:
        self.world = world
        self.id = node_id
        self.host = f"n{node_id}"
        voters = ",".join(f"{voter}@n{voter}:{PORT}" for voter in VOTERS)
        settings = {
            "node.id": str(node_id),
            "log.dirs": "/data",
            "controller.quorum.voters": voters,
            **TIMEOUTS,
        }
        settings |= {name.replace("_", "."): value for name, value in properties.items()}
        self._settings = settings
        self.listen(PORT)
        self.segment_bytes: int | None = segment_bytes
        """Smaller than the configuration allows, to see segments come and go."""
        self.failures: list[BaseException] = []
        self.led: list[Leadership] = []
        self.is_up = False

    def listen(self, port: int) -> None:
        """From the next start on."""
        self.port = port
        self._settings["listeners"] = f"PLAINTEXT://:9092,CONTROLLER://{self.host}:{port}"
        # An observer is no controller, which the configuration of this version cannot say.
        self.config = BrokerConfig.from_properties(self._settings | {"node.id": str(min(self.id, 3))})

    async def boot(self, runtime: Runtime) -> None:
        make_dir(runtime.disk, "/data")
        self.metadata = MetadataPublisher()
        log = await wait_opened(runtime, self.config)
        if self.segment_bytes is not None:
            log.update_config(replace(log.config, segment_bytes=self.segment_bytes))
        settings = QuorumSettings.from_config(
            self.config, MetaProperties("cluster", self.id, UUID(int=100 + self.id))
        )
        settings = settings._replace(me=settings.me._replace(id=self.id), may_vote=self.id in VOTERS)
        self.quorum = RaftDriver(
            runtime,
            log,
            settings=settings,
            policy=SnapshotPolicy.from_config(self.config),
            publisher=self.metadata,
            on_failure=lambda _, error: self.failures.append(error),
        )
        self.quorum.load()
        self.metadata.loaded()
        await self.quorum.start(self)
        broker = SimpleNamespace(
            runtime=runtime,
            quorum=self.quorum,
            metadata=self.metadata,
            cluster_id="cluster",
            forwarding=None,
            authorizer=None,
            quotas=None,
            telemetry=SimpleNamespace(forget=lambda _: None),
            share=SimpleNamespace(made=None),
            figures=RequestFigures(),
        )
        server = Server(
            runtime,
            self.config,
            cast(Any, broker),
            TaskScope("requests", lambda _, error: self.failures.append(error)),
        )
        await server.bind(Endpoint("CONTROLLER", self.host, self.port), CONTROLLER_REGISTRY)
        server.serve()
        self.is_up = True

    def on_leadership(self, leadership: Leadership) -> None:
        self.led.append(leadership)

    def on_cut(self) -> None:
        raise AssertionError("only a sole voter cuts off what it wrote")

    @property
    def image(self) -> MetadataImage:
        return self.metadata.image

    @property
    def leads(self) -> bool:
        return self.is_up and bool(self.led) and self.led[-1].leader_id == self.id

    @property
    def role(self) -> Role:
        return self.quorum._core.role

    def crash(self, *, power_loss: bool = True) -> None:
        self.is_up = False
        self.led.append(Leadership(-1, None))
        self.world.crash(self.host, power_loss=power_loss)

    async def restart(self) -> None:
        booting = self.world.restart(self.host)
        assert booting is not None
        await booting


class Nodes:
    def __init__(
        self,
        world: SimWorld,
        *,
        observer: bool = False,
        segment_bytes: int | None = None,
        **properties: str,
    ) -> None:
        ids = (*VOTERS, 4) if observer else VOTERS
        self.world = world
        self.all = [QuorumNode(world, node_id, segment_bytes, **properties) for node_id in ids]
        self.names = 0

    async def start(self) -> None:
        await asyncio.gather(*(self.world.start(node.host, node.boot) for node in self.all))

    @property
    def live(self) -> list[QuorumNode]:
        return [node for node in self.all if node.is_up]

    async def wait_leader(self, among: list[QuorumNode] | None = None) -> QuorumNode:
        async with asyncio.timeout(60):
            while True:
                leaders = [node for node in among or self.live if node.leads and node.role is Role.LEADER]
                if leaders:
                    return max(leaders, key=lambda node: node.quorum.epoch)
                await asyncio.sleep(0.01)

    async def create_topic(self, node: QuorumNode | None = None) -> str:
        """Committed when it returns. Those that were refused on the way may be there as well."""
        while True:
            self.names += 1
            record = TopicRecord(name=f"topic-{self.names}", topic_id=UUID(int=1000 + self.names))
            leader = node or await self.wait_leader()
            try:
                await self.world.spawn(leader.host, self._append(leader, record))
            except (NotController, asyncio.CancelledError):
                if node is not None:
                    raise
                await asyncio.sleep(0.05)
            else:
                return record.name

    async def _append(self, node: QuorumNode, record: TopicRecord) -> None:
        await node.quorum.append([record]).committed

    async def wait_converged(self) -> MetadataImage:
        async with asyncio.timeout(60):
            while True:
                leader = await self.wait_leader()
                images = [node.image for node in self.live]
                ends = {node.quorum.next_offset for node in self.live}
                if ends == {leader.quorum.next_offset} and all(
                    image.offset == leader.quorum.next_offset - 1 for image in images
                ):
                    assert all(set(image.topics) == set(images[0].topics) for image in images)
                    return images[0]
                await asyncio.sleep(0.02)

    def check_no_failures(self) -> None:
        assert [node.failures for node in self.all] == [[]] * len(self.all)
