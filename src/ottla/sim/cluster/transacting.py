"""Transactional producers, with records in several partitions and offsets of a group; some are two under one
id, and each the other's zombie."""

from __future__ import annotations

import asyncio
import random

from ottla.sim.client import RequestFailed
from ottla.sim.cluster.session import PARTITIONS, TRANSACTIONAL, ClusterSession
from ottla.sim.transaction_checkers import Ended, Ending, Trying, Written
from ottla.sim.transactions import NEW, OLD, SimProducer

PATIENCE_S = 12.0
TIMEOUT_MS = 6000


def group_of(name: str) -> str:
    return f"offsets-of-{name}"


class Transacting:
    def __init__(self, session: ClusterSession) -> None:
        self._session = session

    def transactional_id(self, number: int) -> str:
        """The last of three has the id of the first."""
        return f"x{number % 2}"

    async def transact(self, number: int) -> None:
        session = self._session
        name = f"transactor{number}"
        chance = session.world.random(name)
        count = 0
        producer: SimProducer | None = None
        while await session.pause(chance, 0.3):
            count += 1
            try:
                async with asyncio.timeout(PATIENCE_S):
                    if producer is None:
                        producer = SimProducer(
                            session.world.runtime(name),
                            session.client(name),
                            self.transactional_id(number),
                            versions=chance.choice((OLD, NEW)),
                            timeout_ms=TIMEOUT_MS,
                        )
                        await producer.init()
                    await self._transaction(producer, name, count, chance)
            except (RequestFailed, TimeoutError, OSError) as error:
                why = error.code.name if isinstance(error, RequestFailed) else "time is up"
                session.counts[f"transaction: given up, {why}"] += 1
                producer = None

    async def _transaction(self, producer: SimProducer, name: str, count: int, chance: random.Random) -> None:
        session, history = self._session, self._session.transactions
        transaction = f"{name}-{count}"
        for part in range(chance.randint(1, 3)):
            where = (TRANSACTIONAL, chance.randrange(PARTITIONS))
            value = f"{transaction}-{part}".encode()
            history.observe(Trying(transaction, where, value))
            await producer.send(*where, [value])
            history.observe(Written(transaction, where, value))
        if chance.random() < 0.5:
            await producer.send_offsets(group_of(name), TRANSACTIONAL, {0: count})
            history.observe(Written(transaction, group_of(name), count))
        committed = chance.random() < 0.7
        history.observe(Ending(transaction, committed))
        await producer.end(committed=committed)
        history.observe(Ended(transaction, committed))
        session.counts["transaction: committed" if committed else "transaction: aborted"] += 1

    async def settle(self) -> None:
        """Successors end what their predecessors have left open."""
        for number in range(self._session.cluster_mix.transactional_writers):
            name = f"successor{number}"
            producer = SimProducer(
                self._session.world.runtime(name),
                self._session.client(name),
                self.transactional_id(number),
                timeout_ms=TIMEOUT_MS,
            )
            await producer.init()
