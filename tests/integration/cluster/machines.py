"""Machines of the guides to clusters, as directories and ports of this one, and what guides do on them."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from ottla.runtime.net import free_ports

WAIT_S = 60.0
BLOCK = re.compile(r"^```(?P<kind>\w+)(?P<marks>[^\n]*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
HOSTS = ("kafka1", "kafka2", "kafka3", "kafka4")

# What the guide asks of systemd: the unit's command is started, and told to stop.
SYSTEMCTL = """\
import os, pathlib, shlex, signal, subprocess, sys, time
root = pathlib.Path(os.environ["ROOT"])
pid = root / "pid"
def is_there(number):
    try:
        return pathlib.Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
verb = sys.argv[1]
if verb in ("start", "enable"):
    unit = (root / "etc/systemd/system/ottla.service").read_text()
    command = next(line for line in unit.splitlines() if line.startswith("ExecStart=")).partition("=")[2]
    with (root / "log").open("w") as log:
        started = subprocess.Popen(shlex.split(command), stdout=log, stderr=log, start_new_session=True)
    pid.write_text(str(started.pid))
else:
    number = int(pid.read_text())
    os.kill(number, signal.SIGTERM)
    while is_there(number):
        time.sleep(0.05)
    pid.unlink()
"""


class Block(NamedTuple):
    kind: str
    marks: dict[str, str]
    text: str


class Machine:
    def __init__(self, directory: Path, name: str, ports: tuple[int, int]) -> None:
        self.name, self.root, self.port, self.controller_port = name, directory / name, *ports
        (self.root / "home").mkdir(parents=True)
        for program, text in (
            ("systemctl", f"#!{sys.executable}\n{SYSTEMCTL}"),
            ("ottla", f'#!/bin/sh\nexec {sys.executable} -m ottla.cli.main "$@"\n'),
            ("pip", "#!/bin/sh\n"),
        ):
            path = self.root / "opt/ottla/bin" / program
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(path.stat().st_mode | stat.S_IXUSR)

    @property
    def pid(self) -> int | None:
        path = self.root / "pid"
        return int(path.read_text()) if path.exists() else None

    def run(self, command: str, cluster_id: str) -> str:
        path = f"{self.root}/opt/ottla/bin:{Path(sys.executable).parent}:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", command],
            cwd=self.root / "home",
            env=os.environ | {"PATH": path, "ROOT": str(self.root), "CLUSTER_ID": cluster_id},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"on {self.name}:\n{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def wait_ready(self) -> None:
        deadline = time.monotonic() + WAIT_S
        while "Ready:" not in (log := (self.root / "log").read_text()):
            assert time.monotonic() < deadline, log
            time.sleep(0.1)

    def kill(self) -> None:
        if self.pid is not None:
            os.kill(self.pid, signal.SIGKILL)
            (self.root / "pid").unlink()


class Site:
    """All machines, by name."""

    def __init__(self, directory: Path) -> None:
        ports = free_ports("127.0.0.1", 2 * len(HOSTS))
        self.machines = {
            name: Machine(directory, name, (ports[2 * number], ports[2 * number + 1]))
            for number, name in enumerate(HOSTS)
        }
        self.cluster_id = ""

    def here(self, text: str, machine: Machine) -> str:
        """Names and places of the guide as they are on this machine."""
        text = re.sub(r"/(?=(?:etc|var|opt)/)", f"{machine.root}/", text)
        for other in self.machines.values():
            text = text.replace(f"{other.name}:9092", f"127.0.0.1:{other.port}")
            text = text.replace(f"{other.name}:9093", f"127.0.0.1:{other.controller_port}")
        return text

    def put(self, block: Block) -> None:
        """A file, as its machines have it."""
        everywhere = ",".join(HOSTS if block.kind == "ini" else HOSTS[:3])
        for name in block.marks.get("on", everywhere).split(","):
            machine = self.machines[name]
            # Each has a number and a name of its own.
            text = block.text.replace("node.id=1", f"node.id={name[-1]}")
            text = re.sub(r"(?<=//)kafka\d", name, text)
            path = Path(self.here(block.marks["file"], machine))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.here(text, machine))

    def run(self, block: Block) -> str:
        said = ""
        for name in block.marks["on"].split(","):
            machine = self.machines[name]
            command = self.here(block.text, machine)
            said = machine.run(command, self.cluster_id)
            deadline = time.monotonic() + WAIT_S
            while not is_over(block.marks.get("until"), said):
                assert time.monotonic() < deadline, f"{command}\n{said}"
                said = machine.run(command, self.cluster_id)
        for machine in self.machines.values():
            if "systemctl" in block.text and machine.pid is not None:
                machine.wait_ready()
        return said

    @property
    def servers(self) -> str:
        running = (machine for machine in self.machines.values() if machine.pid is not None)
        return ",".join(f"127.0.0.1:{machine.port}" for machine in running)


def is_over(until: str | None, said: str) -> bool:
    match until:
        case "empty":
            return not said.strip()
        case "no-progress":
            return "still in progress" not in said
        case _:
            return True


def sections(guide: Path) -> dict[str, list[Block]]:
    found: dict[str, list[Block]] = {}
    for part in re.split(r"^## ", guide.read_text(), flags=re.MULTILINE)[1:]:
        title, _, text = part.partition("\n")
        found[title] = [
            Block(match["kind"], dict(mark.split("=") for mark in match["marks"].split()), match["text"])
            for match in BLOCK.finditer(text)
        ]
    return found
