"""Apache Kafka's own tools on closed listeners."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import kafka_peer
from bench.kafka_peer import KafkaDistribution
from bench.maven import PeerUnavailable
from closed_broker import LOGIN, PLAIN_PASSWORD, SCRAM_PASSWORD, Closed, Files

from ottla.testing.in_process import InProcessBroker

pytestmark = [pytest.mark.maven, pytest.mark.slow, pytest.mark.timeout(300)]

TOOLS = "org.apache.kafka.tools."


@pytest.fixture(scope="module")
def distribution() -> KafkaDistribution:
    try:
        return kafka_peer.fetch()
    except PeerUnavailable as error:
        pytest.skip(str(error))


def properties(files: Files, path: Path, **settings: str) -> str:
    given = {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": files.authority,
        "default.api.timeout.ms": "30000",
        "request.timeout.ms": "15000",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    path.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    return str(path)


def login(module: str, name: str, password: str) -> str:
    return f'{LOGIN}.{module} required username="{name}" password="{password}";'


def test_javas_tools_set_a_password_that_lets_in(
    closed: Closed, files: Files, distribution: KafkaDistribution, tmp_path: Path
) -> None:
    admin = properties(
        files,
        tmp_path / "admin",
        security_protocol="SASL_SSL",
        sasl_mechanism="PLAIN",
        sasl_jaas_config=login("plain.PlainLoginModule", "alice", PLAIN_PASSWORD),
    )
    altered = distribution.run_tool(
        "kafka.admin.ConfigCommand",
        *("--bootstrap-server", closed["BOTH"], "--command-config", admin),
        *("--alter", "--entity-type", "users", "--entity-name", "juliet"),
        *("--add-config", f"SCRAM-SHA-512=[password={SCRAM_PASSWORD}]"),
        timeout_s=60,
    )
    assert "Completed updating config for user juliet." in altered.stdout, altered.stderr
    scram = properties(
        files,
        tmp_path / "scram",
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_jaas_config=login("scram.ScramLoginModule", "juliet", SCRAM_PASSWORD),
    )
    place = ("--bootstrap-server", closed["BOTH"], "--command-config", scram)
    listed = distribution.run_tool(f"{TOOLS}TopicCommand", "--list", *place, timeout_s=60)
    assert listed.returncode == 0, listed.stdout + listed.stderr


def test_javas_token_tool(
    closed: Closed, files: Files, distribution: KafkaDistribution, tmp_path: Path
) -> None:
    admin = properties(
        files,
        tmp_path / "admin",
        security_protocol="SASL_SSL",
        sasl_mechanism="PLAIN",
        sasl_jaas_config=login("plain.PlainLoginModule", "bob", "bob"),
    )

    def tokens(*arguments: str) -> str:
        place = ("--bootstrap-server", closed["BOTH"], "--command-config", admin)
        ran = distribution.run_tool(f"{TOOLS}DelegationTokenCommand", *place, *arguments, timeout_s=60)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    made = tokens("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:alice")
    row = made.splitlines()[-1].split()
    assert row[2:5] == ["User:bob", "User:bob", "[User:alice]"]
    assert "Completed renew operation" in tokens("--renew", "--renew-time-period", "-1", "--hmac", row[1])
    assert "Completed expire operation" in tokens("--expire", "--expiry-time-period", "-1", "--hmac", row[1])
    assert "Total number of tokens : 0" in tokens("--describe", "--owner-principal", "User:bob")


def test_a_directory_formatted_by_apache_kafka_has_its_credentials(
    distribution: KafkaDistribution, tmp_path: Path
) -> None:
    """Ours writes the same file, which Kafka's dump tool reads."""
    data = tmp_path / "data"
    config = tmp_path / "server.properties"
    config.write_text(
        "node.id=1\nprocess.roles=broker,controller\nlisteners=SASL_PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0\n"
        "controller.listener.names=CONTROLLER\nlistener.security.protocol.map="
        "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT\nsecurity.inter.broker.protocol=SASL_PLAINTEXT\n"
        "sasl.mechanism.inter.broker.protocol=SCRAM-SHA-512\n"
        f"sasl.enabled.mechanisms=SCRAM-SHA-512\ncontroller.quorum.voters=1@127.0.0.1:9999\nlog.dirs={data}\n"
    )
    formatted = distribution.run_tool(
        "kafka.tools.StorageTool",
        *("format", "-t", "4L6g3nShT-eMCtK--X86sw", "-c", str(config)),
        *("--release-version", "4.1", "--add-scram", "SCRAM-SHA-512=[name=admin,password=from kafka]"),
        timeout_s=60,
    )
    assert formatted.returncode == 0, formatted.stdout + formatted.stderr
    settings = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "SCRAM-SHA-512"}
    with InProcessBroker(settings, data_dir=str(data)) as broker:
        from test_principals import asked
        from test_principals import login as client_login

        from ottla.wire.api import ApiKey

        admin = client_login("SCRAM-SHA-512", "admin", "from kafka")
        assert asked(broker.port, admin, (ApiKey.METADATA, {"topics": []}))[0].brokers
