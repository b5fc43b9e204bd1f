"""`kafka-metadata-quorum`: who leads the metadata quorum, and how far the others have come."""

from __future__ import annotations

import argparse
import json
import time
from typing import TYPE_CHECKING, Any

from ottla.cli.framework.errors import ToolError
from ottla.cli.framework.output import Table, columns, show
from ottla.cli.framework.tool import COMMAND_CONFIG, EITHER_CONTROLLER, EITHER_SERVER, Command, Option, Tool

if TYPE_CHECKING:
    from uuid import UUID

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


TOOL = Tool(
    name="metadata-quorum",
    description="Show the state of the metadata quorum.",
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
    ),
    examples=("--bootstrap-server localhost:9092 describe --status",),
)
