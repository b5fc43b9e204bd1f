"""`kafka-metadata-quorum`: who leads the metadata quorum, how far the others have come, and who is in it."""

from __future__ import annotations

import argparse
import json
import time
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from ottla.cli.framework.errors import ToolError
from ottla.cli.framework.output import Table, columns, show
from ottla.cli.framework.tool import COMMAND_CONFIG, EITHER_CONTROLLER, EITHER_SERVER, Command, Option, Tool

if TYPE_CHECKING:
    from ottla.cli.cluster.admin import Admin

_COLUMNS = (
    "NodeId",
    "DirectoryId",
    "LogEndOffset",
    "Lag",
    "LastFetchTimestamp",
    "LastCaughtUpTimestamp",
    "Status",
)


def run(given: argparse.Namespace) -> int:
    match given.command:
        case "add-controller":
            return _add(given)
        case "remove-controller":
            return _remove(given)
        case _:
            return _describe(given)


def _describe(given: argparse.Namespace) -> int:
    from ottla.cli.cluster.admin import cluster
    from ottla.client.admin.quorum import describe_quorum

    if given.status == given.replication:
        raise ToolError("exactly one of --status or --replication must be specified with describe")
    if given.human_readable and not given.replication:
        raise ToolError("The option --human-readable is only supported along with --replication")
    with cluster(given) as admin:
        answer, quorum = admin.call(describe_quorum)
        if given.replication:
            _show_replication(given, quorum)
        else:
            _show_status(given, admin, answer, quorum)
    return 0


class _Controller(NamedTuple):
    id: int
    directory_id: UUID
    listeners: list[tuple[str, str, int]]


def _add(given: argparse.Namespace) -> int:
    from ottla.cli.cluster.admin import cluster
    from ottla.client.admin.quorum import add_voter
    from ottla.metadata.uuids import uuid_text

    if given.command_config is None:
        raise ToolError(
            "You must supply the configuration file of the controller you are adding when using "
            "add-controller."
        )
    new = _controller(given.command_config)
    with cluster(given) as admin:
        if not given.dry_run:
            admin.call(add_voter, *new)
    endpoints = [f"{name}://{_host(host)}:{port}" for name, host, port in new.listeners]
    directory_id = uuid_text(new.directory_id)
    text = (
        f"{'DRY RUN of adding' if given.dry_run else 'Added'} controller {new.id} with directory id "
        f"{directory_id} and endpoints: {', '.join(endpoints)}"
    )
    show(
        given,
        {"id": new.id, "directoryId": directory_id, "endpoints": endpoints, "dryRun": given.dry_run},
        [text],
    )
    return 0


def _controller(path: str) -> _Controller:
    """Who it is, from the file it is started with and from its directory."""
    from ottla.cli.broker.settings import broker_config
    from ottla.config import ConfigError
    from ottla.config.listeners import ANY_HOST
    from ottla.metadata.meta_properties import MetaPropertiesError, load
    from ottla.runtime.disk import PosixDisk

    hint = "Is this a valid controller configuration file?"
    try:
        config = broker_config(path, None, None, ())
    except ConfigError as error:
        raise ToolError(f"{path}: {error}. {hint}") from None
    if "controller" not in config.strings("process.roles"):
        raise ToolError(f"process.roles did not contain 'controller' in configuration file. {hint}")
    try:
        properties = load(PosixDisk(), config.metadata_log_dir)
    except (MetaPropertiesError, OSError) as error:
        raise ToolError(str(error)) from None
    if properties is None:
        raise ToolError(
            f"Unable to read meta.properties from {config.metadata_log_dir}: run this where the controller "
            "is, after kafka-storage format --no-initial-controllers"
        )
    listeners = [
        (each.listener, "localhost" if each.host in ANY_HOST else each.host, each.port)
        for each in config.advertised_controller_listeners
    ]
    if not listeners:
        names = ",".join(config.strings("controller.listener.names"))
        raise ToolError(f"Cannot find information about controller listener name: {names}")
    return _Controller(config.node_id, properties.directory_id, listeners)


def _remove(given: argparse.Namespace) -> int:
    from ottla.cli.cluster.admin import cluster
    from ottla.client.admin.quorum import remove_voter
    from ottla.metadata.uuids import parse_uuid, uuid_text

    if given.controller_id < 0:
        raise ToolError(f"Invalid negative --controller-id: {given.controller_id}")
    try:
        directory_id = parse_uuid(given.controller_directory_id)
    except ValueError as error:
        raise ToolError(f"Failed to parse --controller-directory-id: {error}") from None
    with cluster(given) as admin:
        if not given.dry_run:
            admin.call(remove_voter, given.controller_id, directory_id)
    what = "DRY RUN of removing " if given.dry_run else "Removed "
    shown = uuid_text(directory_id)
    show(
        given,
        {"id": given.controller_id, "directoryId": shown, "dryRun": given.dry_run},
        [f"{what}KRaft controller {given.controller_id} with directory id {shown}"],
    )
    return 0


