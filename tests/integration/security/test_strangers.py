"""Peers that begin to come in and do not go on: bounded in number, in time and in memory."""

from __future__ import annotations

import contextlib
import gc
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from bench.attacks import log_in
from closed_broker import PLAIN_USERS, Files
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest
from raw_client import RawConnection

from ottla.server.connection import Connection
from ottla.testing.in_process import InProcessBroker
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode

LOCAL = "127.0.0.1"


def is_cut_off(connection: socket.socket) -> bool:
    with contextlib.suppress(ConnectionResetError):
        return connection.recv(1) == b""
    return True


@pytest.mark.parametrize("listener", ["SSL", "SASL_PLAINTEXT"])
def test_who_takes_too_long_is_cut_off(files: Files, listener: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.server.tls_door.ListenerDoor.handshake_seconds_max", 0.3)
    monkeypatch.setattr("ottla.server.guard.AUTHENTICATION_SECONDS_MAX", 0.3)
    settings = {
        "listeners": f"{listener}://{LOCAL}:0",
        "ssl.keystore.location": files.server,
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN_USERS,
    }
    with InProcessBroker(settings) as broker:
        with socket.create_connection((LOCAL, broker.port), timeout=10) as idle:
            assert is_cut_off(idle)
        # Half of something is no better than nothing.
        with socket.create_connection((LOCAL, broker.port), timeout=10) as slow:
            slow.sendall(b"\x16\x03\x01\x02\x00\x01")
            assert is_cut_off(slow)


def test_handshakes_left_alone_keep_nobody_else_out(files: Files) -> None:
    settings = {
        "listeners": f"SSL://{LOCAL}:0",
        "ssl.keystore.location": files.server,
        "listener.name.ssl.max.connections": "300",
    }
    with InProcessBroker(settings) as broker, contextlib.ExitStack() as stack:
        for _ in range(250):
            stranger = stack.enter_context(socket.create_connection((LOCAL, broker.port), timeout=10))
            stranger.sendall(b"\x16\x03\x01\x02\x00\x01")
        settings_of_client = {"security.protocol": "ssl", "ssl.ca.location": files.authority}
        admin = AdminClient({"bootstrap.servers": f"{LOCAL}:{broker.port}", **settings_of_client})
        began = time.monotonic()
        assert admin.list_topics(timeout=10).brokers
        assert time.monotonic() - began < 10


def test_a_broker_that_stops_does_not_wait_for_strangers(files: Files) -> None:
    settings = {"listeners": f"SSL://{LOCAL}:0", "ssl.keystore.location": files.server}
    broker = InProcessBroker(settings).start()
    stop: Callable[[], None] = broker.close
    with socket.create_connection((LOCAL, broker.port), timeout=10) as stranger:
        stranger.sendall(b"\x16\x03\x01\x02\x00\x01")
        began = time.monotonic()
        stop()
        assert time.monotonic() - began < 5
        assert is_cut_off(stranger)


def test_who_begins_a_login_anew_is_refused_and_cut_off() -> None:
    settings = {
        "listeners": f"SASL_PLAINTEXT://{LOCAL}:0",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN_USERS,
    }
    named = SaslHandshakeRequest(mechanism="SCRAM-SHA-512")
    with InProcessBroker(settings) as broker, RawConnection(f"{LOCAL}:{broker.port}") as guesser:
        assert guesser.call(ApiKey.SASL_HANDSHAKE, 1, named).error_code is ErrorCode.none
        assert guesser.call(ApiKey.SASL_HANDSHAKE, 1, named).error_code is ErrorCode.illegal_sasl_state
        assert guesser.was_closed()


def test_a_setting_that_became_worse_keeps_no_broker_from_starting(files: Files, tmp_path: Path) -> None:
    """It was fine when it was altered, or it would have been refused."""
    renewed = tmp_path / "renewed.pem"
    renewed.write_bytes(Path(files.server).read_bytes())
    settings = {
        "listeners": f"PLAINTEXT://{LOCAL}:0,SSL://{LOCAL}:0",
        "listener.name.ssl.ssl.keystore.location": files.server,
    }
    data = str(tmp_path / "data")
    with InProcessBroker(settings, data_dir=data) as broker:
        admin = AdminClient({"bootstrap.servers": f"{LOCAL}:{broker.port}"})
        resource = ConfigResource(ResourceType.BROKER, "1")
        resource.add_incremental_config(
            ConfigEntry(
                "listener.name.ssl.ssl.keystore.location",
                str(renewed),
                incremental_operation=AlterConfigOpType.SET,
            )
        )
        admin.incremental_alter_configs([resource])[resource].result(60)
    renewed.unlink()
    with InProcessBroker(settings, data_dir=data) as broker:
        assert AdminClient({"bootstrap.servers": f"{LOCAL}:{broker.port}"}).list_topics(timeout=60).brokers


def test_connections_that_ended_leave_no_cycles(files: Files) -> None:
    """They would stay until cycles are looked for, which after a flood of them holds up everybody."""
    settings = {
        "listeners": f"OPEN://{LOCAL}:0,GATE://{LOCAL}:0",
        "listener.security.protocol.map": "OPEN:PLAINTEXT,GATE:SASL_SSL",
        "inter.broker.listener.name": "OPEN",
        "ssl.keystore.location": files.server,
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.gate.plain.sasl.jaas.config": PLAIN_USERS,
        "connection.failed.authentication.delay.ms": "0",
    }
    context = ssl.create_default_context(cafile=files.authority)

    def left() -> int:
        found = [each for each in gc.get_objects() if isinstance(each, Connection)]
        return sum(each.session.listener in ("OPEN", "GATE") for each in found)

    with InProcessBroker(settings) as broker:
        gc.disable()
        try:
            for password in ("alice secret", "guessed"):
                with RawConnection(f"{LOCAL}:{broker.ports['OPEN']}") as stranger:
                    stranger.send(b"\xff" * 8)
                    assert stranger.was_closed()
                address = LOCAL, broker.ports["GATE"]
                with context.wrap_socket(
                    socket.create_connection(address, timeout=60), server_hostname=LOCAL
                ) as guest:
                    with contextlib.suppress(PermissionError):
                        log_in(guest, "alice", password)
                    with contextlib.suppress(OSError):
                        guest.sendall(b"\xff" * 8)
                        assert guest.recv(1) == b""
            deadline = time.monotonic() + 60
            while left():
                assert time.monotonic() < deadline, f"{left()} connections are left"
                time.sleep(0.05)
        finally:
            gc.enable()
