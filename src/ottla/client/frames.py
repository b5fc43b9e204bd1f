"""Cuts the bytes of a connection into answers. Large ones land where they stay, without a copy."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import cast

# What a request may ask of our memory; the first bytes of another protocol read as far more.
ANSWER_BYTES_MAX = 512 * 1024 * 1024
SCRATCH_BYTES = 64 * 1024
CLOSED = "closed the connection"
NOT_KAFKA = "does not answer as a Kafka broker would"

_LENGTH = struct.Struct(">i")


class Frames(asyncio.BufferedProtocol):
    """Small answers pass through a scratch buffer; one that outgrows it gets a buffer of its own size."""

    def __init__(
        self,
        connected: Callable[[asyncio.WriteTransport], None],
        answered: Callable[[bytes | memoryview], None],
        ended: Callable[[str], None],
    ) -> None:
        self._on_connected = connected
        self._on_answer = answered
        self._on_end = ended
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._target = self._scratch
        self._end = 0
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not an isinstance check: uvloop's transports are none of asyncio's classes.
        self._transport = cast(asyncio.WriteTransport, transport)
        self._on_connected(self._transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._target[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        if self._target is not self._scratch:
            if self._end == len(self._target):
                frame, self._target, self._end = self._target, self._scratch, 0
                self._on_answer(frame.toreadonly())
            return
        start = 0
        while self._end - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._scratch, start)
            if not 0 <= length <= ANSWER_BYTES_MAX:
                self._refuse()
                return
            at = start + _LENGTH.size
            if self._end - at < length:
                if _LENGTH.size + length > SCRATCH_BYTES:
                    self._move_out(at, length)
                    return
                break
            start = at + length
            self._on_answer(bytes(self._scratch[at:start]))
        left = self._end - start
        self._scratch[:left] = bytes(self._scratch[start : self._end])
        self._end = left

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_end(str(exc) if exc is not None else CLOSED)

    def _move_out(self, at: int, length: int) -> None:
        arrived = self._end - at
        self._target = memoryview(bytearray(length))
        self._target[:arrived] = self._scratch[at : self._end]
        self._end = arrived

    def _refuse(self) -> None:
        self._on_end(NOT_KAFKA)
        if self._transport is not None:
            self._transport.abort()
