"""The tools as they are installed: names, start-up, brokers in processes, the quick-start as it is typed."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ottla.cli.framework import catalogue
from ottla.runtime.net import free_ports

BIN = Path(sys.executable).parent
SERVER_PROPERTIES = """\
process.roles=broker,controller
node.id={node_id}
controller.quorum.bootstrap.servers=localhost:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL
num.network.threads=3
log.dirs={directory}/kraft-combined-logs
offsets.topic.replication.factor=1
group.initial.rebalance.delay.ms=0
"""

pytestmark = pytest.mark.skipif(
    not (BIN / "kafka-topics.sh").exists(), reason="installed before the tools had executables"
)


def shell(command: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", command],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=cwd,
        env={**os.environ, **variables},
    )


def test_every_tool_has_both_names() -> None:
    for name in catalogue.EXECUTABLES:
        assert (BIN / name).exists()
        assert (BIN / f"{name}.sh").exists()


def test_help_of_a_tool_imports_no_client() -> None:
    listed = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "ottla.cli.main", "console-consumer", "--help"],
        check=True,
        capture_output=True,
        text=True,
    ).stderr
    for module in ("confluent_kafka", "kio", "rich", "asyncio"):
        assert f" {module}\n" not in listed


def test_a_closed_pipe_ends_quietly(tmp_path: Path) -> None:
    done = shell(f"{BIN}/kafka-topics --help | head -1; echo ${{PIPESTATUS[0]}}", tmp_path)
    assert done.stderr == ""


def test_the_quick_start_as_it_is_typed(tmp_path: Path) -> None:
    """https://kafka.apache.org/quickstart, but for the port, the directory and an end to the consumer."""
    (tmp_path / "bin").symlink_to(BIN)
    (tmp_path / "config").mkdir()
    node_id = random.randrange(10_000, 1_000_000)
    port, controller_port = free_ports("127.0.0.1", 2)
    (tmp_path / "config/server.properties").write_text(
        SERVER_PROPERTIES.format(
            node_id=node_id, port=port, controller_port=controller_port, directory=tmp_path
        )
    )
    at = f"--bootstrap-server localhost:{port}"
    formatted = shell(
        'KAFKA_CLUSTER_ID="$(bin/kafka-storage.sh random-uuid)"\n'
        "bin/kafka-storage.sh format --standalone -t $KAFKA_CLUSTER_ID -c config/server.properties",
        tmp_path,
    )
    assert formatted.returncode == 0, formatted.stderr
    assert formatted.stdout.startswith("Formatting dynamic metadata voter directory")
    with subprocess.Popen(
        ["bin/kafka-server-start.sh", "config/server.properties"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as server:
        try:
            created = shell(f"bin/kafka-topics.sh --create --topic quickstart-events {at}", tmp_path)
            assert created.stdout == "Created topic quickstart-events.\n", created.stderr
            described = shell(f"bin/kafka-topics.sh --describe --topic quickstart-events {at}", tmp_path)
            assert described.stdout.startswith("Topic: quickstart-events")
            written = shell(
                "printf 'This is my first event\\nThis is my second event\\n' | "
                f"bin/kafka-console-producer.sh --topic quickstart-events {at}",
                tmp_path,
            )
            assert written.returncode == 0, written.stderr
            read = shell(
                "bin/kafka-console-consumer.sh --topic quickstart-events --from-beginning "
                f"--max-messages 2 {at}",
                tmp_path,
            )
            assert read.stdout == "This is my first event\nThis is my second event\n"
            stopped = shell(f"bin/kafka-server-stop.sh --node-id={node_id}", tmp_path)
            assert stopped.returncode == 0, stopped.stderr
            directory = f"{tmp_path}/kraft-combined-logs"
            assert stopped.stdout == f"Stopping node {node_id}, process {server.pid}, data in {directory}\n"
            assert server.wait(30) == 0
        finally:
            server.kill()
    nobody = shell(f"bin/kafka-server-stop.sh --node-id={node_id}", tmp_path)
    assert nobody.returncode == 1
    assert "No kafka server to stop" in nobody.stderr


def test_a_broker_in_the_background(tmp_path: Path) -> None:
    node_id = random.randrange(10_000, 1_000_000)
    (port,) = free_ports("127.0.0.1", 1)
    properties = f"node.id={node_id}\nlisteners=PLAINTEXT://127.0.0.1:{port}\nlog.dirs={tmp_path}/data\n"
    (tmp_path / "server.properties").write_text(properties)
    began = time.monotonic()
    started = shell(f"{BIN}/kafka-server-start -daemon server.properties", tmp_path)
    assert started.returncode == 0, started.stderr
    try:
        listed = shell(f"{BIN}/kafka-topics --list --bootstrap-server 127.0.0.1:{port}", tmp_path)
        assert listed.returncode == 0, listed.stderr
    finally:
        stopped = shell(f"{BIN}/kafka-server-stop --node-id {node_id}", tmp_path)
    assert stopped.returncode == 0, stopped.stderr
    assert "Ready:" in (tmp_path / "data/server.out").read_text()
    assert time.monotonic() - began < 30
