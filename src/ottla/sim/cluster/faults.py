"""What goes wrong in a cluster: processes, links, disks and clocks, two kinds of it at a time.

Nothing that Kafka's rules do not promise to survive: power is only cut where another replica in sync has
everything in memory, and until the node is back nobody else is killed. Processes may die in any number: what
they wrote is in their kernels.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import get_args

from ottla.sim.cluster.machines import DATA_DIR, host_of
from ottla.sim.cluster.session import ClusterSession
from ottla.sim.disk import Operation

WORLD = "world"
WAIT_HEALTHY_MAX_S = 8.0
RETURN_MAX_S = 60.0
OPERATIONS_BEFORE_CUT_MAX = 30
OPERATIONS: tuple[Operation, ...] = get_args(Operation)
ERRORS_MANY = 100_000


class Faults:
    def __init__(self, session: ClusterSession) -> None:
        self._session = session
        self._machines = session.machines
        self._world = session.world
        self.rotten = session.world.random("rot").choice(session.machines.shape.broker_ids)
        """The node whose disk forgets, where one does."""
        self._is_calm = asyncio.Event()
        self._is_calm.set()

    async def strike_processes(self) -> None:
        await self._strike(
            "processes",
            self._session.mix.faults,
            {
                "kill": self._kill,
                "kill_leader": self._kill_leader,
                "kill_controller": self._kill_controller,
                "kill_several": self._kill_several,
                "cut_power": self._cut_power,
                "stop": self._stop,
                "roll": self._roll,
                "kill_rotten": lambda chance: self._bounce(chance, self.rotten),
                "stop_rotten": lambda chance: self._stop_node(chance, self.rotten),
                "pause_short": lambda chance: self._pause(chance, 0.3, 2.5),
                "pause_long": lambda chance: self._pause(chance, 3.5, 8.0),
            },
        )

    async def strike_the_world(self) -> None:
        await self._strike(
            WORLD,
            self._session.cluster_mix.world_faults,
            {
                "isolate": lambda chance: self._isolate(chance, one_way=False),
                "isolate_one_way": lambda chance: self._isolate(chance, one_way=True),
                "split": self._split,
                "part_two": self._part_two,
                "cut": self._cut,
                "slow_network": self._slow_network,
                "slow_disk": self._slow_disk,
                "fill": self._fill,
                "skew": self._skew,
                "rot": self._rot,
                "fail_disk": self._fail_disk,
            },
        )

    async def _strike(
        self,
        kind: str,
        weighted: Mapping[str, int],
        faults: Mapping[str, Callable[[random.Random], Awaitable[None]]],
    ) -> None:
        chance = self._world.random(f"faults/{kind}")
        names, weights = list(weighted), list(weighted.values())
        while names and await self._session.pause(chance, self._session.mix.fault_every_s):
            name = chance.choices(names, weights)[0]
            if kind == WORLD:
                await self._is_calm.wait()
            async with contextlib.nullcontext() if kind == WORLD else self._session.killing:
                self._world.trace.record("fault", name)
                self._session.counts[f"fault: {name}"] += 1
                await faults[name](chance)

    def undo(self) -> None:
        """Everything works again."""
        self._world.network.heal()
        self._world.network.slow_hosts.clear()
        for number in self._machines.shape.nodes:
            host = self._world.host(host_of(number))
            host.disk.make_room()
            host.disk.heal()
            host.offload.delay_range_s = (0.0, 0.002)
            self._world.crash_mid_operation(host.name, None)
            if number in self._machines.paused:
                self._machines.resume(number)
            self._machines.restart(number)

    # Processes.

    def _some_node(self, chance: random.Random) -> int:
        return chance.choice(self._machines.shape.nodes)

    async def _bounce(self, chance: random.Random, *numbers: int) -> None:
        for number in numbers:
            self._machines.crash(number, power_loss=False)
        await asyncio.sleep(chance.choice((0.05, 0.5, 2.0, 5.0)) * chance.random())
        for number in chance.sample(numbers, len(numbers)):
            self._machines.restart(number)
            await asyncio.sleep(chance.random() * 0.2)

    async def _kill(self, chance: random.Random) -> None:
        await self._bounce(chance, self._some_node(chance))

    async def _kill_leader(self, chance: random.Random) -> None:
        topics = self._machines.image().topics
        leaders = [
            part.leader for name in sorted(topics) for part in topics[name].partitions if part.leader >= 0
        ]
        await self._bounce(chance, chance.choice(leaders) if leaders else self._some_node(chance))

    async def _kill_controller(self, chance: random.Random) -> None:
        await self._bounce(chance, self._machines.controller() or self._some_node(chance))

    async def _kill_several(self, chance: random.Random) -> None:
        nodes = self._machines.shape.nodes
        await self._bounce(chance, *chance.sample(nodes, chance.randint(2, len(nodes))))

    async def _cut_power(self, chance: random.Random) -> None:
        if not self._session.keeps_eligible:
            self._is_calm.clear()
        try:
            await self._cut_power_of(chance, self._some_node(chance))
        finally:
            self._is_calm.set()

    async def _cut_power_of(self, chance: random.Random, number: int) -> None:
        if not await self._wait(lambda: self._may_lose_power(number)):
            self._session.counts["fault: cut_power: not now"] += 1
            return
        before = self._incarnation(number)
        if chance.random() < 0.5:
            operations = chance.randrange(OPERATIONS_BEFORE_CUT_MAX)
            await self._machines.cut_power_within(number, operations, chance.random())
        else:
            self._machines.crash(number, power_loss=True)
        await asyncio.sleep(chance.choice((0.1, 1.0, 6.0)) * chance.random())
        self._machines.restart(number)
        # Until the controller knows that its log may have lost its end.
        await self._wait(lambda: self._incarnation(number) != before, RETURN_MAX_S)

    def _incarnation(self, number: int) -> object:
        """Of a broker; a controller alone has no records to lose that others count on."""
        if number not in self._machines.shape.broker_ids:
            return self._machines.nodes.get(number)
        broker = self._machines.image().brokers.get(number)
        return None if broker is None else broker.incarnation_id

    def _may_lose_power(self, number: int) -> bool:
        controller = self._machines.controller()
        if controller is None or len(self._machines.nodes) < len(self._machines.shape.nodes):
            return False
        network = self._world.network
        if self._machines.paused or (network.is_parted and not self._session.keeps_eligible):
            return False
        image = self._machines.nodes[controller]._broker.metadata.image
        # What a killed node says of itself when it is back is yet to be counted.
        for broker_id in self._machines.shape.broker_ids:
            life = self._machines.nodes[broker_id]._life
            broker = image.brokers.get(broker_id)
            if life is None or broker is None or broker.epoch != life.epoch:
                return False
        least = 1 if self._session.keeps_eligible else 2
        parts = [part for topic in image.topics.values() for part in topic.partitions]
        return all(len({*part.isr} - {number}) >= least for part in parts)

    async def _wait(self, condition: Callable[[], bool], patience_s: float = WAIT_HEALTHY_MAX_S) -> bool:
        end = min(self._world.loop.time() + patience_s, self._session.ends_at)
        while not condition():
            if self._world.loop.time() > end:
                return False
            await asyncio.sleep(0.1)
        return True

    async def _stop(self, chance: random.Random) -> None:
        await self._stop_node(chance, self._some_node(chance))

    async def _stop_node(self, chance: random.Random, number: int) -> None:
        if await self._machines.stop(number):
            self._session.counts["fault: stop: in good order"] += 1
        await asyncio.sleep(2 * chance.random())
        self._machines.restart(number)

    async def _roll(self, chance: random.Random) -> None:
        for number in self._machines.shape.nodes:
            await self._machines.stop(number)
            self._machines.restart(number)
            await self._wait(lambda number=number: number in self._machines.nodes)  # type: ignore[misc]

    async def _pause(self, chance: random.Random, min_s: float, max_s: float) -> None:
        number = self._some_node(chance)
        if self._machines.is_up(number):
            self._machines.pause(number)
            await asyncio.sleep(chance.uniform(min_s, max_s))
            self._machines.resume(number)

    # Links.

    def _hosts(self) -> list[str]:
        return [host_of(number) for number in self._machines.shape.nodes]

    async def _apart(
        self, chance: random.Random, left: list[str], right: list[str], *, one_way: bool
    ) -> None:
        sides = [left, right]
        chance.shuffle(sides)
        self._world.network.partition(*sides, one_way=one_way)
        await asyncio.sleep(chance.choice((1.0, 4.0, 9.0)) * chance.random())
        self._world.network.heal()

    async def _isolate(self, chance: random.Random, *, one_way: bool) -> None:
        """One node from the others; clients may reach it all the same."""
        victim = chance.choice(self._hosts())
        await self._apart(
            chance, [victim], [host for host in self._hosts() if host != victim], one_way=one_way
        )

    async def _split(self, chance: random.Random) -> None:
        hosts = chance.sample(self._hosts(), len(self._hosts()))
        at = chance.randint(1, len(hosts) - 1)
        await self._apart(chance, hosts[:at], hosts[at:], one_way=False)

    async def _part_two(self, chance: random.Random) -> None:
        left, right = chance.sample(self._hosts(), 2)
        await self._apart(chance, [left], [right], one_way=chance.random() < 0.5)

    async def _cut(self, chance: random.Random) -> None:
        """Answers are lost, and clients ask again."""
        for _ in range(chance.randint(1, 4)):
            self._world.network.cut(chance.choice(self._hosts()))
            await asyncio.sleep(0.3 * chance.random())

    async def _slow_network(self, chance: random.Random) -> None:
        victim = chance.choice(self._hosts())
        self._world.network.slow_hosts[victim] = (0.0, chance.choice((0.05, 0.3, 1.0)))
        await asyncio.sleep(chance.uniform(0.5, 4))
        self._world.network.slow_hosts.clear()

    # Disks and clocks.

    async def _slow_disk(self, chance: random.Random) -> None:
        offload = self._world.host(chance.choice(self._hosts())).offload
        usual, offload.delay_range_s = offload.delay_range_s, (0.05, chance.choice((0.2, 1.0)))
        await asyncio.sleep(chance.uniform(0.5, 4))
        offload.delay_range_s = usual

    async def _fill(self, chance: random.Random) -> None:
        disk = self._machines.disk(self._some_node(chance))
        disk.fill(chance.choice((0, 500, 5000)))
        await asyncio.sleep(chance.uniform(0.5, 5))
        disk.make_room()

    async def _fail_disk(self, chance: random.Random) -> None:
        """One of a broker's disks answers with errors, once or for good, until it is mended and the broker
        is started again."""
        number = chance.choice(self._machines.shape.broker_ids)
        if number not in self._machines.nodes:
            return
        disk, path = self._machines.disk(number), chance.choice(self._machines.config(number).log_dirs)
        operations = chance.choice((*((each,) for each in OPERATIONS), OPERATIONS))
        times = chance.choice((1, 2, ERRORS_MANY))
        for operation in operations:
            disk.fail(operation, errno.EIO, path=f"{path}/", times=times)
        self._world.trace.record("fault", f"{'/'.join(operations)} fails in {path} of {host_of(number)}")
        await asyncio.sleep(chance.uniform(0.5, 6))
        if (node := self._machines.nodes.get(number)) and node._replicas.logs.failure_of(path):
            self._session.counts["fault: fail_disk: directory out of use"] += 1
        async with self._session.killing:
            if chance.random() < 0.5:
                await self._machines.stop(number)
            self._machines.crash(number, power_loss=False)
            self._machines.restart(number)

    async def _skew(self, chance: random.Random) -> None:
        self._world.host(chance.choice(self._hosts())).clock.skew_ms = chance.randint(-300_000, 300_000)

    async def _rot(self, chance: random.Random) -> None:
        """A bit of a replica flips, always on the same node, in what others have."""
        number = self.rotten
        files = {
            path: size
            for path, size in self._machines.disk(number).stored_files(DATA_DIR).items()
            if path.endswith(".log")
            and size
            and path.split("/")[2].rpartition("-")[0] in self._session.stable_topics
        }
        if files:
            path = chance.choice(sorted(files))
            self._machines.disk(number).corrupt(path, chance.randrange((files[path] + 1) // 2))
            self._world.trace.record("fault", f"rot in {path} of {host_of(number)}")
            self._session.counts["fault: rot: bits flipped"] += 1
            self._machines.harmed.add(number)
