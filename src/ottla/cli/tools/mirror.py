"""`ottla mirror`: copies topics from cluster to cluster, until it is stopped; `status` says how far it is."""

from __future__ import annotations

import argparse
import asyncio
import signal

from ottla.cli.framework.errors import ToolError
from ottla.cli.framework.output import warn
from ottla.cli.framework.properties import pairs, read_properties
from ottla.cli.framework.tool import Argument, Option, Tool
from ottla.cli.tools.connect import LOG_LEVEL, OVERRIDE

_REPORT_S = 10.0


def run(given: argparse.Namespace) -> int:
    words = given.words
    if words[0] == "status":
        from ottla.cli.tools.mirror_status import show_status

        words = words[1:]
        act = show_status
    else:
        act = serve
    if len(words) != 1:
        raise ToolError("give one properties file: ottla mirror mm2.properties")
    return act(given, {**read_properties(words[0]), **pairs("override", given.override)})


def serve(given: argparse.Namespace, properties: dict[str, str]) -> int:
    import uvloop

    from ottla.cli.broker.log_lines import log_to_stderr
    from ottla.client.pem_stores import SecurityError
    from ottla.mirror.errors import SettingError
    from ottla.mirror.run import Mirror, report

    log_to_stderr(given.log_level)
    clusters = getattr(given, "clusters", None)

    async def until_stopped() -> None:
        stopped = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        async with Mirror(properties, targets=clusters) as mirror:
            names = ", ".join(flow.name for flow in mirror.settings if flow.replicates)
            print(f"Ready: mirrors {names}", flush=True)
            reporting = asyncio.ensure_future(report(mirror, _REPORT_S))
            stopping = asyncio.ensure_future(stopped.wait())
            ended = asyncio.ensure_future(mirror.wait())
            await asyncio.wait({stopping, ended}, return_when=asyncio.FIRST_COMPLETED)
            reporting.cancel()
            if ended.done():
                ended.result()
            ended.cancel()
            warn(given, "stopping …")

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(until_stopped())
    except (SettingError, SecurityError, ValueError) as error:
        raise ToolError(str(error)) from None
    return 0


CLUSTERS = Option(
    "clusters",
    "aliases of the clusters to write to here; all of them if none is given. Run a mirror near its target.",
    "ALIAS",
    many=True,
)

TOOL = Tool(
    name="mirror",
    description="Mirror topics, settings, access rules and groups from cluster to cluster, exactly once.",
    run=run,
    arguments=(
        Argument("words", "a properties file in MirrorMaker 2's form, `status` before it to look", many=True),
    ),
    options=(CLUSTERS, OVERRIDE, LOG_LEVEL),
    examples=("mm2.properties", "mm2.properties --clusters backup", "status mm2.properties"),
    notes=(
        "Several processes with the same file share the work, and take over from one that dies. "
        "`status` shows, for each partition, how far the target is behind, and what is out of sync."
    ),
)
