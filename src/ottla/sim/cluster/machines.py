"""The machines of a cluster: nodes that are started, stopped, killed, unplugged and paused, and never end by
themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ottla.config import BrokerConfig
from ottla.metadata.image import MetadataImage
from ottla.metadata.meta_properties import examine
from ottla.metadata.uuids import random_uuid
from ottla.node import Node
from ottla.raft.formatting import write_bootstrap_snapshot
from ottla.raft.voters import SUPPORTED, Listener, ReplicaKey, Voter, VoterSet
from ottla.runtime import Runtime
from ottla.sim.disk import SimDisk
from ottla.sim.world import Boot, SimWorld

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
PORT = 9092
CONTROLLER_PORTS = (9093, 9193)
"""A controller listens on one of them, and may move to the other when it starts again."""
CONTROLLER_LISTENER = "CONTROLLER"
DATA_DIR = "/data"
METADATA_DIR = "/meta"
STOP_MAX_S = 40.0


@dataclass(frozen=True, slots=True)
class Shape:
    """So many brokers; the quorum is all of them, or so many nodes of its own, which come first."""

    brokers: int = 3
    controllers: int = 0
    first_voters: int = 0
    """The voters are in the log, and so many nodes of the quorum are the first. 0: all of them are, for good,
    by configuration."""

    @property
    def nodes(self) -> range:
        return range(1, self.controllers + self.brokers + 1)

    @property
    def broker_ids(self) -> range:
        return range(self.controllers + 1, self.controllers + self.brokers + 1)

    @property
    def quorum(self) -> range:
        """Who may vote."""
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
        chance = world.random("directories")
        self._first_directories = {
            number: random_uuid(chance) for number in shape.quorum[: shape.first_voters]
        }
        self._formatted: set[int] = set()
        """Nodes that have had a directory; one that loses it does not get its first id again."""
        self._has_empty_disk: set[int] = set()
        self.controller_ports = dict.fromkeys(shape.quorum, CONTROLLER_PORTS[0])

    @property
    def first_voters(self) -> list[ReplicaKey]:
        """Where the voters are in the log."""
        return [ReplicaKey(*first) for first in self._first_directories.items()]

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
        is_controller = number in self.shape.quorum
        is_broker = number in self.shape.broker_ids
        listeners = [f"PLAINTEXT://:{PORT}"] * is_broker
        if is_controller:
            listeners.append(f"{CONTROLLER_LISTENER}://:{self.controller_ports[number]}")
        own = {
            "node.id": str(number),
            "process.roles": ",".join(["broker"] * is_broker + ["controller"] * is_controller),
            "listeners": ",".join(listeners),
            "controller.listener.names": CONTROLLER_LISTENER,
            "metadata.log.dir": METADATA_DIR,
            **self._quorum_properties(),
        }
        if is_broker:
            own["advertised.listeners"] = f"PLAINTEXT://{host_of(number)}:{PORT}"
        return BrokerConfig.from_properties({"log.dirs": DATA_DIR, **self._properties, **own})

    def _quorum_properties(self) -> dict[str, str]:
        if self._first_directories:
            places = [f"{host_of(each)}:{port}" for each in self.shape.quorum for port in CONTROLLER_PORTS]
            return {"controller.quorum.bootstrap.servers": ",".join(places)}
        voters = [f"{each}@{host_of(each)}:{port}" for each, port in self.controller_ports.items()]
        return {"controller.quorum.voters": ",".join(voters)}

    async def start_all(self) -> None:
        for number in self.shape.nodes:
            self._follow(number, self._world.start(host_of(number), self._boot_of(number)))
        while len(self.nodes) < len(self.shape.nodes):  # noqa: ASYNC110 - they tell nobody
            await asyncio.sleep(0.05)

    def _boot_of(self, number: int) -> Boot:
        async def boot(runtime: Runtime) -> None:
            config = self.config(number)
            self._format(runtime, number, config)
            node = Node(runtime, config)
            await node.start()
            self.nodes[number] = node
            error = await node.wait_failed()
            self._fail("NodeThatFails", f"node {number} gave up", error)

        return boot

    def _format(self, runtime: Runtime, number: int, config: BrokerConfig) -> None:
        """As `kafka-storage format` does; what is formatted already is left alone."""
        if number in self._formatted and number not in self._has_empty_disk:
            return
        disk = runtime.disk
        found = examine(disk, runtime.random, [*config.log_dirs, METADATA_DIR], number, CLUSTER_ID)
        if self._first_directories and number in self.shape.quorum and METADATA_DIR in found.new:
            voters = VoterSet()
            directory_id = None if number in self._formatted else self._first_directories.get(number)
            if directory_id is not None:
                found.new[METADATA_DIR] = found.new[METADATA_DIR]._replace(directory_id=directory_id)
                voters = VoterSet(
                    Voter(key, (self.controller_listener(key.id),), SUPPORTED) for key in self.first_voters
                )
            write_bootstrap_snapshot(disk, METADATA_DIR, 1, voters, runtime.clock.now_ms())
        found.write_new(disk)
        self._formatted.add(number)
        self._has_empty_disk.discard(number)

    def controller_listener(self, number: int) -> Listener:
        return Listener(CONTROLLER_LISTENER, host_of(number), self.controller_ports[number])

    def replica_key(self, number: int) -> ReplicaKey | None:
        """As which it votes, or could; None while it is not up."""
        node = self.nodes.get(number)
        return None if node is None else node._broker.quorum.settings.me

    def lose_metadata(self, number: int) -> None:
        """Of a node that is down: it gets an empty disk, which is formatted at the next start."""
        self.disk(number).unmount(METADATA_DIR)
        self._has_empty_disk.add(number)

    def move_controller(self, number: int) -> None:
        """Of a node that is down: it listens for the quorum elsewhere when it starts."""
        here = CONTROLLER_PORTS.index(self.controller_ports[number])
        self.controller_ports[number] = CONTROLLER_PORTS[1 - here]

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
            # Whoever starts a broker has looked after its disks: with one that fails it does not start.
            self.disk(number).heal()
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
            if number in self.shape.quorum and node._broker.quorum.leadership.leader_id == number
        ]
        return max(active)[1] if active else None

    def image(self) -> MetadataImage:
        """The newest that anybody has published."""
        images = [node._broker.metadata.image for node in self.nodes.values()]
        return max(images, key=lambda image: image.offset, default=MetadataImage())
