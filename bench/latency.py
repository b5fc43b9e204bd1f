"""End-to-end latency under a steady rate: from the moment a record was due to the moment a reader has it.

The sender is open-loop: its timetable does not depend on the answers, and a record's clock starts when it
was due, not when it could be sent, so a stall is counted in full. Everything that is due goes out at once as
one batch, without lingering, unless five requests are unanswered (the limit of the Java producer): then it
waits for an answer, and what comes due meanwhile shares the next batch. Record n of the topic was due at a
known time, so the reader needs no more than the offsets in the batch headers, and all frames can be encoded
beforehand.
"""

from __future__ import annotations

import ctypes
import math
import multiprocessing
import socket
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe

from bench import encoding
from bench.connection import Connection
from bench.replay import FETCH_WAIT_MS, PARTITION_BYTES_MAX, batch_ends, records_in_answer

RECORD_BYTES = 100
BURST_MAX = 1000
IN_FLIGHT_MAX = 5
LEAD_S = 0.3
PATIENCE_S = 30
NS = 1_000_000_000
PR_SET_TIMERSLACK = 29


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds."""

    p50: float
    p99: float
    p999: float


def measure(port: int, topic: str, rate: int, seconds: float, warm_up_s: float) -> Latency:
    """The topic is new and has one partition."""
    total = int(rate * (seconds + warm_up_s))
    frames = _frames(topic)
    forking = multiprocessing.get_context("fork")
    mine, theirs = forking.Pipe(duplex=False)
    begin_ns = time.monotonic_ns() + int(LEAD_S * NS)
    deadline_ns = begin_ns + int((seconds + warm_up_s + PATIENCE_S) * NS)
    reader = forking.Process(target=_read, args=(port, topic, total, deadline_ns, theirs))
    sender = forking.Process(target=_send, args=(port, topic, frames, rate, total, begin_ns))
    reader.start()
    sender.start()
    theirs.close()
    try:
        arrivals: list[tuple[int, int]] = mine.recv()
    except EOFError:
        sender.terminate()
        raise ConnectionError(f"reading {topic} at {rate} records/s broke off") from None
    finally:
        sender.join()
        reader.join()
    return summarise(arrivals, rate, begin_ns, skip=int(rate * warm_up_s))


def summarise(arrivals: Sequence[tuple[int, int]], rate: int, begin_ns: int, skip: int) -> Latency:
    """`arrivals` are (time, offset after the last record that had arrived by then), in order."""
    waits_ns = []
    offset = 0
    for arrived_ns, end in arrivals:
        for record in range(offset, end):
            if record >= skip:
                waits_ns.append(arrived_ns - (begin_ns + record * NS // rate))
        offset = end
    waits_ns.sort()
    return Latency(*(percentile(waits_ns, share) / 1e6 for share in (0.5, 0.99, 0.999)))


def percentile(ordered: Sequence[int], share: float) -> int:
    """Nearest rank."""
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]


def _frames(topic: str) -> list[bytes]:
    """Element k holds k records."""
    now_ms = int(time.time() * 1000)
    values = [bytes(RECORD_BYTES)] * BURST_MAX
    return [b""] + [
        encoding.produce_frame(topic, 0, encoding.record_batch(values[:count], now_ms), encoding.ACKS_ALL)
        for count in range(1, BURST_MAX + 1)
    ]


def _send(port: int, topic: str, frames: Sequence[bytes], rate: int, total: int, begin_ns: int) -> None:
    _wake_punctually()
    connection = Connection(port)
    # With a time-out, Python polls before each call and MSG_DONTWAIT means nothing.
    connection.socket.settimeout(None)
    answer_bytes, _ = encoding.produce_answer_layout(topic)
    buffer = bytearray(1 << 16)
    sent = 0
    unanswered_bytes = 0
    while sent < total:
        due = min((time.monotonic_ns() - begin_ns) * rate // NS + 1, total) - sent
        if due <= 0:
            time.sleep(max(begin_ns + sent * NS // rate - time.monotonic_ns(), 0) / NS)
            continue
        flags = 0 if unanswered_bytes >= answer_bytes * IN_FLIGHT_MAX else socket.MSG_DONTWAIT
        with suppress(BlockingIOError):
            unanswered_bytes -= connection.socket.recv_into(buffer, 0, flags)
        if unanswered_bytes >= answer_bytes * IN_FLIGHT_MAX:
            continue
        burst = min(due, BURST_MAX)
        connection.send(frames[burst])
        unanswered_bytes += answer_bytes
        sent += burst
    # Closing with answers unread would reset the connection, and requests still in it would be lost.
    while unanswered_bytes > 0:
        unanswered_bytes -= connection.socket.recv_into(buffer)
    connection.close()


def _read(port: int, topic: str, total: int, deadline_ns: int, results: Pipe) -> None:
    connection = Connection(port)
    frame, offset_at = encoding.fetch_frame(
        topic, 0, 0, wait_ms=FETCH_WAIT_MS, partition_bytes_max=PARTITION_BYTES_MAX
    )
    arrivals: list[tuple[int, int]] = []
    offset = 0
    while offset < total:
        if time.monotonic_ns() > deadline_ns:
            raise TimeoutError(f"{total - offset} of {total} records did not arrive")
        connection.send(frame)
        answer = connection.receive()
        now_ns = time.monotonic_ns()
        ends = batch_ends(answer, *records_in_answer(answer, topic))
        if ends:
            offset = ends[-1]
            arrivals.append((now_ns, offset))
            struct.pack_into(">q", frame, offset_at, offset)
    results.send(arrivals)
    connection.close()


def _wake_punctually() -> None:
    """Linux lets a sleeper oversleep by 50 µs unless it asks for less; half of a record's interval here."""
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)
