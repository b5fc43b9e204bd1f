"""TLS with real clients: who is let in, as whom, and what keeps others out."""

from __future__ import annotations

import contextlib
import shutil
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from closed_broker import Closed, Files
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from ottla.cli.files.certificates import Authority
from ottla.testing.in_process import InProcessBroker

LOCAL = "127.0.0.1"


def admin(server: str, **settings: Any) -> AdminClient:
    quiet = {"log_level": 0, "socket.timeout.ms": 3000, "reconnect.backoff.ms": 500}
    return AdminClient({"bootstrap.servers": server, "security.protocol": "ssl", **quiet, **settings})


def gets_in(server: str, timeout: float = 10, **settings: Any) -> bool:
    try:
        return bool(admin(server, **settings).list_topics(timeout=timeout).brokers)
    except KafkaException:
        return False


def identity(path: str) -> dict[str, str]:
    return {"ssl.certificate.location": path, "ssl.key.location": path}


def wait_until(condition: Callable[[], bool], seconds: float = 15) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_client_that_trusts_the_authority_gets_in(closed: Closed, files: Files) -> None:
    assert gets_in(closed["TLS"], **{"ssl.ca.location": files.authority})


def test_a_client_turns_away_from_who_is_not_the_broker(closed: Closed, files: Files) -> None:
    assert not gets_in(closed["TLS"], timeout=1, **{"ssl.ca.location": files.other_authority})
    assert not gets_in(closed["ELSEWHERE"], timeout=1, **{"ssl.ca.location": files.authority})
    careless = {"ssl.ca.location": files.authority, "ssl.endpoint.identification.algorithm": "none"}
    assert gets_in(closed["ELSEWHERE"], **careless)


def test_a_listener_that_requires_certificates_takes_its_authoritys_alone(
    closed: Closed, files: Files
) -> None:
    trust = {"ssl.ca.location": files.authority}
    assert gets_in(closed["MUTUAL"], **trust, **identity(files.client))
    assert not gets_in(closed["MUTUAL"], timeout=1, **trust)
    assert not gets_in(closed["MUTUAL"], timeout=1, **trust, **identity(files.expired))
    assert not gets_in(closed["MUTUAL"], timeout=1, **trust, **identity(files.unknown))


