"""Nodes of a quorum that grows: each in a process of its own, formatted and asked with the tools."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ottla.config.local_cluster import HOST
from ottla.testing import BrokerProcess

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
QUICK = {
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
    "offsets.topic.replication.factor": "1",
}


class Member(BrokerProcess):
    """Broker and controller."""

    def __init__(self, directory: Path, node_id: int, ports: tuple[int, int], servers: str) -> None:
        super().__init__(data_dir=str(directory / str(node_id)), port=ports[0])
        self.id = node_id
        self.file = directory / f"{node_id}.properties"
        self.controller = f"{HOST}:{ports[1]}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": str(node_id),
            "listeners": f"PLAINTEXT://{HOST}:{ports[0]},CONTROLLER://{self.controller}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": servers,
            "log.dirs": str(self.data_dir),
            **QUICK,
        }
        self.file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    def format(self, *options: str) -> None:
        run("kafka-storage", "format", "-t", CLUSTER_ID, "-c", str(self.file), *options)

    @property
    def directory_id(self) -> str:
        found = re.search("directory.id=(.*)", (Path(str(self.data_dir)) / "meta.properties").read_text())
        assert found is not None
        return found[1]

    def _arguments(self) -> list[str]:
        return [str(self.file)]


def run(*arguments: str, status: int = 0) -> str:
    command = [sys.executable, "-m", "ottla.cli.main", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=90)
    assert ended.returncode == status, ended.stderr
    return ended.stdout + ended.stderr


def described(server: str) -> dict[str, Any]:
    asking = ("kafka-metadata-quorum", "--bootstrap-server", server, "describe", "--status", "--json")
    # A tool that waits says so behind the answer.
    told: dict[str, Any]
    told, _ = json.JSONDecoder().raw_decode(run(*asking))
    return told


def wait_until(condition: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < give_up_at
        time.sleep(0.1)
