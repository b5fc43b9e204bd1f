"""`ottla console`: a cluster in the browser."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import socket
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ottla.cli.framework.errors import ToolError
from ottla.cli.framework.properties import read_properties
from ottla.cli.framework.tool import COMMAND_CONFIG, Option, Tool
from ottla.config.listeners import ANY_HOST

if TYPE_CHECKING:
    from ottla.console.clusters import ClusterSettings

_CLUSTER_KEYS = {"bootstrap-server", "command-config", "read-only", "login", "connect", "schema-registry"}


def run(given: argparse.Namespace) -> int:
    import uvicorn

    from ottla.console.server import server_config

    settings = _clusters(given)
    _log(given.audit_log)
    names = (*given.allowed_host, *(() if given.host in ANY_HOST else (given.host,)))
    config = server_config(
        settings,
        host=given.host,
        port=given.port,
        names=names,
        user_header=given.user_header,
        proxies=given.proxy,
    )
    listening = _listen(given.host, given.port)
    port = listening.getsockname()[1]
    host = "localhost" if given.host in {*ANY_HOST, "127.0.0.1"} else given.host
    print(f"{given.prog}: http://{host}:{port}/ (Ctrl-C to stop)", file=sys.stderr, flush=True)
    # The server stops at these, and when it has it sends them again, to whoever would be told otherwise.
    for stopping in (signal.SIGINT, signal.SIGTERM):
        signal.signal(stopping, lambda *_: None)
    uvicorn.Server(config).run(sockets=[listening])
    return 0


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ToolError(
            f"cannot listen on {host}:{port}: {reason}; choose another --host or --port"
        ) from None


def _clusters(given: argparse.Namespace) -> list[ClusterSettings]:
    if given.clusters is None:
        return [
            _cluster(
                "cluster",
                given.bootstrap_server,
                given.command_config,
                given.read_only,
                login=given.login,
                connect=given.connect,
                registry=given.schema_registry,
            )
        ]
    import tomllib

    try:
        with open(given.clusters, "rb") as file:
            listed: dict[str, Any] = tomllib.load(file)
    except OSError as error:
        raise ToolError(f"{given.clusters}: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise ToolError(f"{given.clusters}: {error}") from None
    if not listed:
        raise ToolError(f"{given.clusters} names no cluster; give a table for each, such as [production]")
    found = []
    for name, table in listed.items():
        if not isinstance(table, dict) or not isinstance(table.get("bootstrap-server"), str):
            raise ToolError(f'{given.clusters}: [{name}] needs bootstrap-server = "host:port"')
        if unknown := sorted(set(table) - _CLUSTER_KEYS):
            known = ", ".join(sorted(_CLUSTER_KEYS))
            raise ToolError(f"{given.clusters}: [{name}] has {unknown[0]}; there are {known}")
        config = table.get("command-config")
        if config is not None:
            # Beside the file that names it, wherever the console is started.
            config = os.path.join(os.path.dirname(os.path.abspath(given.clusters)), config)
        for flag in ("read-only", "login"):
            if not isinstance(table.get(flag, False), bool):
                raise ToolError(f"{given.clusters}: [{name}] {flag} must be true or false")
        read_only = given.read_only or table.get("read-only", False)
        login = given.login or table.get("login", False)
        beside = {"connect": table.get("connect", ""), "registry": table.get("schema-registry", "")}
        found.append(_cluster(name, table["bootstrap-server"], config, read_only, login=login, **beside))
    return found


def _cluster(
    name: str,
    bootstrap: str,
    config: str | None,
    read_only: bool,
    *,
    login: bool,
    connect: str,
    registry: str,
) -> ClusterSettings:
    from ottla.cli.cluster.admin import check_addresses
    from ottla.console.clusters import ClusterSettings, new_client
    from ottla.console.rest import check_address
    from ottla.console.sessions import MECHANISMS, as_user

    check_addresses(bootstrap)
    properties = read_properties(config) if config else {}
    settings = ClusterSettings(name, bootstrap, properties, read_only, login, connect, registry)
    if login and not properties.get("security.protocol", "").upper().startswith("SASL"):
        raise ToolError(
            f"{name}: people log in by SASL, so the file of --command-config has to say "
            "security.protocol=SASL_SSL (or SASL_PLAINTEXT, where the network is safe)"
        )
    tried = replace(settings, properties=as_user(properties, "-", "-", MECHANISMS[0])) if login else settings
    try:
        for beside in filter(None, (connect, registry)):
            check_address(beside)
        # What is wrong with a file is said now, not on the first page.
        new_client(tried).close()
    except ValueError as error:
        raise ToolError(str(error)) from None
    return settings


def _log(audit_log: str | None) -> None:
    """Changes are told on standard error, or in a file of their own."""
    lines = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    errors = logging.StreamHandler()
    errors.setFormatter(lines)
    logging.getLogger("ottla").addHandler(errors)
    audit = logging.getLogger("ottla.console.audit")
    audit.setLevel(logging.INFO)
    if audit_log is not None:
        try:
            file = logging.FileHandler(audit_log, encoding="utf-8")
        except OSError as error:
            raise ToolError(f"--audit-log {audit_log}: {error.strerror}") from None
        file.setFormatter(lines)
        audit.addHandler(file)
        audit.propagate = False


TOOL = Tool(
    name="console",
    description="Look after clusters in a browser: topics, records, groups, transactions, access.",
    run=run,
    options=(
        Option("bootstrap-server", "the broker(s) to connect to", "HOST:PORT", default="localhost:9092"),
        COMMAND_CONFIG,
        Option(
            "connect",
            "the REST address of a Connect worker, such as http://localhost:8083",
            "URL",
            default="",
        ),
        Option(
            "schema-registry",
            "the address of a schema registry, such as http://localhost:8081",
            "URL",
            default="",
        ),
        Option("clusters", "a TOML file that names several clusters, instead of those above", "FILE"),
        Option("host", "the address to listen on", "ADDRESS", default="127.0.0.1"),
        Option("port", "the port to listen on; 0 takes a free one", "PORT", parse=int, default=8080),
        Option("read-only", "change nothing, only look"),
        Option("login", "everybody logs in with a user and a password of the cluster's own, by SASL"),
        Option(
            "allowed-host",
            "a name that browsers may know it by, besides localhost and --host; may be repeated",
            "NAME",
            repeats=True,
        ),
        Option(
            "user-header", "a header in which a proxy says who it let in; nobody gets in without it", "NAME"
        ),
        Option(
            "proxy",
            "the address of a proxy in front, if it is not on this machine: what it says of who asks is "
            "believed; may be repeated",
            "ADDRESS",
            repeats=True,
        ),
        Option("audit-log", "a file for a line about every change; standard error without", "FILE"),
    ),
    examples=(
        "--bootstrap-server localhost:9092",
        "--bootstrap-server kafka:9093 --command-config client.properties --read-only",
        "--clusters clusters.toml --port 8090",
    ),
)
