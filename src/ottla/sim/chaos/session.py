"""What everybody in a run shares: the broker, what it has promised, and how it is asked."""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable
from typing import TypeVar

from ottla.metadata.internal_topics import OFFSETS_TOPIC, TRANSACTION_TOPIC
from ottla.sim.broker import PORT
from ottla.sim.chaos.machine import HOST, Machine
from ottla.sim.chaos.mixes import Mix
from ottla.sim.chaos.promises import Promises, TopicPromises
from ottla.sim.checkers import InvariantViolation
from ottla.sim.client import Client, RequestFailed, SimClient
from ottla.sim.world import SimWorld
from ottla.wire.errors import ErrorCode

T = TypeVar("T")

NAMES = tuple(f"t{number}" for number in range(6))
"""Few, so that topics are made again under names that others had."""
GROUPS = ("g0", "g1", "g2")
KEYS = (b"a", b"b", b"c", b"d")
INTERNAL_TOPICS = (OFFSETS_TOPIC, TRANSACTION_TOPIC)

# The request may have been carried out, or may be yet.
DOUBTFUL = frozenset(
    {
        ErrorCode.request_timed_out,
        ErrorCode.kafka_storage_error,
        ErrorCode.unknown_server_error,
        ErrorCode.not_controller,
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.not_coordinator,
        ErrorCode.not_enough_replicas_after_append,
    }
)


class Unanswered(Exception):
    """Nobody knows whether the request was carried out."""


class Session(ABC):
    """Around a broker or around a cluster; who administers it need not know."""

    def __init__(self, world: SimWorld, mix: Mix) -> None:
        self.world = world
        self.mix = mix
        self.flushes_each = False
        """The brokers flush each record unless its topic says otherwise."""
        self.promises = Promises()
        self.ends_at = 0.0
        self.counts: Counter[str] = Counter()
        """Operations and how they ended, faults, records."""
        self.failed: asyncio.Future[InvariantViolation] = world.loop.create_future()
        """Done when something was seen that is forbidden."""
        self._numbers = 0

    def fail(self, checker: str, what: str, error: BaseException | None = None) -> None:
        if not self.failed.done():
            violation = InvariantViolation(checker, f"{what}: {error!r}" if error else what)
            violation.__cause__ = error
            self.failed.set_result(violation)

    # Asking.

    @abstractmethod
    def client(self, host: str, timeout_s: float = 5.0) -> Client: ...

    @abstractmethod
    async def pause(self, chance: random.Random, mean_s: float) -> bool:
        """False: the time is up."""

    async def ask(self, operation: str, request: Awaitable[T]) -> T:
        """RequestFailed: refused. Unanswered: who knows."""
        try:
            answer = await request
        except RequestFailed as error:
            self.counts[f"{operation}: {error.code.name}"] += 1
            if error.code in DOUBTFUL:
                raise Unanswered from error
            raise
        except OSError as error:
            self.counts[f"{operation}: unanswered"] += 1
            raise Unanswered from error
        self.counts[f"{operation}: ok"] += 1
        return answer

    def now_ms(self) -> int:
        return self.world.runtime("clients").clock.now_ms()

    # What there is.

    def some_topic(self, chance: random.Random) -> TopicPromises | None:
        there = [topic for topic in self.promises.topics.values() if not topic.is_gone]
        return chance.choice(there) if there else None

    def new_records(
        self, topic: TopicPromises, partition: int, chance: random.Random
    ) -> list[tuple[bytes, bytes]]:
        """As (key, value); each value once in a run."""
        pairs = []
        for _ in range(chance.randint(1, 3)):
            self._numbers += 1
            value = b"%s/%d/%d" % (topic.name.encode(), partition, self._numbers)
            pairs.append((chance.choice(KEYS), value))
        return pairs

    def excuse_internal(self, name: str) -> None:
        """A topic of the coordinators was damaged or deleted: what it held may be lost."""
        if name == OFFSETS_TOPIC:
            self.promises.offsets_excused = True


class BrokerSession(Session):
    def __init__(self, world: SimWorld, mix: Mix) -> None:
        super().__init__(world, mix)
        chance = world.random("chaos")
        properties = dict(mix.properties)
        self.flushes_each = chance.random() < mix.flushing
        if self.flushes_each:
            properties["log.flush.interval.messages"] = "1"
        if mix.contradictions and chance.random() < 0.5:
            properties["log.cleaner.max.compaction.lag.ms"] = "500"
        self.machine = Machine(world, properties, self.fail)
        self.promises.flushes_offsets = self.flushes_each
        self.obstacles: set[str] = set()
        """Paths that were blocked; to be cleared at the end."""
        self._clients: list[SimClient] = []

    def client(self, host: str, timeout_s: float = 5.0) -> SimClient:
        client = SimClient(self.world.runtime(host), HOST, PORT, timeout_s=timeout_s)
        self._clients.append(client)
        return client

    async def pause(self, chance: random.Random, mean_s: float) -> bool:
        await asyncio.sleep(chance.expovariate(1 / mean_s))
        await self.machine.is_serving.wait()
        return self.world.loop.time() < self.ends_at

    async def ask(self, operation: str, request: Awaitable[T]) -> T:
        """A connection lost without reason fails the run."""
        process = self.machine.processes
        try:
            return await super().ask(operation, request)
        except Unanswered as unanswered:
            error = unanswered.__cause__
            is_lost = isinstance(error, OSError) and not isinstance(error, TimeoutError)
            if is_lost and not self.machine.is_going_down and self.machine.processes == process:
                self.fail("NodeThatFails", f"the broker closed the connection of {operation}", error)
            raise

    # Up and down.

    async def go_down(self, chance: random.Random, how: str) -> None:
        if how == "stop":
            has_room = not self.machine.disk.is_limited
            await self.machine.stop(may_fail=not has_room)
            if has_room:
                self.promises.stopped()
        elif how == "kill":
            self.machine.kill(power_loss=False)
        elif chance.random() < 0.5:
            self.machine.kill(power_loss=True)
            self.promises.power_was_cut()
        else:
            await self.machine.cut_power_within(chance.randrange(20))
            self.promises.power_was_cut()

    async def come_up(self, *, may_refuse: bool = False, serve: bool = True) -> bool:
        started = await self.machine.start(may_refuse=may_refuse)
        for client in self._clients:
            client.close()
        if started and serve:
            self.machine.serve()
        return started

    async def bounce(self, chance: random.Random, how: str) -> None:
        await self.go_down(chance, how)
        await asyncio.sleep(chance.random())
        await self.come_up()
