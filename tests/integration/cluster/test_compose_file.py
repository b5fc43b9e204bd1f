"""What the containers of the compose file run makes a cluster, here as processes on loopback addresses."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import free_ports

COMPOSE = Path(__file__).parents[3] / "examples/container/compose.yaml"


def brokers_of(admin: AdminClient) -> set[int]:
    try:
        return set(admin.list_topics(timeout=5).brokers)
    except KafkaException:
        return set()


def page(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return str(answer.read(), "utf-8")
    except OSError:
        return ""


def test_the_brokers_of_the_compose_file_form_a_cluster_and_the_console_shows_it(tmp_path: Path) -> None:
    script, services = COMPOSE.read_text().split("services:\n")
    script = script[script.index("- |\n") :].partition("\n")[2]
    script = re.sub("^      ", "", script, flags=re.MULTILINE).replace("$$", "$")
    nodes = re.findall(r'NODE_ID: "(\d)", OUTSIDE_PORT: "(\d+)"', services)
    assert len(nodes) == 3
    for tool in ("ottla", "kafka-storage"):
        named = tool.removeprefix("ottla")
        (tmp_path / tool).write_text(f'#!/bin/sh\nexec {sys.executable} -m ottla.cli.main {named} "$@"\n')
        (tmp_path / tool).chmod(0o755)

    # Each container has ports of its own; one machine has not.
    with ExitStack() as probes:
        free = []
        for _ in range(9):
            probe = probes.enter_context(socket.socket())
            probe.bind(("127.0.0.1", 0))
            free.append(str(probe.getsockname()[1]))
    inside, controllers, outside = free[:3], free[3:6], free[6:]
    for number, _ in nodes:
        at = int(number) - 1
        script = script.replace(f"{number}@broker{number}:9093", f"{number}@127.0.0.1:{controllers[at]}")
    running = []
    try:
        for at, (number, _) in enumerate(nodes):
            home = tmp_path / number
            home.mkdir()
            own = script.replace("broker$NODE_ID:9092", f"127.0.0.1:{inside[at]}")
            own = own.replace("INSIDE://:9092", f"INSIDE://127.0.0.1:{inside[at]}")
            own = own.replace("OUTSIDE://:", "OUTSIDE://127.0.0.1:").replace("/var/lib/ottla", f"{home}/data")
            own = own.replace("CONTROLLER://:9093", f"CONTROLLER://127.0.0.1:{controllers[at]}")
            environment = os.environ | {
                "PATH": f"{tmp_path}:{os.environ['PATH']}",
                "HOME": str(home),
                "NODE_ID": number,
                "OUTSIDE_PORT": outside[at],
            }
            with open(home / "log", "w") as log:
                running.append(
                    subprocess.Popen(
                        ["sh", "-ec", own], env=environment, stdout=log, stderr=log, start_new_session=True
                    )
                )
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{outside[0]}"})
        deadline = time.monotonic() + 100
        while len(brokers_of(admin)) < 3:
            logs = "\n".join((tmp_path / number / "log").read_text() for number, _ in nodes)
            assert time.monotonic() < deadline, logs
        admin.create_topics([NewTopic("orders", 3)])["orders"].result(60)
        partitions = admin.list_topics("orders", timeout=60).topics["orders"].partitions
        assert [len(partition.replicas) for partition in partitions.values()] == [3, 3, 3]
        found = re.search(r"entrypoint: \[ottla, console\]\n.*\n *command: (\[.*\])", services)
        assert found is not None
        [address] = free_ports("127.0.0.1", 1)
        inside_names = ",".join(f"broker{number}:9092" for number, _ in nodes)
        console = found[1].replace(inside_names, ",".join(f"127.0.0.1:{port}" for port in inside))
        with open(tmp_path / "console.log", "w") as log:
            running.append(
                subprocess.Popen(
                    [tmp_path / "ottla", "console", *json.loads(console), "--port", str(address)],
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )
        while "Overview" not in page(f"http://localhost:{address}/"):
            assert time.monotonic() < deadline, (tmp_path / "console.log").read_text()
            time.sleep(0.1)
    finally:
        for process in running:
            os.killpg(process.pid, signal.SIGTERM)
        for process in running:
            process.wait(60)
