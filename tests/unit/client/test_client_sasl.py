"""SASL exchanges against the examples of the RFCs, and what properties make of them."""

from __future__ import annotations

import pytest

from ottla.client.pem_stores import SecurityError
from ottla.client.sasl import scram
from ottla.client.security import security_from_properties

# RFC 7677, section 3: user "user", password "pencil".
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_scram_speaks_as_the_rfc_has_it() -> None:
    exchange = scram("sha256", "user", "pencil", lambda: NONCE)
    assert next(exchange) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert exchange.send(SERVER_FIRST) == CLIENT_FINAL
    with pytest.raises(StopIteration):
        exchange.send(SERVER_FINAL)


@pytest.mark.parametrize(
    ("first", "final", "complaint"),
    [
        (SERVER_FIRST.replace(b"rOpr", b"xxxx"), b"", "nonce that is not ours"),
        (SERVER_FIRST.replace(b"i=4096", b"i=1"), b"", "1 SCRAM iterations"),
        (SERVER_FIRST, SERVER_FINAL.replace(b"6rr", b"7rr"), "may trust"),
        (SERVER_FIRST, b"e=unknown-user", "unknown-user"),
    ],
)
def test_scram_trusts_no_impostor(first: bytes, final: bytes, complaint: str) -> None:
    exchange = scram("sha256", "user", "pencil", lambda: NONCE)
    next(exchange)
    with pytest.raises(ValueError, match=complaint):
        exchange.send(first)
        exchange.send(final)


def test_credentials_are_read_from_jaas_settings() -> None:
    jaas = r'org.apache.kafka.common.security.plain.PlainLoginModule required username="a b" password="c\"d";'
    properties = {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": jaas,
    }
    security = security_from_properties(properties)
    assert (security.tls, security.mechanism) == (None, "PLAIN")
    assert next(security.exchange()) == b'\0a b\0c"d'
    assert "c" not in repr(security).replace("mechanism", "").replace("Security", "")


@pytest.mark.parametrize(
    ("properties", "complaint"),
    [
        ({"security.protocol": "TLS"}, "security.protocol=TLS is none of PLAINTEXT"),
        ({"security.protocol": "SASL_SSL"}, "needs sasl.mechanism"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}, "sasl.username and"),
        (
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI", "sasl.username": "a"}
            | {"sasl.password": "b"},
            "GSSAPI is none of",
        ),
        ({"security.protocol": "SSL", "ssl.truststore.location": "/x/trust.jks"}, "keytool"),
        ({"security.protocol": "SSL", "ssl.ca.location": "/not/there.pem"}, "/not/there.pem"),
    ],
)
def test_what_cannot_work_is_said_with_the_remedy(properties: dict[str, str], complaint: str) -> None:
    with pytest.raises(SecurityError, match=complaint):
        security_from_properties(properties)


def test_host_names_are_checked_unless_told_otherwise() -> None:
    checked = security_from_properties({"security.protocol": "SSL"}).tls
    assert checked is not None and checked.check_hostname
    relaxed = {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": ""}
    unchecked = security_from_properties(relaxed).tls
    assert unchecked is not None and not unchecked.check_hostname
