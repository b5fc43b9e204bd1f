"""What one listener takes as proof of who somebody is."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from ottla.client.jaas import jaas_options
from ottla.client.scram_keys import HASHES
from ottla.config import ConfigError
from ottla.config.listener_settings import MECHANISMS, ListenerSettings
from ottla.runtime import Runtime
from ottla.runtime.seldom import SeldomEach
from ottla.security.sasl.bearer_tokens import MECHANISM as BEARER
from ottla.security.sasl.bearer_tokens import bearer_tokens
from ottla.security.sasl.exchange import Exchange, Granted, LoginRefused
from ottla.security.sasl.jwks import Jwks
from ottla.security.sasl.oauth_bearer import OAuthBearerExchange
from ottla.security.sasl.plain import PlainExchange, users
from ottla.security.sasl.scram import ScramExchange, ScramUsers

log = logging.getLogger(__name__)

NONCE_BYTES = 24


class Mechanisms:
    def __init__(self, runtime: Runtime, settings: ListenerSettings, scram_users: ScramUsers) -> None:
        """ConfigError for mechanisms that are not there, or lack what they need."""
        self._runtime = runtime
        self._scram_users = scram_users
        self._says = SeldomEach(runtime.clock)
        self._said: tuple[object, ...] = ()
        self._make: dict[str, Callable[[], Exchange]] = {}
        self._jwks: Jwks | None = None
        self.configure(settings)

    def configure(self, settings: ListenerSettings) -> None:
        """For logins from now on."""
        names = settings.strings("sasl.enabled.mechanisms")
        said = (names, *(settings.jaas(name) for name in names))
        if said != self._said:
            # All of them, before anything is changed.
            self._make, self._jwks = self._made(settings)
            self._said = said
        self._settings = settings
        self.failure_delay_ms = settings.integer("connection.failed.authentication.delay.ms")
        self.message_bytes_max = settings.integer("sasl.server.max.receive.size")

    def check(self, settings: ListenerSettings) -> None:
        """ConfigError where a mechanism cannot be had with them."""
        self._made(settings)

    async def keep_keys_current(self) -> float | None:
        """Of those who sign tokens, as far as it is time to; in how many seconds it is time again."""
        return None if self._jwks is None else await self._jwks.keep_current()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._make)

    def exchange(self, mechanism: str) -> Exchange | None:
        """A new one; None for a mechanism that is not taken."""
        make = self._make.get(mechanism)
        return None if make is None else make()

    def lifetime_ms(self, mechanism: str, granted: Granted) -> int:
        """How long a session may last; 0 for ever."""
        lifetimes = []
        reauth_ms = self._settings.integer("connections.max.reauth.ms", mechanism)
        if reauth_ms > 0:
            lifetimes.append(reauth_ms)
        if granted.expires_at_ms is not None:
            lifetimes.append(max(granted.expires_at_ms - self._runtime.clock.now_ms(), 1))
        return min(lifetimes, default=0)

    def refused(self, host: str, address: str, mechanism: str, refusal: LoginRefused) -> None:
        if self._says.is_due(host):
            log.warning(
                "%s failed to log in on listener %s with %s: %s",
                address,
                self._settings.name,
                mechanism,
                refusal.detail or refusal,
            )

    def _made(self, settings: ListenerSettings) -> tuple[dict[str, Callable[[], Exchange]], Jwks | None]:
        names = settings.strings("sasl.enabled.mechanisms")
        if not names:
            raise ConfigError(f"listener {settings.name}: sasl.enabled.mechanisms must not be empty")
        make: dict[str, Callable[[], Exchange]] = {}
        jwks = None
        for name in names:
            if name == BEARER:
                tokens = bearer_tokens(self._runtime, settings)
                make[name] = partial(OAuthBearerExchange, tokens)
                jwks = tokens.jwks
            else:
                make[name] = self._maker(name, settings)
        return make, jwks

    def _maker(self, name: str, settings: ListenerSettings) -> Callable[[], Exchange]:
        if name in HASHES:
            return partial(ScramExchange, name, self._scram_users, self._nonce)
        if name == "PLAIN":
            passwords = users(jaas_options(settings.jaas(name)))
            if not passwords:
                place = f"listener.name.{settings.name.lower()}.plain.sasl.jaas.config"
                raise ConfigError(
                    f"listener {settings.name}: PLAIN needs users: {place}="
                    'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="…";'
                )
            return partial(PlainExchange, passwords)
        raise ConfigError(
            f"listener {settings.name}: sasl.enabled.mechanisms has {name}, which is none of "
            + ", ".join(MECHANISMS)
        )

    def _nonce(self) -> str:
        return self._runtime.random.randbytes(NONCE_BYTES).hex()
