"""Writes columns of records to topics as whole batches, past the client that takes records one by one.

Each partition has its batches sent in order by `PartitionProducer`, with the sequence numbers of one
producer, so that nothing comes twice however often it is sent. A thread encodes, the loop of the connection
sends; what is not acknowledged yet is bounded.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from ottla.client.cluster import ClusterClient
from ottla.client.errors import ClusterUnreachable
from ottla.client.peer import PeerUnusable
from ottla.client.pem_stores import SecurityError
from ottla.client.produce import PartitionProducer
from ottla.client.transaction import new_producer
from ottla.connect.running.known_settings import EVERY_CLIENT, knows_all
from ottla.records.compression import CODEC_NAMES
from ottla.records.producer import ProducerIdentity
from ottla.records.stamp import next_sequence, stamped
from ottla.spark.connection import Connection
from ottla.wire.errors import KafkaError

T = TypeVar("T")

_SIZE_MAX_DEFAULT: Final = 1_000_000
"""As librdkafka has it for `message.max.bytes`."""
_BATCH_BYTES_DEFAULT: Final = 512 * 1024
_RECORD_OVERHEAD_BYTES: Final = 100
_BUFFER_BYTES_DEFAULT: Final = 32 * 1024 * 1024
_DELIVERY_MS_DEFAULT: Final = 300_000
_COUNTS_S: Final = 300.0
_LOOK_S: Final = 0.1
_KNOWN: Final = EVERY_CLIENT | {
    "acks",
    "batch.size",
    "buffer.memory",
    "compression.type",
    "delivery.timeout.ms",
    "enable.idempotence",
    "key.serializer",
    "linger.ms",
    "max.block.ms",
    "max.in.flight.requests.per.connection",
    "max.request.size",
    "retries",
    "value.serializer",
}


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    bootstrap: str
    properties: Mapping[str, str]
    codec: int
    batch_bytes: int
    record_bytes_max: int
    buffer_bytes_max: int


def settings_of(client: Mapping[str, str]) -> ProducerSettings | None:
    """None if a producer's settings ask for what only the other client does."""
    if not knows_all(client, _KNOWN):
        return None
    codec = client.get("compression.type", "none").lower()
    timeout = {"default.api.timeout.ms": client.get("delivery.timeout.ms", str(_DELIVERY_MS_DEFAULT))}
    properties = {name: value for name, value in client.items() if name != "bootstrap.servers"} | timeout
    try:
        size_max = int(client.get("max.request.size", _SIZE_MAX_DEFAULT))
        return ProducerSettings(
            client["bootstrap.servers"],
            properties,
            CODEC_NAMES.index(codec),
            min(int(client.get("batch.size", _BATCH_BYTES_DEFAULT)), size_max),
            size_max - _RECORD_OVERHEAD_BYTES,
            int(client.get("buffer.memory", _BUFFER_BYTES_DEFAULT)),
        )
    except ValueError:
        # The other client says what is wrong with it.
        return None


class CannotSend(Exception):
    """The records are none for this way; nothing of them was sent."""


