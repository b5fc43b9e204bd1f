"""One client's connection. Replies leave in request order; a bad request ends this connection alone."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from typing import TYPE_CHECKING, cast

from ottla.handlers.reply import PendingReply
from ottla.runtime.disk import ReadableBuffer
from ottla.server.dispatch import framed
from ottla.wire.frame import FrameReader, MalformedFrame

if TYPE_CHECKING:
    from ottla.server.listener import ConnectionLimits

log = logging.getLogger(__name__)

# Requests of one connection that may wait for their turn before reading from it stops.
PENDING_REPLIES_MAX = 128
WRITE_BUFFER_BYTES_MAX = 16 * 1024 * 1024

Reply = tuple[int, bool, list[ReadableBuffer]]


class Connection(asyncio.BufferedProtocol):
    __slots__ = (
        "_blocked",
        "_dispatch",
        "_draining",
        "_flush_due",
        "_limits",
        "_listener",
        "_out",
        "_pending",
        "_processing",
        "_reader",
        "_transport",
        "_write_paused",
        "active",
        "address",
        "host",
    )

    def __init__(self, limits: ConnectionLimits, listener: str) -> None:
        self._limits = limits
        self._listener = listener
        self._dispatch = limits.dispatcher.dispatch
        self._reader = FrameReader(limits.scratch, limits.request_bytes, limits.request_bytes_max)
        self._out: list[ReadableBuffer] = []
        self._pending: deque[PendingReply | Reply] = deque()
        self._blocked = False
        self._draining = False
        self._flush_due = False
        self._processing = False
        self._write_paused = False
        self.active = True
        self.address = "?"
        self.host = "?"

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername") or ("?", 0)
        self.host = str(peer[0])
        self.address = f"{peer[0]}:{peer[1]}"
        refusal = self._limits.admit(self)
        if refusal is not None:
            log.warning("refusing connection from %s: %s", self.address, refusal)
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(WRITE_BUFFER_BYTES_MAX)
        if not self._limits.serving:
            self._block()

    def connection_lost(self, error: Exception | None) -> None:
        self._limits.forget(self)
        self._reader.close()
        pending, self._pending = self._pending, deque()
        for reply in pending:
            if isinstance(reply, PendingReply):
                reply.cancel()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.target()

    def buffer_updated(self, size: int) -> None:
        self.active = True
        self._reader.received(size)
        self._process()

    def pause_writing(self) -> None:
        self._write_paused = True
        self._block()

    def resume_writing(self) -> None:
        self._write_paused = False
        self._unblock()

    # Requests

    def _process(self) -> None:
        """Handle every whole frame there is, unless the client has to wait."""
        reader = self._reader
        out = self._out
        pending = self._pending
        self._processing = True
        try:
            while not self._blocked:
                frame = reader.next_frame()
                if frame is None:
                    break
                correlation_id, flexible, body = self._dispatch(frame, self.address, self._listener)
                if body is None:
                    continue
                if type(body) is list:
                    if pending:
                        pending.append((correlation_id, flexible, body))
                    else:
                        out += framed(correlation_id, flexible, body)
                else:
                    reply = cast(PendingReply, body)
                    reply.bind(correlation_id, flexible, self._reply_ready)
                    pending.append(reply)
                    if len(pending) >= PENDING_REPLIES_MAX:
                        self._block()
        except (MalformedFrame, struct.error, IndexError, UnicodeDecodeError) as error:
            self._close_malformed(error)
            return
        except Exception:
            log.exception("closing connection from %s: its request failed", self.address)
            self._transport.abort()
            return
        finally:
            self._processing = False
        if out:
            self._flush()
        # Memory that others only keep for later comes before letting this client wait.
        if not reader.settle() and not (self._limits.reclaim() and reader.settle()):
            self._block()
            self._limits.request_bytes.call_when_free(self._unblock)

    def _close_malformed(self, error: Exception) -> None:
        log.warning("closing connection from %s: %s", self.address, error)
        if self._out:
            self._flush()
        self._transport.close()
        self._blocked = True

    def _block(self) -> None:
        if not self._blocked:
            self._blocked = True
            self._transport.pause_reading()

    def _unblock(self) -> None:
        if (
            self._blocked
            and not self._draining
            and not self._write_paused
            and not self._transport.is_closing()
            and len(self._pending) < PENDING_REPLIES_MAX
        ):
            self._blocked = False
            self._transport.resume_reading()
            self._process()

    # Replies

    def _reply_ready(self) -> None:
        """A waiting reply is complete: send it, and those behind it, if it is their turn."""
        pending = self._pending
        out = self._out
        while pending:
            reply = pending[0]
            if isinstance(reply, PendingReply):
                if reply.error is not None:
                    log.error(
                        "closing connection from %s: a request failed", self.address, exc_info=reply.error
                    )
                    self._transport.abort()
                    return
                if reply.body is None:
                    break
                out += framed(reply.correlation_id, reply.flexible, reply.body)
            else:
                out += framed(*reply)
            pending.popleft()
        # Not at once: replies that become ready in the same turn of the loop leave in one write.
        if not self._processing and not self._flush_due:
            self._flush_due = True
            asyncio.get_running_loop().call_soon(self._flush_ready)

    def _flush_ready(self) -> None:
        self._flush_due = False
        if self._transport.is_closing():
            return
        if self._out:
            self._flush()
        if self._draining:
            if not self._pending:
                self._transport.close()
        elif self._blocked:
            self._unblock()

    def _flush(self) -> None:
        out = self._out
        if len(out) == 1:
            self._transport.write(out[0])
        else:
            self._transport.writelines(out)
        out.clear()

    # The listener's side

    @property
    def is_waiting(self) -> bool:
        return bool(self._pending)

    def release_buffer(self) -> None:
        self._reader.release()

    def serve(self) -> None:
        """The broker is ready for those who connected early."""
        self._unblock()

    def close(self) -> None:
        """Let what is written go out, then close."""
        self._transport.close()

    def drain(self) -> None:
        """Take no more requests; close once the waiting ones are answered."""
        self._draining = True
        self._block()
        for reply in tuple(self._pending):
            if isinstance(reply, PendingReply):
                reply.hurry()
        self._flush_ready()

    def abort(self) -> None:
        self._transport.abort()
