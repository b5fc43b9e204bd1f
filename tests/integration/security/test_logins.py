"""SASL with real clients, and with peers that do it wrong."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from closed_broker import LOGIN, PLAIN_USERS, SCRAM_PASSWORD, Closed, Files
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from ottla.client.peer import AuthenticationFailed, Peer
from ottla.client.security import security_from_properties
from ottla.runtime.net import AsyncioNetwork
from ottla.testing.in_process import InProcessBroker
from ottla.wire.api import ApiKey

LOCAL = "127.0.0.1"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PASSWORDS = {"PLAIN": "alice secret", "SCRAM-SHA-256": SCRAM_PASSWORD, "SCRAM-SHA-512": SCRAM_PASSWORD}


@pytest.fixture(scope="session")
def with_users(closed: Closed) -> Closed:
    """Alice has the same password for both kinds of SCRAM."""
    admin = AdminClient({"bootstrap.servers": closed["PLAINTEXT"]})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        credential = UserScramCredentialUpsertion(
            "alice", ScramCredentialInfo(mechanism, 4096), SCRAM_PASSWORD.encode()
        )
        for done in admin.alter_user_scram_credentials([credential]).values():
            done.result(10)
    return closed


def librdkafka(server: str, mechanism: str, password: str, **settings: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": server,
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": password,
        "log_level": 0,
        "reconnect.backoff.ms": 500,
        **settings,
    }


def gets_in(settings: dict[str, Any], timeout: float = 10) -> bool:
    try:
        return bool(AdminClient(settings).list_topics(timeout=timeout).brokers)
    except KafkaException:
        return False


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka(with_users: Closed, files: Files, mechanism: str) -> None:
    tls = {"security.protocol": "sasl_ssl", "ssl.ca.location": files.authority}
    right, wrong = PASSWORDS[mechanism], "a guess"
    assert gets_in(librdkafka(with_users["BOTH"], mechanism, right, **tls))
    assert gets_in(librdkafka(with_users["SASL"], mechanism, right))
    assert not gets_in(librdkafka(with_users["SASL"], mechanism, wrong), timeout=1)
    assert not gets_in(
        librdkafka(with_users["SASL"], mechanism, right, **{"sasl.username": "eve"}), timeout=1
    )


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python(with_users: Closed, files: Files, mechanism: str) -> None:
    from kafka import KafkaAdminClient
    from kafka.errors import KafkaError

    def topics(password: str) -> list[str]:
        client = KafkaAdminClient(
            bootstrap_servers=with_users["BOTH"],
            security_protocol="SASL_SSL",
            ssl_cafile=files.authority,
            sasl_mechanism=mechanism,
            sasl_plain_username="alice",
            sasl_plain_password=password,
            request_timeout_ms=5000,
            bootstrap_timeout_ms=1500,
        )
        try:
            return list(client.list_topics())
        finally:
            client.close()

    assert topics(PASSWORDS[mechanism]) is not None
    with pytest.raises(KafkaError):
        topics("a guess")


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka(with_users: Closed, files: Files, mechanism: str) -> None:
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import KafkaError
    from aiokafka.helpers import create_ssl_context

    async def produce(password: str) -> int:
        producer = AIOKafkaProducer(
            bootstrap_servers=with_users["BOTH"],
            security_protocol="SASL_SSL",
            ssl_context=create_ssl_context(cafile=files.authority),
            sasl_mechanism=mechanism,
            sasl_plain_username="alice",
            sasl_plain_password=password,
        )
        try:
            await producer.start()
            return int((await producer.send_and_wait("aiokafka-secured", b"hidden")).partition)
        finally:
            await producer.stop()

    assert asyncio.run(produce(PASSWORDS[mechanism])) == 0
    with pytest.raises(KafkaError):
        asyncio.run(produce("a guess"))


NODE = Path(__file__).parent.parent / "node"
needs_node = pytest.mark.skipif(
    shutil.which("node") is None or not (NODE / "node_modules").is_dir(), reason="needs node and its packages"
)


@needs_node
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafkajs(with_users: Closed, files: Files, mechanism: str) -> None:
    def topics(password: str) -> subprocess.CompletedProcess[str]:
        settings = {
            "brokers": [with_users["BOTH"].replace(LOCAL, "localhost")],
            "ca": files.authority,
            "mechanism": mechanism.lower(),
            "username": "alice",
            "password": password,
        }
        command = ["node", str(NODE / "kafkajs_secured.js"), json.dumps(settings)]
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)

    right = topics(PASSWORDS[mechanism])
    assert right.returncode == 0, right.stderr
    wrong = topics("a guess")
    assert wrong.returncode == 1
    assert "SASL" in wrong.stderr


@pytest.mark.skipif(shutil.which("kcat") is None, reason="needs kcat")
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kcat(with_users: Closed, files: Files, mechanism: str) -> None:
    def listed(password: str) -> int:
        settings = {
            "security.protocol": "sasl_ssl",
            "ssl.ca.location": files.authority,
            "sasl.mechanisms": mechanism,
            "sasl.username": "alice",
            "sasl.password": password,
        }
        options = [option for pair in settings.items() for option in ("-X", "=".join(pair))]
        command = ["kcat", "-b", with_users["BOTH"], "-L", "-m", "5", *options]
        return subprocess.run(command, check=False, capture_output=True, timeout=60).returncode

    assert listed(PASSWORDS[mechanism]) == 0
    assert listed("a guess") != 0


def test_credentials_are_described_changed_and_removed(with_users: Closed) -> None:
    admin = AdminClient({"bootstrap.servers": with_users["PLAINTEXT"]})
    described = admin.describe_user_scram_credentials(["alice"])["alice"].result(10)
    assert {info.mechanism for info in described.scram_credential_infos} == {
        ScramMechanism.SCRAM_SHA_256,
        ScramMechanism.SCRAM_SHA_512,
    }
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 5000)
    settings = librdkafka(with_users["SASL"], "SCRAM-SHA-256", "first", **{"sasl.username": "bob"})
    admin.alter_user_scram_credentials([UserScramCredentialUpsertion("bob", info, b"first")])["bob"].result(
        10
    )
    assert gets_in(settings)
    deletion = UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_256)
    admin.alter_user_scram_credentials([deletion])["bob"].result(10)
    assert not gets_in(settings, timeout=1)
    with pytest.raises(KafkaException, match="does not exist"):
        admin.alter_user_scram_credentials([deletion])["bob"].result(10)
    few = UserScramCredentialUpsertion("bob", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 10), b"x")
    with pytest.raises(KafkaException, match="Too few iterations"):
        admin.alter_user_scram_credentials([few])["bob"].result(10)


# Peers that do it wrong, byte by byte.


def frame(api: int, version: int, body: bytes, *, flexible: bool = False) -> bytes:
    header = struct.pack(">hhih", api, version, 7, -1) + (b"\0" if flexible else b"")
    return struct.pack(">i", len(header) + len(body)) + header + body


def handshake(mechanism: str, version: int = 1) -> bytes:
    return frame(17, version, struct.pack(">h", len(mechanism)) + mechanism.encode())


def authenticate(message: bytes) -> bytes:
    return frame(36, 0, struct.pack(">i", len(message)) + message)


def answer(connection: socket.socket) -> bytes:
    """Without its length; empty where the broker has hung up."""
    size = received(connection, 4)
    return received(connection, struct.unpack(">i", size)[0]) if size else b""


def received(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        try:
            part = connection.recv(size - len(data))
        except ConnectionResetError:
            return b""
        if not part:
            return b""
        data += part
    return data


@pytest.fixture
def stranger(closed: Closed) -> Iterator[socket.socket]:
    with socket.create_connection((LOCAL, closed.ports["SASL"]), timeout=10) as connection:
        yield connection


METADATA = frame(3, 0, struct.pack(">i", 0))
NONE, ILLEGAL_STATE, UNSUPPORTED_MECHANISM, FAILED = 0, 34, 33, 58


def error_of(reply: bytes) -> int:
    return int(struct.unpack_from(">h", reply, 4)[0])


def test_nothing_is_served_before_the_login_and_everything_after(stranger: socket.socket) -> None:
    stranger.sendall(frame(18, 0, b""))
    assert error_of(answer(stranger)) == NONE
    stranger.sendall(handshake("PLAIN"))
    assert error_of(answer(stranger)) == NONE
    stranger.sendall(authenticate(b"\0alice\0alice secret"))
    assert error_of(answer(stranger)) == NONE
    stranger.sendall(METADATA)
    assert b"127.0.0.1" in answer(stranger)


@pytest.mark.parametrize(
    "early",
    [
        METADATA,
        frame(0, 3, b"\xff\xff\0\1\0\0\0\1\0\0\0\0"),
        struct.pack(">i", 2**31 - 1) + b"x" * 100,
        struct.pack(">i", 100_000) + b"x" * 100,
        struct.pack(">i", -5),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        frame(36, 0, struct.pack(">i", 2**31 - 1)),
    ],
)
def test_whoever_does_not_log_in_first_is_cut_off(stranger: socket.socket, early: bytes) -> None:
    stranger.sendall(early)
    assert answer(stranger) == b""


def test_a_mechanism_that_is_not_taken_is_answered_with_those_that_are(stranger: socket.socket) -> None:
    stranger.sendall(handshake("GSSAPI"))
    reply = answer(stranger)
    assert error_of(reply) == UNSUPPORTED_MECHANISM
    assert all(mechanism.encode() in reply for mechanism in MECHANISMS)


@pytest.mark.parametrize(
    ("mechanism", "message"),
    [
        ("PLAIN", b""),
        ("PLAIN", b"\0alice"),
        ("PLAIN", b"\0alice\0"),
        ("PLAIN", b"\0\0secret"),
        ("PLAIN", b"\xff\0\xfe\0\xfd"),
        ("PLAIN", b"bob\0alice\0alice secret"),
        ("SCRAM-SHA-256", b""),
        ("SCRAM-SHA-256", b"n,,"),
        ("SCRAM-SHA-256", b"p=tls-unique,,n=alice,r=abc"),
        ("SCRAM-SHA-256", b"n,a=bob,n=alice,r=abc"),
        ("SCRAM-SHA-256", b"\xff" * 1000),
    ],
)
def test_a_login_that_is_none_fails_late_and_ends_the_connection(
    stranger: socket.socket, mechanism: str, message: bytes
) -> None:
    stranger.sendall(handshake(mechanism))
    answer(stranger)
    began = time.monotonic()
    stranger.sendall(authenticate(message))
    reply = answer(stranger)
    assert error_of(reply) == FAILED
    assert time.monotonic() - began >= 0.045
    assert answer(stranger) == b""


def test_a_login_out_of_order_is_refused(stranger: socket.socket) -> None:
    stranger.sendall(authenticate(b"\0alice\0alice secret"))
    assert error_of(answer(stranger)) == ILLEGAL_STATE
    assert answer(stranger) == b""


def test_whether_a_user_is_known_cannot_be_told(with_users: Closed) -> None:
    def challenge(name: str) -> tuple[bytes, bytes]:
        with socket.create_connection((LOCAL, with_users.ports["SASL"]), timeout=10) as connection:
            connection.sendall(handshake("SCRAM-SHA-256"))
            answer(connection)
            connection.sendall(authenticate(f"n,,n={name},r=abc".encode()))
            first = answer(connection)
            text = first[first.index(b"r=abc") :]
            nonce, salt, _ = text.split(b",", 2)
            connection.sendall(authenticate(b"c=biws," + nonce + b",p=" + b"A" * 43 + b"="))
            return salt, answer(connection)[4:]

    known, unknown = challenge("alice"), challenge("mallory")
    assert known[1] == unknown[1]
    assert len(known[0]) == len(unknown[0])
    # The same salt each time, as of somebody who has one, and not everybody's.
    assert challenge("mallory")[0] == unknown[0] != challenge("eve")[0]


def test_clients_of_long_ago_send_their_messages_without_headers(stranger: socket.socket) -> None:
    stranger.sendall(handshake("PLAIN", 0))
    assert error_of(answer(stranger)) == NONE
    message = b"\0alice\0alice secret"
    stranger.sendall(struct.pack(">i", len(message)) + message)
    assert received(stranger, 4) == b"\0\0\0\0"
    stranger.sendall(METADATA)
    assert b"127.0.0.1" in answer(stranger)


def test_clients_of_long_ago_are_refused_as_well(stranger: socket.socket) -> None:
    stranger.sendall(handshake("PLAIN", 0))
    answer(stranger)
    stranger.sendall(struct.pack(">i", 18) + b"\0alice\0a bad guess")
    assert answer(stranger) == b""


# Sessions that end.


@pytest.fixture(scope="module")
def short_sessions() -> Iterator[InProcessBroker]:
    settings = {
        "listeners": f"SASL_PLAINTEXT://{LOCAL}:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN_USERS,
        "listener.name.sasl_plaintext.plain.connections.max.reauth.ms": "400",
        "connection.failed.authentication.delay.ms": "0",
    }
    with InProcessBroker(settings) as broker:
        yield broker


def logged_in(connection: socket.socket, user: bytes = b"alice", password: bytes = b"alice secret") -> int:
    connection.sendall(handshake("PLAIN"))
    answer(connection)
    message = b"\0" + user + b"\0" + password
    connection.sendall(frame(36, 1, struct.pack(">i", len(message)) + message))
    reply = answer(connection)
    return error_of(reply) or int(struct.unpack(">q", reply[-8:])[0])


def test_who_does_not_log_in_again_in_time_is_cut_off_at_its_next_request(
    short_sessions: InProcessBroker,
) -> None:
    with socket.create_connection((LOCAL, short_sessions.port), timeout=10) as connection:
        assert logged_in(connection) == 400
        deadline = time.monotonic() + 10
        while True:
            connection.sendall(METADATA)
            if not answer(connection):
                break
            assert time.monotonic() < deadline


def test_who_logs_in_again_goes_on_and_stays_who_it_was(short_sessions: InProcessBroker) -> None:
    with socket.create_connection((LOCAL, short_sessions.port), timeout=10) as connection:
        until = time.monotonic() + 1.2
        while time.monotonic() < until:
            assert logged_in(connection) == 400
            connection.sendall(METADATA)
            assert answer(connection)
        assert logged_in(connection, b"bob", b"bob") == FAILED
        assert answer(connection) == b""


def test_librdkafka_logs_in_again_by_itself(short_sessions: InProcessBroker) -> None:
    producer = Producer(librdkafka(f"{LOCAL}:{short_sessions.port}", "PLAIN", "alice secret"))
    failures = []
    until = time.monotonic() + 1.5
    while time.monotonic() < until:
        producer.produce("renewed", b"x", on_delivery=lambda error, _: failures.append(error))
        producer.flush(10)
    assert failures and not any(failures)


def test_the_clients_of_brokers_log_in_too(with_users: Closed) -> None:
    async def ask(mechanism: str, password: str) -> None:
        line = f'{LOGIN}.scram.ScramLoginModule required username="alice" password="{password}";'
        security = security_from_properties(
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.jaas.config": line}
        )
        peer = await Peer.connect(
            AsyncioNetwork(),
            LOCAL,
            with_users.ports["SASL"],
            client_id="test",
            software_version="1",
            security=security,
        )
        assert (await peer.ask(ApiKey.METADATA, {"topics": []})).brokers
        peer.close()

    for mechanism in MECHANISMS:
        asyncio.run(ask(mechanism, PASSWORDS[mechanism]))
        with pytest.raises(AuthenticationFailed, match=r"nvalid"):
            asyncio.run(ask(mechanism, "a guess"))