def test_who_speaks_no_tls_is_told_of_once_with_its_address(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    def told() -> list[str]:
        return [r.getMessage() for r in caplog.records if "TLS with" in r.getMessage()]

    settings = {"listeners": f"SSL://{LOCAL}:0", "ssl.keystore.location": files.server}
    own: list[str] = []
    with InProcessBroker(settings) as broker:
        for _ in range(3):
            with socket.create_connection((LOCAL, broker.port), timeout=10) as stranger:
                stranger.sendall(b"GET / HTTP/1.0\r\n\r\n")
                with contextlib.suppress(ConnectionResetError):
                    while stranger.recv(1000):
                        pass
                own.append("{}:{}".format(*stranger.getsockname()))
            wait_until(lambda: bool(told()))
    assert told() == [f"TLS with {own[0]} failed on listener SSL: HTTP_REQUEST"]


def shown_certificate(port: int, authority: str) -> bytes:
    context = ssl.create_default_context(cafile=authority)
    with (
        socket.create_connection((LOCAL, port), timeout=10) as raw,
        context.wrap_socket(raw, server_hostname="localhost") as secured,
    ):
        return secured.getpeercert(binary_form=True) or b""


def test_a_renewed_certificate_is_shown_and_nobody_is_cut_off(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority()
    store, trust = tmp_path / "server.pem", tmp_path / "ca.pem"
    hosts = ["localhost", LOCAL]
    store.write_bytes(authority.issue("first", hosts).identity)
    trust.write_bytes(authority.certificate)
    settings = {"listeners": f"SSL://{LOCAL}:0", "ssl.keystore.location": str(store)}
    with InProcessBroker(settings) as broker:
        context = ssl.create_default_context(cafile=str(trust))
        with (
            socket.create_connection((LOCAL, broker.port), timeout=10) as raw,
            context.wrap_socket(raw, server_hostname="localhost") as kept,
        ):
            before = shown_certificate(broker.port, str(trust))
            replacement = tmp_path / "new.pem"
            replacement.write_bytes(authority.issue("second", hosts).identity)
            shutil.move(replacement, store)
            wait_until(lambda: shown_certificate(broker.port, str(trust)) != before)

            altered = tmp_path / "altered.pem"
            altered.write_bytes(authority.issue("third", hosts).identity)
            second = shown_certificate(broker.port, str(trust))
            tool_admin = admin(f"{LOCAL}:{broker.port}", **{"ssl.ca.location": str(trust)})
            alter(tool_admin, "listener.name.ssl.ssl.keystore.location", str(altered))
            wait_until(lambda: shown_certificate(broker.port, str(trust)) != second)
            # One that is not there is refused, and one that goes leaves things as they are.
            third = shown_certificate(broker.port, str(trust))
            with pytest.raises(KafkaException, match=r"/not/there\.pem"):
                alter(tool_admin, "listener.name.ssl.ssl.keystore.location", "/not/there.pem")
            altered.unlink()
            wait_until(lambda: "keeps the certificates it has" in caplog.text)
            assert shown_certificate(broker.port, str(trust)) == third

            kept.sendall(API_VERSIONS)
            assert len(kept.recv(4)) == 4


API_VERSIONS = b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x07\xff\xff"


def alter(client: AdminClient, name: str, value: str) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
    for done in client.incremental_alter_configs([resource]).values():
        done.result(10)


def test_connections_of_one_listener_are_bounded_from_their_first_packet(files: Files) -> None:
    settings = {
        "listeners": f"PLAINTEXT://{LOCAL}:0,SSL://{LOCAL}:0",
        "ssl.keystore.location": files.server,
        "listener.name.ssl.max.connections": "2",
    }
    with InProcessBroker(settings) as broker, contextlib.ExitStack() as stack:
        half_open = [
            stack.enter_context(socket.create_connection((LOCAL, broker.ports["SSL"]), timeout=10))
            for _ in range(3)
        ]
        # Two begin a handshake and leave it at that; the third is turned away.
        assert half_open[2].recv(1) == b""
        assert gets_in(f"{LOCAL}:{broker.ports['PLAINTEXT']}", **{"security.protocol": "plaintext"})
        half_open[0].close()
        half_open[1].close()
        wait_until(lambda: bool(shown_or_nothing(broker.ports["SSL"], files.authority)))


def shown_or_nothing(port: int, authority: str) -> bytes:
    try:
        return shown_certificate(port, authority)
    except OSError:
        return b""


def test_what_a_listener_lacks_is_said_at_the_start(files: Files, tmp_path: Path) -> None:
    from ottla.config import ConfigError

    def complaint(**settings: str) -> str:
        with pytest.raises(ConfigError) as refused:
            InProcessBroker(
                {"listeners": f"SSL://{LOCAL}:0", **{k.replace("_", "."): v for k, v in settings.items()}}
            ).start()
        return str(refused.value)

    assert "listener SSL (SSL): it has no certificate" in complaint()
    java = tmp_path / "server.jks"
    java.write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    said = complaint(ssl_keystore_location=str(java))
    assert f"keytool -importkeystore -srckeystore {java}" in said
    assert "needs ssl.truststore.location" in complaint(
        ssl_keystore_location=files.server, ssl_client_auth="required"
    )
    assert "/not/there.pem" in complaint(ssl_keystore_location="/not/there.pem")


def test_certificates_may_be_pkcs12_or_stand_in_the_settings(files: Files, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        load_pem_private_key,
        pkcs12,
    )
    from cryptography.x509 import load_pem_x509_certificate

    pem = Path(files.server).read_bytes()
    at = pem.index(b"-----BEGIN CERTIFICATE")
    key, certificate = pem[:at], pem[at:]
    store = tmp_path / "server.p12"
    store.write_bytes(
        pkcs12.serialize_key_and_certificates(
            b"server",
            load_pem_private_key(key, None),  # type: ignore[arg-type]
            load_pem_x509_certificate(certificate),
            None,
            BestAvailableEncryption(b"hidden"),
        )
    )
    for settings in (
        {
            "ssl.keystore.location": str(store),
            "ssl.keystore.password": "hidden",
            "ssl.keystore.type": "PKCS12",
        },
        {
            "ssl.keystore.type": "PEM",
            # As one line, which is what properties files often have.
            "ssl.keystore.key": key.decode().replace("\n", " "),
            "ssl.keystore.certificate.chain": certificate.decode(),
        },
    ):
        with InProcessBroker({"listeners": f"SSL://{LOCAL}:0", **settings}) as broker:
            assert shown_certificate(broker.port, files.authority) == ssl.PEM_cert_to_DER_cert(
                certificate.decode()
            )
