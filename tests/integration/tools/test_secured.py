"""Tools with --command-config against Apache Kafka that asks for a password, or speaks TLS."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from bench import kafka_peer
from bench.brokers import free_port, started
from bench.kafka_peer import ApacheKafka
from bench.maven import PeerUnavailable

pytestmark = [pytest.mark.maven, pytest.mark.slow, pytest.mark.timeout(300)]

LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@dataclass(frozen=True)
class Secured:
    sasl: str
    tls: str
    authority: Path


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    home = tmp_path_factory.mktemp("secured")
    made = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost "
        "-addext subjectAltName=IP:127.0.0.1,DNS:localhost -keyout key.pem -out ca.pem"
    )
    subprocess.run(made.split(), cwd=home, check=True, capture_output=True)
    (home / "identity.pem").write_text((home / "key.pem").read_text() + (home / "ca.pem").read_text())
    sasl_port, tls_port = free_port(), free_port()

    class WithListeners(ApacheKafka):
        def prepare(self, port: int, data_dir: str) -> None:
            super().prepare(port, data_dir)
            path = Path(f"{data_dir}.properties")
            text = path.read_text()
            for line in text.splitlines():
                if line.startswith(("listeners=", "advertised.listeners=")):
                    text += f"{line},SASL_PLAINTEXT://127.0.0.1:{sasl_port},SSL://127.0.0.1:{tls_port}\n"
                if line.startswith("listener.security.protocol.map="):
                    text += f"{line},SASL_PLAINTEXT:SASL_PLAINTEXT,SSL:SSL\n"
            text += "sasl.enabled.mechanisms=PLAIN\n"
            text += f'listener.name.sasl_plaintext.plain.sasl.jaas.config={LOGIN} user_ann="secret";\n'
            text += f"ssl.keystore.type=PEM\nssl.keystore.location={home}/identity.pem\n"
            path.write_text(text)

    with ExitStack() as stack:
        try:
            kafka = WithListeners(kafka_peer.fetch())
        except PeerUnavailable as error:
            pytest.skip(str(error))
        stack.enter_context(started(kafka, str(home / "data"), home / "kafka.out"))
        yield Secured(f"127.0.0.1:{sasl_port}", f"127.0.0.1:{tls_port}", home / "ca.pem")


def password(text: str) -> str:
    return (
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={LOGIN} username="ann" password="{text}";\n'
    )


@pytest.mark.parametrize("kind", ["sasl", "tls"])
def test_tools_reach_a_secured_cluster(secured: Secured, tool: Any, tmp_path: Path, kind: str) -> None:
    config = tmp_path / "client.properties"
    trust = f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={secured.authority}\n"
    config.write_text(password("secret") if kind == "sasl" else trust)
    server = secured.sasl if kind == "sasl" else secured.tls
    place = ("--bootstrap-server", server, "--command-config", str(config))
    topic = f"secured-{kind}"
    created = tool("topics", "--create", "--topic", topic, *place)
    assert created.out == f"Created topic {topic}.\n", created.err
    written = tool("console-producer", "--topic", topic, *place, stdin="hidden\n")
    assert written.status == 0, written.err
    reading = ("--from-beginning", "--max-messages", "1", "--group", f"readers-{kind}")
    read = tool("console-consumer", "--topic", topic, *place, *reading)
    assert read.out == "hidden\n", read.err
    assert tool("get-offsets", "--topic", topic, *place).out == f"{topic}:0:1\n"
    assert f"readers-{kind}" in tool("consumer-groups", "--list", *place).lines
    measured = tool("producer-perf-test", "--topic", topic, "--num-records", "5", "--record-size", "5",
                    "--throughput", "-1", *place)  # fmt: skip
    assert measured.status == 0, measured.err


def test_what_goes_wrong_is_said(secured: Secured, tool: Any, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"

    def complaint(server: str, text: str) -> str:
        config.write_text(text)
        refused = tool("topics", "--list", "--bootstrap-server", server, "--command-config", str(config))
        assert refused.status == 1
        return str(refused.err)

    assert "PLAIN" in complaint(secured.sasl, password("wrong"))
    assert "CERTIFICATE_VERIFY_FAILED" in complaint(secured.tls, "security.protocol=SSL\n")
    assert "security.protocol" in complaint(secured.tls, "socket.connection.setup.timeout.ms=2000\n")
    assert "is none of PLAINTEXT, SSL" in complaint(secured.tls, "security.protocol=TLS\n")
    assert "needs sasl.username" in complaint(
        secured.sasl, "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
    )
