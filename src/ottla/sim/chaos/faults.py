"""What goes wrong: the broker is killed and unplugged, its disk is full, damaged, obstructed or not there."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Awaitable, Callable

from ottla.metadata.internal_topics import OFFSETS_TOPIC, TRANSACTION_TOPIC
from ottla.sim.chaos.administration import Administration
from ottla.sim.chaos.session import INTERNAL_TOPICS, NAMES, BrokerSession, Unanswered
from ottla.sim.client import Client, RequestFailed

DATA_DIR = "/data"
METADATA_DIR = "/meta"


class Faults:
    def __init__(self, session: BrokerSession, administration: Administration) -> None:
        self._session = session
        self._administration = administration

    async def break_things(self) -> None:
        chance = self._session.world.random("faults")
        client = self._session.client("faults")
        faults: dict[str, Callable[[Client, random.Random], Awaitable[None]]] = {
            "kill": self._kill,
            "cut_power": self._cut_power,
            "restart": self._restart,
            "fill": self._fill,
            "obstruct": self._obstruct,
            "deny": self._deny,
            "rot_offsets": lambda client, chance: self._rot(chance, OFFSETS_TOPIC),
            "rot_transactions": lambda client, chance: self._rot(chance, TRANSACTION_TOPIC),
            "rot_data": lambda client, chance: self._rot(chance, chance.choice(NAMES)),
            "unmount": self._unmount,
        }
        names, weights = list(self._session.mix.faults), list(self._session.mix.faults.values())
        while await self._session.pause(chance, self._session.mix.fault_every_s):
            name = chance.choices(names, weights)[0]
            self._session.world.trace.record("chaos", name)
            self._session.counts[f"fault: {name}"] += 1
            await faults[name](client, chance)

    async def _kill(self, client: Client, chance: random.Random) -> None:
        await self._session.bounce(chance, "kill")

    async def _cut_power(self, client: Client, chance: random.Random) -> None:
        await self._session.bounce(chance, "cut")

    async def _restart(self, client: Client, chance: random.Random) -> None:
        await self._session.bounce(chance, "stop")

    async def _fill(self, client: Client, chance: random.Random) -> None:
        self._session.machine.disk.fill(chance.choice((0, 300, 3000)))
        await asyncio.sleep(chance.uniform(0.5, 6))
        if chance.random() < 0.3:
            await self._session.go_down(chance, chance.choice(("stop", "kill", "cut")))
            # A start may wait for room.
            room = asyncio.ensure_future(self._make_room_after(chance.uniform(0.5, 20)))
            is_up = await self._session.come_up(may_refuse=True)
            await room
            if not is_up:
                self._session.counts["fault: fill: refused to start"] += 1
                await self._session.come_up()
        self._session.machine.disk.make_room()

    async def _make_room_after(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._session.machine.disk.make_room()

    async def _obstruct(self, client: Client, chance: random.Random) -> None:
        """Somebody's file lies where the directory of a new partition goes."""
        await self._create_in_the_way(client, chance, self._session.machine.disk.obstruct)

    async def _deny(self, client: Client, chance: random.Random) -> None:
        """Nothing can be made below the directory of a new partition."""
        await self._create_in_the_way(
            client,
            chance,
            lambda path: self._session.machine.disk.fail("open", errno.EACCES, path=path, times=1000),
        )
        await asyncio.sleep(chance.uniform(0, 2))
        self._session.machine.disk.heal()

    async def _create_in_the_way(
        self, client: Client, chance: random.Random, block: Callable[[str], None]
    ) -> None:
        absent = [
            name
            for name in NAMES
            if name not in self._session.promises.topics or self._session.promises.topics[name].is_gone
        ]
        if not absent:
            return
        name = chance.choice(absent)
        path = f"{DATA_DIR}/{name}-{chance.randrange(2)}"
        if path in self._session.machine.disk.stored_paths(DATA_DIR):
            return
        block(path)
        self._session.obstacles.add(path)
        try:
            await self._administration.create_named(client, chance, name)
        except (RequestFailed, Unanswered):
            return
        finally:
            if chance.random() < 0.5:
                await asyncio.sleep(chance.uniform(0, 2))
                self._session.machine.disk.clear(path)

    async def _rot(self, chance: random.Random, topic: str) -> None:
        """A bit of a segment flips; sooner or later the broker reads it again."""
        how = chance.choice(("stop", "stop", "kill", "cut", "live"))
        if how != "live":
            await self._session.go_down(chance, how)
        files = {
            path: size
            for path, size in self._session.machine.disk.stored_files(DATA_DIR).items()
            if path.startswith(f"{DATA_DIR}/{topic}-") and path.endswith(".log") and size
        }
        if files:
            path = chance.choice(sorted(files))
            self._session.machine.disk.corrupt(path, chance.randrange(files[path]))
            self._session.world.trace.record("chaos", f"rot in {path}")
            self._session.counts["fault: rot: bits flipped"] += 1
            if topic in INTERNAL_TOPICS:
                self._session.excuse_internal(topic)
            else:
                self._excuse_segment(path)
        if how != "live":
            await self._session.come_up()

    def _excuse_segment(self, path: str) -> None:
        directory, _, file = path.rpartition("/")
        name, _, partition = directory.rpartition("/")[2].rpartition("-")
        topic = self._session.promises.topics.get(name)
        if topic is not None and partition.isdigit():
            promises = topic.partition(int(partition))
            base_offset = int(file.partition(".")[0])
            rotten_before = promises.rotten_from
            promises.rotten_from = base_offset if rotten_before is None else min(base_offset, rotten_before)

    async def _unmount(self, client: Client, chance: random.Random) -> None:
        """The volume of the metadata is not there at the next start."""
        await self._session.go_down(chance, chance.choice(("stop", "kill")))
        self._session.machine.disk.unmount(METADATA_DIR)
        if await self._session.come_up(may_refuse=True, serve=False):
            await asyncio.sleep(chance.uniform(1, 20))
            self._session.machine.kill(power_loss=False)
        else:
            self._session.counts["fault: unmount: refused to start"] += 1
        self._session.machine.disk.mount(METADATA_DIR)
        await self._session.come_up()
