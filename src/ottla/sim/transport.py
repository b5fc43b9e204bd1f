"""Both ends of a simulated TCP connection, as asyncio transports.

Bytes of one direction stay in order; when they arrive and in which pieces is chance. Written buffers are
copied only when the loop comes round, as with uvloop: changing one right after `write` is a bug that shows.
"""

from __future__ import annotations

import asyncio
import enum
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import Context
from typing import Any, Protocol, TypeAlias

from ottla.sim.loop import SimLoop

Address: TypeAlias = tuple[str, int]

SOCKET_BUFFER_BYTES = 64 * 1024
"""The kernel takes so much that the other side has not read yet; only more counts as write buffer."""
HIGH_WATER_BYTES = 64 * 1024


class Ending(enum.Enum):
    EOF = "eof"
    RESET = "reset"


class Fabric(Protocol):
    """What a connection needs to know of its network."""

    loop: SimLoop
    context: Context

    def delay_s(self, source: str, target: str) -> float: ...

    def piece_bytes(self, available: int) -> int: ...

    def reaches(self, source: str, target: str) -> bool: ...

    def stall(self, wire: Wire) -> None:
        """Pump the wire again when reachability changes."""
        ...

    def forget(self, transport: SimTransport) -> None: ...


class Wire:
    """One direction of a connection."""

    def __init__(self, fabric: Fabric, sender: SimTransport, receiver: SimTransport) -> None:
        self.unread_bytes = 0
        """Left the sender, not yet taken by the receiving protocol."""
        self._fabric = fabric
        self._sender = sender
        self._receiver = receiver
        self._travelling: deque[tuple[float, bytes | Ending]] = deque()
        self._cut = False

    def send(self, item: bytes | Ending) -> None:
        if self._cut:
            return
        if isinstance(item, bytes):
            self.unread_bytes += len(item)
        arrival = self._fabric.loop.time() + self._fabric.delay_s(self._sender.host, self._receiver.host)
        self._travelling.append((arrival, item))
        self._fabric.loop.call_at(arrival, self.pump, context=self._fabric.context)

    def pump(self) -> None:
        """Hand over what has arrived; what overtook an earlier piece waits for it.

        Behind a partition everything waits: TCP keeps retransmitting.
        """
        while self._travelling and self._travelling[0][0] <= self._fabric.loop.time():
            if not self._fabric.reaches(self._sender.host, self._receiver.host):
                self._fabric.stall(self)
                return
            self._receiver.arrive(self._travelling.popleft()[1])

    def read(self, size: int) -> None:
        self.unread_bytes -= size
        self._sender.written_bytes_were_read()

    def cut(self) -> None:
        """Nothing arrives any more: what followed a gap would be another stream."""
        self._cut = True
        self._travelling.clear()


