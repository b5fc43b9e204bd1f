"""Settings of listeners altered while a broker runs: what it could not use is refused, not stored."""

from __future__ import annotations

from pathlib import Path

import pytest
from closed_broker import Closed, Files
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

SET = AlterConfigOpType.SET


def alter(closed: Closed, *changes: tuple[str, str], validate_only: bool = False) -> str:
    """What the broker has against it; empty for nothing."""
    admin = AdminClient({"bootstrap.servers": closed["PLAINTEXT"]})
    entries = [ConfigEntry(name, value, incremental_operation=SET) for name, value in changes]
    resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=entries)
    asked = admin.incremental_alter_configs([resource], validate_only=validate_only)
    try:
        asked[resource].result(60)
    except KafkaException as error:
        assert error.args[0].name() == "INVALID_REQUEST"
        return str(error.args[0].str())
    return ""


def altered(closed: Closed) -> dict[str, str | None]:
    admin = AdminClient({"bootstrap.servers": closed["PLAINTEXT"]})
    resource = ConfigResource(ConfigResource.Type.BROKER, "1")
    found = admin.describe_configs([resource])[resource].result(60)
    return {name: entry.value for name, entry in found.items() if entry.source == 2}


@pytest.fixture
def encrypted(files: Files, tmp_path: Path) -> str:
    """The broker's own certificate, with a key that is opened by "right"."""
    pem = Path(files.server).read_bytes()
    key = load_pem_private_key(pem, None)
    locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"right"))
    path = tmp_path / "encrypted.pem"
    path.write_bytes(locked + pem[pem.index(b"-----BEGIN CERTIFICATE") :])
    return str(path)


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize(
    "name, value, reason",
    [
        ("ssl.keystore.location", "/none/such.pem", "ssl.keystore.location=/none/such.pem: no certificate"),
        ("listener.name.tls.ssl.keystore.location", "/none/such.pem", "listener TLS (SSL): ssl.keystore"),
        ("listener.name.mutual.ssl.truststore.location", "/none/such.pem", "ssl.truststore.location=/none"),
        ("listener.name.tls.ssl.enabled.protocols", "TLSv1.1", "must be any of TLSv1.2, TLSv1.3"),
        ("listener.name.tls.ssl.cipher.suites", "ROT13", "OpenSSL has none of them"),
        ("listener.name.sasl.sasl.enabled.mechanisms", "PLAIN,KERBEROS", "has KERBEROS, which is none of"),
        ("listener.name.sasl.plain.sasl.jaas.config", "nobody", "PLAIN needs users"),
        ("listener.name.mutual.ssl.principal.mapping.rules", "DEFAULT", "cannot be changed while the broker"),
    ],
)
def test_what_cannot_be_used_is_refused(
    closed: Closed, name: str, value: str, reason: str, validate_only: bool
) -> None:
    before = altered(closed)
    assert reason in alter(closed, (name, value), validate_only=validate_only)
    assert altered(closed) == before


def test_passwords_that_do_not_open_a_key(closed: Closed, encrypted: str) -> None:
    location, password = (f"listener.name.tls.ssl.{each}" for each in ("keystore.location", "key.password"))
    refusal = alter(closed, (location, encrypted), (password, "wrong"))
    assert f"ssl.keystore.location={encrypted}" in refusal
    assert "ssl.key.password has to open the key" in refusal
    assert alter(closed, (location, encrypted), (password, "right"), validate_only=True) == ""
    assert location not in altered(closed)


def test_what_can_be_used_is_taken(closed: Closed) -> None:
    mechanisms = "listener.name.sasl.sasl.enabled.mechanisms"
    assert alter(closed, (mechanisms, "PLAIN"), validate_only=True) == ""


def test_other_settings_are_not_held_up_by_them(closed: Closed) -> None:
    assert alter(closed, ("log.cleaner.threads", "1"), validate_only=True) == ""
