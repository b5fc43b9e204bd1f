"""How to reach a cluster safely, from the properties of Kafka's clients; librdkafka's names work too."""

from __future__ import annotations

import logging
import secrets
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ottla.client.jaas import jaas_options
from ottla.client.pem_stores import SecurityError, first_of
from ottla.client.sasl import Exchange, oauth_bearer, plain, scram
from ottla.client.scram_keys import HASHES
from ottla.client.tls_stores import load_authorities, load_identity, store_files
from ottla.config.listener_settings import MECHANISMS
from ottla.config.listeners import SECURITY_PROTOCOLS
from ottla.runtime.private_files import file_stamp

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Security:
    tls: ssl.SSLContext | None = None
    mechanism: str | None = None
    _exchange: Callable[[], Exchange] | None = field(default=None, repr=False)

    def exchange(self) -> Exchange:
        """A new one for each connection."""
        assert self._exchange is not None
        return self._exchange()


PLAINTEXT = Security()


class Credentials:
    """What properties say of how to connect. Files that change are read again for the next connection."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = dict(properties)
        self._files = store_files(properties) if properties else ()
        self._stamps = self._stamped()
        self._security = security_from_properties(properties)

    def current(self) -> Security:
        """SecurityError never: what cannot be read while it is being replaced is read the next time."""
        stamps = self._stamped()
        if stamps != self._stamps:
            try:
                self._security = security_from_properties(self._properties)
                self._stamps = stamps
            except SecurityError as error:
                log.warning("the certificates that were read before are used: %s", error)
        return self._security

    def _stamped(self) -> list[object]:
        return [file_stamp(path) for path in self._files]


def security_from_properties(properties: Mapping[str, str]) -> Security:
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in SECURITY_PROTOCOLS:
        raise SecurityError(f"security.protocol={protocol} is none of {', '.join(SECURITY_PROTOCOLS)}")
    tls = _tls(properties) if protocol.endswith("SSL") else None
    if not protocol.startswith("SASL"):
        return Security(tls)
    mechanism = first_of(properties, "sasl.mechanism", "sasl.mechanisms")
    if mechanism is None:
        raise SecurityError(f"security.protocol={protocol} needs sasl.mechanism: {', '.join(MECHANISMS)}")
    mechanism = mechanism.upper()
    return Security(tls, mechanism, _sasl(mechanism, properties))


def _sasl(mechanism: str, properties: Mapping[str, str]) -> Callable[[], Exchange]:
    options = jaas_options(properties.get("sasl.jaas.config", ""))
    if mechanism == "OAUTHBEARER":
        token = properties.get("sasl.oauthbearer.token") or options.get("token")
        if not token:
            raise SecurityError(
                'sasl.mechanism=OAUTHBEARER needs the token itself: sasl.oauthbearer.token, or token="…" in '
                "sasl.jaas.config; tokens are not fetched from an endpoint here"
            )
        return lambda: oauth_bearer(token)
    username = properties.get("sasl.username") or options.get("username")
    password = properties.get("sasl.password") or options.get("password")
    if username is None or password is None:
        raise SecurityError(
            f"sasl.mechanism={mechanism} needs sasl.username and sasl.password, "
            'or sasl.jaas.config=… required username="…" password="…";'
        )
    if mechanism == "PLAIN":
        return lambda: plain(username, password)
    if mechanism not in HASHES:
        raise SecurityError(f"sasl.mechanism={mechanism} is none of {', '.join(MECHANISMS)}")
    is_token = options.get("tokenauth", "").lower() == "true"
    return lambda: scram(HASHES[mechanism], username, password, secrets.token_urlsafe, is_token=is_token)


def _tls(properties: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
    context.check_hostname = (
        properties.get("ssl.endpoint.identification.algorithm", "https").lower() == "https"
    )
    if properties.get("enable.ssl.certificate.verification", "true").lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    load_authorities(context, properties)
    load_identity(context, properties)
    return context
