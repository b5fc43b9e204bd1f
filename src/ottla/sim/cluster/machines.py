"""The machines of a cluster: nodes that are started, stopped, killed, unplugged and paused, and never end by
themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ottla.config import BrokerConfig
from ottla.metadata.image import MetadataImage
from ottla.metadata.meta_properties import prepare
from ottla.node import Node
from ottla.runtime import Runtime
from ottla.sim.disk import SimDisk
from ottla.sim.world import Boot, SimWorld

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
PORT = 9092
CONTROLLER_PORT = 9093
STOP_MAX_S = 40.0


@dataclass(frozen=True, slots=True)
class Shape:
    """So many brokers; the quorum is all of them, or so many nodes of its own, which come first."""

    brokers: int = 3
    controllers: int = 0

    @property
    def nodes(self) -> range:
        return range(1, self.controllers + self.brokers + 1)

    @property
    def broker_ids(self) -> range:
        return range(self.controllers + 1, self.controllers + self.brokers + 1)

    @property
    def voters(self) -> range:
        return range(1, self.controllers + 1) if self.controllers else self.nodes


def host_of(number: int) -> str:
    return f"n{number}"


class Machines:
    def __init__(
        self,
        world: SimWorld,
        shape: Shape,
        properties: Mapping[str, str],
        fail: Callable[[str, str, BaseException | None], None],
    ) -> None:
        self.shape = shape
        self.nodes: dict[int, Node] = {}
        """Those whose start is over."""
        self.paused: set[int] = set()
        self.harmed: set[int] = set()
        """Those whose disk has lost or forgotten something in this run."""
        self._world = world
        self._properties = dict(properties)
        self._fail = fail
        self._stopping: set[int] = set()

    @property
    def addresses(self) -> list[tuple[str, int]]:
        return [(host_of(number), PORT) for number in self.shape.broker_ids]

    def disk(self, number: int) -> SimDisk:
        return self._world.host(host_of(number)).disk

    def is_harmed(self, host: str) -> bool:
        return any(host_of(number) == host for number in self.harmed)

    def is_up(self, number: int) -> bool:
        """Its process runs; it may not have started yet."""
        return self._world.host(host_of(number)).is_running and number not in self._stopping

    def config(self, number: int) -> BrokerConfig:
        is_voter = number in self.shape.voters
        is_broker = number in self.shape.broker_ids
        listeners = [f"PLAINTEXT://:{PORT}"] * is_broker + [f"CONTROLLER://:{CONTROLLER_PORT}"] * is_voter
        voters = ",".join(f"{each}@{host_of(each)}:{CONTROLLER_PORT}" for each in self.shape.voters)
        own = {
            "node.id": str(number),
            "process.roles": ",".join(["broker"] * is_broker + ["controller"] * is_voter),
            "listeners": ",".join(listeners),
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "log.dirs": "/data",
            "metadata.log.dir": "/meta",
        }
        if is_broker:
            own["advertised.listeners"] = f"PLAINTEXT://{host_of(number)}:{PORT}"
        return BrokerConfig.from_properties({**self._properties, **own})

    async def start_all(self) -> None:
        for number in self.shape.nodes:
            self._follow(number, self._world.start(host_of(number), self._boot_of(number)))
        while len(self.nodes) < len(self.shape.nodes):  # noqa: ASYNC110 - they tell nobody
            await asyncio.sleep(0.05)

    def _boot_of(self, number: int) -> Boot:
        config = self.config(number)

        async def boot(runtime: Runtime) -> None:
            directories = [*config.log_dirs, config.metadata_log_dir]
            prepare(runtime.disk, runtime.random, directories, number, CLUSTER_ID)
            node = Node(runtime, config)
            await node.start()
            self.nodes[number] = node
            error = await node.wait_failed()
            self._fail("NodeThatFails", f"node {number} gave up", error)

        return boot

    def _follow(self, number: int, outcome: asyncio.Future[None]) -> None:
        def ended(_: object) -> None:
            if not outcome.cancelled() and (error := outcome.exception()) is not None:
                self._fail("NodeThatFails", f"node {number} does not start", error)

        outcome.add_done_callback(ended)

    def crash(self, number: int, *, power_loss: bool) -> None:
        self.nodes.pop(number, None)
        self.paused.discard(number)
        if power_loss:
            self.harmed.add(number)
        self._world.crash(host_of(number), power_loss=power_loss)

    async def cut_power_within(self, number: int, operations: int, patience_s: float) -> None:
        """In the middle of what it does to its disk."""
        host = self._world.host(host_of(number))
        self._world.crash_mid_operation(host.name, operations)
        try:
            async with asyncio.timeout(patience_s):
                await host.died.wait()
        except TimeoutError:
            pass
        self.crash(number, power_loss=True)

    def restart(self, number: int) -> None:
        if not self._world.host(host_of(number)).is_running:
            outcome = self._world.restart(host_of(number))
            assert outcome is not None
            self._follow(number, outcome)

    async def stop(self, number: int, patience_s: float = STOP_MAX_S) -> bool:
        """In good order. False: it took too long, and was killed; it may wait for others."""
        node = self.nodes.pop(number, None)
        if node is None:
            return False
        self._stopping.add(number)
        stopping = self._world.spawn(host_of(number), node.stop())
        try:
            async with asyncio.timeout(patience_s):
                await asyncio.shield(stopping)
            return True
        except TimeoutError:
            return False
        except asyncio.CancelledError:
            # Somebody else killed it, or the run is over.
            if stopping.cancelled():
                return False
            raise
        except Exception as error:
            if not self.disk(number).is_limited:
                self._fail("NodeThatFails", f"stopping node {number} failed", error)
            return False
        finally:
            self._stopping.discard(number)
            self.crash(number, power_loss=False)

    def pause(self, number: int) -> None:
        self.paused.add(number)
        self._world.pause(host_of(number))

    def resume(self, number: int) -> None:
        self.paused.discard(number)
        self._world.resume(host_of(number))

    # What the cluster knows.

    def controller(self) -> int | None:
        """Of several that take themselves for it, the newest."""
        active = [
            (node._broker.quorum.epoch, number)
            for number, node in self.nodes.items()
            if number in self.shape.voters and node._broker.quorum.leadership.leader_id == number
        ]
        return max(active)[1] if active else None

    def image(self) -> MetadataImage:
        """The newest that anybody has published."""
        images = [node._broker.metadata.image for node in self.nodes.values()]
        return max(images, key=lambda image: image.offset, default=MetadataImage())
