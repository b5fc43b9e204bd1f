"""TLS of those who connect to this process.

The event loop's own TLS would encrypt an answer of fifty megabytes at once, and keep all of that for a client
that does not read; it would take a quarter of a megabyte for each connection, and do the arithmetic of each
handshake while everybody else waits. Here answers are encrypted as far as the client takes them, connections
that are idle hold next to nothing, and handshakes are computed in threads: OpenSSL lets others run meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol, cast

ACCEPT_AGAIN_SECONDS = 0.1
READ_BYTES_MAX = 256 * 1024
FIRST_READ_BYTES_MAX = 16 * 1024
"""What is read may have to be held for a while. Who sends much is read more at once."""
SLICE_BYTES = 128 * 1024
"""Of an answer that is encrypted at once. Much larger ones no longer fit the processor's caches."""
UNSENT_BYTES_MAX = 256 * 1024
"""Encrypted, and not taken by the client."""
TURN_BYTES_MAX = 256 * 1024
"""Of one client's answers that are encrypted before it is the turn of others."""
DEFAULT_HIGH_WATER = 64 * 1024

Peer = tuple[str, int]


class TlsDoor(Protocol):
    """Whoever comes in through TLS: `begin`, then `enter` or `failed`, then `end`."""

    handshake_seconds_max: float

    def begin(self, peer: Peer) -> ssl.SSLContext | None:
        """What to show it; None to turn it away."""
        ...

    def enter(self, peer: Peer) -> asyncio.BufferedProtocol: ...

    def failed(self, peer: Peer, error: OSError) -> None: ...

    def end(self, peer: Peer) -> None: ...


