"""Transactions of a whole broker through crashes: all of a transaction or nothing, and nothing left open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.end_txn.v5.request import EndTxnRequest
from kio.schema.fetch.v11.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
from kio.schema.init_producer_id.v5.request import InitProducerIdRequest
from kio.schema.produce.v12.request import PartitionProduceData, ProduceRequest, TopicProduceData

from ottla.coordinator.transactions.markers import MarkerWriter
from ottla.records.batch import iter_headers
from ottla.records.markers import read_marker
from ottla.records.records import Record, encode_batch, iter_records
from ottla.sim.broker import PORT, broker
from ottla.sim.client import SimClient
from ottla.sim.faults import RandomCrashes, RandomCuts, SlowDisk, inject
from ottla.sim.world import SimWorld, simulate
from ottla.wire.errors import ErrorCode

PARTITIONS = 3
TRANSACTIONS = 12
SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
FLUSHED = {**SETTINGS, "log.flush.interval.messages": "1"}


class Violation(AssertionError):
    pass


class Unanswered(Exception):
    pass


class Producer:
    """One transaction after the other, to all partitions; whatever goes wrong, it begins anew."""

    def __init__(self, world: SimWorld, host: str) -> None:
        self.runtime = world.runtime(host)
        self.client = SimClient(self.runtime, "b1", PORT, timeout_s=3)
        self.name = host
        self.identity: tuple[int, int] | None = None
        self.wishes: dict[str, bool | None] = {}
        """What was asked for each transaction; None where it did not come to that."""
        self.acknowledged: set[str] = set()

    async def run(self) -> None:
        for number in range(TRANSACTIONS):
            name = f"{self.name}-{number}"
            self.wishes[name] = None
            try:
                await self._transaction(name, committed=self.runtime.random.random() < 0.7)
            except (OSError, Unanswered):
                self.identity = None
            await asyncio.sleep(self.runtime.random.random() / 3)

    async def _transaction(self, name: str, *, committed: bool) -> None:
        while self.identity is None:
            await self._init()
        for partition in range(PARTITIONS):
            await self._write(partition, name)
            await asyncio.sleep(self.runtime.random.random() / 20)
        self.wishes[name] = committed
        producer_id, epoch = self.identity
        ended = await self.client.send(
            EndTxnRequest(
                transactional_id=self.name,  # type: ignore[arg-type]
                producer_id=producer_id,  # type: ignore[arg-type]
                producer_epoch=epoch,  # type: ignore[arg-type]
                committed=committed,
            )
        )
        if ended.error_code is not ErrorCode.none:
            raise Unanswered
        self.acknowledged.add(name)
        self.identity = (ended.producer_id, ended.producer_epoch)

    async def _init(self) -> None:
        try:
            await self.client.send(
                FindCoordinatorRequest(key_type=1, coordinator_keys=(self.name,))  # type: ignore[arg-type]
            )
            reply = await self.client.send(
                InitProducerIdRequest(
                    transactional_id=self.name,  # type: ignore[arg-type]
                    transaction_timeout=timedelta(seconds=20),  # type: ignore[arg-type]
                    producer_id=-1,  # type: ignore[arg-type]
                    producer_epoch=-1,  # type: ignore[arg-type]
                )
            )
        except OSError:
            await asyncio.sleep(0.1)
            return
        if reply.error_code is ErrorCode.none:
            self.identity = (reply.producer_id, reply.producer_epoch)
        else:
            await asyncio.sleep(0.05)

    async def _write(self, partition: int, value: str) -> None:
        assert self.identity is not None
        producer_id, epoch = self.identity
        batch = encode_batch(
            [Record(None, value.encode(), self.runtime.clock.now_ms())],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=0,
            transactional=True,
        )
        data: Any = PartitionProduceData(index=partition, records=batch)  # type: ignore[arg-type]
        reply = await self.client.send(
            ProduceRequest(
                transactional_id=self.name,  # type: ignore[arg-type]
                acks=-1,  # type: ignore[arg-type]
                timeout=timedelta(seconds=3),  # type: ignore[arg-type]
                topic_data=(TopicProduceData(name="t", partition_data=(data,)),),  # type: ignore[arg-type]
            )
        )
        if reply.responses[0].partition_responses[0].error_code is not ErrorCode.none:
            raise Unanswered


async def outcomes(client: SimClient, partition: int) -> dict[str, bool]:
    """By transaction, as the markers of the partition have it."""
    found: dict[str, bool] = {}
    open_values: dict[int, list[str]] = {}
    offset = 0
    while True:
        wanted: Any = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)  # type: ignore[arg-type]
        reply = await client.send(
            FetchRequest(
                max_wait=timedelta(0),  # type: ignore[arg-type]
                min_bytes=0,  # type: ignore[arg-type]
                topics=(FetchTopic(topic="t", partitions=(wanted,)),),  # type: ignore[arg-type]
                forgotten_topics_data=(),
            )
        )
        data = reply.responses[0].partitions[0].records or b""
        if not data:
            break
        for at, header in iter_headers(data):
            batch = data[at : at + header.size]
            offset = header.last_offset + 1
            if not header.is_control:
                values = [(record.value or b"").decode() for record in iter_records(batch)]
                open_values.setdefault(header.producer_id, []).extend(values)
            elif (marker := read_marker(batch)) is not None:
                for value in open_values.pop(marker.producer_id, []):
                    found[value] = marker.committed
    if any(open_values.values()):
        raise Violation(f"EveryTransactionEnds: {open_values} on partition {partition}")
    return found


def transact_through_faults(
    settings: dict[str, str], *, power_loss: bool
) -> Callable[[SimWorld], Coroutine[Any, Any, None]]:
    async def scenario(world: SimWorld) -> None:
        world.start("b1", broker(settings))
        await asyncio.sleep(1)
        admin = SimClient(world.runtime("admin"), "b1", PORT)
        await admin.create_topic("t", partitions=PARTITIONS)
        producers = [Producer(world, host) for host in ("c1", "c2")]
        faults = (
            RandomCrashes("b1", every_s=2, down_s=0.3, power_loss=power_loss),
            RandomCuts("b1", every_s=4),
            SlowDisk("b1", (0.0, 0.02)),
        )
        async with inject(world, *faults):
            await asyncio.gather(*(producer.run() for producer in producers))
        await asyncio.sleep(60)
        reader = SimClient(world.runtime("reader"), "b1", PORT)
        found = [await outcomes(reader, partition) for partition in range(PARTITIONS)]
        for producer in producers:
            check(producer, found)

    return scenario


def check(producer: Producer, found: list[dict[str, bool]]) -> None:
    for name, wish in producer.wishes.items():
        told = [partition.get(name) for partition in found]
        known = {outcome for outcome in told if outcome is not None}
        if len(known) > 1 or (True in known and None in told):
            raise Violation(f"TwoOutcomesOfATransaction: {name} ended as {told}")
        if True in known and wish is not True:
            raise Violation(f"TwoOutcomesOfATransaction: {name} was committed and not meant to be")
        if name in producer.acknowledged and known != {wish}:
            raise Violation(f"TwoOutcomesOfATransaction: {name} was acknowledged as {wish}, ended as {told}")


@pytest.mark.parametrize("seed", range(5))
def test_killing_the_process_breaks_no_transaction(seed: int) -> None:
    simulate(transact_through_faults(SETTINGS, power_loss=False), seed=seed)


@pytest.mark.parametrize("seed", range(5))
def test_power_cuts_break_no_transaction_where_all_is_flushed(seed: int) -> None:
    simulate(transact_through_faults(FLUSHED, power_loss=True), seed=seed)


def test_a_broker_that_forgets_a_partition_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    write = MarkerWriter.write

    def forgetful(self: MarkerWriter, partition: int, decided: Any) -> None:
        write(self, partition, decided._replace(partitions=decided.partitions[1:]))

    monkeypatch.setattr(MarkerWriter, "write", forgetful)
    with pytest.raises(Violation, match=r"EveryTransactionEnds|TwoOutcomesOfATransaction"):
        simulate(transact_through_faults(SETTINGS, power_loss=False), seed=1)
