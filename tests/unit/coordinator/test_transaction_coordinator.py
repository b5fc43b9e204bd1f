"""The transaction coordinator on an event loop: markers and their repetition, leadership, checks, listing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from test_hosted_groups import CountingLog, LoopClock, image, simulate

from ottla.coordinator.transactions.coordinator import TransactionCoordinator
from ottla.coordinator.transactions.producer_ids import ProducerIds
from ottla.coordinator.transactions.settings import TransactionSettings
from ottla.log.types import TopicPartition
from ottla.metadata.change import between
from ottla.metadata.image import MetadataImage
from ottla.metadata.internal_topics import OFFSETS_TOPIC, TRANSACTION_TOPIC
from ottla.records.producer import ProducerIdentity
from ottla.runtime.tasks import TaskScope
from ottla.wire.api import ApiKey
from ottla.wire.errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    ErrorCode,
    InvalidProducerEpoch,
    InvalidRegularExpression,
    InvalidRequest,
    InvalidTransactionTimeout,
    KafkaError,
    NotCoordinator,
    NotEnoughReplicas,
    TransactionalIdAuthorizationFailed,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)

ORDERS = TopicPartition("orders", 0)
OFFSETS = TopicPartition(OFFSETS_TOPIC, 3)
TOPICS = {TRANSACTION_TOPIC: 1, OFFSETS_TOPIC: 5, "orders": 1}


class Partitions:
    """Stands for the partitions of this broker and for its groups: notes markers, or refuses them."""

    def __init__(self) -> None:
        self.markers: list[tuple[Any, ...]] = []
        self.error: KafkaError | None = None
        self.is_slow = False

    def partition(self, topic: str, index: int) -> Any:
        def append_marker(
            producer_id: int, epoch: int, coordinator_epoch: int, committed: bool, version: int
        ) -> None:
            self._take(TopicPartition(topic, index), producer_id, epoch, coordinator_epoch, committed)

        log = SimpleNamespace(
            next_offset=0, reached_flush_messages=self.is_slow, flush=lambda: asyncio.sleep(1)
        )
        return SimpleNamespace(
            append_marker=append_marker,
            log=log,
            high_watermark=0,
            check_leads=lambda: None,
            topic_partition=TopicPartition(topic, index),
        )

    async def complete_transaction(self, partition: int, *marker: Any) -> None:
        await asyncio.sleep(1 if self.is_slow else 0)
        self._take(TopicPartition(OFFSETS_TOPIC, partition), *marker[:-1])

    def future_partition_for(self, group_id: str) -> int:
        return OFFSETS.partition

    def _take(self, tp: TopicPartition, *marker: Any) -> None:
        if self.error is not None:
            raise self.error
        self.markers.append((tp, *marker))


class Brokers:
    """Stands for the network: answers what other brokers are asked as the test says."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, ApiKey, Any]] = []
        self.answers: dict[ApiKey, Callable[[int, Any], Any]] = {}
        self.delay_s = 0.0

    async def __call__(self, broker_id: int, api_key: ApiKey, values: Any) -> Any:
        self.asked.append((broker_id, api_key, values))
        await asyncio.sleep(self.delay_s)
        return self.answers[api_key](broker_id, values)


class Service:
    def __init__(self, scope: TaskScope, version: int = 2, **settings: Any) -> None:
        self.log = CountingLog()
        self.partitions: Any = Partitions()
        self.brokers: Any = Brokers()
        self.blocks = iter([range(10, 12), range(20, 1000)])

        async def allocate() -> range:
            await asyncio.sleep(0.001)
            return next(self.blocks)

        self.transactions = TransactionCoordinator(
            1,
            TransactionSettings(**settings),
            self.log,
            ProducerIds(allocate),
            self.partitions,
            self.partitions,
            self.brokers,
            LoopClock(),
            scope,
        )
        self.version = version
        self.image = MetadataImage()

    def apply(self, new: MetadataImage) -> None:
        new = replace(new, features={"transaction.version": self.version})
        old, self.image = self.image, new
        self.transactions.apply(between(old, new))

    async def ready(self) -> Service:
        self.apply(image(**TOPICS))
        await asyncio.sleep(1)
        return self

    async def begin(self, *partitions: TopicPartition, name: str = "tx") -> ProducerIdentity:
        identity = await self.transactions.init_producer_id(name, 60_000)
        await self.transactions.add_partitions(name, *identity, partitions)
        return identity

    async def end(self, identity: ProducerIdentity, *, committed: bool = True) -> ProducerIdentity:
        return await self.transactions.end("tx", *identity, committed=committed, client_version=self.version)

    async def state(self, name: str = "tx") -> str:
        return (await self.transactions.describe(name)).state.label


def test_partitions_are_told_before_the_producer_is_answered() -> None:
    async def test(scope: TaskScope) -> None:
        service = await Service(scope).ready()
        identity = await service.begin(ORDERS)
        ended = asyncio.ensure_future(service.end(identity))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert service.partitions.markers == [(ORDERS, 10, 1, 0, True)]
        following = await ended
        assert following == (10, 1)
        await service.transactions.add_partitions("tx", *following, [ORDERS])
        await service.end(following, committed=False)
        assert service.partitions.markers[1] == (ORDERS, 10, 2, 0, False)
        assert await service.state() == "CompleteAbort"

    simulate(test)


