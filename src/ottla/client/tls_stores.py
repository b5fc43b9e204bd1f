"""Certificates and keys for TLS, in files or in the properties themselves: what is trusted, what is shown.

PEM is what Python reads. PKCS12 is turned into it, by the package `cryptography`. A store of Java's own, JKS,
is refused with the command that converts it. Which of them a file is, its first bytes say.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from typing import NamedTuple

from ottla.client.pem_stores import SecurityError, first_of
from ottla.runtime.disk import PosixDisk
from ottla.runtime.private_files import private_file

_TRUST = ("ssl.truststore.location", "ssl.ca.location")
_TRUST_INLINE = ("ssl.truststore.certificates", "ssl.ca.pem")
_IDENTITY = ("ssl.keystore.location", "ssl.certificate.location")
_CHAIN_INLINE = ("ssl.keystore.certificate.chain", "ssl.certificate.pem")
_KEY_INLINE = ("ssl.keystore.key", "ssl.key.pem")
_JKS = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_PEM_MARK = b"-----BEGIN "
_PEM = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_HEADERS = re.compile(r"^[A-Za-z-]+:.*$", re.MULTILINE)


class _Pkcs12(NamedTuple):
    """As PEM."""

    key: bytes
    chain: bytes
    others: bytes


def store_files(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Those that certificates are read from."""
    found = (first_of(properties, *names) for names in (_TRUST, _IDENTITY, ("ssl.key.location",)))
    return tuple(path for path in found if path is not None)


def load_authorities(context: ssl.SSLContext, properties: Mapping[str, str]) -> bool:
    """Trust those that the properties name; whether they name any. SecurityError for what cannot be read."""
    path = first_of(properties, *_TRUST)
    inline = first_of(properties, *_TRUST_INLINE)
    try:
        if path is not None:
            content = _read(path, "truststore")
            if content.lstrip().startswith(_PEM_MARK):
                context.load_verify_locations(cafile=path)
            else:
                store = _pkcs12(path, content, properties, "truststore")
                context.load_verify_locations(cadata=(store.chain + store.others).decode())
        if inline is not None:
            context.load_verify_locations(cadata=_rewrapped(inline))
    except (OSError, ssl.SSLError) as error:
        raise SecurityError(
            f"{_place(properties, *_TRUST, *_TRUST_INLINE)}: no certificates can be read from it: {error}; "
            "it has to name a PEM or PKCS12 file that this process may read"
        ) from error
    return path is not None or inline is not None


def load_identity(context: ssl.SSLContext, properties: Mapping[str, str]) -> bool:
    """Show the certificate that the properties name; whether they do. SecurityError if it cannot be read."""
    chain, key = first_of(properties, *_CHAIN_INLINE), first_of(properties, *_KEY_INLINE)
    if (chain is None) != (key is None):
        raise SecurityError(f"{_KEY_INLINE[0]} and {_CHAIN_INLINE[0]} go together; one of them is missing")
    path = first_of(properties, *_IDENTITY)
    password = first_of(properties, "ssl.key.password", "ssl.keystore.password") or ""
    try:
        if chain is not None and key is not None:
            path = _KEY_INLINE[0]
            _load_content(context, (_rewrapped(key) + _rewrapped(chain)).encode(), password)
        elif path is not None:
            content = _read(path, "keystore")
            if content.lstrip().startswith(_PEM_MARK):
                # Without a password OpenSSL would ask for one on the terminal.
                context.load_cert_chain(path, first_of(properties, "ssl.key.location"), lambda: password)
            else:
                store = _pkcs12(path, content, properties, "keystore")
                _load_content(context, store.key + store.chain + store.others, "")
        else:
            return False
    except (OSError, ssl.SSLError) as error:
        place = _KEY_INLINE[0] if chain is not None else _place(properties, *_IDENTITY)
        raise SecurityError(
            f"{place}: no certificate with its private key can be read from it: {error}; both have to be "
            "there, and ssl.key.password has to open the key if it is encrypted"
        ) from error
    return True


def _place(properties: Mapping[str, str], *names: str) -> str:
    name = next(name for name in names if properties.get(name))
    return name if name in _TRUST_INLINE else f"{name}={properties[name]}"


def _load_content(context: ssl.SSLContext, pem: bytes, password: str) -> None:
    with private_file(pem) as path:
        context.load_cert_chain(path, None, lambda: password)


def _read(path: str, store: str) -> bytes:
    content = b"" if path.endswith(".jks") else PosixDisk().read_file(path)
    if path.endswith(".jks") or content.startswith(_JKS):
        raise SecurityError(
            f"ssl.{store}.location={path} is a JKS store of Java; convert it and name the new file: keytool "
            f"-importkeystore -srckeystore {path} -destkeystore {path}.p12 -deststoretype PKCS12"
        )
    return content


def _pkcs12(path: str, content: bytes, properties: Mapping[str, str], kind: str) -> _Pkcs12:
    try:
        from cryptography.hazmat.primitives.serialization import (
            Encoding,
            NoEncryption,
            PrivateFormat,
            pkcs12,
        )
    except ModuleNotFoundError as error:
        raise SecurityError(
            f"ssl.{kind}.location={path} is no PEM file; to read PKCS12 needs the package cryptography: "
            f"pip install 'ottla[security]', or openssl pkcs12 -in {path} -out store.pem -nodes"
        ) from error
    password = properties.get(f"ssl.{kind}.password")
    try:
        store = pkcs12.load_pkcs12(content, None if password is None else password.encode())
    except ValueError as error:
        raise SecurityError(
            f"ssl.{kind}.location={path} is neither PEM nor a PKCS12 file that ssl.{kind}.password opens: "
            f"{error}"
        ) from error
    key = b""
    if store.key is not None:
        key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    chain = b"" if store.cert is None else store.cert.certificate.public_bytes(Encoding.PEM)
    others = [other.certificate.public_bytes(Encoding.PEM) for other in store.additional_certs]
    return _Pkcs12(key, chain, b"".join(others))


def _rewrapped(pem: str) -> str:
    """As OpenSSL wants it: in a properties file, lines are often joined by blanks, or not at all."""
    blocks = []
    for kind, body in _PEM.findall(pem):
        if _HEADERS.search(body):
            blocks.append(f"-----BEGIN {kind}-----{body}-----END {kind}-----\n")
            continue
        text = "".join(body.split())
        lines = "\n".join(text[at : at + 64] for at in range(0, len(text), 64))
        blocks.append(f"-----BEGIN {kind}-----\n{lines}\n-----END {kind}-----\n")
    return "".join(blocks)