def _leader(quorum: Any) -> Any:
    for voter in quorum.current_voters:
        if voter.replica_id == quorum.leader_id:
            return voter
    raise ToolError(f"the quorum's leader {quorum.leader_id} is not one of its voters; try again")


def _show_status(given: argparse.Namespace, admin: Admin, answer: Any, quorum: Any) -> None:
    from ottla.wire.api import ApiKey

    cluster_id = admin.ask(
        ApiKey.DESCRIBE_CLUSTER, {"endpoint_type": 2 if given.bootstrap_controller else 1}
    ).cluster_id
    leader = _leader(quorum)
    slowest = min(quorum.current_voters, key=lambda voter: voter.log_end_offset)
    lag_time_ms = 0
    if slowest is not leader:
        known = leader.last_caught_up_timestamp >= 0 and slowest.last_caught_up_timestamp >= 0
        lag_time_ms = leader.last_caught_up_timestamp - slowest.last_caught_up_timestamp if known else -1
    endpoints = {
        node.node_id: [f"{item.name}://{_host(item.host)}:{item.port}" for item in node.listeners]
        for node in answer.nodes
    }
    facts = {
        "ClusterId": cluster_id,
        "LeaderId": quorum.leader_id,
        "LeaderEpoch": quorum.leader_epoch,
        "HighWatermark": quorum.high_watermark,
        "MaxFollowerLag": leader.log_end_offset - slowest.log_end_offset,
        "MaxFollowerLagTimeMs": lag_time_ms,
        "CurrentVoters": [_replica(replica, endpoints) for replica in quorum.current_voters],
        "CurrentObservers": [_replica(replica, endpoints) for replica in quorum.observers],
    }
    lines = [
        f"{name + ':':<24}{json.dumps(value) if isinstance(value, list) else value}"
        for name, value in facts.items()
    ]
    show(given, facts, lines)


def _replica(replica: Any, endpoints: dict[int, list[str]]) -> dict[str, Any]:
    shown: dict[str, Any] = {"id": replica.replica_id}
    if replica.replica_directory_id is not None:
        shown["directoryId"] = _directory(replica.replica_directory_id)
    if endpoints.get(replica.replica_id):
        shown["endpoints"] = endpoints[replica.replica_id]
    return shown


def _show_replication(given: argparse.Namespace, quorum: Any) -> None:
    leader = _leader(quorum)
    followers = [voter for voter in quorum.current_voters if voter is not leader]
    rows = [
        [
            replica.replica_id,
            _directory(replica.replica_directory_id),
            replica.log_end_offset,
            leader.log_end_offset - replica.log_end_offset,
            _timestamp(given, replica.last_fetch_timestamp),
            _timestamp(given, replica.last_caught_up_timestamp),
            status,
        ]
        for status, replicas in (
            ("Leader", [leader]),
            ("Follower", followers),
            ("Observer", quorum.observers),
        )
        for replica in replicas
    ]
    data = [dict(zip(_COLUMNS, row, strict=True)) for row in rows]
    show(given, data, columns([list(_COLUMNS), *rows], "\t"), [Table(_COLUMNS, rows)])


def _timestamp(given: argparse.Namespace, timestamp_ms: int) -> str | int:
    if timestamp_ms < 0 or not given.human_readable:
        return timestamp_ms
    return f"{time.time_ns() // 1_000_000 - timestamp_ms} ms ago"


def _directory(value: UUID | None) -> str:
    from ottla.metadata.uuids import DIRECTORY_MIGRATING, uuid_text

    # kio reads the UUID of zeros, which a quorum of fixed voters has for all directories, as None.
    return uuid_text(value or DIRECTORY_MIGRATING)


def _host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


_DRY_RUN = Option("dry-run", "only say what would be done")

TOOL = Tool(
    name="metadata-quorum",
    description="Show the state of the metadata quorum, and change its voters.",
    run=run,
    options=(EITHER_SERVER, EITHER_CONTROLLER, COMMAND_CONFIG),
    commands=(
        Command(
            "describe",
            "show the quorum's status, or how far each of its replicas is",
            (
                Option("status", "a summary"),
                Option("replication", "one line for each replica"),
                Option("human-readable", "with --replication: how long ago instead of timestamps"),
            ),
        ),
        Command(
            "add-controller",
            "make a controller one of the voters; --command-config is the file that it is started with",
            (_DRY_RUN,),
        ),
        Command(
            "remove-controller",
            "make a controller one of the voters no more",
            (
                Option("controller-id", "its node id", "ID", int, required=True, short="-i"),
                Option(
                    "controller-directory-id",
                    "the id of the directory of its metadata log, as describe shows it",
                    "ID",
                    required=True,
                    short="-d",
                ),
                _DRY_RUN,
            ),
        ),
    ),
    examples=(
        "--bootstrap-server localhost:9092 describe --status",
        "--bootstrap-server localhost:9092 --command-config controller.properties add-controller",
        "--bootstrap-server localhost:9092 remove-controller -i 3 -d J8aAPcfLQt2bqs1JT_rMgQ",
    ),
)
