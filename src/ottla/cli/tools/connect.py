"""`ottla connect`: a Connect worker in the foreground, until it is stopped."""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections.abc import Sequence

from ottla.cli.framework.errors import ToolError
from ottla.cli.framework.output import warn
from ottla.cli.framework.properties import pairs, read_properties
from ottla.cli.framework.tool import Argument, Option, Tool

LOG_LEVEL = Option("log-level", "what to log: debug, info, warning or error", "LEVEL", default="info")
OVERRIDE = Option("override", "a setting that wins over the file; may be repeated", "KEY=VALUE", repeats=True)


def run(given: argparse.Namespace) -> int:
    settings = read_properties(given.properties_file) if given.properties_file else {}
    if given.bootstrap_server:
        settings["bootstrap.servers"] = given.bootstrap_server
    return serve(given, {**settings, **pairs("override", given.override)})


def serve(
    given: argparse.Namespace,
    settings: dict[str, str],
    connectors: Sequence[dict[str, str]] = (),
    *,
    stands_alone: bool = False,
) -> int:
    from ottla.cli.broker.log_lines import log_to_stderr
    from ottla.cli.tools.connect_progress import show_progress
    from ottla.connect.errors import ConnectError, RestError
    from ottla.connect.worker import running_worker
    from ottla.connect.worker_settings import worker_settings

    log_to_stderr(given.log_level)

    async def until_stopped() -> None:
        stopped = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        parsed = worker_settings(settings)
        async with running_worker(parsed, connectors=connectors, stands_alone=stands_alone) as worker:
            print(f"Ready: http://{worker.address}, connectors of {parsed.bootstrap_servers}", flush=True)
            if getattr(given, "progress", False):
                await show_progress(worker.herder.foreman, stopped)
            await stopped.wait()
            warn(given, "stopping …")

    try:
        asyncio.run(until_stopped())
    except (ConnectError, RestError) as error:
        raise ToolError(str(error)) from None
    return 0


TOOL = Tool(
    name="connect",
    description="Run a Connect worker: connectors made, changed and watched over Kafka Connect's REST API.",
    run=run,
    arguments=(Argument("properties_file", "the worker's properties file", optional=True),),
    options=(
        Option("bootstrap-server", "the broker(s) to connect to", "HOST:PORT"),
        OVERRIDE,
        Option("progress", "show records a second, lag and errors of each task while it runs"),
        LOG_LEVEL,
    ),
    examples=("", "worker.properties", "--bootstrap-server localhost:9092 --override listeners=http://:8084"),
)