class ColumnProducer:
    """Used by one thread. `failed` is told, by another, of records that cannot be written any more.
    CannotSend for settings that no connection can be made with."""

    def __init__(self, settings: ProducerSettings, failed: Callable[[str, Exception], None]) -> None:
        self._settings = settings
        try:
            self._connection = Connection(settings.bootstrap, settings.properties)
        except (SecurityError, ValueError) as error:
            raise CannotSend(str(error)) from error
        self._cluster: ClusterClient = self._connection.cluster
        self._failed = failed
        self._identity: ProducerIdentity | None = None
        self._counts: dict[str, tuple[int, float]] = {}
        self._next: dict[str, int] = {}
        self._sequences: dict[tuple[str, int], int] = {}
        self._lanes: dict[tuple[str, int], _Lane] = {}
        self._changed = threading.Condition()
        self._unwritten_bytes = 0
        self._has_ended = False

    def send(
        self, topic: str, keys: Any, values: Any, timestamp_ms: int | None, stop: Callable[[], bool]
    ) -> None:
        """pa.BinaryArrays; returns when they may be forgotten. CannotSend."""
        import numpy as np
        import pyarrow.compute as pc

        from ottla.records.arrow_arrays import booleans_of
        from ottla.records.arrow_encode import RecordColumns, encode_columns
        from ottla.records.murmur import key_partitions

        largest = sum(
            0 if column is None or not len(column) else pc.max(pc.binary_length(column)).as_py() or 0
            for column in (keys, values)
        )
        if largest > self._settings.record_bytes_max:
            raise CannotSend(f"a record for {topic} may have {largest} bytes")
        count = self._partition_count(topic, stop)
        if self._identity is None:
            self._identity = self._asked(new_producer(self._cluster), topic, stop)
        rows = len(values)
        stamp = timestamp_ms or time.time_ns() // 1_000_000
        # Those without a key go together, and the next ones to the next partition.
        anywhere = self._next[topic] = (self._next.get(topic, -1) + 1) % count
        targets = None
        if keys is not None and keys.null_count < rows:
            targets = key_partitions(keys, count)
            if keys.null_count:
                targets[booleans_of(keys.is_null())] = anywhere
        columns = RecordColumns(keys, values, np.full(rows, stamp, np.int64))
        encoded = encode_columns(
            columns, targets, codec=self._settings.codec, batch_bytes=self._settings.batch_bytes
        )
        for batch in encoded:
            place = topic, anywhere if targets is None else batch.target
            sequence = self._sequences.get(place, 0)
            self._sequences[place] = next_sequence(sequence, batch.record_count)
            self._push(place, stamped(batch.data, *self._identity, sequence, transactional=False), stop)

    def flush(self, timeout_s: float) -> bool:
        """Whether all is acknowledged."""
        with self._changed:
            return self._changed.wait_for(
                lambda: not self._unwritten_bytes or self._has_ended, timeout_s
            ) and (not self._unwritten_bytes)

    def close(self) -> None:
        """What is not acknowledged yet may be in its topic or not."""
        self._connection.run(self._cancel())
        self._connection.close()

    def _partition_count(self, topic: str, stop: Callable[[], bool]) -> int:
        known = self._counts.get(topic)
        now_s = time.monotonic()
        if known is None or now_s - known[1] > _COUNTS_S:
            found = self._asked(self._cluster.topics([topic]), topic, stop)
            if topic not in found or not found[topic].partitions:
                raise CannotSend(f"there is no topic {topic}")
            known = self._counts[topic] = len(found[topic].partitions), now_s
        return known[0]

    def _asked(self, action: Coroutine[Any, Any, T], topic: str, stop: Callable[[], bool]) -> T:
        future = self._connection.start(action)
        while not stop():
            try:
                return future.result(_LOOK_S)
            except TimeoutError:
                if future.done():
                    raise CannotSend(f"no answer about {topic} in time") from None
            except (KafkaError, ClusterUnreachable, PeerUnusable, OSError) as error:
                raise CannotSend(f"cannot write to {topic}: {error}") from error
        future.cancel()
        raise CannotSend("it is to stop")

    def _push(self, place: tuple[str, int], batch: bytes, stop: Callable[[], bool]) -> None:
        with self._changed:
            while self._unwritten_bytes > self._settings.buffer_bytes_max and not stop():
                self._changed.wait(_LOOK_S)
            self._unwritten_bytes += len(batch)
        lane = self._lanes.get(place)
        if lane is None:
            sender = PartitionProducer(self._cluster, *place)
            lane = self._lanes[place] = _Lane(sender, place[0], self)
        self._connection.call(lane.push, batch)

    def written(self, size: int) -> None:
        with self._changed:
            self._unwritten_bytes -= size
            self._changed.notify_all()

    def fail(self, topic: str, error: Exception) -> None:
        self._failed(topic, error)
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    async def _cancel(self) -> None:
        for lane in self._lanes.values():
            await lane.cancel()


class _Lane:
    """The batches of one partition, on the event loop."""

    def __init__(self, sender: PartitionProducer, topic: str, producer: ColumnProducer) -> None:
        self._sender = sender
        self._topic = topic
        self._producer = producer
        self._waiting: deque[bytes] = deque()
        self._sent_bytes = 0
        self._task: asyncio.Task[None] | None = None
        self._has_failed = False

    def push(self, batch: bytes) -> None:
        self._waiting.append(batch)
        if self._task is None and not self._has_failed:
            self._task = asyncio.ensure_future(self._run())

    async def cancel(self) -> None:
        self._has_failed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._sender.cancel()

    async def _run(self) -> None:
        try:
            while self._waiting:
                while self._waiting:
                    batch = self._waiting.popleft()
                    self._sent_bytes += len(batch)
                    await self._sender.send(batch)
                    self._tell()
                await self._sender.flush()
                self._tell()
        except Exception as error:
            self._has_failed = True
            self._producer.fail(self._topic, error)
        finally:
            self._task = None

    def _tell(self) -> None:
        under_way = self._sender.in_flight_bytes
        written, self._sent_bytes = self._sent_bytes - under_way, under_way
        if written:
            self._producer.written(written)
