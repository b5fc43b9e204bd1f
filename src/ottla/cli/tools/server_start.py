"""`kafka-server-start`: `ottla start` with the flags of Kafka's script."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from ottla.cli.framework.errors import ToolError
from ottla.cli.framework.tool import Argument, Option, Tool


def run(given: argparse.Namespace) -> int:
    if not os.path.isfile(given.properties_file):
        raise ToolError(f"{given.properties_file}: No such file or directory")
    if given.daemon:
        return _start_in_background(given)
    from ottla.cli.framework.tool import parse
    from ottla.cli.tools import start

    settings = [word for setting in given.override for word in ("--set", setting)]
    return start.run(parse(start.TOOL, given.prog, [given.properties_file, *settings]))


def _start_in_background(given: argparse.Namespace) -> int:
    from ottla.cli.tools.storage import _config

    given.config = given.properties_file
    directory = _config(given).log_dirs[0]
    os.makedirs(directory, exist_ok=True)
    command = [sys.executable, "-m", "ottla.cli.main", "start", given.properties_file]
    for setting in given.override:
        command += ["--set", setting]
    with open(f"{directory}/server.out", "a") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    print(f"Started process {process.pid}; its output is in {directory}/server.out")
    return 0


TOOL = Tool(
    name="server-start",
    description="Run a broker.",
    run=run,
    arguments=(Argument("properties_file", "the broker's properties file"),),
    options=(
        Option("daemon", "run in the background", short="-daemon"),
        Option("override", "a setting that wins over the file; may be repeated", "KEY=VALUE", repeats=True),
    ),
    examples=("server.properties", "server.properties --override node.id=2"),
)
