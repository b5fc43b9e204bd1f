"""Records that are compressed anew in another thread: in order, bounded, and the event loop goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar

import pytest
from transactional_broker import NOW_MS, TransactionalBroker, batch, finished

from ottla.handlers.reply import PendingReply
from ottla.records.batch import iter_headers
from ottla.records.records import Record, encode_batch, iter_records
from ottla.replication.appends import Appends
from ottla.replication.preparation import Preparations
from ottla.wire.errors import ErrorCode

P = ParamSpec("P")
T = TypeVar("T")


class GatedOffload:
    """Threads that begin when told to."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.asked = 0

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self.asked += 1
        await self.gate.wait()
        return function(*args, **kwargs)

    def close(self) -> None: ...


class CompressingBroker(TransactionalBroker):
    """Partition 0 is of a topic with a codec of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.offload = GatedOffload()
        runtime = self.broker.runtime = replace(self.broker.runtime, offload=self.offload)
        self.broker.appends = Appends(
            runtime, self.broker.config, self.replicas, self.coordinator.verify, self.broker.tasks
        )
        self.codec("zstd")

    def codec(self, name: str) -> None:
        log = self.partition(0).log
        log.update_config(replace(log.config, compression_type=name))

    def values(self, index: int = 0) -> list[tuple[int, bytes | None]]:
        log = self.partition(index).log
        data = memoryview(log.read(0, 1 << 30, upto=log.next_offset))
        return [
            (record.offset, record.value and record.value[:1])
            for at, header in iter_headers(data)
            for record in iter_records(data[at : at + header.size])
        ]


def large(letter: bytes, **options: Any) -> bytes:
    return encode_batch([Record(b"k", letter * 50_000, NOW_MS)], **options)


def small(letter: bytes) -> bytes:
    return encode_batch([Record(b"k", letter, NOW_MS)])


def run(scenario: Callable[[CompressingBroker], Awaitable[None]]) -> None:
    async def main() -> None:
        broker = CompressingBroker()
        await scenario(broker)
        assert broker.failures == []
        await broker.broker.tasks.close()

    asyncio.run(main())


def test_what_comes_later_for_the_partition_waits_and_others_do_not() -> None:
    async def scenario(broker: CompressingBroker) -> None:
        def send(data: bytes, index: int = 0) -> Any:
            return broker.send((index, data), transactional_id=None)

        replies = [send(large(b"a")), send(small(b"b")), send(large(b"c", codec=4)), send(large(b"d"))]
        assert all(isinstance(reply, PendingReply) for reply in replies)
        assert isinstance(send(large(b"e"), 1), list), "a topic without a codec takes it at once"
        await asyncio.sleep(0)
        assert broker.values() == []
        broker.offload.gate.set()
        for reply in reversed(replies):
            await finished(reply)
        assert broker.values() == [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d")]
        assert broker.offload.asked == 2, "only what is in another codec goes to a thread"
        assert isinstance(send(small(b"f")), list), "nobody waits any more"
        assert not broker.broker.replicas.preparations.queues
        stored = broker.partition().log.read(0, 1 << 30, upto=5)
        assert {header.codec for _, header in iter_headers(stored)} == {4}

    run(scenario)


def test_the_answer_has_the_offsets_of_all_partitions() -> None:
    async def scenario(broker: CompressingBroker) -> None:
        broker.offload.gate.set()
        assert await broker.produce((0, small(b"a")), transactional_id=None) == (ErrorCode.none, 0)
        rows = await broker.produce((1, small(b"b")), (0, large(b"c")), transactional_id=None)
        assert rows == [(ErrorCode.none, 0), (ErrorCode.none, 1)]

    run(scenario)


def test_an_error_is_told_and_holds_up_nobody() -> None:
    async def scenario(broker: CompressingBroker) -> None:
        damaged = bytearray(large(b"a"))
        damaged[500] ^= 1
        replies = [
            broker.send((0, bytes(damaged)), transactional_id=None),
            broker.send((0, large(b"b")), transactional_id=None),
        ]
        broker.offload.gate.set()
        codes = [b"".join(map(bytes, [await finished(reply)])) for reply in replies]
        assert broker.values() == [(0, b"b")]
        assert codes[0] != codes[1]
        assert await broker.produce((0, bytes(damaged)), transactional_id=None) == (
            ErrorCode.corrupt_message,
            -1,
        )

    run(scenario)


def test_a_partition_that_is_deleted_meanwhile() -> None:
    async def scenario(broker: CompressingBroker) -> None:
        reply = broker.send((0, large(b"a")), transactional_id=None)
        await asyncio.sleep(0)
        broker.partition().go_offline()
        broker.offload.gate.set()
        await finished(reply)
        assert broker.values() == []

    run(scenario)


def test_order_holds_when_the_topic_no_longer_asks_for_a_codec() -> None:
    async def scenario(broker: CompressingBroker) -> None:
        first = broker.send((0, large(b"a")), transactional_id=None)
        broker.codec("producer")
        second = broker.send((0, small(b"b")), transactional_id=None)
        assert isinstance(second, PendingReply)
        broker.offload.gate.set()
        await finished(second)
        await finished(first)
        assert broker.values() == [(0, b"a"), (1, b"b")]

    run(scenario)


def test_what_waits_is_bounded() -> None:
    async def scenario(broker: CompressingBroker) -> None:
        replicas: Any = broker.broker.replicas
        replicas.preparations = Preparations(waiting_bytes_max=120_000)
        waiting = [broker.send((0, large(letter)), transactional_id=None) for letter in (b"a", b"b")]
        refused = await broker.produce((0, large(b"c")), transactional_id=None)
        assert refused == (ErrorCode.not_enough_replicas, -1)
        broker.offload.gate.set()
        for reply in waiting:
            await finished(reply)
        assert broker.values() == [(0, b"a"), (1, b"b")]
        assert await broker.produce((0, large(b"d")), transactional_id=None) == (ErrorCode.none, 2)

    run(scenario)


@pytest.mark.parametrize("acks", [0, 1])
def test_it_is_done_elsewhere_whether_acknowledged_or_not(acks: int) -> None:
    async def scenario(broker: CompressingBroker) -> None:
        reply = broker.send((0, large(b"a")), transactional_id=None, acks=acks)
        assert (reply is None) == (acks == 0)
        second = broker.send((0, small(b"b")), transactional_id=None, acks=acks)
        assert broker.values() == []
        broker.offload.gate.set()
        await finished(reply)
        await finished(second)
        while broker.broker.replicas.preparations.queues:
            await asyncio.sleep(0)
        assert broker.values() == [(0, b"a"), (1, b"b")]

    run(scenario)


def test_transactional_records_wait_too() -> None:
    async def scenario(broker: CompressingBroker) -> None:
        rows = [Record(b"k", b"a" * 50_000, NOW_MS)]
        first = encode_batch(rows, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
        replies = [broker.send((0, first)), broker.send((0, batch(1))), broker.send((0, batch(2)))]
        broker.offload.gate.set()
        for reply in replies:
            await finished(reply)
        assert broker.values() == [(0, b"a"), (1, b"v"), (2, b"v")]

    run(scenario)
