"""SASL with real clients, and with peers that do it wrong."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest
from closed_broker import LOGIN, PLAIN_USERS, Closed
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from ways_in import PASSWORDS

from ottla.client.peer import AuthenticationFailed, Peer
from ottla.client.security import security_from_properties
from ottla.runtime.net import AsyncioNetwork
from ottla.testing.in_process import InProcessBroker
from ottla.wire.api import ApiKey

LOCAL = "127.0.0.1"


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
    assert all(mechanism.encode() in reply for mechanism in (*PASSWORDS, "OAUTHBEARER"))


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

    for mechanism in PASSWORDS:
        asyncio.run(ask(mechanism, PASSWORDS[mechanism]))
        with pytest.raises(AuthenticationFailed, match=r"nvalid"):
            asyncio.run(ask(mechanism, "a guess"))
