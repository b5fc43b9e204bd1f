"""How to reach a cluster safely, from the properties of Kafka's clients; librdkafka's names work too."""

from __future__ import annotations

import secrets
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ottla.client.jaas import jaas_options
from ottla.client.pem_stores import PemStores, SecurityError, first_of, pem_stores
from ottla.client.sasl import Exchange, oauth_bearer, plain, scram

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")

_SCRAM_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


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


def security_from_properties(properties: Mapping[str, str]) -> Security:
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise SecurityError(f"security.protocol={protocol} is none of {', '.join(PROTOCOLS)}")
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
    if mechanism not in _SCRAM_HASHES:
        raise SecurityError(f"sasl.mechanism={mechanism} is none of {', '.join(MECHANISMS)}")
    return lambda: scram(_SCRAM_HASHES[mechanism], username, password, secrets.token_urlsafe)


def _tls(properties: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
    context.check_hostname = (
        properties.get("ssl.endpoint.identification.algorithm", "https").lower() == "https"
    )
    if properties.get("enable.ssl.certificate.verification", "true").lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    stores = pem_stores(properties)
    inline = first_of(properties, "ssl.truststore.certificates", "ssl.ca.pem")
    try:
        if stores.authorities is not None:
            context.load_verify_locations(cafile=stores.authorities)
        if inline is not None:
            context.load_verify_locations(cadata=inline)
    except (OSError, ssl.SSLError) as error:
        named = stores.authorities or "ssl.truststore.certificates"
        raise SecurityError(f"no certificates in PEM can be read from {named}: {error}") from error
    _load_identity(context, properties, stores)
    return context


def _load_identity(context: ssl.SSLContext, properties: Mapping[str, str], stores: PemStores) -> None:
    if "ssl.keystore.key" in properties or "ssl.key.pem" in properties:
        raise SecurityError(
            "a private key is read from a file only: write it to one, set ssl.keystore.location"
        )
    certificate = stores.identity
    if certificate is None:
        return
    try:
        # Without a password OpenSSL would ask for one on the terminal.
        context.load_cert_chain(certificate, stores.key, lambda: stores.password or "")
    except (OSError, ssl.SSLError) as error:
        raise SecurityError(
            f"no certificate with its private key in PEM can be read from {certificate}: {error}"
        ) from error
