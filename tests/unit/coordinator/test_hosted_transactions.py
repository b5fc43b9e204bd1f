"""Transactional commits on an event loop: batches of their producer, markers, verification, reloads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from test_hosted_groups import CountingLog, Service, image, simulate

from ottla.coordinator.groups.commands import (
    CommitRequest,
    FetchOffsetsRequest,
    PartitionCommit,
    TopicCommit,
    TopicFetch,
)
from ottla.coordinator.groups.questions_under_way import QuestionsUnderWay
from ottla.coordinator.host.shard_log import read_batches
from ottla.metadata.internal_topics import OFFSETS_TOPIC
from ottla.records.markers import Marker
from ottla.records.producer import ProducerIdentity
from ottla.runtime.tasks import TaskScope
from ottla.wire.errors import ErrorCode, InvalidGroupId, InvalidProducerEpoch, KafkaError, NotCoordinator

P1 = ProducerIdentity(1001, 3)
NONE = [[ErrorCode.none]]


class ProducerLog(CountingLog):
    """Knows what a log knows of one producer."""

    def __init__(self) -> None:
        super().__init__()
        self.epoch = P1.epoch
        self.is_open = False

    def check_producer(self, partition: int, producer: ProducerIdentity) -> None:
        if producer.epoch < self.epoch:
            raise InvalidProducerEpoch("replaced")

    def has_transaction(self, partition: int, producer: ProducerIdentity) -> bool:
        return self.is_open


class TransactionService(Service):
    def __init__(self, scope: TaskScope) -> None:
        super().__init__(scope)
        self.asked: list[int] = []
        self.answer: Callable[[], Any] = lambda: ErrorCode.none

    async def ready(self, log: ProducerLog) -> None:
        self.log = log
        self.groups._log = log
        object.__setattr__(self.groups._shards._kind, "log", log)
        self.apply(image(**{OFFSETS_TOPIC: 1, "orders": 1}))
        await asyncio.sleep(1)

    async def verify(self, partition: int) -> ErrorCode:
        self.asked.append(partition)
        answer = self.answer()
        return await answer if asyncio.isfuture(answer) else answer

    def commit_nowait(self, offset: int) -> asyncio.Future[Any]:
        topic = TopicCommit("orders", self.image.topics["orders"].id, [PartitionCommit(0, offset)])
        return self.groups.commit_nowait(CommitRequest("g", [topic]))

    async def commit_in(self, producer: ProducerIdentity, offset: int, *, is_own_epoch: bool = True) -> Any:
        topic = TopicCommit("orders", self.image.topics["orders"].id, [PartitionCommit(0, offset)])
        request = CommitRequest("g", [topic], version=5, producer=producer)
        return await self.groups.commit_transactional(
            request, producer, self.verify, is_own_epoch=is_own_epoch
        )

    async def end(self, producer: ProducerIdentity, *, committed: bool, coordinator_epoch: int = 0) -> None:
        await self.groups.complete_transaction(0, producer.id, producer.epoch, coordinator_epoch, committed)

    async def is_unstable(self) -> bool:
        (topic,) = await self.groups.fetch(
            FetchOffsetsRequest("g", [TopicFetch("orders", None, [0])], requires_stable=True)
        )
        return bool(topic.unstable)


def test_commits_and_markers_are_written_as_the_producers() -> None:
    async def test(scope: TaskScope) -> None:
        service = TransactionService(scope)
        await service.ready(ProducerLog())
        assert await service.commit("g", 5) == NONE
        plain = service.commit_nowait(6)
        assert await service.commit_in(P1, 9) == NONE
        assert await plain == NONE
        assert await service.is_unstable()
        await service.end(P1, committed=True)
        assert not await service.is_unstable()
        assert await service.fetch("g") == 9
        stored = [batch for data in service.log.batches[0] for batch in read_batches(data)]
        assert [batch.producer for batch in stored] == [None, None, P1, None]
        assert stored[-1].marker == Marker(*P1, 0, True)

    simulate(test)


@pytest.mark.parametrize("committed", [True, False])
def test_a_shard_that_is_loaded_again_knows_what_is_open(committed: bool) -> None:
    async def test(scope: TaskScope) -> None:
        service = TransactionService(scope)
        await service.ready(ProducerLog())
        await service.commit("g", 5)
        await service.commit_in(P1, 9)
        for epoch, is_open in ((1, True), (2, False)):
            if not is_open:
                await service.end(P1, committed=committed)
            service.apply(image(epoch=epoch, **{OFFSETS_TOPIC: 1, "orders": 1}))
            await asyncio.sleep(1)
            assert await service.is_unstable() == is_open
        assert await service.fetch("g") == (9 if committed else 5)

    simulate(test)


def test_a_producer_that_was_replaced_is_refused_and_nothing_reloads() -> None:
    async def test(scope: TaskScope) -> None:
        service = TransactionService(scope)
        await service.ready(ProducerLog())
        zombie = ProducerIdentity(P1.id, P1.epoch - 1)
        with pytest.raises(InvalidProducerEpoch):
            await service.commit_in(zombie, 9)
        assert not await service.is_unstable()
        assert 0 not in service.log.batches

    simulate(test)


def test_a_marker_that_is_refused_changes_nothing() -> None:
    async def test(scope: TaskScope) -> None:
        service = TransactionService(scope)
        await service.ready(ProducerLog())
        await service.commit_in(P1, 9)
        service.log.error = InvalidProducerEpoch("replaced")
        with pytest.raises(InvalidProducerEpoch):
            await service.end(P1, committed=True)
        assert await service.is_unstable()
        with pytest.raises(NotCoordinator):
            await service.groups.complete_transaction(7, *P1, 0, True)

    simulate(test)


def test_the_coordinator_is_asked_once_per_transaction() -> None:
    async def test(scope: TaskScope) -> None:
        log = ProducerLog()
        service = TransactionService(scope)
        await service.ready(log)
        await service.commit_in(P1, 1)
        assert service.asked == [0]
        log.is_open = True
        await service.commit_in(P1, 2)
        assert service.asked == [0]

    simulate(test)


def test_what_the_coordinator_refuses_is_not_written() -> None:
    async def test(scope: TaskScope) -> None:
        service = TransactionService(scope)
        await service.ready(ProducerLog())
        service.answer = lambda: ErrorCode.transaction_abortable
        assert await service.commit_in(P1, 1) == [[ErrorCode.transaction_abortable]]
        assert 0 not in service.log.batches
        with pytest.raises(InvalidGroupId):
            await service.groups.commit_transactional(
                CommitRequest("", [], producer=P1), P1, service.verify, is_own_epoch=True
            )

    simulate(test)


@pytest.mark.parametrize(
    ("is_own_epoch", "marker_epoch", "expected"),
    [
        (False, 3, ErrorCode.invalid_txn_state),
        (False, 4, ErrorCode.invalid_txn_state),
        (False, 2, ErrorCode.none),
        (True, 3, ErrorCode.none),
        (True, 4, ErrorCode.invalid_txn_state),
    ],
)
def test_a_transaction_that_ends_while_it_is_verified_takes_nothing_more(
    is_own_epoch: bool, marker_epoch: int, expected: ErrorCode
) -> None:
    """With an epoch per transaction, a marker of that very epoch has ended the one before."""

    async def test(scope: TaskScope) -> None:
        service = TransactionService(scope)
        await service.ready(ProducerLog())
        gate: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        service.answer = lambda: gate
        commit = asyncio.ensure_future(service.commit_in(P1, 1, is_own_epoch=is_own_epoch))
        await asyncio.sleep(0.1)
        await service.end(ProducerIdentity(P1.id, marker_epoch), committed=False)
        gate.set_result(ErrorCode.none)
        assert await commit == [[expected]]
        assert await service.is_unstable() == (expected is ErrorCode.none)

    simulate(test)


def test_verifications_leave_nothing_behind() -> None:
    verifications = QuestionsUnderWay()
    first = verifications.begin(0, P1, is_own_epoch=True)
    second = verifications.begin(0, P1, is_own_epoch=True)
    assert verifications.finish(first)
    assert not verifications.finish(first)
    verifications.end(0, Marker(P1.id, P1.epoch + 1, 0, True))
    assert not verifications.finish(second)
    assert not verifications._under_way


def test_a_failed_append_takes_back_the_transactional_commit() -> None:
    async def test(scope: TaskScope) -> None:
        service = TransactionService(scope)
        await service.ready(ProducerLog())
        service.log.error = OSError("disk is full")
        with pytest.raises(KafkaError):
            await service.commit_in(P1, 9)
        await asyncio.sleep(1)
        assert not await service.is_unstable()

    simulate(test)
