"""A node that is nothing but its controller, on a host of the simulator: crash it, restart it, look at it."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from ottla.config import BrokerConfig
from ottla.controller.brokers import BrokerRegistration
from ottla.controller.controller import LocalController
from ottla.metadata.image import MetadataImage
from ottla.metadata.meta_properties import prepare
from ottla.metadata.publisher import MetadataPublisher
from ottla.metadata.records import Endpoint
from ottla.metadata.uuids import random_uuid
from ottla.raft.driver import RaftDriver
from ottla.raft.metadata_log import wait_opened
from ottla.raft.settings import QuorumSettings
from ottla.raft.snapshots import SnapshotPolicy
from ottla.runtime import Runtime
from ottla.sim.world import SimWorld

HOST = "node"
LOG_DIR = "/data/__cluster_metadata-0"
ENDPOINT = Endpoint(name="PLAINTEXT", host="localhost", port=9092, security_protocol=0)


def state(image: MetadataImage) -> MetadataImage:
    """What an image says, whichever offset it says it as of."""
    return replace(image, offset=0, epoch=0)


class MetadataNode:
    """`boot` runs again for each process; the attributes are those of the newest one."""

    def __init__(self, world: SimWorld, **properties: str) -> None:
        settings = {"node.id": "1", "log.dirs": "/data"}
        settings |= {name.replace("_", "."): value for name, value in properties.items()}
        self.world = world
        self.config = BrokerConfig.from_properties(settings)
        self.segment_bytes: int | None = None
        """Smaller than the configuration allows, to see segments come and go."""
        self.clean_shutdown = True
        """What the broker says of its logs when it registers."""
        self.failures: list[BaseException] = []
        self.metadata: MetadataPublisher
        self.quorum: RaftDriver
        self.controller: LocalController
        self.loaded: MetadataImage
        """What was on disk when the process started."""
        self.broker_epoch: int

    @property
    def image(self) -> MetadataImage:
        return self.metadata.image

    async def boot(self, runtime: Runtime) -> None:
        prepare(runtime.disk, runtime.random, self.config.log_dirs, self.config.node_id)
        log = await wait_opened(runtime, self.config)
        if self.segment_bytes is not None:
            log.update_config(replace(log.config, segment_bytes=self.segment_bytes))
        self.metadata = MetadataPublisher()
        self.quorum = RaftDriver(
            runtime,
            log,
            settings=QuorumSettings.sole(1),
            policy=SnapshotPolicy.from_config(self.config),
            publisher=self.metadata,
            on_failure=lambda _, failure: self.failures.append(failure),
        )
        self.quorum.load()
        self.metadata.loaded()
        self.controller = LocalController(runtime, self.config, self.quorum, self.metadata)
        await self.quorum.start(self.controller)
        self.loaded = self.metadata.image
        registration = BrokerRegistration(
            broker_id=1,
            incarnation_id=random_uuid(runtime.random),
            endpoints=(ENDPOINT,),
            directories=(UUID(int=200),),
            clean_shutdown=self.clean_shutdown,
        )
        self.broker_epoch = await self.controller.register_broker(registration)

    async def start(self) -> None:
        await self.world.start(HOST, self.boot)

    async def stop(self) -> None:
        """In good order; the process is then gone."""
        await self.world.spawn(HOST, self.quorum.close())
        self.world.crash(HOST, power_loss=False)

    async def restart(self) -> None:
        booting = self.world.restart(HOST)
        assert booting is not None
        await booting