class SimTransport(asyncio.Transport):
    incoming: Wire
    outgoing: Wire

    def __init__(
        self, fabric: Fabric, host: str, sockname: Address, peername: Address, context: Context
    ) -> None:
        super().__init__({"sockname": sockname, "peername": peername})
        self.host = host
        self._fabric = fabric
        self._loop = fabric.loop
        self._context = context
        self._protocol: asyncio.BaseProtocol | None = None
        self._received = bytearray()
        self._eof_received = False
        self._reading = True
        self._delivering = False
        self._unsent: list[bytes | bytearray | memoryview] = []
        self._unsent_bytes = 0
        self._eof_written = False
        self._closing = False
        self._lost = False
        self._writing_paused = False
        self._high, self._low = HIGH_WATER_BYTES, HIGH_WATER_BYTES // 4

    def start(self, factory: Callable[[], asyncio.BaseProtocol]) -> asyncio.BaseProtocol:
        protocol = self._protocol = factory()
        protocol.connection_made(self)
        self._deliver_soon()
        return protocol

    # Reading.

    def arrive(self, item: bytes | Ending) -> None:
        if item is Ending.RESET:
            self.lose(ConnectionResetError("connection reset by peer"))
        elif self._closing:
            if isinstance(item, bytes):
                self.incoming.read(len(item))
                if self._lost:
                    self.outgoing.send(Ending.RESET)
        elif item is Ending.EOF:
            self._eof_received = True
            self._deliver_soon()
        elif isinstance(item, bytes):
            self._received += item
            self._deliver_soon()

    def _deliver_soon(self) -> None:
        if not self._delivering and self._protocol is not None and (self._received or self._eof_received):
            self._delivering = True
            self._call_soon(self._deliver)

    def _deliver(self) -> None:
        self._delivering = False
        if not self._reading or self._closing:
            return
        try:
            if self._received:
                self._deliver_piece(self._fabric.piece_bytes(len(self._received)))
            elif self._eof_received:
                self._eof_received = False
                assert isinstance(self._protocol, (asyncio.Protocol, asyncio.BufferedProtocol))
                if not self._protocol.eof_received():
                    self.close()
        except Exception as error:
            self._loop.call_exception_handler(
                {"message": "protocol failed", "exception": error, "transport": self}
            )
            self.abort()
        if not self._closing:
            self._deliver_soon()

    def _deliver_piece(self, size: int) -> None:
        protocol = self._protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            buffer = memoryview(protocol.get_buffer(-1)).cast("B")
            if not buffer:
                raise RuntimeError("get_buffer() returned an empty buffer")
            size = min(size, len(buffer))
            buffer[:size] = self._received[:size]
            del self._received[:size]
            protocol.buffer_updated(size)
        else:
            assert isinstance(protocol, asyncio.Protocol)
            piece = bytes(self._received[:size])
            del self._received[:size]
            protocol.data_received(piece)
        self.incoming.read(size)

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self._deliver_soon()

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    # Writing.

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f"data: expected a bytes-like object, not {type(data).__name__}")
        if self._eof_written:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._closing or not data:
            return
        if not self._unsent:
            self._call_soon(self._depart)
        self._unsent.append(data)
        self._unsent_bytes += memoryview(data).nbytes
        if self.get_write_buffer_size() > self._high and not self._writing_paused:
            self._writing_paused = True
            assert self._protocol is not None
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview[Any]]) -> None:
        for data in list_of_data:
            self.write(data)

    def _depart(self) -> None:
        if self._unsent and not self._lost:
            data = b"".join(self._unsent)
            self._unsent.clear()
            self._unsent_bytes = 0
            self.outgoing.send(data)
            self.written_bytes_were_read()

    def written_bytes_were_read(self) -> None:
        size = self.get_write_buffer_size()
        if self._writing_paused and size <= self._low:
            self._writing_paused = False
            self._call_soon(self._resume_writing)
        if size == 0:
            self._finish_closing()

    def _resume_writing(self) -> None:
        if not self._writing_paused and not self._lost:
            assert self._protocol is not None
            self._protocol.resume_writing()

    def write_eof(self) -> None:
        if not self._eof_written and not self._closing:
            self._depart()
            self._eof_written = True
            self.outgoing.send(Ending.EOF)

    def can_write_eof(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return self._unsent_bytes + max(0, self.outgoing.unread_bytes - SOCKET_BUFFER_BYTES)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = HIGH_WATER_BYTES if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._high, self._low = high, low

    # The end.

    def close(self) -> None:
        """What was written is still sent, then the connection ends."""
        if not self._closing:
            self._closing = True
            self._drop_received()
            if self.get_write_buffer_size() == 0:
                self._finish_closing()

    def _finish_closing(self) -> None:
        if self._closing and not self._lost:
            if not self._eof_written:
                self.outgoing.send(Ending.EOF)
            self.lose(None)

    def abort(self) -> None:
        if not self._lost:
            self.outgoing.send(Ending.RESET)
            self.lose(None)

    def lose(self, error: Exception | None) -> None:
        """The connection is gone; the protocol is told once."""
        if not self._lost:
            self._closing = self._lost = True
            self._unsent.clear()
            self._unsent_bytes = 0
            self._drop_received()
            self._fabric.forget(self)
            if self._protocol is not None:
                self._call_soon(self._protocol.connection_lost, error)

    def die(self, *, kernel_survives: bool) -> None:
        """The process is gone. Its kernel, if still there, says so to the other side."""
        if not self._lost:
            if kernel_survives:
                self.outgoing.send(Ending.RESET if self._received else Ending.EOF)
            self._protocol = None
            self.lose(None)

    def _drop_received(self) -> None:
        size = len(self._received)
        self._received.clear()
        if size:
            self.incoming.read(size)

    def is_closing(self) -> bool:
        return self._closing

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def _call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        self._loop.call_soon(callback, *args, context=self._context)
