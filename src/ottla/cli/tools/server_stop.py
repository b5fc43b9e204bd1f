"""`kafka-server-stop`: ends the brokers of this machine, or one of them by its id.

As Kafka's script does, it looks through the running processes, whichever installation they are of; unlike it,
it says which it stops, and waits until they have ended.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from ottla.cli.framework.errors import ToolError
from ottla.cli.framework.output import show, warn
from ottla.cli.framework.tool import Option, Tool

_PROCESSES = "/proc"
_WAIT_SECONDS = 60.0


class _Broker(NamedTuple):
    pid: int
    node_id: int
    roles: tuple[str, ...]
    directories: tuple[str, ...]

    @property
    def shown(self) -> str:
        return f"node {self.node_id}, process {self.pid}, data in {','.join(self.directories)}"


def run(given: argparse.Namespace) -> int:
    if given.node_id is not None and given.process_role is not None:
        warn(given, "--process-role is ignored: --node-id says already which to stop")
    found = [broker for broker in _running() if _is_meant(given, broker)]
    if not found:
        raise ToolError("No kafka server to stop")
    for broker in found:
        try:
            os.kill(broker.pid, signal.SIGTERM)
        except PermissionError:
            raise ToolError(f"process {broker.pid} belongs to another user") from None
        except ProcessLookupError:
            continue
        if not given.json:
            print(f"Stopping {broker.shown}", flush=True)
    deadline = time.monotonic() + _WAIT_SECONDS
    for broker in found:
        while _is_alive(broker.pid):
            if time.monotonic() > deadline:
                raise ToolError(f"process {broker.pid} has not ended after {_WAIT_SECONDS:g} s")
            time.sleep(0.02)
    data = [
        {"pid": broker.pid, "nodeId": broker.node_id, "directories": broker.directories} for broker in found
    ]
    show(given, data, [])
    return 0


def _is_meant(given: argparse.Namespace, broker: _Broker) -> bool:
    if given.node_id is not None:
        return bool(broker.node_id == given.node_id)
    return given.process_role is None or given.process_role in broker.roles


def _is_alive(pid: int) -> bool:
    """Not counting a process that has ended but whose parent has not looked yet."""
    try:
        with open(f"{_PROCESSES}/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _running() -> Iterator[_Broker]:
    if not os.path.isdir(_PROCESSES):
        raise ToolError("this system does not list its processes; use ottla stop --data-dir")
    for name in sorted(os.listdir(_PROCESSES)):
        if name.isdecimal():
            with contextlib.suppress(OSError):
                broker = _broker(int(name))
                if broker is not None:
                    yield broker


def _broker(pid: int) -> _Broker | None:
    with open(f"{_PROCESSES}/{pid}/cmdline", "rb") as file:
        words = file.read().decode("utf-8", "replace").split("\0")[:-1]
    arguments = _arguments(words)
    if arguments is None:
        return None
    from ottla.cli.broker.settings import broker_config
    from ottla.config import ConfigError

    path = next((word for word in arguments if word.endswith(".properties")), None)
    values = list(pairwise(arguments))
    settings = [value for flag, value in values if flag in {"--set", "--override"}]
    data_dir = next((value for flag, value in values if flag == "--data-dir"), None)
    try:
        config = broker_config(
            path, None, data_dir, settings, working_directory=os.readlink(f"{_PROCESSES}/{pid}/cwd")
        )
    except ConfigError:
        return None
    roles = tuple(config.strings("process.roles")) or ("broker", "controller")
    return _Broker(pid, config.node_id, roles, tuple(config.log_dirs))


def _arguments(words: list[str]) -> list[str] | None:
    """What a broker was started with; None for all other processes."""
    for at, word in enumerate(words[:4]):
        name = os.path.basename(word)
        is_ottla = name == "ottla" or word == "ottla.cli.main" or word.endswith("ottla/cli/main.py")
        if is_ottla and words[at + 1 : at + 2] in (["start"], ["server-start"]):
            return words[at + 2 :]
        if name in {"kafka-server-start", "kafka-server-start.sh"} and at <= 1:
            return words[at + 1 :]
    return None


TOOL = Tool(
    name="server-stop",
    description="Stop the brokers that run on this machine.",
    run=run,
    options=(
        Option("node-id", "stop only the broker with this id", "ID", int),
        Option("process-role", "stop only brokers with this role", "ROLE", choices=("broker", "controller")),
    ),
    examples=("--node-id=1",),
)
