"""One blocking connection to a broker that receives into one buffer and hands out views of it."""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")
HOST = "127.0.0.1"
LENGTH = struct.Struct(">i")
ANSWER_TIMEOUT_S = 60
FIRST_BUFFER_BYTES = 1 << 18


class Connection:
    """Answers leave a broker in request order, so nobody here looks at correlation ids."""

    tls: ssl.SSLContext | None = None
    """Of all connections that are made; see `through_tls`."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection((HOST, port), timeout=ANSWER_TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.tls is not None:
            self.socket = self.tls.wrap_socket(self.socket, server_hostname=HOST)
        self._view = memoryview(bytearray(FIRST_BUFFER_BYTES))
        self._start = 0
        self._end = 0

    def send(self, frames: bytes | bytearray | memoryview) -> None:
        self.socket.sendall(frames)

    def receive(self) -> memoryview:
        """The next answer without its length; the view holds until the next call."""
        self._await(4)
        length = LENGTH.unpack_from(self._view, self._start)[0]
        self._await(4 + length)
        answer = self._view[self._start + 4 : self._start + 4 + length]
        self._start += 4 + length
        return answer

    @property
    def has_answer(self) -> bool:
        """The next one has been received with the one before it: a selector does not know of it."""
        held = self._end - self._start
        return held >= 4 and held >= 4 + LENGTH.unpack_from(self._view, self._start)[0]

    def receive_exactly(self, count: int) -> memoryview:
        """The next `count` bytes of answers, lengths included."""
        self._await(count)
        answers = self._view[self._start : self._start + count]
        self._start += count
        return answers

    def call(self, frame: bytes) -> AnswerReader:
        self.send(frame)
        reader = AnswerReader(bytes(self.receive()))
        reader.int32()
        return reader

    def close(self) -> None:
        self.socket.close()

    def _await(self, count: int) -> None:
        if self._start == self._end:
            self._start = self._end = 0
        if self._start + count > len(self._view):
            held = self._view[self._start : self._end]
            if count > len(self._view):
                self._view = memoryview(bytearray(count * 2))
            self._view[: len(held)] = bytes(held)
            self._start, self._end = 0, len(held)
        while self._end - self._start < count:
            received = self.socket.recv_into(self._view[self._end :])
            if not received:
                raise ConnectionError("the broker closed the connection")
            self._end += received


@contextmanager
def through_tls(context: ssl.SSLContext) -> Iterator[None]:
    """Connections that are made meanwhile, also in processes forked meanwhile, speak TLS."""
    Connection.tls = context
    try:
        yield
    finally:
        Connection.tls = None


class AnswerReader:
    """Reads the rare answers (offsets, topic changes) field by field."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def int16(self) -> int:
        return self._take(">h")

    def int32(self) -> int:
        return self._take(">i")

    def int64(self) -> int:
        return self._take(">q")

    def string(self) -> str:
        """Null reads as empty."""
        length = max(self.int16(), 0)
        self._at += length
        return self._data[self._at - length : self._at].decode()

    def array(self, item: Callable[[AnswerReader], T]) -> list[T]:
        return [item(self) for _ in range(self.int32())]

    def _take(self, layout: str) -> int:
        (value,) = struct.unpack_from(layout, self._data, self._at)
        self._at += struct.calcsize(layout)
        return int(value)


def connect_when_open(port: int, alive: Callable[[], bool], timeout_s: float) -> Connection:
    """Tries every two milliseconds: this loop is inside the measured start time."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return Connection(port)
        except OSError:
            if not alive():
                raise ConnectionError("the broker ended before it opened its port") from None
            if time.monotonic() > deadline:
                raise ConnectionError(f"the broker did not open port {port} in {timeout_s:g} s") from None
            time.sleep(0.002)
