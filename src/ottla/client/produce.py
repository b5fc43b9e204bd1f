"""Sending record batches to one partition, in order, several under way at a time.

Batches carry a producer and sequence numbers, so the broker drops what it has already: whatever is in doubt
after a lost connection or a new leader is simply sent again. It remembers the last five batches of a
producer, which is why no more than five are ever under way.

Until the first is in, it is the only one. A broker that does not know a producer takes whatever sequence
number it begins with, so a second batch could get in before a first that has to be sent again.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from typing import Any, Final

from ottla.client.cluster import ClusterClient
from ottla.client.errors import error_for, is_retriable
from ottla.client.messages import ask_codec
from ottla.client.peer import Peer, PeerLost
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError

VERSION: Final = 8
"""The last in classic encoding; nothing that came later is of use to a sender with its own transactions."""
IN_FLIGHT_MAX: Final = 5
ACKS_ALL: Final = -1
REQUEST_TIMEOUT_MS: Final = 30_000

_ACKS_TIMEOUT_COUNT = struct.Struct(">hii")
_PARTITION_COUNT_INDEX_LENGTH = struct.Struct(">iii")
_STRING_LENGTH = struct.Struct(">h")


class PartitionProducer:
    """`send` each batch, then `flush`: when it returns, all replicas in sync have them."""

    def __init__(
        self, cluster: ClusterClient, topic: str, partition: int, *, transactional_id: str | None = None
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._partition = partition
        self._about = f"produce to {topic}-{partition}"
        self._start = _start(topic, transactional_id)
        self._peer: Peer | None = None
        self._in_flight: deque[tuple[bytes, asyncio.Task[None]]] = deque()
        self._in_flight_max = 1

    async def send(self, batch: bytes) -> None:
        """Raises what became of an earlier batch; after that the partition must not be sent to again."""
        while len(self._in_flight) >= self._in_flight_max:
            await self._await_first()
        if self._peer is None or self._peer.is_lost:
            await self._await_all()
            self._peer = await self._cluster.retried(self._find_leader)
        task = asyncio.ensure_future(self._produce(self._peer, batch))
        self._in_flight.append((batch, task))
        # The request leaves now, not when somebody waits for its answer.
        await asyncio.sleep(0)

    async def flush(self) -> None:
        await self._await_all()

    @property
    def in_flight_bytes(self) -> int:
        """Of what is not known to be written yet."""
        return sum(len(batch) for batch, _ in self._in_flight)

    def cancel(self) -> None:
        for _, task in self._in_flight:
            task.cancel()
        self._in_flight.clear()

    async def _await_all(self) -> None:
        while self._in_flight:
            await self._await_first()

    async def _await_first(self) -> None:
        _, task = self._in_flight[0]
        try:
            await task
        except (KafkaError, OSError, PeerLost) as error:
            if isinstance(error, KafkaError) and not is_retriable(error.code):
                self.cancel()
                raise
            await self._send_again()
        else:
            self._in_flight.popleft()
        self._in_flight_max = IN_FLIGHT_MAX

    async def _send_again(self) -> None:
        """From the first that failed on, one after the other: those behind it failed because of it."""
        await asyncio.wait([task for _, task in self._in_flight])
        batches = [batch for batch, _ in self._in_flight]
        for _, task in self._in_flight:
            # Failures behind the first are expected here; taking them keeps asyncio from reporting them.
            task.exception()
        self._in_flight.clear()
        for batch in batches:

            async def attempt(batch: bytes = batch) -> None:
                self._peer = await self._find_leader()
                await self._produce(self._peer, batch)

            await self._cluster.retried(attempt)

    async def _find_leader(self) -> Peer:
        return await self._cluster.leader(self._topic, self._partition)

    async def _produce(self, peer: Peer, batch: bytes) -> None:
        await _produce(peer, self._start, self._partition, batch, self._about)


async def produce_once(cluster: ClusterClient, topic: str, partition: int, batch: bytes) -> int:
    """Sends a batch without a producer; its offset. Never twice: InDoubt where an answer was lost."""

    async def attempt() -> int:
        peer = await cluster.leader(topic, partition)
        try:
            return await _produce(
                peer, _start(topic, None), partition, batch, f"produce to {topic}-{partition}"
            )
        except PeerLost as error:
            raise InDoubt(f"{error}; the records may be in {topic}-{partition} or not") from error

    return await cluster.retried(attempt)


class InDoubt(Exception):
    """Whether something was done is not known, and doing it again might do it twice."""


async def _produce(peer: Peer, start: bytes, partition: int, batch: bytes, about: str) -> int:
    """The offset that the first record got; -1 for a batch that was there already."""
    peer.version(ApiKey.PRODUCE, VERSION)
    head = start + _PARTITION_COUNT_INDEX_LENGTH.pack(1, partition, len(batch))
    try:
        async with asyncio.timeout(2 * REQUEST_TIMEOUT_MS / 1000):
            answer = await peer.ask_raw(ApiKey.PRODUCE, VERSION, [head, batch])
    except TimeoutError:
        peer.close()
        raise PeerLost(f"{peer.address}: no answer to produce within {2 * REQUEST_TIMEOUT_MS} ms") from None
    result: Any = ask_codec(ApiKey.PRODUCE, VERSION).read(bytes(answer), 0)
    row = result.responses[0].partition_responses[0]
    if row.error_code not in (ErrorCode.none, ErrorCode.duplicate_sequence_number):
        raise error_for(row.error_code, row.error_message, about)
    offset: int = row.base_offset
    return offset


def _start(topic: str, transactional_id: str | None) -> bytes:
    """What all requests to a topic begin with."""
    return (
        _string(transactional_id) + _ACKS_TIMEOUT_COUNT.pack(ACKS_ALL, REQUEST_TIMEOUT_MS, 1) + _string(topic)
    )


def _string(text: str | None) -> bytes:
    if text is None:
        return _STRING_LENGTH.pack(-1)
    data = text.encode()
    return _STRING_LENGTH.pack(len(data)) + data