class TlsListener:
    """Accepts by itself: whoever connects is known, and counted, before its handshake begins."""

    def __init__(self, door: TlsDoor, sockets: list[socket.socket]) -> None:
        self._door = door
        self._sockets = sockets
        self.address: tuple[str, int] = sockets[0].getsockname()[:2]
        self._scratch = memoryview(bytearray(READ_BYTES_MAX))
        # Not all cores: strangers can have as many handshakes computed as they like.
        self._threads = ThreadPoolExecutor(max((os.cpu_count() or 1) // 2, 1), "tls-handshake")
        self._handshakes: set[TlsTransport] = set()
        loop = asyncio.get_running_loop()
        self._accepting = [loop.create_task(self._accept(each)) for each in sockets]

    async def close(self) -> None:
        for task in self._accepting:
            task.cancel()
        await asyncio.wait(self._accepting)
        for listening in self._sockets:
            listening.close()
        for transport in tuple(self._handshakes):
            transport.abort()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listening)
            except OSError:
                # No descriptor is left, or the client is gone already.
                await asyncio.sleep(ACCEPT_AGAIN_SECONDS)
                continue
            peer = (str(address[0]), int(address[1]))
            context = self._door.begin(peer)
            if context is None:
                accepted.close()
                continue
            accepted.setblocking(False)
            transport = TlsTransport(
                self._door, peer, context, self._scratch, self._threads, self._handshakes.discard
            )
            self._handshakes.add(transport)
            try:
                await loop.connect_accepted_socket(partial(_same, transport), accepted)
            except OSError as error:
                transport.connection_lost(error)


class TlsTransport(asyncio.Transport, asyncio.BufferedProtocol):
    """To the socket it is the protocol, and to the protocol of a connection the transport."""

    def __init__(
        self,
        door: TlsDoor,
        peer: Peer,
        context: ssl.SSLContext,
        scratch: memoryview,
        threads: Executor,
        handshake_ended: Callable[[TlsTransport], None],
    ) -> None:
        super().__init__()
        self._door = door
        self._peer = peer
        self._scratch = scratch
        self._target = scratch[:FIRST_READ_BYTES_MAX]
        self._threads = threads
        self._handshake_ended = handshake_ended
        self._loop = asyncio.get_running_loop()
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._raw: asyncio.Transport | None = None
        self._deadline = self._loop.call_later(door.handshake_seconds_max, self._late)
        self._is_shaking_hands = True
        self._app: asyncio.BufferedProtocol | None = None
        """Who reads and writes here, from the handshake to the end of the connection."""
        self._is_paused = False
        self._read_is_due = False
        self._backlog: deque[Any] = deque()
        """What is written and not encrypted yet: mostly views of log files, which cost no memory."""
        self._backlog_bytes = 0
        self._raw_is_full = False
        self._send_is_due = False
        self._app_is_paused = False
        self._high_water, self._low_water = DEFAULT_HIGH_WATER, DEFAULT_HIGH_WATER // 4
        self._is_closing = False

    # The socket's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast(asyncio.Transport, transport)
        self._raw.set_write_buffer_limits(UNSENT_BYTES_MAX)
        if self._is_closing:
            self._raw.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._target

    def buffer_updated(self, nbytes: int) -> None:
        target = self._target
        if nbytes < len(target):
            target = target[:nbytes]
        self._incoming.write(target)
        if self._is_shaking_hands:
            self._shake_hands()
        else:
            if nbytes == len(self._target) < READ_BYTES_MAX:
                self._target = self._scratch[: 2 * nbytes]
            self._read()

    def eof_received(self) -> bool:
        """What is written already may still be sent."""
        if self._is_shaking_hands:
            return False
        self.close()
        return True

    def pause_writing(self) -> None:
        self._raw_is_full = True

    def resume_writing(self) -> None:
        self._raw_is_full = False
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closing = True
        self._drop_backlog()
        if self._is_shaking_hands:
            self._fail(exc if isinstance(exc, OSError) else ConnectionResetError())
        app, self._app = self._app, None
        if app is not None:
            app.connection_lost(exc)

    # The handshake

    def _shake_hands(self) -> None:
        assert self._raw is not None
        # What comes meanwhile must not get in the way of the thread.
        self._raw.pause_reading()
        try:
            step = self._loop.run_in_executor(self._threads, _next_step, self._tls)
        except RuntimeError:
            # The listener is closed.
            self.abort()
            return
        step.add_done_callback(self._step_done)

    def _step_done(self, step: asyncio.Future[bool]) -> None:
        error = None if step.cancelled() else step.exception()
        if not self._is_shaking_hands or self._raw is None or self._raw.is_closing():
            return
        if self._outgoing.pending:
            self._raw.write(self._outgoing.read())
        if step.cancelled():
            self.abort()
        elif error is not None:
            self._fail(error if isinstance(error, OSError) else OSError(str(error)))
            self._raw.close()
        elif step.result():
            self._enter()
        else:
            self._raw.resume_reading()

    def _enter(self) -> None:
        assert self._raw is not None
        self._end_handshake()
        self._app = self._door.enter(self._peer)
        self._app.connection_made(self)
        self._door.end(self._peer)
        if not self._is_paused and not self.is_closing():
            self._raw.resume_reading()
            # Its first request may have come together with the end of its handshake.
            self._read()

    def _late(self) -> None:
        self._fail(TimeoutError())
        self.abort()

    def _fail(self, error: OSError) -> None:
        if self._is_shaking_hands:
            self._end_handshake()
            self._is_closing = True
            self._door.failed(self._peer, error)
            self._door.end(self._peer)

    def _end_handshake(self) -> None:
        self._is_shaking_hands = False
        self._deadline.cancel()
        self._handshake_ended(self)

    # Reading

    def _read(self) -> None:
        try:
            while not self._is_paused and not self._is_closing and self._app is not None:
                target = self._app.get_buffer(-1)
                filled, has_more = self._decrypt(memoryview(target))
                if filled:
                    self._app.buffer_updated(filled)
                if not has_more:
                    break
        except ssl.SSLError as error:
            self._break(error)
            return
        if self._outgoing.pending and self._raw is not None:
            # An alert, or a change of keys.
            self._raw.write(self._outgoing.read())

    def _decrypt(self, target: memoryview) -> tuple[int, bool]:
        """How many bytes there were, and whether there may be more."""
        tls, incoming = self._tls, self._incoming
        room, filled = len(target), 0
        while filled < room:
            # An exception costs as much as a whole record.
            if not incoming.pending and not tls.pending():
                return filled, False
            try:
                count = cast(int, tls.read(room - filled, target[filled:] if filled else target))
            except ssl.SSLWantReadError:
                return filled, False
            if not count:
                # The client has said that it is done.
                self._loop.call_soon(self.close)
                return filled, False
            filled += count
        return filled, True

    def _read_on(self) -> None:
        self._read_is_due = False
        self._read()

    def is_reading(self) -> bool:
        return not self._is_paused and not self.is_closing()

    def pause_reading(self) -> None:
        self._is_paused = True
        if self._raw is not None:
            self._raw.pause_reading()

    def resume_reading(self) -> None:
        if not self._is_paused or self._is_closing:
            return
        self._is_paused = False
        if self._is_shaking_hands or self._raw is None:
            return
        self._raw.resume_reading()
        if not self._read_is_due:
            self._read_is_due = True
            self._loop.call_soon(self._read_on)

    # Writing

    def write(self, data: Any) -> None:
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        if self.is_closing():
            return
        for data in list_of_data:
            if size := len(data):
                self._backlog.append(data)
                self._backlog_bytes += size
        if not self._send_is_due:
            self._send()

    def _send(self) -> None:
        """As much as the client takes, and it is its turn for."""
        raw, backlog, sent = self._raw, self._backlog, 0
        if raw is None:
            return
        try:
            while backlog and not self._raw_is_full and not raw.is_closing():
                if sent >= TURN_BYTES_MAX:
                    if not self._send_is_due:
                        self._send_is_due = True
                        self._loop.call_soon(self._send_on)
                    break
                sent += self._encrypt_slice()
                raw.write(self._outgoing.read())
        except ssl.SSLError as error:
            self._break(error)
            return
        self._tell_app()
        if self._is_closing and not backlog:
            self._say_goodbye()

    def _send_on(self) -> None:
        self._send_is_due = False
        self._send()

    def _encrypt_slice(self) -> int:
        backlog, taken = self._backlog, 0
        while backlog and taken < SLICE_BYTES:
            data = backlog[0]
            if len(data) <= SLICE_BYTES:
                backlog.popleft()
            else:
                data = memoryview(data)
                backlog[0] = data[SLICE_BYTES:]
                data = data[:SLICE_BYTES]
            taken += self._tls.write(data)
        self._backlog_bytes -= taken
        return taken

    def _tell_app(self) -> None:
        """Whether it may go on writing."""
        if self._app is None:
            return
        size = self.get_write_buffer_size()
        if size > self._high_water and not self._app_is_paused:
            self._app_is_paused = True
            self._app.pause_writing()
        elif size <= self._low_water and self._app_is_paused:
            self._app_is_paused = False
            self._app.resume_writing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_water = high if high is not None else DEFAULT_HIGH_WATER if low is None else 4 * low
        self._low_water = low if low is not None else self._high_water // 4

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low_water, self._high_water

    def get_write_buffer_size(self) -> int:
        unsent = 0 if self._raw is None else self._raw.get_write_buffer_size()
        return self._backlog_bytes + unsent

    def can_write_eof(self) -> bool:
        return False

    # The end

    def is_closing(self) -> bool:
        return self._is_closing or (self._raw is not None and self._raw.is_closing())

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            if self._raw is not None:
                self._raw.pause_reading()
            self._send()

    def abort(self) -> None:
        self._is_closing = True
        self._drop_backlog()
        if self._raw is not None:
            self._raw.abort()

    def _say_goodbye(self) -> None:
        raw = self._raw
        if raw is None or raw.is_closing():
            return
        # It would wait for the client's answer.
        with contextlib.suppress(ssl.SSLError):
            self._tls.unwrap()
        if self._outgoing.pending:
            raw.write(self._outgoing.read())
        raw.close()

    def _break(self, error: ssl.SSLError) -> None:
        """What came is not of this connection, or nothing can be sent in it any more."""
        self._is_closing = True
        self._drop_backlog()
        if self._raw is not None:
            if self._outgoing.pending:
                self._raw.write(self._outgoing.read())
            self._raw.close()

    def _drop_backlog(self) -> None:
        self._backlog.clear()
        self._backlog_bytes = 0

    # Who is at either end

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "ssl_object":
            return self._tls
        return default if self._raw is None else self._raw.get_extra_info(name, default)

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._app is not None
        return self._app

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._app = cast(asyncio.BufferedProtocol, protocol)


def _same(transport: TlsTransport) -> TlsTransport:
    return transport


def _next_step(tls: ssl.SSLObject) -> bool:
    """Of the handshake; whether it was the last one."""
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True
