"""`kafka-cluster`: the cluster's id, its endpoints, what they serve."""

from __future__ import annotations

import argparse

from ottla.cli.framework.errors import Refused, ToolError
from ottla.cli.framework.output import Table, columns, show
from ottla.cli.framework.tool import COMMAND_CONFIG, EITHER_CONTROLLER, EITHER_SERVER, Command, Option, Tool

_BROKERS = 1
_CONTROLLERS = 2


def run(given: argparse.Namespace) -> int:
    from ottla.cli.cluster.admin import cluster
    from ottla.client.admin.replicas import unregister_broker
    from ottla.wire.api import ApiKey
    from ottla.wire.errors import ErrorCode

    if given.config:
        if given.command_config:
            raise ToolError("--config and --command-config cannot be specified together.")
        print(
            "Option --config has been deprecated and will be removed in a future version. "
            "Use --command-config instead."
        )
        given.command_config = given.config
    with cluster(given) as admin:
        if given.command == "unregister":
            try:
                admin.call(unregister_broker, given.id)
                line = f"Broker {given.id} is no longer registered."
            except Refused as error:
                if error.code != ErrorCode.unsupported_version:
                    raise
                line = "The target cluster does not support the broker unregistration API."
            show(given, {"broker": given.id, "result": line}, [line])
        elif given.command == "api-versions":
            from ottla.cli.tools.broker_api_versions import show_versions

            show_versions(given, admin)
        else:
            kind = _CONTROLLERS if given.bootstrap_controller else _BROKERS
            fenced = bool(getattr(given, "include_fenced_brokers", False))
            answer = admin.ask(
                ApiKey.DESCRIBE_CLUSTER, {"endpoint_type": kind, "include_fenced_brokers": fenced}
            )
            if given.command == "cluster-id":
                show(given, {"clusterId": answer.cluster_id}, [f"Cluster ID: {answer.cluster_id}"])
            else:
                _show_endpoints(given, answer, kind)
    return 0


def _show_endpoints(given: argparse.Namespace, answer: object, kind: int) -> None:
    head = ["ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE"]
    rows = [
        [
            node.broker_id,
            node.host,
            node.port,
            node.rack if node.rack is not None else "null",
            "fenced" if node.is_fenced else "unfenced",
            "broker" if kind == _BROKERS else "controller",
        ]
        for node in sorted(answer.brokers, key=lambda node: node.broker_id)  # type: ignore[attr-defined]
    ]
    if kind == _CONTROLLERS:
        head, rows = [*head[:4], head[5]], [[*row[:4], row[5]] for row in rows]
    data = [dict(zip([name.lower() for name in head], row, strict=True)) for row in rows]
    show(given, data, columns([head, *rows]), [Table(head, rows)])


_CONNECTION = (
    EITHER_SERVER,
    EITHER_CONTROLLER,
    COMMAND_CONFIG,
    Option("config", "the old name of --command-config", "FILE"),
)

TOOL = Tool(
    name="cluster",
    description="Show the cluster's id, its endpoints and what they serve.",
    run=run,
    options=(),
    commands=(
        Command("cluster-id", "show the id of the cluster", _CONNECTION),
        Command(
            "list-endpoints",
            "list brokers, or controllers",
            (*_CONNECTION, Option("include-fenced-brokers", "list brokers that are fenced, too")),
        ),
        Command("api-versions", "list the APIs that each broker serves", _CONNECTION),
        Command(
            "unregister",
            "remove a broker that is gone for good",
            (*_CONNECTION, Option("id", "the broker's id", "ID", int, required=True, short="-i")),
        ),
    ),
    examples=("cluster-id --bootstrap-server localhost:9092",),
)
