"""One connection's way in: a mechanism is named, its messages go to and fro, and the client is somebody.

The same once more while the connection is used: who it is may not change, nor how it is proved (KIP-368).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ottla.security.sasl.exchange import Exchange, Granted, LoginRefused

if TYPE_CHECKING:
    from ottla.security.sasl.mechanisms import Mechanisms

__all__ = ["Authentication", "Granted", "IllegalStep", "LoginRefused"]

log = logging.getLogger(__name__)

STEPS_MAX = 8
"""No mechanism needs as many."""


class IllegalStep(LoginRefused):
    """Out of order."""


class Answer(NamedTuple):
    message: bytes
    lifetime_ms: int = 0
    """How long the session may last; 0 for ever."""


class Entry(Protocol):
    """The connection, as far as logins concern it."""

    host: str
    address: str

    def admit(self, granted: Granted, lifetime_ms: int) -> None: ...

    def hang_up(self) -> None: ...

    def close(self) -> None: ...

    def take_raw_tokens(self) -> None: ...


class Authentication:
    def __init__(self, mechanisms: Mechanisms, entry: Entry) -> None:
        self._mechanisms = mechanisms
        self._entry = entry
        self._mechanism = ""
        self._exchange: Exchange | None = None
        self._steps = 0
        self._granted: tuple[str, Granted] | None = None
        """By which mechanism, and as whom."""

    @property
    def mechanisms(self) -> tuple[str, ...]:
        return self._mechanisms.names

    @property
    def is_done(self) -> bool:
        return self._exchange is None and self._granted is not None

    def give_up(self) -> bool:
        """Whether a login was under way. To begin anew would be to guess without delay, and unheard of."""
        if self._exchange is None:
            return False
        self._exchange = None
        refusal = IllegalStep("SaslHandshake came in the middle of a login")
        self._mechanisms.refused(self._entry.host, self._entry.address, self._mechanism, refusal)
        return True

    def begin(self, mechanism: str, *, takes_raw_tokens: bool = False) -> bool:
        """Whether the mechanism is one of those that are taken."""
        exchange = self._mechanisms.exchange(mechanism)
        if exchange is None:
            return False
        self._mechanism, self._exchange, self._steps = mechanism, exchange, 0
        if takes_raw_tokens:
            self._entry.take_raw_tokens()
        return True

    async def step(self, message: bytes) -> Answer:
        """Raises LoginRefused, with what the client may be told."""
        exchange = self._exchange
        if exchange is None:
            raise IllegalStep("SaslAuthenticate came before SaslHandshake had named a mechanism")
        self._steps += 1
        try:
            if self._steps > STEPS_MAX or len(message) > self._mechanisms.message_bytes_max:
                raise LoginRefused("The messages of this login are too long, or too many")
            outcome = await exchange.respond(message)
            if isinstance(outcome, bytes):
                return Answer(outcome)
            self._check_unchanged(outcome)
        except LoginRefused as refusal:
            self._exchange = None
            self._mechanisms.refused(self._entry.host, self._entry.address, self._mechanism, refusal)
            raise
        self._exchange = None
        self._granted = self._mechanism, outcome
        lifetime_ms = self._mechanisms.lifetime_ms(self._mechanism, outcome)
        self._entry.admit(outcome, lifetime_ms)
        return Answer(outcome.message, lifetime_ms)

    async def delay_refusal(self) -> None:
        """Guessing takes time; then the connection ends."""
        await asyncio.sleep(self._mechanisms.failure_delay_ms / 1000)
        self._entry.hang_up()

    def close(self) -> None:
        """The connection is gone."""
        self._entry.close()

    def _check_unchanged(self, granted: Granted) -> None:
        if self._granted is None:
            return
        mechanism, before = self._granted
        if mechanism != self._mechanism:
            raise LoginRefused(
                f"SASL mechanism '{self._mechanism}' requested by client is not supported for "
                f"re-authentication of mechanism '{mechanism}'"
            )
        if before.principal != granted.principal:
            raise LoginRefused(
                f"Cannot change principals during re-authentication from {before.principal} to "
                f"{granted.principal}"
            )
