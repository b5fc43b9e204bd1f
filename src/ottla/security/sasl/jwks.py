"""The public keys of whoever signs tokens: a JWKS, in a file or at an address.

They are fetched in the background: at the start, as often as `sasl.oauthbearer.jwks.endpoint.refresh.ms`
says, and soon again after a fetch that failed; keys that were had before are kept. A login never fetches
them, but for one whose token names a key that is not among them, and only once in a while: whoever signs
may have a new one, and somebody who makes up names must not make us fetch them all the time.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from ottla.client.jaas import jaas_options
from ottla.client.pem_stores import SecurityError
from ottla.client.tls_stores import load_authorities, load_identity
from ottla.config import ConfigError
from ottla.config.listener_settings import ListenerSettings
from ottla.runtime import Runtime
from ottla.runtime.seldom import Seldom
from ottla.runtime.web import fetch

log = logging.getLogger(__name__)

URL = "sasl.oauthbearer.jwks.endpoint.url"
FETCH_SECONDS_MAX = 10.0
JWKS_BYTES_MAX = 1024 * 1024
REFETCH_SECONDS_MIN = 10.0
"""Between fetches for keys that tokens name and nobody knows."""
_MECHANISM = "OAUTHBEARER"
_TRUST = "ssl.truststore."


class Jwks:
    def __init__(
        self, runtime: Runtime, settings: ListenerSettings, url: str, read: Callable[[Any], Any]
    ) -> None:
        """`read` makes a set of keys of parsed JSON. ConfigError for what can never be fetched."""
        self._clock = runtime.clock
        self._url = url
        self._read = read
        self._listener = settings.name
        self._refresh_s = settings.integer("sasl.oauthbearer.jwks.endpoint.refresh.ms", _MECHANISM) / 1000
        self._backoff_s = (
            settings.integer("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", _MECHANISM) / 1000
        )
        self._backoff_max_s = (
            settings.integer("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", _MECHANISM) / 1000
        )
        self._jaas = jaas_options(settings.jaas(_MECHANISM))
        self._of_listener = settings.tls_properties()
        self._failures = 0
        self._due_at = float("-inf")
        self._asked_at = float("-inf")
        self._fetching = asyncio.Lock()
        self._tried = asyncio.Event()
        self._says = Seldom(runtime.clock)
        self.keys: Any = None
        """None until they were had for the first time."""
        scheme = urlsplit(url).scheme
        if scheme not in ("https", "http", "file"):
            raise ConfigError(f"{URL}={url}: must be https://…, http://… or file:/…")
        try:
            self._tls()
        except SecurityError as error:
            raise ConfigError(f"listener {settings.name}: {URL}={url}: {error}") from error

    async def keep_current(self) -> float:
        """Fetch them if it is time to; in how many seconds it is time again."""
        if self._clock.monotonic() >= self._due_at:
            async with self._fetching:
                if self._clock.monotonic() >= self._due_at:
                    await self._fetch()
                    self._tried.set()
        return self._due_at - self._clock.monotonic()

    async def with_key(self, key_id: Any) -> Any:
        """The keys, this one among them if it can be had; None where there are none."""
        # Who comes right after the start is not to be told that its token is no good.
        await self._tried.wait()
        if self.keys is None or key_id is None or self._has(key_id):
            return self.keys
        async with self._fetching:
            now = self._clock.monotonic()
            if not self._has(key_id) and now - self._asked_at >= REFETCH_SECONDS_MIN:
                self._asked_at = now
                await self._fetch()
        return self.keys

    def _has(self, key_id: Any) -> bool:
        return any(key.kid == key_id for key in self.keys.keys)

    async def _fetch(self) -> None:
        try:
            content = await fetch(
                self._url, self._tls(), seconds_max=FETCH_SECONDS_MAX, bytes_max=JWKS_BYTES_MAX
            )
            keys = self._read(json.loads(content))
        except Exception as error:
            # Old keys are better than none; what went wrong may be anything that an address can give.
            self._failed(error)
            return
        if self.keys is None or self._failures:
            log.info("listener %s has the keys of OAUTHBEARER tokens from %s", self._listener, self._url)
        self.keys = keys
        self._failures = 0
        self._due_at = self._clock.monotonic() + self._refresh_s

    def _failed(self, error: Exception) -> None:
        self._failures += 1
        backoff_s = min(self._backoff_s * 2 ** min(self._failures - 1, 32), self._backoff_max_s)
        self._due_at = self._clock.monotonic() + backoff_s
        if self._says.is_due():
            log.warning(
                "listener %s: the keys of OAUTHBEARER tokens cannot be had from %s: %s; %s",
                self._listener,
                self._url,
                error,
                "nobody gets in with a token until they can"
                if self.keys is None
                else "those that were had before count on",
            )

    def _tls(self) -> ssl.SSLContext | None:
        """Made for each fetch, which is seldom: files may have changed. SecurityError for what cannot be
        read."""
        if urlsplit(self._url).scheme != "https":
            return None
        context = ssl.create_default_context()
        if any(name.startswith(_TRUST) for name in self._jaas):
            # Apache Kafka's place for it, and there it is all that is trusted.
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            load_authorities(context, self._jaas)
        else:
            load_authorities(context, _trust(self._of_listener))
        load_identity(context, self._jaas)
        return context


def _trust(properties: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in properties.items() if name.startswith(_TRUST)}
