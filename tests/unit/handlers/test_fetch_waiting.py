"""Fetches that wait, sessions between their fetches, and what either costs a producer."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any
from uuid import UUID

import pytest
from transactional_broker import TransactionalBroker, batch, decode_fetch, finished, session_of

from ottla.handlers.reply import PendingReply
from ottla.records.batch import iter_headers
from ottla.replication.sessions import FetchEntry, FetchSet
from ottla.wire.errors import ErrorCode

OK = ErrorCode.none
NEWEST = 18


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 20))


def plain(sequence: int, **options: Any) -> bytes:
    return batch(sequence, transactional=False, **options)


async def first_offset(reply: Any, version: int = 12) -> int | None:
    """Of what was read; None where there was nothing."""
    row = decode_fetch(version, await finished(reply))
    if row is None or not row.records:
        return None
    assert row.error_code is OK
    return next(iter_headers(memoryview(bytes(row.records))))[1].base_offset


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[FetchEntry]:
    """Every entry that a partition told of a change."""
    told: list[FetchEntry] = []
    tell = FetchEntry.partition_changed

    def counted(entry: FetchEntry) -> None:
        told.append(entry)
        tell(entry)

    monkeypatch.setattr(FetchEntry, "partition_changed", counted)
    return told


@pytest.mark.parametrize("while_waiting", [False, True])
def test_consumers_that_went_away_cost_one_append_and_no_more(
    calls: list[FetchEntry], while_waiting: bool
) -> None:
    async def scenario() -> None:
        kit = TransactionalBroker()
        for _ in range(10):
            session = session_of(12, await finished(kit.fetch(0, committed=False, session=(0, 0))))
            if while_waiting:
                reply = kit.fetch(-1, committed=False, session=(session, 1), max_wait_ms=10_000)
                assert isinstance(reply, PendingReply)
                reply.cancel()
        for sequence in range(30):
            await kit.produce(plain(sequence))
            await asyncio.sleep(0)
        assert len(calls) == 10

    run(scenario())


def test_a_session_is_told_again_after_it_has_looked(calls: list[FetchEntry]) -> None:
    async def scenario() -> None:
        kit = TransactionalBroker()
        session = session_of(12, await finished(kit.fetch(0, committed=False, session=(0, 0))))
        offset = 0
        for round_number in range(5):
            epoch = 2 * round_number + 1
            # Several appends before the session looks: one call.
            for _ in range(3):
                await kit.produce(plain(offset))
                offset += 1
            assert len(calls) == round_number + 1
            assert await first_offset(kit.fetch(-1, committed=False, session=(session, epoch))) == offset - 3
            # It has read all, says so and waits.
            reply = kit.fetch(offset, committed=False, session=(session, epoch + 1))
            assert await first_offset(reply) is None

    run(scenario())


def test_a_fetch_that_waits_for_more_bytes_is_told_of_each_append() -> None:
    async def scenario() -> None:
        kit = TransactionalBroker()
        session = session_of(12, await finished(kit.fetch(0, committed=False, session=(0, 0))))
        size = len(plain(0))
        waiting = {"committed": False, "max_wait_ms": 10_000, "min_bytes": 3 * size}
        replies = [kit.fetch(-1, session=(session, 1), **waiting), kit.fetch(0, **waiting)]
        for sequence in range(3):
            assert all(isinstance(reply, PendingReply) and reply.body is None for reply in replies)
            await kit.produce(plain(sequence))
            await asyncio.sleep(0.01)
        for reply in replies:
            assert isinstance(reply, PendingReply)
            assert reply.body is not None
            assert await first_offset(reply) == 0

    run(scenario())


def test_nobody_waits_for_more_bytes_than_an_answer_may_have() -> None:
    async def scenario() -> None:
        kit = TransactionalBroker(fetch_max_bytes="2000")
        await kit.produce(plain(0, records=200))
        for max_bytes in (1000, 1 << 20):
            reply = kit.fetch(0, committed=False, min_bytes=1 << 20, max_bytes=max_bytes, max_wait_ms=10_000)
            assert not isinstance(reply, PendingReply)
            assert await first_offset(reply) == 0

    run(scenario())


def test_a_partition_that_a_known_topic_does_not_have() -> None:
    async def scenario() -> None:
        kit = TransactionalBroker()
        for version, index, topic_id, expected in (
            (NEWEST, 5, UUID(int=1), ErrorCode.unknown_topic_or_partition),
            (NEWEST, 0, UUID(int=9), ErrorCode.unknown_topic_id),
            (12, 5, UUID(int=1), ErrorCode.unknown_topic_or_partition),
        ):
            for session in ((0, -1), (0, 0)):
                reply = kit.fetch(
                    0, version=version, index=index, topic_id=topic_id, session=session, max_wait_ms=10_000
                )
                assert decode_fetch(version, await finished(reply)).error_code is expected

    run(scenario())


@pytest.mark.parametrize("in_session", [False, True])
@pytest.mark.parametrize("end", ["answered at once", "answered later", "client gone"])
def test_nothing_of_a_fetch_waits_for_the_collector_of_cycles(in_session: bool, end: str) -> None:
    """It looks seldom, and a reply holds the records it brings."""

    def count() -> int:
        return sum(isinstance(found, FetchSet | FetchEntry | PendingReply) for found in gc.get_objects())

    fetches = 10

    async def scenario() -> None:
        kit = TransactionalBroker()
        if end == "answered at once":
            await kit.produce(plain(0))
        session = 0
        if in_session:
            session = session_of(12, await finished(kit.fetch(0, committed=False, session=(0, 0))))
        gc.collect()
        before = count()
        for number in range(fetches):
            reply = kit.fetch(
                number if end == "answered later" else 0,
                committed=False,
                session=(session, number + 1) if in_session else (0, -1),
                max_wait_ms=10_000,
            )
            assert isinstance(reply, PendingReply) == (end != "answered at once")
            if end == "answered later":
                await kit.produce(plain(number))
                await asyncio.sleep(0.01)
                assert reply.body is not None
            elif end == "client gone":
                reply.cancel()
            del reply
        await asyncio.sleep(0)
        # Each would leave one or more. Brokers that earlier tests started go on with theirs meanwhile.
        assert count() - before < fetches

    gc.disable()
    try:
        run(scenario())
    finally:
        gc.enable()


@pytest.mark.parametrize("in_session", [False, True])
def test_a_topic_recreated_under_a_waiting_fetch(in_session: bool) -> None:
    """By name the fetch goes on with the new topic: it has nothing yet, and what it gets is an answer."""

    async def scenario() -> None:
        kit = TransactionalBroker()
        session = (0, -1)
        if in_session:
            session = (session_of(12, await finished(kit.fetch(0, committed=False, session=(0, 0)))), 1)
        reply = kit.fetch(-1 if in_session else 0, committed=False, session=session, max_wait_ms=10_000)
        assert isinstance(reply, PendingReply)
        kit.replicas.recreate("a")
        await asyncio.sleep(0.01)
        assert reply.body is None
        await kit.produce(plain(0))
        await asyncio.sleep(0.01)
        assert reply.body is not None
        assert await first_offset(reply) == 0
        assert kit.partition().watchers == {}

    run(scenario())


@pytest.mark.parametrize("in_session", [False, True])
@pytest.mark.parametrize(
    ("version", "expected"), [(12, ErrorCode.offset_out_of_range), (NEWEST, ErrorCode.unknown_topic_id)]
)
def test_a_topic_recreated_under_a_fetch_further_on(
    in_session: bool, version: int, expected: ErrorCode
) -> None:
    async def scenario() -> None:
        kit = TransactionalBroker()
        await kit.produce(plain(0, records=5))
        session = (0, -1)
        if in_session:
            body = await finished(kit.fetch(5, committed=False, session=(0, 0), version=version))
            session = (session_of(version, body), 1)
        reply = kit.fetch(
            -1 if in_session else 5,
            committed=False,
            session=session,
            version=version,
            max_wait_ms=10_000,
        )
        assert isinstance(reply, PendingReply)
        kit.replicas.recreate("a")
        await asyncio.sleep(0.01)
        assert reply.body is not None
        assert decode_fetch(version, await finished(reply)).error_code is expected

    run(scenario())