def test_a_marker_counts_once_it_is_flushed_where_that_is_wanted() -> None:
    async def test(scope: TaskScope) -> None:
        service = await Service(scope).ready()
        identity = await service.begin(ORDERS)
        service.partitions.is_slow = True
        await service.end(identity)
        assert await service.state() == "PrepareCommit"
        await asyncio.sleep(2)
        assert await service.state() == "CompleteCommit"
        assert len(service.partitions.markers) == 1

    simulate(test)


def test_offsets_are_settled_by_the_group_coordinator() -> None:
    async def test(scope: TaskScope) -> None:
        service = await Service(scope).ready()
        identity = await service.transactions.init_producer_id("tx", 60_000)
        await service.transactions.add_offsets("tx", *identity, "group")
        service.partitions.is_slow = True
        await service.end(identity)
        assert await service.state() == "PrepareCommit"
        await asyncio.sleep(2)
        assert service.partitions.markers == [(OFFSETS, 10, 1, 0, True)]
        assert await service.state() == "CompleteCommit"

    simulate(test)


@pytest.mark.parametrize("tp", [ORDERS, OFFSETS])
def test_a_marker_is_sent_until_it_is_taken(tp: TopicPartition) -> None:
    async def test(scope: TaskScope) -> None:
        service = await Service(scope).ready()
        identity = await service.begin(tp)
        service.partitions.error = NotEnoughReplicas("one is missing")
        following = await service.end(identity)
        await asyncio.sleep(10)
        assert await service.state() == "PrepareCommit"
        with pytest.raises(ConcurrentTransactions):
            await service.transactions.add_partitions("tx", *following, [tp])
        service.partitions.error = None
        await asyncio.sleep(1)
        assert service.partitions.markers == [(tp, 10, 1, 0, True)], "once"
        assert await service.state() == "CompleteCommit"

    simulate(test)


@pytest.mark.parametrize("tp", [ORDERS, OFFSETS])
def test_a_partition_that_is_gone_is_not_waited_for(tp: TopicPartition) -> None:
    async def test(scope: TaskScope) -> None:
        service = await Service(scope).ready()
        identity = await service.begin(tp)
        service.partitions.error = UnknownTopicOrPartition("gone")
        await service.end(identity)
        await asyncio.sleep(1)
        assert await service.state() == "PrepareCommit", "it may come back"
        service.apply(image(**{TRANSACTION_TOPIC: 1}))
        await asyncio.sleep(1)
        assert await service.state() == "CompleteCommit"

    simulate(test)


def test_a_partition_whose_producer_has_moved_on_is_not_waited_for() -> None:
    async def test(scope: TaskScope) -> None:
        service = await Service(scope).ready()
        identity = await service.begin(ORDERS)
        service.partitions.error = InvalidProducerEpoch("newer there")
        await service.end(identity)
        assert await service.state() == "CompleteCommit"

    simulate(test)


def test_a_new_coordinator_goes_on_and_the_old_one_stops() -> None:
    async def test(scope: TaskScope) -> None:
        service = await Service(scope).ready()
        identity = await service.begin(ORDERS)
        service.partitions.error = NotEnoughReplicas("one is missing")
        await service.end(identity)
        service.apply(image(leader=2, epoch=1, **TOPICS))
        service.partitions.error = None
        await asyncio.sleep(1)
        assert service.partitions.markers == []
        with pytest.raises(NotCoordinator):
            await service.state()
        service.apply(image(leader=1, epoch=2, **TOPICS))
        await asyncio.sleep(1)
        assert service.partitions.markers == [(ORDERS, 10, 1, 2, True)]
        assert await service.state() == "CompleteCommit"

    simulate(test)


def test_a_shard_loaded_again_does_not_have_partitions_told_twice_at_once() -> None:
    async def test(scope: TaskScope) -> None:
        service = await Service(scope).ready()
        identity = await service.begin(OFFSETS)
        service.partitions.is_slow = True
        await service.end(identity)
        service.log.error = NotEnoughReplicas("one is missing")
        with pytest.raises(CoordinatorNotAvailable):
            await service.transactions.init_producer_id("other", 60_000)
        await asyncio.sleep(5)
        assert service.partitions.markers == [(OFFSETS, 10, 1, 0, True)]
        assert await service.state() == "CompleteCommit"

    simulate(test)


def test_completion_that_cannot_be_stored_is_made_up_for() -> None:
    async def test(scope: TaskScope) -> None:
        service = await Service(scope).ready()
        identity = await service.begin(OFFSETS)
        service.partitions.is_slow = True
        await service.end(identity)
        service.log.error = NotEnoughReplicas("one is missing")
        await asyncio.sleep(5)
        assert len(service.partitions.markers) == 2
        assert await service.state() == "CompleteCommit"

    simulate(test)


