"""A certificate authority for development, and certificates of it, in PEM as brokers and clients read it."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAYS = 365
_ORGANIZATION = "Ottla development"
_EARLIER = timedelta(minutes=5)
"""Clocks differ."""


class Issued(NamedTuple):
    certificate: bytes
    """In PEM."""
    key: bytes

    @property
    def identity(self) -> bytes:
        """Both, as `ssl.keystore.location` wants them."""
        return self.key + self.certificate


class Authority:
    def __init__(self, name: str = "Ottla development CA") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, _ORGANIZATION),
                x509.NameAttribute(NameOID.COMMON_NAME, name),
            ]
        )
        usage = x509.KeyUsage(
            digital_signature=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        self._certificate = (
            _builder(self._name, self._name, self._key.public_key(), DAYS * 10)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def certificate(self) -> bytes:
        return self._certificate.public_bytes(Encoding.PEM)

    def issue(self, name: str, hosts: Sequence[str] = (), days: int = DAYS) -> Issued:
        """For servers on these hosts, who are clients of each other; without any, for a client.

        With `days` below zero, one that has expired.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [])]
        own = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        builder = (
            _builder(
                x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]),
                self._name,
                key.public_key(),
                days,
            )
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own), critical=False
            )
        )
        if hosts:
            named = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
            builder = builder.add_extension(named, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return Issued(
            certificate.public_bytes(Encoding.PEM),
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    begins = now - _EARLIER if days > 0 else now + timedelta(days=days - 1)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(now + timedelta(days=days))
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
