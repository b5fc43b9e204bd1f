"""Producers: plain ones, which give up on what they are not told of, and idempotent ones, which ask again."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
from typing import Any

from ottla.records.records import Record, encode_batch
from ottla.sim.chaos import requests
from ottla.sim.chaos.session import Unanswered
from ottla.sim.checkers import Acked, InvariantViolation, Sent
from ottla.sim.client import Client, RequestFailed
from ottla.sim.cluster.session import ONCE, PARTITIONS, PLAIN, ClusterSession
from ottla.wire.errors import ErrorCode

BACKOFF_S = 0.1
PRODUCE_VERSION = 9
# A producer that is refused so asks again, with the same sequence.
_PASSING = frozenset(
    {
        ErrorCode.not_leader_or_follower,
        ErrorCode.leader_not_available,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.not_enough_replicas,
        ErrorCode.not_enough_replicas_after_append,
        ErrorCode.request_timed_out,
        ErrorCode.kafka_storage_error,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
    }
)


class Writing:
    def __init__(self, session: ClusterSession) -> None:
        self._session = session

    async def write(self, name: str) -> None:
        """acks=all, each record once, with others waiting for their answers meanwhile."""
        session = self._session
        chance = session.world.random(name)
        clients = [session.client(f"{name}-{number}") for number in range(2)]
        number = 0
        while await session.pause(chance, 0.06):
            number += 1
            value = f"{name}/{number}".encode()
            where = (PLAIN, chance.randrange(PARTITIONS))
            session.history.observe(Sent(where, value))
            try:
                offset = await session.ask("produce", chance.choice(clients).produce(*where, [value]))
            except (RequestFailed, Unanswered):
                session.counts["retry: plain"] += 1
                continue
            session.history.observe(Acked(where, offset, value))
            session.counts["records acknowledged"] += 1


class IdempotentWriter:
    """One batch after the other to each partition, again and again until it is taken, sometimes twice at the
    same time."""

    def __init__(self, session: ClusterSession, name: str) -> None:
        self._session = session
        self._name = name
        self._random = session.world.random(name)
        first = session.client(f"{name}-0")
        self._clients = [first, session.client(f"{name}-1", routes=first.routes)]
        self._producer_id = -1
        self._sequences = [0] * PARTITIONS
        self._numbers = 0
        self._repetitions: set[asyncio.Task[Any]] = set()

    async def run(self) -> None:
        await self._init()
        await asyncio.gather(*(self._write(partition) for partition in range(PARTITIONS)))
        await asyncio.gather(*self._repetitions, return_exceptions=True)

    async def _init(self) -> None:
        module = requests.schema("init_producer_id", 4)
        request = module.InitProducerIdRequest(
            transactional_id=None, transaction_timeout=datetime.timedelta(0)
        )
        while True:
            try:
                answer = await self._session.ask("init_producer_id", self._clients[0].send(request))
            except Unanswered:
                await asyncio.sleep(BACKOFF_S)
                continue
            if answer.error_code is ErrorCode.none:
                self._producer_id = answer.producer_id
                return
            await asyncio.sleep(BACKOFF_S)

    async def _write(self, partition: int) -> None:
        history = self._session.history
        where = (ONCE, partition)
        while await self._session.pause(self._random, 0.08):
            self._numbers += 1
            value = f"{self._name}/{self._numbers}".encode()
            history.observe(Sent(where, value))
            request = self._request(partition, value)
            offset = await self._until_taken(request, partition)
            if offset is None:
                return
            self._sequences[partition] += 1
            if offset >= 0:
                history.observe(Acked(where, offset, value))
            self._session.counts["records acknowledged"] += 1

    def _request(self, partition: int, value: bytes) -> Any:
        module = requests.schema("produce", PRODUCE_VERSION)
        batch = encode_batch(
            [Record(None, value, self._session.now_ms())],
            producer_id=self._producer_id,
            producer_epoch=0,
            base_sequence=self._sequences[partition],
        )
        data = module.PartitionProduceData(index=partition, records=batch)
        return module.ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout=datetime.timedelta(seconds=2),
            topic_data=(module.TopicProduceData(name=ONCE, partition_data=(data,)),),
        )

    async def _until_taken(self, request: Any, partition: int) -> int | None:
        """Its offset, -1 where that is not known; None: the run is over and nobody knows."""
        while True:
            client = self._random.choice(self._clients)
            if self._random.random() < 0.15:
                self._repeat(request)
            try:
                answer = await client.send(request)
            except OSError:
                code = None
            else:
                outcome = answer.responses[0].partition_responses[0]
                code = outcome.error_code
                self._session.counts[f"produce once: {code.name}"] += 1
                if code is ErrorCode.none:
                    return int(outcome.base_offset)
                if code is ErrorCode.duplicate_sequence_number:
                    return -1
                if code not in _PASSING:
                    raise InvariantViolation(
                        "LostAcknowledgedWrite",
                        f"{ONCE}-{partition} refuses sequence {self._sequences[partition]} of {self._name}, "
                        f"before which all was acknowledged, with {code.name}",
                    )
            self._session.counts["retry: idempotent"] += 1
            if self._session.world.loop.time() > self._session.ends_at:
                return None
            await asyncio.sleep(BACKOFF_S)

    def _repeat(self, request: Any) -> None:
        """As a request that was thought lost and arrives late."""
        client = self._random.choice(self._clients)
        delay_s = self._random.choice((0.0, 0.5, 2.0)) * self._random.random()
        task = asyncio.ensure_future(_send_later(client, request, delay_s))
        self._repetitions.add(task)
        task.add_done_callback(self._repetitions.discard)


async def _send_later(client: Client, request: Any, delay_s: float) -> None:
    await asyncio.sleep(delay_s)
    with contextlib.suppress(OSError):
        await client.send(request)
