"""Fetch and ListOffsets for who reads committed records alone, and the markers that let them go on."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Coroutine
from typing import Any

import pytest
from cluster_images import context
from kio.schema.list_offsets.v11.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kio.schema.write_txn_markers.v2.request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from transactional_broker import TransactionalBroker, batch, decode_fetch, finished, session_of

from ottla.handlers.list_offsets import list_offsets
from ottla.handlers.markers import write_txn_markers
from ottla.handlers.reply import PendingReply
from ottla.records.batch import iter_headers
from ottla.wire.errors import CoordinatorLoadInProgress, ErrorCode

OK = ErrorCode.none


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 20))


async def fetched(kit: TransactionalBroker, offset: int, **options: Any) -> tuple[list[int], Any, int, int]:
    """(base offsets, aborted transactions, high watermark, last stable offset)."""
    version = options.get("version", 12)
    row = decode_fetch(version, await finished(kit.fetch(offset, **options)))
    assert row.error_code is OK
    data = memoryview(bytes(row.records or b""))
    bases = [header.base_offset for _, header in iter_headers(data)]
    aborted = row.aborted_transactions
    if aborted is not None:
        aborted = [(transaction.producer_id, transaction.first_offset) for transaction in aborted]
    return bases, aborted, row.high_watermark, row.last_stable_offset


@pytest.mark.parametrize("version", [4, 5, 11, 12])
def test_reading_stops_at_the_last_stable_offset(version: int) -> None:
    async def scenario() -> None:
        kit = TransactionalBroker()
        await kit.produce(batch(0, producer_id=1, transactional=False))
        await kit.produce(batch(0))
        await kit.produce(batch(1, producer_id=1, transactional=False))
        assert await fetched(kit, 0, version=version) == ([0], [], 3, 1)
        assert await fetched(kit, 1, version=version) == ([], [], 3, 1)
        assert await fetched(kit, 0, version=version, committed=False) == ([0, 1, 2], None, 3, 1)
        kit.partition().append_marker(7, 0, 0, False)
        assert await fetched(kit, 0, version=version) == ([0, 1, 2, 3], [(7, 1)], 4, 4)
        assert await fetched(kit, 0, version=version, committed=False) == ([0, 1, 2, 3], None, 4, 4)

    run(scenario())


def test_a_waiting_fetch_is_answered_when_the_transaction_ends() -> None:
    async def scenario() -> None:
        kit = TransactionalBroker()
        await kit.produce(batch(0))
        reply = kit.fetch(0, max_wait_ms=10_000)
        other = kit.fetch(0, max_wait_ms=10_000, committed=False, min_bytes=10_000)
        assert isinstance(reply, PendingReply)
        assert isinstance(other, PendingReply)
        # More records, which this reader may not see yet, are no reason to answer.
        await kit.produce(batch(1, records=50))
        await asyncio.sleep(0.01)
        assert reply.body is None
        kit.partition().append_marker(7, 0, 0, True)
        row = decode_fetch(12, await finished(reply))
        assert [h.base_offset for _, h in iter_headers(memoryview(row.records))] == [0, 1, 51]
        assert other.body is None
        other.cancel()

    run(scenario())


def test_the_least_size_of_an_answer_counts_what_may_be_read() -> None:
    async def scenario() -> None:
        kit = TransactionalBroker()
        await kit.produce(batch(0, producer_id=1, transactional=False))
        await kit.produce(batch(0, records=100))
        # All of it would be enough, the stable part alone is not.
        reply = kit.fetch(0, max_wait_ms=10_000, min_bytes=300)
        assert isinstance(reply, PendingReply)
        await asyncio.sleep(0.01)
        assert reply.body is None
        kit.partition().append_marker(7, 0, 0, True)
        assert decode_fetch(12, await finished(reply)).last_stable_offset == 102

    run(scenario())


def test_sessions_notice_that_more_became_stable() -> None:
    async def scenario() -> None:
        kit = TransactionalBroker()
        await kit.produce(batch(0))
        body = await finished(kit.fetch(0, session=(0, 0)))
        session_id = session_of(12, body)
        assert decode_fetch(12, body).high_watermark == 1
        assert decode_fetch(12, await finished(kit.fetch(-1, session=(session_id, 1)))) is None
        kit.partition().append_marker(7, 0, 0, False)
        row = decode_fetch(12, await finished(kit.fetch(-1, session=(session_id, 2))))
        assert (row.last_stable_offset, len(row.aborted_transactions)) == (2, 1)

    run(scenario())


def test_records_deleted_under_an_open_transaction() -> None:
    async def scenario() -> None:
        kit = TransactionalBroker()
        await kit.produce(batch(0, records=5))
        await kit.produce(batch(0, producer_id=1, transactional=False))
        partition = kit.partition()
        assert partition.last_stable_offset == 0
        partition.log.delete_records_before(3)
        assert partition.last_stable_offset == 3
        row = decode_fetch(12, await finished(kit.fetch(0)))
        assert row.error_code is ErrorCode.offset_out_of_range

    run(scenario())


def test_the_latest_offset_is_the_last_stable_one() -> None:
    async def scenario() -> None:
        kit = TransactionalBroker()
        await kit.produce(batch(0, records=5))

        async def latest(isolation_level: int) -> int:
            asked = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=-1)
            request = ListOffsetsRequest(
                replica_id=-1,
                isolation_level=isolation_level,
                timeout=datetime.timedelta(0),
                topics=(ListOffsetsTopic(name="a", partitions=(asked,)),),
            )
            answer = await list_offsets(kit.broker, context(11), request)
            return answer.topics[0].partitions[0].offset

        assert (await latest(0), await latest(1)) == (5, 0)
        kit.partition().append_marker(7, 0, 0, True)
        assert (await latest(0), await latest(1)) == (6, 6)

    run(scenario())


# WriteTxnMarkers.


async def mark(
    kit: TransactionalBroker,
    *topics: tuple[str, tuple[int, ...]],
    epoch: int = 0,
    coordinator_epoch: int = 1,
    committed: bool = True,
    version: int = 0,
) -> list[ErrorCode]:
    request = WriteTxnMarkersRequest(
        markers=(
            WritableTxnMarker(
                producer_id=7,
                producer_epoch=epoch,
                transaction_result=committed,
                topics=tuple(WritableTxnMarkerTopic(name=n, partition_indexes=p) for n, p in topics),
                coordinator_epoch=coordinator_epoch,
                transaction_version=version,
            ),
        )
    )
    [answer] = (await write_txn_markers(kit.broker, context(2), request)).markers
    assert answer.producer_id == 7
    assert [
        (topic.name, tuple(row.partition_index for row in topic.partitions)) for topic in answer.topics
    ] == [*topics]
    return [row.error_code for topic in answer.topics for row in topic.partitions]


def test_markers_end_transactions() -> None:
    async def scenario() -> None:
        kit = TransactionalBroker()
        await kit.produce((0, batch(0)), (1, batch(0)))
        unknown = ErrorCode.unknown_topic_or_partition
        assert await mark(kit, ("a", (0, 1, 5)), ("b", (0,)), committed=False) == [OK, OK, unknown, unknown]
        for index in (0, 1):
            assert kit.partition(index).last_stable_offset == 2
            assert kit.partition(index).log.aborted_transactions(0, 9) == [(7, 0)]

    run(scenario())


def test_markers_are_refused_as_the_log_does() -> None:
    async def scenario() -> None:
        kit = TransactionalBroker()
        await kit.produce(batch(0, epoch=3))
        fenced, old = ErrorCode.transaction_coordinator_fenced, ErrorCode.invalid_producer_epoch
        assert await mark(kit, ("a", (0,)), epoch=2) == [old]
        assert await mark(kit, ("a", (0,)), epoch=3, version=2) == [old]
        assert await mark(kit, ("a", (0,)), epoch=4, version=2, coordinator_epoch=6) == [OK]
        assert await mark(kit, ("a", (0,)), epoch=4, coordinator_epoch=5) == [fenced]

    run(scenario())


def test_markers_for_committed_offsets_go_to_the_group_coordinator() -> None:
    async def scenario() -> None:
        kit = TransactionalBroker()
        assert await mark(kit, ("__consumer_offsets", (1,)), epoch=2, coordinator_epoch=4) == [OK]
        assert kit.groups.completed == [(1, 7, 2, 4, True)]
        kit.groups.error = CoordinatorLoadInProgress("loading")
        assert await mark(kit, ("__consumer_offsets", (1,))) == [ErrorCode.not_leader_or_follower]

    run(scenario())
