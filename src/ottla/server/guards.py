"""The guards of a node's listeners: made at its start, told of settings that change and of files that do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection

from ottla.config import BrokerConfig, ConfigError
from ottla.config.listener_settings import parse_listener_key
from ottla.runtime import Runtime
from ottla.runtime.tasks import TaskScope
from ottla.security.sasl.mechanisms import Mechanisms
from ottla.security.sasl.scram import ScramUsers
from ottla.security.tls import ListenerTls, server_context
from ottla.server.guard import Guard

log = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
"""How often files with certificates are looked at, and at least whether keys of tokens are to be fetched."""


class Guards:
    def __init__(
        self, runtime: Runtime, config: BrokerConfig, scram_users: ScramUsers, tasks: TaskScope
    ) -> None:
        """ConfigError where a listener lacks what its protocol needs."""
        self._by_listener: dict[str, Guard] = {}
        for endpoint in (*config.broker_listeners, *config.controller_listeners):
            settings = config.listener(endpoint.listener)
            if settings.protocol != "PLAINTEXT":
                tls = ListenerTls(settings) if settings.uses_tls else None
                sasl = Mechanisms(runtime, settings, scram_users) if settings.uses_sasl else None
                self._by_listener[endpoint.listener] = Guard(tls, sasl, tasks)

    def get(self, listener: str) -> Guard | None:
        """None for a listener that is open to all."""
        return self._by_listener.get(listener)

    def check(self, config: BrokerConfig, changed: Collection[str]) -> None:
        """ConfigError if a listener that these keys are about could not use them. Reads files."""
        about = {each and each.listener for each in map(parse_listener_key, changed)}
        for listener, guard in self._by_listener.items():
            # A key without the name of a listener is about all of them.
            if None in about or listener.upper() in about:
                settings = config.listener(listener)
                if guard.tls is not None:
                    server_context(settings)
                if guard.sasl is not None:
                    guard.sasl.check(settings)

    def configure(self, config: BrokerConfig) -> None:
        """Settings that cannot be used leave things as they are."""
        for listener, guard in self._by_listener.items():
            settings = config.listener(listener)
            if guard.tls is not None:
                guard.tls.renew(settings)
            if guard.sasl is not None:
                try:
                    guard.sasl.configure(settings)
                except ConfigError as error:
                    log.error("listener %s takes logins as before: %s", listener, error)

    async def watch_files(self) -> None:
        """Runs for the life of the node: certificates are replaced while it is up."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for listener, guard in self._by_listener.items():
                try:
                    if guard.tls is not None:
                        guard.tls.renew()
                except Exception:
                    # One listener's files end nothing: it goes on with what it has.
                    log.exception("listener %s: its certificates could not be looked at", listener)

    async def keep_keys_current(self) -> None:
        """Runs for the life of the node: the keys of who signs tokens are to be here before one is shown."""
        while True:
            mechanisms = [guard.sasl for guard in self._by_listener.values() if guard.sasl is not None]
            waits = await asyncio.gather(*(each.keep_keys_current() for each in mechanisms))
            wait_s = min((LOOK_SECONDS, *(each for each in waits if each is not None)))
            await asyncio.sleep(max(wait_s, 0.0))
