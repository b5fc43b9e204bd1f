"""The generator that replays pre-encoded requests over raw sockets, so that the client is not the limit.

It uses four connections with several requests in flight on each. A broker that serves one request per
connection at a time (as Apache Kafka does) can then still use all its threads, and one that serves
everything from a single loop is never left waiting for the generator.
"""

from __future__ import annotations

import multiprocessing
import selectors
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench import encoding
from bench.admin import BrokerRefused, end_offsets
from bench.brokers import RunningBroker
from bench.connection import ANSWER_TIMEOUT_S, Connection

PARTITIONS = 4
CONNECTIONS = 4
RECORDS_PER_BATCH = 1000
WINDOW = 4
SMALL_CHUNK = 8
SMALL_CHUNKS_IN_FLIGHT = 2
SMALL_RECORD_BYTES = 100
FETCH_WAIT_MS = 500
# The default of the Java consumer.
PARTITION_BYTES_MAX = 1 << 20
# Of one fetch answer for one partition: position of the error code behind the topic's name, and from there
# to the number of aborted transactions.
FETCH_ERROR_AFTER_NAME = 4 + 4
ABORTED_AFTER_ERROR = 2 + 8 + 8 + 8
MB = 1e6
GB = 1e9


@dataclass(frozen=True, slots=True)
class Measured:
    """What went through a broker, and what that cost it. Bytes are those of the record values."""

    value_bytes: int
    requests: int
    seconds: float
    cpu_seconds: float

    @property
    def mb_per_s(self) -> float:
        return self.value_bytes / MB / self.seconds

    @property
    def requests_per_s(self) -> float:
        return self.requests / self.seconds

    @property
    def cpu_s_per_gb(self) -> float:
        return self.cpu_seconds / (self.value_bytes / GB)

    @property
    def cpu_us_per_request(self) -> float:
        return self.cpu_seconds / self.requests * 1e6


def produce(broker: RunningBroker, topic: str, record_bytes: int, acks: int, total_bytes: int) -> Measured:
    requests = batches_in(record_bytes, total_bytes)
    frames = batch_frames(topic, record_bytes, acks)
    records = requests * RECORDS_PER_BATCH
    before = sum(end_offsets(broker.port, topic, PARTITIONS))
    load = _measure(
        broker, records * record_bytes, requests, lambda: send_batches(broker.port, frames, requests)
    )
    _expect(topic, sum(end_offsets(broker.port, topic, PARTITIONS)) - before, records)
    return load


def consume(broker: RunningBroker, topic: str, record_bytes: int) -> Measured:
    """Everything the topic holds, from the beginning."""
    ends = end_offsets(broker.port, topic, PARTITIONS)
    requests = 0

    def run() -> None:
        nonlocal requests
        requests = fetch_until(broker.port, topic, ends)

    load = _measure(broker, sum(ends) * record_bytes, 1, run)
    return Measured(load.value_bytes, requests, load.seconds, load.cpu_seconds)


def consume_tail(broker: RunningBroker, topic: str, record_bytes: int, total_bytes: int) -> Measured:
    """Reads the records of an empty topic while another process writes them as fast as it can."""
    requests = batches_in(record_bytes, total_bytes)
    frames = batch_frames(topic, record_bytes, encoding.ACKS_ALL)
    ends = [len(range(at, requests, PARTITIONS)) * RECORDS_PER_BATCH for at in range(PARTITIONS)]
    writer = multiprocessing.get_context("fork").Process(
        target=send_batches, args=(broker.port, frames, requests)
    )

    def run() -> None:
        writer.start()
        try:
            fetch_until(broker.port, topic, ends)
        finally:
            writer.join()

    return _measure(broker, sum(ends) * record_bytes, requests, run)


