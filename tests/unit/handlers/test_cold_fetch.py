"""Fetches of records that only the disk has: the event loop never waits for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

import pytest
from transactional_broker import TransactionalBroker, batch, decode_fetch, finished, session_of

from ottla.handlers.reply import PendingReply
from ottla.records.batch import iter_headers
from ottla.sim.disk import SimDisk, SimFile
from ottla.wire.errors import ErrorCode

LOG = "/data/a-0/00000000000000000000.log"


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 20))


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """The threads that waited for the medium, once for each time."""
    seen: list[threading.Thread] = []
    read = SimFile.read

    def noted(file: SimFile, position: int, length: int) -> bytes:
        if not file._inode.in_memory:
            seen.append(threading.current_thread())
        return read(file, position, length)

    monkeypatch.setattr(SimFile, "read", noted)
    return seen


async def filled() -> TransactionalBroker:
    kit = TransactionalBroker()
    for sequence in range(5):
        await kit.produce(
            (0, batch(sequence, transactional=False)), (1, batch(sequence, transactional=False))
        )
    return kit


def offsets(version: int, body: bytes) -> list[int]:
    row = decode_fetch(version, body)
    assert row.error_code is ErrorCode.none
    return [header.base_offset for _, header in iter_headers(memoryview(bytes(row.records or b"")))]


@pytest.mark.parametrize("max_wait_ms", [0, 1, 10_000])
@pytest.mark.parametrize("session", [(0, -1), (0, 0)])
def test_the_disk_is_waited_for_elsewhere(
    waits: list[threading.Thread], max_wait_ms: int, session: tuple[int, int]
) -> None:
    async def scenario() -> None:
        kit = await filled()
        kit.disk.evict(LOG)
        reply = kit.fetch(2, committed=False, max_wait_ms=max_wait_ms, session=session)
        assert isinstance(reply, PendingReply)
        assert offsets(12, await finished(reply)) == [2, 3, 4]
        assert waits
        assert threading.main_thread() not in waits

    run(scenario())


def test_what_several_want_is_read_once(waits: list[threading.Thread]) -> None:
    async def scenario() -> None:
        kit = await filled()
        kit.disk.evict(LOG)
        replies = [kit.fetch(0, committed=False) for _ in range(20)]
        for reply in replies:
            assert offsets(12, await finished(reply)) == [0, 1, 2, 3, 4]
        assert len(waits) == 1

    run(scenario())


def test_an_incremental_fetch_goes_on_in_a_partition_that_was_taken_out_of_memory(
    waits: list[threading.Thread],
) -> None:
    async def scenario() -> None:
        kit = await filled()
        session = session_of(12, await finished(kit.fetch(0, committed=False, session=(0, 0))))
        kit.disk.evict(LOG)
        body = await finished(kit.fetch(3, committed=False, session=(session, 1)))
        assert offsets(12, body) == [3, 4]
        assert threading.main_thread() not in waits

    run(scenario())


def test_memory_so_short_that_nothing_stays_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer comes all the same."""

    async def scenario() -> None:
        kit = await filled()
        monkeypatch.setattr(SimFile, "view_nowait", lambda *_: None)
        assert offsets(12, await finished(kit.fetch(0, committed=False))) == [0, 1, 2, 3, 4]

    run(scenario())


@pytest.mark.parametrize("event", ["topic deleted", "file gone", "client gone", "broker stops"])
def test_what_happens_while_the_disk_reads(monkeypatch: pytest.MonkeyPatch, event: str) -> None:
    async def scenario() -> None:
        kit = await filled()
        begun, go_on = threading.Event(), threading.Event()
        load = SimFile.load

        def slow(file: SimFile, position: int, length: int) -> None:
            begun.set()
            go_on.wait(10)
            load(file, position, length)

        monkeypatch.setattr(SimFile, "load", slow)
        kit.disk.evict(LOG)
        reply = kit.fetch(0, committed=False)
        assert isinstance(reply, PendingReply)
        await asyncio.to_thread(begun.wait, 10)
        # Others are served meanwhile.
        assert offsets(12, await finished(kit.fetch(0, committed=False, index=1))) == [0, 1, 2, 3, 4]
        match event:
            case "topic deleted":
                kit.replicas.recreate("a")
            case "file gone":
                kit.disk.fail("read", 5, path=LOG, times=1)
            case "client gone":
                reply.cancel()
            case "broker stops":
                reply.hurry()
        go_on.set()
        if event == "client gone":
            await asyncio.sleep(0.05)
            assert reply.body is None
        else:
            body = await finished(reply)
            assert offsets(12, body) == ([0, 1, 2, 3, 4] if event == "file gone" else [])
        assert not kit.failures

    run(scenario())


def test_a_power_cut_empties_the_memory_of_the_machine() -> None:
    disk = SimDisk()
    file = disk.open("/f", create=True)
    file.append([b"abc"])
    file.sync()
    disk.sync_dir("/")
    disk.crash()
    file = disk.open("/f")
    assert file.view_nowait(0, 3) is None
    file.load(0, 3)
    assert file.view_nowait(0, 3) == b"abc"
