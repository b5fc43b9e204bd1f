"""Writing to the target: the batches of one transaction, as many requests under way as there is data for.

Nothing is sent twice. What fails takes the transaction with it, and the next one begins where the last that
was committed ended; so requests need not wait for each other, and no more is to be known of them than that
all succeeded. A connection keeps them in order, which is all that the sequence numbers of a producer ask for.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from ottla.client.admin.topics import Partition
from ottla.client.cluster import ClusterClient
from ottla.client.errors import error_for
from ottla.client.peer import Peer, PeerLost
from ottla.client.transaction import add_partitions
from ottla.mirror.batches import Batch
from ottla.mirror.offset_syncs import Run
from ottla.records.producer import ProducerIdentity
from ottla.records.stamp import next_sequence, stamped_parts, unplace
from ottla.runtime.disk import ReadableBuffer
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError, UnknownTopicOrPartition

_VERSION: Final = 8
"""The last in classic encoding."""
_ACKS_ALL: Final = -1
_TIMEOUT_MS: Final = 30_000
_REQUEST_BYTES_MAX: Final = 1024 * 1024
_IN_FLIGHT_BYTES_MAX: Final = 16 * 1024 * 1024

_OF_A_PARTITION: Final = frozenset(
    (
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.topic_authorization_failed,
        ErrorCode.operation_not_attempted,
    )
)

_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_HEAD = struct.Struct(">hii")  # acks, timeout, number of topics
_ROW = struct.Struct(">ihqqq")  # partition, error, base offset, time of the append, log start offset


class PartitionRefused(Exception):
    """The target takes nothing for one partition; others can go on without it."""

    def __init__(self, partition: Partition, error: KafkaError) -> None:
        super().__init__(f"{partition}: {error}")
        self.partition = partition
        self.error = error


class TransactionSender:
    """`send` batches, then `finish`: when it returns, all of them are in the target, to be committed."""

    def __init__(self, cluster: ClusterClient, transactional_id: str, producer: ProducerIdentity) -> None:
        self._cluster = cluster
        self._transactional_id = transactional_id
        self._producer = producer
        self._sequences: dict[Partition, int] = {}
        self._waiting: dict[int, dict[Partition, deque[Batch]]] = {}
        self._waiting_bytes = 0
        self._in_flight: set[asyncio.Task[None]] = set()
        self._in_flight_bytes = 0
        self._opening: set[Partition] = set()
        self._opened: set[Partition] = set()
        self._failure: BaseException | None = None
        self._is_less = asyncio.Event()
        self._peers: dict[int, Peer] = {}
        self.bytes = 0
        self.records = 0
        self.runs: dict[Partition, list[Run]] = {}
        """What became of the offsets, by the target's partitions."""

    async def announce(self, partitions: Iterable[Partition]) -> None:
        """Makes partitions part of the transaction, before anything is sent to them."""
        fresh = sorted(set(partitions) - self._sequences.keys())
        if not fresh:
            return
        try:
            await self._add(fresh)
        except KafkaError as error:
            if error.code not in _OF_A_PARTITION:
                raise
            # One of them is why: asked for alone it is known.
            for partition in fresh:
                try:
                    await self._add([partition])
                except KafkaError as refused:
                    raise PartitionRefused(partition, refused) from None
        self._sequences.update(dict.fromkeys(fresh, 0))

    async def send(self, partition: Partition, batches: Sequence[Batch]) -> None:
        """Raises what became of earlier ones; nothing may be sent then."""
        try:
            leader = (await self._cluster.retried(lambda: self._cluster.partition(*partition))).leader
        except UnknownTopicOrPartition as error:
            raise PartitionRefused(partition, error) from None
        self._waiting.setdefault(leader, {}).setdefault(partition, deque()).extend(batches)
        for batch in batches:
            self._waiting_bytes += len(batch.data)
            self.bytes += len(batch.data)
            self.records += batch.record_count
        await self._push()

    async def finish(self) -> None:
        await self._push()
        while self._waiting_bytes:
            await self._wait_less()
            await self._push()
        while self._in_flight:
            await self._wait_less()
        self._raise_failure()

    def cancel(self) -> None:
        for task in self._in_flight:
            task.cancel()
        self._in_flight.clear()

    async def _add(self, partitions: list[Partition]) -> None:
        await add_partitions(self._cluster, self._transactional_id, self._producer, partitions)

    async def _push(self) -> None:
        """Sends what waits, as far as it may go now."""
        while self._waiting_bytes:
            if self._in_flight_bytes >= _IN_FLIGHT_BYTES_MAX:
                await self._wait_less()
            elif not await self._send_requests():
                break
        self._raise_failure()

    async def _send_requests(self) -> bool:
        """One to each leader, with one batch for each partition, which is all that it may have; whether there
        was anything to send."""
        # A broker asks for the transaction with the first batch of a partition. What the producer sends
        # meanwhile waits there, and there is not much room for it.
        if self._opening:
            return False
        has_sent = False
        for leader, queues in list(self._waiting.items()):
            chosen: dict[str, list[tuple[int, Batch]]] = {}
            size = 0
            for partition in list(queues):
                if partition not in self._opened:
                    self._opening.add(partition)
                batch = queues[partition].popleft()
                if not queues[partition]:
                    del queues[partition]
                chosen.setdefault(partition.topic, []).append((partition.number, batch))
                size += len(batch.data)
                if size >= _REQUEST_BYTES_MAX:
                    break
            if chosen:
                if not queues:
                    del self._waiting[leader]
                self._waiting_bytes -= size
                self._start(await self._peer(leader), chosen, size)
                has_sent = True
        return has_sent

    async def _peer(self, leader: int) -> Peer:
        peer = self._peers.get(leader)
        if peer is None:
            peer = self._peers[leader] = await self._cluster.retried(lambda: self._cluster.node(leader))
            peer.version(ApiKey.PRODUCE, _VERSION)
        elif peer.is_lost:
            # What is under way there has failed, and the transaction with it.
            raise PeerLost(f"{peer.address}: the connection was lost")
        return peer

    def _start(self, peer: Peer, chosen: dict[str, list[tuple[int, Batch]]], size: int) -> None:
        body = self._encoded(chosen)
        sent = {Partition(topic, number): batch for topic, rows in chosen.items() for number, batch in rows}
        task = asyncio.ensure_future(self._produce(peer, body, sent))
        self._in_flight.add(task)
        self._in_flight_bytes += size

        def ended(task: asyncio.Task[None]) -> None:
            self._in_flight.discard(task)
            self._in_flight_bytes -= size
            if not task.cancelled() and (error := task.exception()) is not None and self._failure is None:
                self._failure = error
            self._is_less.set()

        task.add_done_callback(ended)

    async def _produce(
        self, peer: Peer, body: Sequence[ReadableBuffer], sent: dict[Partition, Batch]
    ) -> None:
        try:
            async with asyncio.timeout(2 * _TIMEOUT_MS / 1000):
                answer = await peer.ask_raw(ApiKey.PRODUCE, _VERSION, body)
        except TimeoutError:
            peer.close()
            raise PeerLost(f"{peer.address}: no answer to produce in {2 * _TIMEOUT_MS} ms") from None
        for partition, code, offset, message in _read_answer(answer):
            if code != ErrorCode.none:
                raise PartitionRefused(partition, error_for(code, message, ""))
            self._opening.discard(partition)
            self._opened.add(partition)
            runs = self.runs.setdefault(partition, [])
            runs += [Run(piece.offset, offset + piece.at, piece.records) for piece in sent[partition].pieces]

    def _encoded(self, chosen: dict[str, list[tuple[int, Batch]]]) -> list[ReadableBuffer]:
        parts: list[ReadableBuffer] = []
        head = bytearray(_text(self._transactional_id))
        head += _HEAD.pack(_ACKS_ALL, _TIMEOUT_MS, len(chosen))
        for topic, rows in chosen.items():
            head += _text(topic) + _I32.pack(len(rows))
            for number, batch in rows:
                partition = Partition(topic, number)
                sequence = self._sequences[partition]
                self._sequences[partition] = next_sequence(sequence, batch.record_count)
                header, records = stamped_parts(batch.data, *self._producer, sequence, transactional=True)
                unplace(header)
                head += _I32.pack(number) + _I32.pack(len(batch.data)) + header
                parts += [head, records]
                head = bytearray()
        return parts

    async def _wait_less(self) -> None:
        self._is_less.clear()
        await self._is_less.wait()
        self._raise_failure()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure


def _read_answer(body: memoryview) -> list[tuple[Partition, ErrorCode, int, str | None]]:
    """Partition, error, offset of the first record, and what the broker says of it."""
    found = []
    (topic_count,) = _I32.unpack_from(body)
    at = _I32.size
    for _ in range(topic_count):
        topic, at = _read_text(body, at)
        (count,) = _I32.unpack_from(body, at)
        at += _I32.size
        for _ in range(count):
            number, code, offset, _, _ = _ROW.unpack_from(body, at)
            at += _ROW.size
            (error_count,) = _I32.unpack_from(body, at)
            at += _I32.size
            messages = []
            for _ in range(error_count):
                message, at = _read_text(body, at + _I32.size)
                messages.append(message)
            message, at = _read_text(body, at)
            messages.append(message)
            said = next((text for text in messages if text), None)
            found.append((Partition(topic or "", number), ErrorCode(code), offset, said))
    return found


def _text(text: str) -> bytes:
    data = text.encode()
    return _I16.pack(len(data)) + data


def _read_text(body: memoryview, at: int) -> tuple[str | None, int]:
    (length,) = _I16.unpack_from(body, at)
    at += _I16.size
    if length < 0:
        return None, at
    return str(body[at : at + length], "utf-8"), at + length
