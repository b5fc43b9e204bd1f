"""Produce inside transactions: who is asked, in which order records are written, what errors become."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from transactional_broker import SESSION, TransactionalBroker, batch, decode_produce, finished, produce_frame

from ottla.handlers.produce import produce
from ottla.handlers.reply import PendingReply
from ottla.log.types import TopicPartition
from ottla.wire.errors import CoordinatorLoadInProgress, ErrorCode
from ottla.wire.frame import MalformedFrame

OK = ErrorCode.none
A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 20))


@pytest.mark.parametrize(("version", "adds"), [(3, False), (11, False), (12, True), (13, True)])
def test_the_coordinator_is_asked_once_per_transaction(version: int, adds: bool) -> None:
    async def scenario() -> None:
        kit = TransactionalBroker()
        assert await kit.produce(batch(0), version=version) == (OK, 0)
        assert kit.coordinator.asked == [("t", 7, 0, [A0], adds)]
        # From then on the partition knows, and the answer comes at once.
        assert not isinstance(kit.send(batch(1), version=version), PendingReply)
        kit.partition().append_marker(7, 0, 0, True)
        assert await kit.produce(batch(2), version=version) == (OK, 3)
        assert len(kit.coordinator.asked) == 2

    run(scenario())


def test_only_partitions_new_to_the_transaction_are_asked_about() -> None:
    async def scenario() -> None:
        kit = TransactionalBroker()
        await kit.produce((0, batch(0)))
        assert await kit.produce((0, batch(1)), (1, batch(0))) == [(OK, 1), (OK, 0)]
        assert [asked[3] for asked in kit.coordinator.asked] == [[A0], [A1]]

    run(scenario())


def test_records_outside_transactions_ask_nobody() -> None:
    async def scenario() -> None:
        kit = TransactionalBroker()
        assert await kit.produce(batch(transactional=False), transactional_id=None) == (OK, 0)
        assert await kit.produce(batch(1, transactional=False)) == (OK, 1)
        assert not kit.coordinator.asked

    run(scenario())


def test_a_transaction_needs_a_transactional_id() -> None:
    async def scenario() -> None:
        kit = TransactionalBroker()
        refused = ErrorCode.transactional_id_authorization_failed
        assert await kit.produce(batch(), transactional_id=None) == (refused, -1)

    run(scenario())


@pytest.mark.parametrize(
    ("answer", "version", "expected"),
    [
        (ErrorCode.transaction_abortable, 11, ErrorCode.transaction_abortable),
        (ErrorCode.transaction_abortable, 10, ErrorCode.invalid_txn_state),
        (ErrorCode.invalid_txn_state, 12, ErrorCode.invalid_txn_state),
        (ErrorCode.producer_fenced, 12, ErrorCode.invalid_producer_epoch),
        (ErrorCode.invalid_producer_epoch, 12, ErrorCode.invalid_producer_epoch),
        (ErrorCode.invalid_producer_id_mapping, 12, ErrorCode.invalid_producer_id_mapping),
        (ErrorCode.coordinator_load_in_progress, 12, ErrorCode.not_enough_replicas),
        (ErrorCode.coordinator_not_available, 5, ErrorCode.not_enough_replicas),
        (ErrorCode.not_coordinator, 12, ErrorCode.not_enough_replicas),
        (ErrorCode.concurrent_transactions, 11, ErrorCode.not_enough_replicas),
        (CoordinatorLoadInProgress("loading"), 12, ErrorCode.not_enough_replicas),
    ],
)
def test_what_producers_are_told_when_the_coordinator_disagrees(
    answer: Any, version: int, expected: ErrorCode
) -> None:
    async def scenario() -> None:
        kit = TransactionalBroker()
        kit.coordinator.answers = [answer]
        assert await kit.produce(batch(0), version=version) == (expected, -1)
        assert kit.partition().log.next_offset == 0
        # It may try again.
        assert await kit.produce(batch(0), version=version) == (OK, 0)

    run(scenario())


def test_the_end_of_the_transaction_before_is_waited_for() -> None:
    async def scenario() -> None:
        kit = TransactionalBroker(add_partitions_to_txn_retry_backoff_ms="1")
        kit.coordinator.answers = [ErrorCode.concurrent_transactions] * 3
        assert await kit.produce(batch(0)) == (OK, 0)
        assert len(kit.coordinator.asked) == 4

    run(scenario())


def test_but_not_for_long() -> None:
    async def scenario() -> None:
        kit = TransactionalBroker(add_partitions_to_txn_retry_backoff_max_ms="0")
        kit.coordinator.answers = [ErrorCode.concurrent_transactions] * 3
        assert await kit.produce(batch(0)) == (ErrorCode.concurrent_transactions, -1)
        assert len(kit.coordinator.asked) == 1

    run(scenario())


def test_a_partition_that_is_refused_does_not_hold_up_others() -> None:
    async def scenario() -> None:
        kit = TransactionalBroker()
        await kit.produce((1, batch(0)))
        kit.coordinator.answers = [ErrorCode.transaction_abortable]
        abortable = ErrorCode.transaction_abortable
        assert await kit.produce((0, batch(0)), (1, batch(1))) == [(abortable, -1), (OK, 1)]

    run(scenario())


def test_records_do_not_overtake_those_that_wait() -> None:
    async def scenario() -> None:
        kit = TransactionalBroker()
        await kit.produce((1, batch(0)))
        kit.coordinator.gate = asyncio.Event()
        first = kit.send((0, batch(0)), (1, batch(1)))
        # Partition 1 need not ask, but the request before has records for it.
        second = kit.send((1, batch(2)))
        third = kit.send((0, batch(1)))
        await asyncio.sleep(0)
        assert kit.partition(1).log.next_offset == 1
        kit.coordinator.gate.set()
        answers = [decode_produce(12, await finished(reply)) for reply in (third, second, first)]
        assert answers == [[(OK, 1)], [(OK, 2)], [(OK, 0), (OK, 1)]]
        assert len(kit.coordinator.asked) == 2

    run(scenario())


def test_other_producers_do_not_wait() -> None:
    async def scenario() -> None:
        kit = TransactionalBroker()
        kit.coordinator.gate = asyncio.Event()
        kit.send(batch(0))
        assert await kit.produce(batch(0, producer_id=8, transactional=False)) == (OK, 0)

    run(scenario())


def test_the_number_that_wait_is_bounded() -> None:
    async def scenario() -> None:
        kit = TransactionalBroker()
        kit.coordinator.gate = asyncio.Event()
        waiting = [kit.send(batch(sequence)) for sequence in range(5)]
        assert await kit.produce(batch(5)) == (ErrorCode.not_enough_replicas, -1)
        kit.coordinator.gate.set()
        for sequence, reply in enumerate(waiting):
            assert decode_produce(12, await finished(reply)) == [(OK, sequence)]
        assert await kit.produce(batch(5)) == (OK, 5)

    run(scenario())


def test_a_refused_first_batch_is_not_overtaken() -> None:
    async def scenario() -> None:
        kit = TransactionalBroker()
        kit.coordinator.gate = asyncio.Event()
        waiting = [kit.send((0, batch(sequence)), version=11) for sequence in range(5)]
        assert await kit.produce((1, batch(0)), version=11) == (ErrorCode.not_enough_replicas, -1)
        kit.coordinator.gate.set()
        for reply in waiting:
            await finished(reply)
        assert await kit.produce((1, batch(1)), version=11) == (ErrorCode.out_of_order_sequence_number, -1)
        assert await kit.produce((1, batch(0)), version=11) == (OK, 0)

    run(scenario())


def test_an_answer_that_a_marker_made_stale_opens_no_transaction() -> None:
    async def scenario() -> None:
        kit = TransactionalBroker()
        kit.coordinator.gate = asyncio.Event()
        reply = kit.send(batch(0), version=11)
        await asyncio.sleep(0)
        kit.partition().append_marker(7, 0, 0, False)
        kit.coordinator.gate.set()
        assert decode_produce(11, await finished(reply)) == [(ErrorCode.invalid_txn_state, -1)]
        assert kit.partition().last_stable_offset == 1

    run(scenario())


def test_the_buffer_of_a_waiting_request_may_be_reused() -> None:
    async def scenario() -> None:
        kit = TransactionalBroker()
        kit.coordinator.gate = asyncio.Event()
        frame = produce_frame(batch(0))
        reply = produce(kit.broker, SESSION, 12, frame, 0)
        frame[:] = bytes(len(frame))
        kit.coordinator.gate.set()
        assert decode_produce(12, await finished(reply)) == [(OK, 0)]

    run(scenario())


def test_verification_can_be_switched_off_for_old_clients() -> None:
    async def scenario() -> None:
        kit = TransactionalBroker(transaction_partition_verification_enable="false")
        assert await kit.produce(batch(0), version=11) == (OK, 0)
        assert not kit.coordinator.asked
        # Newer ones have no other way to become part of the transaction.
        kit.partition().append_marker(7, 0, 0, True)
        assert await kit.produce(batch(1), version=12) == (OK, 2)
        assert len(kit.coordinator.asked) == 1

    run(scenario())


def test_one_request_has_one_transactional_producer() -> None:
    async def scenario() -> None:
        kit = TransactionalBroker()
        code = ErrorCode.invalid_producer_id_mapping
        assert await kit.produce((0, batch(0)), (1, batch(0, producer_id=8))) == [(code, -1)] * 2
        with pytest.raises(MalformedFrame):
            kit.send((0, batch(0)), (1, batch(0, epoch=1)), acks=0)

    run(scenario())


def test_an_old_epoch_is_refused_without_asking() -> None:
    async def scenario() -> None:
        kit = TransactionalBroker()
        kit.partition().append_marker(7, 2, 0, True)
        assert await kit.produce(batch(0, epoch=1)) == (ErrorCode.invalid_producer_epoch, -1)
        assert not kit.coordinator.asked

    run(scenario())


def test_without_acks_there_is_no_answer() -> None:
    async def scenario() -> None:
        kit = TransactionalBroker()
        assert kit.send(batch(0), acks=0) is None
        await asyncio.sleep(0.01)
        assert kit.partition().log.next_offset == 1
        assert not kit.failures

    run(scenario())


def test_a_coordinator_that_breaks_ends_the_connection_alone() -> None:
    async def scenario() -> None:
        kit = TransactionalBroker()

        async def verify(*arguments: object, add: bool) -> None:
            raise RuntimeError("broken")

        kit.coordinator.verify = verify
        with pytest.raises(RuntimeError, match="broken"):
            await kit.produce(batch(0))
        assert not kit.failures
        del kit.coordinator.verify
        assert await kit.produce(batch(0)) == (OK, 0)

    run(scenario())
