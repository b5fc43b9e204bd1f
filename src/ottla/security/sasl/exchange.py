"""What all mechanisms have in common: they take messages and answer, or know in the end who it is."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class LoginRefused(Exception):
    """The text is for the client, and says nothing that would help to guess."""

    def __init__(self, message: str, detail: str = "") -> None:
        """`detail` is for the broker's own log."""
        super().__init__(message)
        self.detail = detail


class Granted(NamedTuple):
    principal: str
    message: bytes = b""
    """What the client is still to be told, such as that the broker knows its password, too."""
    expires_at_ms: int | None = None
    """When what it proved itself with expires."""
    by_token: bool = False


class Exchange(Protocol):
    """Of one login."""

    async def respond(self, message: bytes) -> bytes | Granted:
        """The next challenge, or who it is. Raises LoginRefused."""
        ...


def refused(mechanism: str, detail: str) -> LoginRefused:
    """In Apache Kafka's words, the same for whatever was wrong."""
    return LoginRefused(
        "Authentication failed during authentication due to invalid credentials with SASL mechanism "
        + mechanism,
        detail,
    )
