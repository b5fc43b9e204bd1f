"""Transactions of a whole broker through crashes, cuts, zombies and abandoned producers.

Each invariant is shown to notice a broker that breaks it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from importlib import import_module
from typing import Any

import pytest

from ottla.log.log import PartitionLog
from ottla.replication.partition import Partition
from ottla.sim.broker import PORT, broker
from ottla.sim.checkers import InvariantViolation
from ottla.sim.client import RequestFailed, SimClient
from ottla.sim.faults import RandomCrashes, RandomCuts, SlowDisk, inject
from ottla.sim.transaction_checkers import (
    AbortedRead,
    Ended,
    Ending,
    LastStableOffsetGoingBack,
    Logged,
    OffsetSeen,
    Read,
    Seen,
    StableOffset,
    TornTransaction,
    TransactionChecker,
    TransactionHistory,
    Trying,
    TwoOutcomesOfATransaction,
    Written,
)
from ottla.sim.transactions import NEW, OLD, SimProducer, Versions, read_log, read_stable
from ottla.sim.world import SimWorld, simulate

PARTITIONS = 2
TRANSACTIONS = 8
ABANDONED_MS = 2_000
SETTINGS = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
# Host, transactional id, protocol. The last two share an id: each is the other's zombie.
PRODUCERS = [("c1", "c1", OLD), ("c2", "c2", NEW), ("c3", "c3", NEW), ("c4", "c3", OLD)]

Scenario = Callable[[SimWorld], Coroutine[Any, Any, str]]


class Run:
    def __init__(self, world: SimWorld, history: TransactionHistory) -> None:
        self.world = world
        self.history = history
        self.counts: dict[str, int] = {}

    def client(self, host: str) -> SimClient:
        return SimClient(self.world.runtime(host), "b1", PORT, timeout_s=3)

    async def produce(self, host: str, transactional_id: str, versions: Versions) -> None:
        runtime = self.world.runtime(host)
        chance = self.world.random(f"producer/{host}")
        producer = SimProducer(runtime, self.client(host), transactional_id, versions=versions)
        await producer.init()
        for number in range(1, TRANSACTIONS + 1):
            try:
                await self._transaction(producer, host, number, chance)
            except RequestFailed:
                # Fenced, or the transaction was ended under it: start over, as after a restart.
                await asyncio.sleep(chance.random())
                await producer.init()
            await asyncio.sleep(chance.random() / 2)

    async def _transaction(self, producer: SimProducer, host: str, number: int, chance: Any) -> None:
        name = f"{host}-{number}"
        for part in range(chance.randint(1, 3)):
            where = ("t", chance.randrange(PARTITIONS))
            value = f"{name}-{part}".encode()
            self.history.observe(Trying(name, where, value))
            await producer.send(*where, [value])
            self.history.observe(Written(name, where, value))
        if chance.random() < 0.7:
            await producer.send_offsets(f"group-{host}", "t", {0: number})
            self.history.observe(Written(name, f"group-{host}", number))
        committed = chance.random() < 0.7
        self.history.observe(Ending(name, committed))
        await producer.end(committed=committed)
        self.history.observe(Ended(name, committed))

    async def abandon(self, host: str) -> None:
        """Begins a transaction and is never heard of again."""
        producer = SimProducer(
            self.world.runtime(host), self.client(host), host, timeout_ms=ABANDONED_MS, versions=NEW
        )
        await producer.init()
        for partition in range(PARTITIONS):
            value = f"{host}-{partition}".encode()
            self.history.observe(Trying(host, ("t", partition), value))
            try:
                await producer.send("t", partition, [value])
            except RequestFailed:
                return  # its time was up already
            self.history.observe(Written(host, ("t", partition), value))

    async def read(self) -> None:
        client = self.client("reader")
        offsets = [0] * PARTITIONS
        while True:
            for partition in range(PARTITIONS):
                try:
                    stable = await read_stable(client, "t", partition, offsets[partition])
                except (OSError, RequestFailed):
                    continue
                self.history.observe(StableOffset(("t", partition), stable.last_stable_offset))
                for record in stable.records:
                    assert record.value is not None
                    self.history.observe(Read(("t", partition), record.offset, record.value))
                offsets[partition] = stable.next_offset
            await asyncio.sleep(0.05)

    async def settle(self) -> None:
        """Successors end what is left of their predecessors; time-outs end the rest."""
        for host, transactional_id, versions in PRODUCERS:
            runtime = self.world.runtime(host)
            await SimProducer(runtime, self.client(host), transactional_id, versions=versions).init()
        await asyncio.sleep(ABANDONED_MS / 1000 + 5)

    async def conclude(self) -> None:
        client = self.client("end")
        for partition in range(PARTITIONS):
            values, offset = [], 0
            while True:
                stable = await read_stable(client, "t", partition, offset)
                values += [record.value or b"" for record in stable.records]
                if stable.next_offset == offset:
                    break
                offset = stable.next_offset
            self.history.observe(Seen(("t", partition), tuple(values)))
            self.history.observe(Logged(("t", partition), tuple(await read_log(client, "t", partition))))
        for host, _, _ in PRODUCERS:
            self.history.observe(OffsetSeen(f"group-{host}", await self._offset(client, f"group-{host}")))
        self.history.check()

    async def _offset(self, client: SimClient, group: str) -> int:
        schema = import_module("kio.schema.offset_fetch.v7.request")
        response = await client.send(
            schema.OffsetFetchRequest(
                group_id=group,
                topics=(schema.OffsetFetchRequestTopic(name="t", partition_indexes=(0,)),),
                require_stable=True,
            )
        )
        (partition,) = response.topics[0].partitions
        assert partition.error_code == 0, f"{group}: {partition.error_code}"
        return max(int(partition.committed_offset), 0)


def transactions_through_faults(
    history: TransactionHistory, *, power_loss: bool | None = False, settings: dict[str, str] | None = None
) -> Scenario:
    async def scenario(world: SimWorld) -> str:
        world.start("b1", broker({**SETTINGS, **(settings or {})}))
        await asyncio.sleep(1)
        run = Run(world, history)
        await run.client("admin").create_topic("t", partitions=PARTITIONS)
        reading = asyncio.ensure_future(run.read())
        faults = (
            RandomCrashes("b1", every_s=3, down_s=0.3, power_loss=power_loss),
            RandomCuts("b1", every_s=2),
            SlowDisk("b1", (0.0, 0.05)),
        )
        async with inject(world, *faults):
            await asyncio.gather(
                *(run.produce(host, name, versions) for host, name, versions in PRODUCERS),
                run.abandon("gone"),
            )
        await asyncio.sleep(3)
        await run.settle()
        reading.cancel()
        if reading.done():
            reading.result()
        await run.conclude()
        return world.trace.digest()

    return scenario


@pytest.mark.parametrize("seed", range(20))
def test_transactions_are_atomic_through_crashes(seed: int) -> None:
    simulate(transactions_through_faults(TransactionHistory()), seed=seed)


@pytest.mark.parametrize("seed", range(20))
def test_transactions_are_atomic_through_power_cuts_with_flushes(seed: int) -> None:
    """What is acknowledged is synced. What is read need not be: how far readers may read can go back."""
    history = TransactionHistory(TornTransaction(), AbortedRead(), TwoOutcomesOfATransaction())
    settings = {"log.flush.interval.messages": "1"}
    simulate(transactions_through_faults(history, power_loss=True, settings=settings), seed=seed)


def test_the_same_seed_gives_the_same_events() -> None:
    def digest() -> str:
        return simulate(transactions_through_faults(TransactionHistory()), seed=3)

    assert digest() == digest()


# --- planted bugs


def notices(checker: Callable[[], TransactionChecker], match: str) -> None:
    for seed in itertools.count():
        try:
            simulate(transactions_through_faults(TransactionHistory(checker())), seed=seed)
        except InvariantViolation as violation:
            assert match in str(violation)
            return
        assert seed < 10, "ten seeds and it was not noticed"


def test_a_commit_that_reaches_some_partitions_only_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    append_marker = Partition.append_marker

    def broken(partition: Partition, *fields: Any) -> Any:
        producer_id, epoch, coordinator_epoch, committed, *rest = fields
        committed = committed and partition.topic_partition != ("t", 1)
        return append_marker(partition, producer_id, epoch, coordinator_epoch, committed, *rest)

    monkeypatch.setattr(Partition, "append_marker", broken)
    notices(TornTransaction, "transaction")
    notices(TwoOutcomesOfATransaction, "committed in places, aborted in others")


def test_offsets_that_miss_their_transaction_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    append_marker = Partition.append_marker

    def broken(partition: Partition, *fields: Any) -> Any:
        producer_id, epoch, coordinator_epoch, committed, *rest = fields
        committed = committed and partition.topic_partition.topic == "t"
        return append_marker(partition, producer_id, epoch, coordinator_epoch, committed, *rest)

    from ottla.coordinator.groups.state import Groups

    end = Groups.end_transaction
    monkeypatch.setattr(Partition, "append_marker", broken)
    monkeypatch.setattr(
        Groups,
        "end_transaction",
        lambda groups, producer_id, committed: end(groups, producer_id, committed=False),
    )
    notices(TornTransaction, "is at offset")


def test_aborted_records_that_are_shown_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PartitionLog, "aborted_in", lambda *_: [])
    notices(AbortedRead, "which was not committed")


def test_reading_beyond_open_transactions_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Partition.last_stable_offset.fget
    assert right is not None
    calls = itertools.count()
    monkeypatch.setattr(
        Partition,
        "last_stable_offset",
        property(lambda partition: partition.high_watermark if next(calls) % 5 == 0 else right(partition)),
    )
    notices(LastStableOffsetGoingBack, "was stable up to")


def test_a_transaction_that_never_ends_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    append_marker = Partition.append_marker

    def broken(partition: Partition, *fields: Any) -> Any:
        return None if partition.topic_partition == ("t", 1) else append_marker(partition, *fields)

    monkeypatch.setattr(Partition, "append_marker", broken)
    notices(TwoOutcomesOfATransaction, "never ended")
