"""Connections before they are any: the handshake of TLS.

Whoever connects is counted from its first packet on, so that handshakes that are begun and left alone are
bounded as connections are, in number and in time. A failed one is told of with the address it came from.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.server.connection import Connection

if TYPE_CHECKING:
    from ottla.security.tls import ListenerTls
    from ottla.server.listener import ConnectionLimits

HANDSHAKE_SECONDS_MAX = 15.0
_TOO_LONG = "handshake is taking longer"


class ListenerDoor:
    """Of one listener; a `runtime.tls.TlsDoor`."""

    handshake_seconds_max = HANDSHAKE_SECONDS_MAX

    def __init__(
        self, limits: ConnectionLimits, listener: str, tls: ListenerTls, connection: Callable[[], Connection]
    ) -> None:
        self._limits = limits
        self._listener = listener
        self._tls = tls
        self._connection = connection

    def begin(self, peer: tuple[str, int]) -> ssl.SSLContext | None:
        return self._tls.context if self._limits.begin_handshake(*self._of(peer)) else None

    def enter(self, peer: tuple[str, int]) -> Connection:
        return self._connection()

    def failed(self, peer: tuple[str, int], error: OSError) -> None:
        self._limits.complain_of_tls(*self._of(peer), _reason(error))

    def end(self, peer: tuple[str, int]) -> None:
        self._limits.end_handshake(*self._of(peer))

    def _of(self, peer: tuple[str, int]) -> tuple[str, str, str]:
        return f"{peer[0]}:{peer[1]}", peer[0], self._listener


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return str(error.reason or error)
    if isinstance(error, TimeoutError) or _TOO_LONG in str(error):
        return f"it was not finished in {HANDSHAKE_SECONDS_MAX:g} s"
    return str(error) or "the client ended the connection"
