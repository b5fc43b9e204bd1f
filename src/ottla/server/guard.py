"""Who guards a listener: what a client has to do before anything else is served to it."""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING, NamedTuple, cast

from ottla.handlers.registry import BEFORE_AUTHENTICATION
from ottla.security.sasl.authentication import Authentication, Granted, LoginRefused
from ottla.wire.frame import MalformedFrame

if TYPE_CHECKING:
    import ssl

    from ottla.runtime.tasks import TaskScope
    from ottla.security.sasl.mechanisms import Mechanisms
    from ottla.security.tls import ListenerTls
    from ottla.server.connection import Connection


AUTHENTICATION_SECONDS_MAX = 30.0
_LENGTH = struct.Struct(">i")


class Guard(NamedTuple):
    tls: ListenerTls | None
    sasl: Mechanisms | None
    tasks: TaskScope

    def meet(self, connection: Connection, transport: asyncio.Transport) -> None:
        """A connection that has just been made. LookupError for one whose certificate has no name here."""
        session = connection.session
        if self.sasl is not None:
            session.apis = BEFORE_AUTHENTICATION
            session.authentication = Authentication(self.sasl, _Entry(connection, transport, self.tasks))
        elif self.tls is not None:
            shown = cast("ssl.SSLObject | None", transport.get_extra_info("ssl_object"))
            session.principal = self.tls.principal(shown) or session.principal


class _Entry:
    """What becomes of a connection as its client proves who it is, or fails to."""

    def __init__(self, connection: Connection, transport: asyncio.Transport, tasks: TaskScope) -> None:
        self.host = connection.session.host
        self.address = connection.session.address
        self._connection = connection
        self._transport = transport
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._is_answering = False
        self._deadline = self._loop.call_later(AUTHENTICATION_SECONDS_MAX, self._late)

    def admit(self, granted: Granted, lifetime_ms: int) -> None:
        self._deadline.cancel()
        session = self._connection.session
        session.principal = granted.principal
        session.is_by_token = granted.by_token
        session.apis = session.served
        self._connection.trust()
        if lifetime_ms > 0:
            self._deadline = self._loop.call_later(lifetime_ms / 1000, self._expire)

    def hang_up(self) -> None:
        """Once what is being answered is answered."""
        self._connection.drain()

    def close(self) -> None:
        self._deadline.cancel()

    def take_raw_tokens(self) -> None:
        self._connection.hand_frames_to(self._take_raw_token)

    def _late(self) -> None:
        self._connection.complain(f"it has not proved who it is in {AUTHENTICATION_SECONDS_MAX:.0f} s")
        self._transport.abort()

    def _expire(self) -> None:
        """The next request but to prove it again ends the connection: who asks for nothing may stay."""
        self._connection.session.apis = BEFORE_AUTHENTICATION

    # Messages without any header, as after SaslHandshake version 0.

    def _take_raw_token(self, frame: memoryview) -> None:
        if self._is_answering:
            raise MalformedFrame("it goes on before its login was answered")
        self._is_answering = True
        address = self._connection.session.address
        self._tasks.spawn(self._answer_raw_token(bytes(frame)), f"SASL {address}")

    async def _answer_raw_token(self, token: bytes) -> None:
        authentication = self._connection.session.authentication
        if authentication is None:
            # The client is gone.
            return
        try:
            answer = await authentication.step(token)
        except LoginRefused:
            await authentication.delay_refusal()
            self._transport.close()
            return
        finally:
            self._is_answering = False
        if authentication.is_done:
            self._connection.hand_frames_to(None)
        self._transport.write(_LENGTH.pack(len(answer.message)) + answer.message)
