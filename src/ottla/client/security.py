"""How to reach a cluster safely, from the properties of Kafka's clients; librdkafka's names work too."""

from __future__ import annotations

import re
import secrets
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ottla.client.sasl import Exchange, oauth_bearer, plain, scram

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")

_SCRAM_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_JAAS_OPTION = re.compile(r"""(\w+)\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s;]+)""")
_TO_PEM = "keytool -importkeystore -srckeystore {path} -destkeystore store.p12 -deststoretype PKCS12, then \
openssl pkcs12 -in store.p12 -out store.pem -nodes"


class SecurityError(ValueError):
    """Properties that do not say how to connect; the text names the property and the remedy."""


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
    mechanism = _first(properties, "sasl.mechanism", "sasl.mechanisms")
    if mechanism is None:
        raise SecurityError(f"security.protocol={protocol} needs sasl.mechanism: {', '.join(MECHANISMS)}")
    mechanism = mechanism.upper()
    return Security(tls, mechanism, _sasl(mechanism, properties))


def _sasl(mechanism: str, properties: Mapping[str, str]) -> Callable[[], Exchange]:
    jaas = properties.get("sasl.jaas.config", "")
    options = {name: _unquote(value) for name, value in _JAAS_OPTION.findall(jaas)}
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


def _unquote(value: str) -> str:
    if value[0] in "\"'":
        return re.sub(r"\\(.)", r"\1", value[1:-1])
    return value


def _tls(properties: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
    context.check_hostname = (
        properties.get("ssl.endpoint.identification.algorithm", "https").lower() == "https"
    )
    if properties.get("enable.ssl.certificate.verification", "true").lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    _require_pem(properties, "truststore")
    _require_pem(properties, "keystore")
    authorities = _first(properties, "ssl.truststore.location", "ssl.ca.location")
    inline = _first(properties, "ssl.truststore.certificates", "ssl.ca.pem")
    try:
        if authorities is not None:
            context.load_verify_locations(cafile=authorities)
        if inline is not None:
            context.load_verify_locations(cadata=inline)
    except (OSError, ssl.SSLError) as error:
        named = authorities or "ssl.truststore.certificates"
        raise SecurityError(f"no certificates in PEM can be read from {named}: {error}") from error
    _load_identity(context, properties)
    return context


def _load_identity(context: ssl.SSLContext, properties: Mapping[str, str]) -> None:
    if "ssl.keystore.key" in properties or "ssl.key.pem" in properties:
        raise SecurityError(
            "a private key is read from a file only: write it to one, set ssl.keystore.location"
        )
    certificate = _first(properties, "ssl.keystore.location", "ssl.certificate.location")
    if certificate is None:
        return
    key = properties.get("ssl.key.location")
    password = _first(properties, "ssl.key.password", "ssl.keystore.password")
    try:
        # Without a password OpenSSL would ask for one on the terminal.
        context.load_cert_chain(certificate, key, lambda: password or "")
    except (OSError, ssl.SSLError) as error:
        raise SecurityError(
            f"no certificate with its private key in PEM can be read from {certificate}: {error}"
        ) from error


def _require_pem(properties: Mapping[str, str], store: str) -> None:
    path = properties.get(f"ssl.{store}.location")
    kind = properties.get(f"ssl.{store}.type", "PEM").upper()
    is_java = kind != "PEM" or (path or "").endswith((".jks", ".p12", ".pfx"))
    if path is not None and is_java:
        raise SecurityError(
            f"ssl.{store}.location={path} is a {kind} store; only PEM is read here. "
            f"Convert it ({_TO_PEM.format(path=path)}) and set ssl.{store}.type=PEM"
        )


def _first(properties: Mapping[str, str], *names: str) -> str | None:
    return next((properties[name] for name in names if properties.get(name)), None)