def test_initializing_waits_out_the_abort_of_what_was_left_open() -> None:
    async def test(scope: TaskScope) -> None:
        service = await Service(scope).ready()
        await service.begin(ORDERS)
        assert await service.transactions.init_producer_id("tx", 60_000) == (10, 2)
        assert service.partitions.markers == [(ORDERS, 10, 1, 0, False)]
        await service.transactions.add_partitions("tx", 10, 2, [OFFSETS])
        service.partitions.is_slow = True
        with pytest.raises(ConcurrentTransactions):
            await service.transactions.init_producer_id("tx", 60_000)

    simulate(test)


def test_producer_ids_come_in_blocks() -> None:
    async def test(scope: TaskScope) -> None:
        service = await Service(scope).ready()
        names = [f"t{n}" for n in range(4)]
        identities = await asyncio.gather(
            *(service.transactions.init_producer_id(name, 60_000) for name in names)
        )
        assert sorted(identities) == [(10, 0), (11, 0), (20, 0), (21, 0)]

    simulate(test)


def test_what_is_asked_is_checked_first() -> None:
    async def test(scope: TaskScope) -> None:
        service = Service(scope)
        init = service.transactions.init_producer_id
        with pytest.raises(CoordinatorNotAvailable, match=TRANSACTION_TOPIC):
            await init("tx", 1)
        service.apply(image(**TOPICS))
        with pytest.raises(CoordinatorLoadInProgress):
            await init("tx", 1)
        await asyncio.sleep(1)
        for timeout_ms in (0, -1, 900_001):
            with pytest.raises(InvalidTransactionTimeout, match=r"transaction\.max\.timeout\.ms"):
                await init("tx", timeout_ms)
        for name in ("", "x" * 8_001):
            with pytest.raises(InvalidRequest):
                await init(name, 1)
        with pytest.raises(TransactionalIdAuthorizationFailed):
            await init("tx", 1, two_phase_commit=True)
        with pytest.raises(UnsupportedVersion):
            await init("tx", 1, keep_prepared=True)

    simulate(test)


def test_two_phase_commit_is_for_those_who_enable_it() -> None:
    async def test(scope: TaskScope) -> None:
        service = await Service(scope, two_phase_commit=True).ready()
        await service.transactions.init_producer_id("tx", 0, two_phase_commit=True)
        assert (await service.transactions.describe("tx")).timeout_ms == 2**31 - 1

    simulate(test)


def test_partitions_ask_whether_they_may_be_written_to() -> None:
    async def test(scope: TaskScope) -> None:
        service = await Service(scope).ready()
        verify = service.transactions.verify
        identity = await service.transactions.init_producer_id("tx", 60_000)
        assert await verify("tx", *identity, [ORDERS], add=False) == {ORDERS: ErrorCode.transaction_abortable}
        assert await verify("tx", *identity, [ORDERS], add=True) == {ORDERS: ErrorCode.none}
        assert await verify("tx", *identity, [ORDERS], add=False) == {ORDERS: ErrorCode.none}
        assert (await service.transactions.describe("tx")).client_version == 2
        for add in (True, False):
            assert await verify("tx", 10, 9, [ORDERS], add=add) == {ORDERS: ErrorCode.producer_fenced}
            assert await verify(None, 10, 9, [ORDERS], add=add) == {ORDERS: ErrorCode.invalid_request}

    simulate(test)


def test_listing_by_state_and_pattern() -> None:
    async def test(scope: TaskScope) -> None:
        service = Service(scope)
        service.apply(image(**{**TOPICS, TRANSACTION_TOPIC: 5}))
        await asyncio.sleep(1)
        for name in ("a1", "a2", "b1"):
            await service.begin(ORDERS, name=name)
        await service.transactions.init_producer_id("c", 60_000)

        async def names(*args: Any) -> list[str]:
            return sorted(entry.transactional_id for entry in (await service.transactions.list(*args))[0])

        assert await names() == ["a1", "a2", "b1", "c"]
        assert await names(["Ongoing"]) == ["a1", "a2", "b1"]
        assert await names(["Ongoing"], [10]) == ["a1"]
        assert await names([], [], -1, "a.") == ["a1", "a2"]
        assert await service.transactions.list(["Ongoing", "Odd"], [77]) == ([], ["Odd"])
        assert await names(["Odd"]) == []
        with pytest.raises(InvalidRegularExpression):
            await names([], [], -1, "a[")

    simulate(test)


@pytest.mark.parametrize(("version", "value_version"), [(0, 0), (1, 1), (2, 1)])
def test_records_are_written_as_the_cluster_agreed(version: int, value_version: int) -> None:
    async def test(scope: TaskScope) -> None:
        from ottla.coordinator.host.shard_log import read_batches

        service = await Service(scope, version).ready()
        await service.begin(ORDERS)
        (batch,) = read_batches(service.log.batches[0][-1])
        assert [record.value and record.value[:2] for record in batch.records] == [bytes((0, value_version))]

    simulate(test)