def small_requests(broker: RunningBroker, topic: str, partitions: int, count: int) -> Measured:
    """Produce requests with one 100-byte record each, going through the partitions in turn."""
    batch = encoding.record_batch([bytes(SMALL_RECORD_BYTES)], _now_ms())
    frames = [encoding.produce_frame(topic, at, batch, acks=1) for at in range(partitions)]
    frames *= SMALL_CHUNK if partitions % SMALL_CHUNK else 1
    chunks = [b"".join(frames[at : at + SMALL_CHUNK]) for at in range(0, len(frames), SMALL_CHUNK)]
    sends = max(count // SMALL_CHUNK, CONNECTIONS * SMALL_CHUNKS_IN_FLIGHT)
    records = sends * SMALL_CHUNK
    before = sum(end_offsets(broker.port, topic, partitions))
    load = _measure(
        broker, records * SMALL_RECORD_BYTES, records, lambda: _send_chunks(broker.port, topic, chunks, sends)
    )
    _expect(topic, sum(end_offsets(broker.port, topic, partitions)) - before, records)
    return load


def fetches_at(broker: RunningBroker, topic: str, places: Sequence[tuple[int, int]], count: int) -> Measured:
    """Fetches of at least one batch each at (partition, offset), going through the places in turn."""
    connections = [Connection(broker.port) for _ in range(CONNECTIONS)]
    frames = [
        bytes(encoding.fetch_frame(topic, partition, offset, wait_ms=0, partition_bytes_max=1)[0])
        for partition, offset in places
    ]
    received = 0

    def run() -> None:
        nonlocal received
        for at in range(count + CONNECTIONS):
            connection = connections[at % CONNECTIONS]
            if at >= CONNECTIONS:
                start, end = records_in_answer(connection.receive(), topic)
                received += end - start
            if at < count:
                connection.send(frames[at % len(frames)])

    load = _measure(broker, 1, count, run)
    for connection in connections:
        connection.close()
    if not received:
        raise BrokerRefused(f"fetches from {topic} returned nothing")
    return Measured(received, count, load.seconds, load.cpu_seconds)


def batches_in(record_bytes: int, total_bytes: int) -> int:
    return max(total_bytes // (record_bytes * RECORDS_PER_BATCH), CONNECTIONS)


def batch_frames(topic: str, record_bytes: int, acks: int, records: int = RECORDS_PER_BATCH) -> list[bytes]:
    """One frame per partition, each with one batch."""
    batch = encoding.record_batch([bytes(record_bytes)] * records, _now_ms())
    return [encoding.produce_frame(topic, partition, batch, acks) for partition in range(PARTITIONS)]


def fetch_until(port: int, topic: str, ends: Sequence[int]) -> int:
    """One connection per partition, one fetch in flight on each; returns the number of fetches."""
    fetches = 0
    with selectors.DefaultSelector() as selector:
        for partition, end in enumerate(ends):
            reader = _PartitionReader(port, topic, partition, end)
            selector.register(reader.connection.socket, selectors.EVENT_READ, reader)
            reader.request()
        while selector.get_map():
            ready = selector.select(ANSWER_TIMEOUT_S)
            if not ready:
                raise TimeoutError(f"no fetch from {topic} was answered for {ANSWER_TIMEOUT_S} s")
            fetches += len(ready)
            for key, _ in ready:
                reader = key.data
                if reader.take() >= reader.end:
                    selector.unregister(reader.connection.socket)
                    reader.connection.close()
                else:
                    reader.request()
    return fetches


def records_in_answer(answer: memoryview, topic: str) -> tuple[int, int]:
    """Where the record batches of a fetch answer for one partition begin and end."""
    error_at = 4 + 4 + 2 + 4 + 4 + 2 + len(topic) + FETCH_ERROR_AFTER_NAME
    (error,) = struct.unpack_from(">h", answer, error_at)
    if error:
        raise BrokerRefused(f"a fetch from {topic} failed with error code {error}")
    at = error_at + ABORTED_AFTER_ERROR
    (aborted,) = struct.unpack_from(">i", answer, at)
    at += 4 + 16 * max(aborted, 0) + 4
    (length,) = struct.unpack_from(">i", answer, at)
    return at + 4, at + 4 + max(length, 0)


def batch_ends(answer: memoryview, start: int, end: int) -> list[int]:
    """The offset after each whole batch. Records are not looked at."""
    ends = []
    while start + 61 <= end:
        base, length = struct.unpack_from(">qi", answer, start)
        if start + 12 + length > end:
            break
        ends.append(base + struct.unpack_from(">i", answer, start + 23)[0] + 1)
        start += 12 + length
    return ends


class _PartitionReader:
    def __init__(self, port: int, topic: str, partition: int, end: int) -> None:
        self.connection = Connection(port)
        self.end = end
        self._topic = topic
        self._offset = 0
        self._frame, self._offset_at = encoding.fetch_frame(
            topic, partition, 0, wait_ms=FETCH_WAIT_MS, partition_bytes_max=PARTITION_BYTES_MAX
        )

    def request(self) -> None:
        struct.pack_into(">q", self._frame, self._offset_at, self._offset)
        self.connection.send(self._frame)

    def take(self) -> int:
        """Receives one answer; returns the offset to go on from."""
        answer = self.connection.receive()
        ends = batch_ends(answer, *records_in_answer(answer, self._topic))
        if ends:
            self._offset = ends[-1]
        return self._offset


def send_batches(port: int, frames: Sequence[bytes], count: int) -> None:
    connections = [Connection(port) for _ in range(CONNECTIONS)]
    for at in range(count + CONNECTIONS * WINDOW):
        connection = connections[at % CONNECTIONS]
        if at >= CONNECTIONS * WINDOW:
            connection.receive()
        if at < count:
            connection.send(frames[at % len(frames)])
    for connection in connections:
        connection.close()


def _send_chunks(port: int, topic: str, chunks: Sequence[bytes], sends: int) -> None:
    """Several frames per system call and several answers per check: both brokers outrun a simpler loop."""
    answer_bytes, error_at = encoding.produce_answer_layout(topic)
    connections = [Connection(port) for _ in range(CONNECTIONS)]
    in_flight = CONNECTIONS * SMALL_CHUNKS_IN_FLIGHT
    for at in range(sends + in_flight):
        connection = connections[at % CONNECTIONS]
        if at >= in_flight:
            answers = connection.receive_exactly(answer_bytes * SMALL_CHUNK)
            if any(answers[error_at::answer_bytes]) or any(answers[error_at + 1 :: answer_bytes]):
                raise BrokerRefused(f"a produce request for {topic} failed")
        if at < sends:
            connection.send(chunks[at % len(chunks)])
    for connection in connections:
        connection.close()


def _measure(broker: RunningBroker, value_bytes: int, requests: int, run: Callable[[], None]) -> Measured:
    cpu, begin = broker.cpu_seconds(), time.monotonic()
    run()
    seconds = time.monotonic() - begin
    return Measured(value_bytes, requests, seconds, broker.cpu_seconds() - cpu)


def _expect(topic: str, found: int, expected: int) -> None:
    if found != expected:
        raise BrokerRefused(f"{topic} grew by {found} records where {expected} were acknowledged")


def _now_ms() -> int:
    return int(time.time() * 1000)
