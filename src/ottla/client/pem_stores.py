"""Certificates and keys in PEM files, from the properties of Kafka's clients or librdkafka's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_TO_PEM = "keytool -importkeystore -srckeystore {path} -destkeystore store.p12 -deststoretype PKCS12, then \
openssl pkcs12 -in store.p12 -out store.pem -nodes"


class SecurityError(ValueError):
    """Properties that do not say how to connect; the text names the property and the remedy."""


@dataclass(frozen=True, slots=True)
class PemStores:
    authorities: str | None
    """The file of those that are trusted."""
    identity: str | None
    """The file with the certificate, and with the key unless that has one of its own."""
    key: str | None
    password: str | None = field(repr=False)


def pem_stores(properties: Mapping[str, str]) -> PemStores:
    """SecurityError where a property names a store of Java's."""
    _require_pem(properties, "truststore")
    _require_pem(properties, "keystore")
    return PemStores(
        authorities=first_of(properties, "ssl.truststore.location", "ssl.ca.location"),
        identity=first_of(properties, "ssl.keystore.location", "ssl.certificate.location"),
        key=first_of(properties, "ssl.key.location"),
        password=first_of(properties, "ssl.key.password", "ssl.keystore.password"),
    )


def first_of(properties: Mapping[str, str], *names: str) -> str | None:
    return next((properties[name] for name in names if properties.get(name)), None)


def _require_pem(properties: Mapping[str, str], store: str) -> None:
    path = properties.get(f"ssl.{store}.location")
    kind = properties.get(f"ssl.{store}.type", "PEM").upper()
    is_java = kind != "PEM" or (path or "").endswith((".jks", ".p12", ".pfx"))
    if path is not None and is_java:
        raise SecurityError(
            f"ssl.{store}.location={path} is a {kind} store; only PEM is read here. "
            f"Convert it ({_TO_PEM.format(path=path)}) and set ssl.{store}.type=PEM"
        )
