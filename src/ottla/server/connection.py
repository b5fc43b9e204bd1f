"""One client's connection. Replies leave in request order; a bad request ends this connection alone."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias, cast

from ottla.handlers.registry import REGISTRY, Apis
from ottla.handlers.reply import PendingReply
from ottla.handlers.session import Session
from ottla.runtime.disk import ReadableBuffer
from ottla.runtime.turns import call_in_turn
from ottla.server.dispatch import Answer, Dispatch, add_header
from ottla.server.long_answers import UNCOUNTED_BYTES_MAX
from ottla.wire.frame import FrameReader, MalformedFrame

if TYPE_CHECKING:
    from ottla.server.guard import Guard
    from ottla.server.listener import ConnectionLimits

log = logging.getLogger(__name__)

# Reading from a connection stops while so many of its replies wait for their turn, or so many bytes of them,
# or while the client has left so many bytes unread. There may be thousands of connections.
PENDING_REPLIES_MAX = 128
PENDING_REPLY_BYTES_MAX = 256 * 1024
# Less would make consumers, who leave megabytes unread for a moment, wait for their next records.
WRITE_BUFFER_BYTES_MAX = 1024 * 1024
# Replies are handed over together, so that a small one costs no system call, but not more than this at once:
# what is not handed over is not known to the limit above.
WRITE_BYTES_MAX = 1024 * 1024
# A client may send many requests at once, and so may hundreds: after so long it is the turn of others.
TURN_SECONDS_MAX = 0.002
# Of a client that has yet to prove who it is. The longest that it has to send is a token of OAUTHBEARER.
UNTRUSTED_BYTES_MAX = 64 * 1024
REQUESTS_BETWEEN_LOOKS = 4
"""At the clock, whose price the fast requests would pay."""

NoteTime: TypeAlias = Callable[[Session, int, float, float], None]
"""Told whose request it was, its API key, the seconds it was worked on at once, and those to its answer."""
FinishedReply = tuple[list[ReadableBuffer], int]
"""With its size in bytes."""


class Connection(asyncio.BufferedProtocol):
    __slots__ = (
        "_apis",
        "_blocked",
        "_dispatch",
        "_draining",
        "_flush_due",
        "_guard",
        "_in_line",
        "_left_bytes",
        "_limits",
        "_listener",
        "_long_answers",
        "_muted_until",
        "_out",
        "_pending",
        "_pending_bytes",
        "_processing",
        "_reader",
        "_running",
        "_transport",
        "_unread_bytes",
        "_wanted_bytes",
        "_write_paused",
        "active",
        "quiet_ticks",
        "session",
    )

    def __init__(
        self, limits: ConnectionLimits, listener: str, apis: Apis = REGISTRY, guard: Guard | None = None
    ) -> None:
        self._limits = limits
        self._listener = listener
        self._apis = apis
        self._guard = guard
        self._dispatch: Dispatch = limits.dispatcher.dispatch
        self._long_answers = limits.dispatcher.long_answers
        self._reader = FrameReader(limits.scratch, limits.request_bytes, limits.request_bytes_max)
        self._out: list[ReadableBuffer] = []
        self._pending: deque[PendingReply | FinishedReply] = deque()
        self._pending_bytes = 0
        self._wanted_bytes = 0
        self._running: PendingReply | None = None
        """A request that is answered alone."""
        self._unread_bytes = 0
        """Of long answers, which the client has not read yet."""
        self._left_bytes = 0
        self._blocked = False
        self._draining = False
        self._flush_due = False
        self._in_line = False
        self._muted_until = 0.0
        """A client that has to wait for its quota is not read until then, in the time of the loop."""
        self._processing = False
        self._write_paused = False
        self.active = True
        self.quiet_ticks = 0

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername") or ("?", 0)
        self.session = Session(self._listener, str(peer[0]), peer[1], self._apis)
        self.session.on_throttled = self.mute
        if not self._limits.admit(self):
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(WRITE_BUFFER_BYTES_MAX)
        if self._guard is not None:
            self._be_met(self._guard)
        if not self._limits.serving:
            self._block()

    def connection_lost(self, error: Exception | None) -> None:
        self._limits.forget(self)
        # First, or memory that this one gives back would be granted to it.
        self._limits.request_bytes.leave(self._memory_granted)
        self._reader.close()
        self._let_go_of_long_answers()
        pending, self._pending = self._pending, deque()
        for reply in pending:
            if isinstance(reply, PendingReply):
                reply.cancel()
        session = self.session
        if session.authentication is not None:
            session.authentication.close()
        if session.on_closed is not None:
            session.on_closed()
        # Nothing is left that leads back here. Otherwise connections would stay until cycles are looked for,
        # and after a flood of them that stops everybody for a tenth of a second.
        session.authentication = session.on_closed = session.on_throttled = None
        self._dispatch = self._limits.dispatcher.dispatch

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
        self._let_go_of_long_answers()
        self._unblock()

    # Who it is

    def _be_met(self, guard: Guard) -> None:
        try:
            guard.meet(self, self._transport)
        except LookupError as error:
            self.complain(error)
            self._transport.abort()
            return
        if self.session.authentication is not None:
            self._reader.frame_bytes_max = UNTRUSTED_BYTES_MAX

    def complain(self, reason: object) -> None:
        # As text: who keeps what is logged would keep an error with all that it came through.
        self._limits.complain_of_request(self.session.address, self.session.host, str(reason))

    def trust(self) -> None:
        """It has proved who it is: its requests may be as long as anybody's."""
        self._reader.frame_bytes_max = self._limits.request_bytes_max

    def hand_frames_to(self, take: Callable[[memoryview], None] | None) -> None:
        """What comes next is no request; None for requests again."""
        if take is None:
            self._dispatch = self._limits.dispatcher.dispatch
        else:
            self._dispatch = lambda frame, session: (0, False, take(frame))

    def time_next(self, note: NoteTime) -> None:
        """Of all requests to come the next. Others need not even ask whether they are to be timed."""
        if self._dispatch != self._limits.dispatcher.dispatch:
            return
        monotonic = self._limits.monotonic

        def timed(frame: memoryview, session: Session) -> Answer:
            self._dispatch = self._limits.dispatcher.dispatch
            key = int.from_bytes(frame[:2])
            began = monotonic()
            answer = self._dispatch(frame, session)
            worked = monotonic() - began
            reply = answer[2]
            if isinstance(reply, PendingReply):
                # Its connection has to be told who waits for the reply first.
                asyncio.get_running_loop().call_soon(
                    reply.tell_before, lambda: note(session, key, worked, monotonic() - began)
                )
            else:
                note(session, key, worked, worked)
            return answer

        self._dispatch = timed

    # Requests

    def _process(self) -> None:  # noqa: PLR0912 - a call per branch would cost what this path may not
        """Handle every whole frame there is, unless the client has to wait."""
        reader = self._reader
        out = self._out
        out_bytes = 0
        handled = 0
        turn_ends = 0.0
        pending = self._pending
        self._processing = True
        try:
            while not self._blocked:
                frame = reader.next_frame()
                if frame is None:
                    break
                handled += 1
                if handled == REQUESTS_BETWEEN_LOOKS:
                    handled = 0
                    now = self._limits.monotonic()
                    if not turn_ends:
                        turn_ends = now + TURN_SECONDS_MAX
                    elif now > turn_ends:
                        self._let_others_go_first()
                correlation_id, flexible, body = self._dispatch(frame, self.session)
                if body is None:
                    continue
                if type(body) is list:
                    size = add_header(correlation_id, flexible, body)
                    if pending:
                        pending.append((body, size))
                        self._pending_bytes += size
                        self._block_if_too_much_is_pending()
                    else:
                        out += body
                        out_bytes += size
                        if out_bytes > WRITE_BYTES_MAX:
                            self._flush()
                            out_bytes = 0
                else:
                    reply = cast(PendingReply, body)
                    reply.bind(correlation_id, flexible, self._reply_ready)
                    pending.append(reply)
                    if reply.is_alone:
                        self._running = reply
                        self._block()
                    elif len(pending) >= PENDING_REPLIES_MAX:
                        self._block()
            if out:
                self._flush()
            needed = reader.make_room()
            if needed:
                self._make_room(needed)
        except (MalformedFrame, struct.error, IndexError, UnicodeDecodeError) as error:
            self._close_malformed(error)
        except Exception:
            log.exception("closing connection from %s: its request failed", self.session.address)
            self._transport.abort()
        finally:
            self._processing = False

    def _make_room(self, needed: int) -> None:
        """For the rest of a frame that has not come whole; if there is none, the client waits."""
        # Memory that others only keep for later comes before letting this client wait.
        if self._limits.reclaim():
            needed = self._reader.make_room()
            if not needed:
                return
        if not self._limits.may_wait_for_memory:
            log.warning(
                "closing connection from %s: queued.max.request.bytes is taken, and too many wait for it",
                self.session.address,
            )
            self._transport.abort()
            return
        self._block()
        self._wanted_bytes = needed
        self._limits.request_bytes.call_when_reserved(needed, self._memory_granted)

    def _memory_granted(self) -> None:
        granted, self._wanted_bytes = self._wanted_bytes, 0
        try:
            self._reader.accept(granted)
        except (OSError, MemoryError) as error:
            log.error(
                "closing connection from %s: no memory for %d bytes: %s", self.session.address, granted, error
            )
            self._transport.abort()
            return
        self._unblock()

    def _close_malformed(self, error: Exception) -> None:
        self.complain(error)
        if self._out:
            self._flush()
        self._transport.close()
        self._blocked = True

    def _block(self) -> None:
        if not self._blocked:
            self._blocked = True
            self._transport.pause_reading()

    def _block_if_too_much_is_pending(self) -> None:
        if len(self._pending) >= PENDING_REPLIES_MAX or self._pending_bytes >= PENDING_REPLY_BYTES_MAX:
            self._block()

    def _let_others_go_first(self) -> None:
        self._block()
        if not self._in_line:
            self._in_line = True
            call_in_turn(self._have_turn)

    def _have_turn(self) -> None:
        self._in_line = False
        self._unblock()

    def mute(self, wait_ms: int) -> None:
        """Read nothing for so long; what was read is answered."""
        self._block()
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_ms / 1000
        if until > self._muted_until:
            self._muted_until = until
            loop.call_at(until, self._unmute, until)

    def _unmute(self, until: float) -> None:
        # Not by the time, which the loop rounds: it may be a moment before.
        if until == self._muted_until:
            self._muted_until = 0.0
            self.session.throttle_ms = 0
            self._unblock()

    def abort_after(self, wait_ms: int) -> None:
        """For one that came too early: an answer at once would make it come again at once."""
        self.mute(wait_ms + 1000)
        asyncio.get_running_loop().call_later(wait_ms / 1000, self._transport.abort)

    def _unblock(self) -> None:
        if (
            self._blocked
            and not self._muted_until
            and self._limits.serving
            and not self._draining
            and not self._write_paused
            and not self._wanted_bytes
            and self._running is None
            and not self._in_line
            and not self._transport.is_closing()
            and len(self._pending) < PENDING_REPLIES_MAX
            and self._pending_bytes < PENDING_REPLY_BYTES_MAX
        ):
            self._blocked = False
            self._transport.resume_reading()
            self._process()

    # Replies

    def _reply_ready(self, reply: PendingReply) -> None:
        """A waiting reply is complete: send it, and those behind it, if it is their turn."""
        pending = self._pending
        head = pending[0]
        if reply.body is not None and (head is not reply or reply.is_alone):
            reply.size = add_header(reply.correlation_id, reply.flexible, reply.body)
            self._pending_bytes += reply.size
            if reply.is_alone and reply.size > UNCOUNTED_BYTES_MAX:
                self._unread_bytes += reply.size
                self._long_answers.made(reply.size)
        if head is not reply:
            self._block_if_too_much_is_pending()
            return
        out = self._out
        while pending:
            first = pending[0]
            if isinstance(first, PendingReply):
                if isinstance(first.error, MalformedFrame):
                    self._close_malformed(first.error)
                    return
                if first.error is not None:
                    log.error(
                        "closing connection from %s: a request failed",
                        self.session.address,
                        exc_info=first.error,
                    )
                    self._transport.abort()
                    return
                if first.body is None:
                    break
                if first.size:
                    self._pending_bytes -= first.size
                else:
                    add_header(first.correlation_id, first.flexible, first.body)
                out += first.body
                if first is self._running:
                    self._running = None
                    if self._reader.has_more:
                        # It asks without waiting for answers. It may, but others go first.
                        self._let_others_go_first()
            else:
                out += first[0]
                self._pending_bytes -= first[1]
            pending.popleft()
        # Not at once: replies that become ready in the same turn of the loop leave in one write. Requests
        # that are being handled end with a write anyway; only a blocked connection has to be looked at again.
        if not self._flush_due and (self._blocked or not self._processing):
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
        if self._unread_bytes and not self._write_paused:
            self._let_go_of_long_answers()

    def _let_go_of_long_answers(self) -> None:
        size, self._unread_bytes = self._unread_bytes, 0
        if size:
            self._long_answers.sent(size)

    # The listener's side

    @property
    def is_waiting(self) -> bool:
        """For answers, or for memory."""
        return bool(self._pending) or self._wanted_bytes > 0

    @property
    def waiting_fetches(self) -> int:
        return sum(isinstance(reply, PendingReply) and reply.waits_for_more for reply in self._pending)

    @property
    def unfinished_bytes(self) -> int:
        """Of a request of which the rest does not come. Others may wait for the memory that it takes."""
        return 0 if self._blocked else self._reader.unfinished_bytes

    @property
    def holds_request_bytes(self) -> bool:
        return self._reader.holds_unfinished

    @property
    def holds_long_answer(self) -> bool:
        return self._unread_bytes > 0

    def has_read_nothing(self) -> bool:
        """Of much that waits for it, since this was asked before."""
        left = self._transport.get_write_buffer_size() if self._write_paused else 0
        before, self._left_bytes = self._left_bytes, left
        return left > 0 and left == before

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
