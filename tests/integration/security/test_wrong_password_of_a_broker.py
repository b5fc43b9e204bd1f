"""A broker whose password the controllers do not take: it does not join, and says why."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.brokers import free_port
from confluent_kafka.admin import AdminClient

from ottla.cli.main import main
from ottla.testing.process import BrokerProcess

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"


class Configured(BrokerProcess):
    """Of a file, formatted."""

    def __init__(self, home: Path, settings: dict[str, str]) -> None:
        data_dir = home / "data"
        properties = home / "server.properties"
        home.mkdir()
        lines = {**settings, "log.dirs": str(data_dir)}
        properties.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        assert main(["storage", "format", "-t", CLUSTER_ID, "-c", str(properties)]) == 0
        self._properties = str(properties)
        super().__init__(data_dir=str(data_dir))

    def _arguments(self) -> list[str]:
        return [self._properties]


@pytest.fixture
def settings() -> dict[str, str]:
    return {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@127.0.0.1:{free_port()}",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
        "connection.failed.authentication.delay.ms": "10",
    }


def login(password: str, others: str = "") -> dict[str, str]:
    line = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    key = "listener.name.controller.plain.sasl.jaas.config"
    return {key: f'{line} username="node" password="{password}" {others};'}


@pytest.fixture
def first(tmp_path: Path, settings: dict[str, str]) -> Iterator[BrokerProcess]:
    controllers = settings["controller.quorum.voters"].removeprefix("1@")
    own = {
        "node.id": "1",
        "process.roles": "broker,controller",
        "listeners": f"PLAINTEXT://127.0.0.1:0,CONTROLLER://{controllers}",
    }
    with Configured(tmp_path / "first", settings | own | login("secret", 'user_node="secret"')) as running:
        yield running


def test_it_does_not_join_and_both_sides_say_so(
    first: BrokerProcess, tmp_path: Path, settings: dict[str, str]
) -> None:
    own = {
        "node.id": "2",
        "process.roles": "broker",
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "initial.broker.registration.timeout.ms": "3000",
    }
    stranger = Configured(tmp_path / "second", settings | own | login("a guess"))
    with pytest.raises(RuntimeError, match="before it was ready"):
        stranger.start()
    assert "refused the credentials (PLAIN)" in stranger.log
    assert (
        "broker 2 could not join its cluster within initial.broker.registration.timeout.ms=3000"
        in stranger.log
    )
    assert "Traceback" not in stranger.log
    assert "failed to log in on listener CONTROLLER with PLAIN: user 'node' was refused" in first.log
    admin = AdminClient({"bootstrap.servers": first.bootstrap_servers})
    assert set(admin.list_topics(timeout=60).brokers) == {1}
