"""`ottla schema-registry`: a registry of schemas with Confluent's API, kept in a topic."""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import TYPE_CHECKING

from ottla.cli.framework.errors import ToolError
from ottla.cli.framework.output import show_record
from ottla.cli.framework.tool import COMMAND_CONFIG, Option, Tool

if TYPE_CHECKING:
    from ottla.registry.service import RegistrySettings

_LEVELS = (
    "NONE",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
)


def run(given: argparse.Namespace) -> int:
    from ottla.cli.broker.log_lines import log_to_stderr
    from ottla.cli.framework.properties import merged
    from ottla.client.errors import ClusterUnreachable
    from ottla.client.peer import PeerLost
    from ottla.registry.service import RegistrySettings
    from ottla.wire.errors import KafkaError

    settings = RegistrySettings(
        given.bootstrap_server,
        {
            "client.id": "schema-registry",
            **merged("command-property", given.command_config, given.command_property),
        },
        topic=given.topic,
        replication_factor=given.replication_factor,
        group=given.group,
        compatibility=given.compatibility,
        session_timeout_ms=given.session_timeout_ms,
    )
    advertised = _address(given.advertised_address, "--advertised-address")
    host, port = _address(given.listen, "--listen") or ("127.0.0.1", 8081)
    log_to_stderr("info")
    try:
        return asyncio.run(_serve(given, settings, host, port, advertised))
    except (KafkaError, ClusterUnreachable, PeerLost, ValueError, OSError) as error:
        raise ToolError(str(error)) from None


async def _serve(
    given: argparse.Namespace,
    settings: RegistrySettings,
    host: str,
    port: int,
    advertised: tuple[str, int] | None,
) -> int:
    from ottla.cli.broker.stop_signals import stop_signals
    from ottla.registry.server import serving

    stopped = asyncio.Event()
    for number in stop_signals():
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with serving(settings, host, port, advertised) as registry:
        if given.json:
            show_record({"ready": registry.url})
        else:
            print(f"Ready: {registry.url}, schemas are in {settings.topic}", flush=True)
        asked = asyncio.ensure_future(stopped.wait())
        await asyncio.wait((asked, registry.life), return_when=asyncio.FIRST_COMPLETED)
        if registry.life.done():
            await registry.life
        print(f"{given.prog}: stopping …", file=sys.stderr, flush=True)
    return 0


def _address(text: str | None, option: str) -> tuple[str, int] | None:
    if text is None:
        return None
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise ToolError(f"{option} {text}: must be HOST:PORT or PORT")
    return host.strip("[]") or "127.0.0.1", int(port)


TOOL = Tool(
    name="schema-registry",
    description=(
        "Run a schema registry with Confluent's REST API. Schemas are kept in a topic, in the format of\n"
        "Confluent's registry. Several registries of one group stand in for each other: any of them may be\n"
        "asked, and one, which they choose among them, writes."
    ),
    run=run,
    options=(
        Option("bootstrap-server", "the broker(s) to connect to", "HOST:PORT", default="localhost:9092"),
        COMMAND_CONFIG,
        Option("command-property", "a setting of the client", "KEY=VALUE", repeats=True),
        Option("listen", "where to serve; port 0 is any free one", "[HOST:]PORT", default="127.0.0.1:8081"),
        Option("advertised-address", "where the other registries reach this one", "HOST:PORT"),
        Option("topic", "the topic that schemas are kept in", "TOPIC", default="_schemas"),
        Option(
            "replication-factor",
            "of that topic, if it has to be made (default: the cluster's)",
            "COUNT",
            parse=int,
            default=-1,
        ),
        Option(
            "group",
            "what the registries have in common that belong together",
            "ID",
            default="schema-registry",
        ),
        Option(
            "compatibility",
            "what a new version has to be, where neither a subject nor the registry is configured",
            "LEVEL",
            default="BACKWARD",
            choices=_LEVELS,
        ),
        Option(
            "session-timeout-ms",
            "how long a registry may be silent before another one takes over",
            "MS",
            parse=int,
            default=10_000,
        ),
    ),
    examples=(
        "",
        "--bootstrap-server broker1:9092 --listen 0.0.0.0:8081 --advertised-address registry1:8081",
    ),
)
