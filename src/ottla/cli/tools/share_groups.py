"""`kafka-share-groups`: where share groups are and who is in them, offsets reset, groups deleted."""

from __future__ import annotations

import argparse
import csv
import io
import sys
import time
from typing import TYPE_CHECKING, Any

from ottla.cli.cluster.group_tables import MISSING, aligned, places_text
from ottla.cli.framework.errors import Refused, ToolError
from ottla.cli.framework.output import Table, show
from ottla.cli.framework.properties import merged
from ottla.cli.framework.tool import COMMAND_CONFIG, EITHER_SERVER, Option, Tool

if TYPE_CHECKING:
    from ottla.cli.cluster.admin import Admin

_ACTIONS = ("list", "describe", "delete", "reset_offsets", "delete_offsets")


def run(given: argparse.Namespace) -> int:
    from ottla.cli.cluster.admin import cluster

    if not given.bootstrap_server:
        raise ToolError("--bootstrap-server is required")
    actions = [action for action in _ACTIONS if getattr(given, action)]
    if len(actions) != 1:
        raise ToolError("give exactly one of --list, --describe, --delete, --reset-offsets, --delete-offsets")
    (action,) = actions
    flag = f"--{action.replace('_', '-')}"
    may_be_all = action in {"describe", "delete"}
    if action != "list" and not given.group and not (may_be_all and given.all_groups):
        raise ToolError(f"{flag} needs --group{' or --all-groups' if may_be_all else ''}")
    if action in {"reset_offsets", "delete_offsets"} and len(given.group) > 1:
        raise ToolError(f"{flag} takes one group at a time")
    if given.describe and sum((given.members, given.offsets, given.state is not None)) > 1:
        raise ToolError("--describe takes at most one of --members, --offsets and --state")
    properties = merged("command-config", given.command_config)
    if given.timeout is not None:
        properties["default.api.timeout.ms"] = str(given.timeout)
    with cluster(given, properties) as admin:
        return _RUN[action](given, admin)


def _list(given: argparse.Namespace, admin: Admin) -> int:
    from ottla.client.admin.share_groups import list_share_groups

    states = [state.strip() for state in (given.state or "").split(",") if state]
    groups = admin.call(list_share_groups, states)
    head = ["GROUP", *(["STATE"] if given.state is not None else [])]
    rows = [[group.id, group.state][: len(head)] for group in groups]
    lines = [row[0] for row in rows] if len(head) == 1 else aligned([head, *rows])
    show(given, [{"group": group.id, "state": group.state} for group in groups], lines, [Table(head, rows)])
    return 0


def _describe(given: argparse.Namespace, admin: Admin) -> int:
    if given.members:
        describe = _members
    elif given.state is not None:
        describe = _state
    else:
        describe = _offsets
    failed = False
    data: list[dict[str, Any]] = []
    lines: list[str] = []
    tables: list[Table] = []
    for name in _groups(given, admin):
        try:
            table, note = describe(given, admin, name)
        except Refused as error:
            failed = True
            print(f"{given.prog}: {_failure(name, error)}", file=sys.stderr)
            continue
        if note:
            print(f"\n{note}", file=sys.stderr)
        if table.rows:
            lines += ["", *aligned([table.columns, *table.rows])]
            tables.append(table)
        data += [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    show(given, data, lines, tables)
    return 1 if failed else 0


def _offsets(given: argparse.Namespace, admin: Admin, name: str) -> tuple[Table, str]:
    from ottla.client.admin.share_groups import shared_offsets

    found = admin.call(shared_offsets, name)
    head = ["GROUP", "TOPIC", "PARTITION", *(["LEADER-EPOCH"] if given.verbose else [])]
    rows: list[list[Any]] = []
    for place, offset in found.items():
        row: list[Any] = [name, place.topic, place.number, *([offset.leader_epoch] if given.verbose else [])]
        row += [MISSING if value is None else value for value in (offset.start, offset.lag)]
        rows.append(row)
    note = "" if rows else f"Share group '{name}' has no offset information."
    return Table([*head, "START-OFFSET", "LAG"], rows), note


def _members(given: argparse.Namespace, admin: Admin, name: str) -> tuple[Table, str]:
    from ottla.client.admin.share_groups import describe_share_group

    group = admin.call(describe_share_group, name)
    head = ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
    head += [*(["MEMBER-EPOCH"] if given.verbose else []), "ASSIGNMENT"]
    rows = [
        [
            *(name, member.id, member.host, member.client_id, len(member.assigned)),
            *([member.epoch] if given.verbose else []),
            places_text(member.assigned),
        ]
        for member in group.members
    ]
    return Table(head, rows), _note(name, group.state)


def _state(given: argparse.Namespace, admin: Admin, name: str) -> tuple[Table, str]:
    from ottla.client.admin.share_groups import describe_share_group

    group = admin.call(describe_share_group, name)
    node = group.coordinator
    row: list[Any] = [name, f"{node.host}:{node.port}  ({node.id})", group.state]
    head = ["GROUP", "COORDINATOR (ID)", "STATE"]
    if given.verbose:
        head += ["GROUP-EPOCH", "ASSIGNMENT-EPOCH"]
        row += [group.epoch, group.target_epoch]
    return Table([*head, "#MEMBERS"], [[*row, len(group.members)]]), _note(name, group.state)


def _note(name: str, state: str) -> str:
    return f"Share group '{name}' has no active members." if state == "Empty" else ""


def _delete(given: argparse.Namespace, admin: Admin) -> int:
    from ottla.client.admin.groups import delete_group
    from ottla.client.admin.share_groups import list_share_groups

    known = {group.id for group in admin.call(list_share_groups)}
    done: list[str] = []
    failed: dict[str, str] = {}
    for name in _groups(given, admin):
        if name not in known:
            # DeleteGroups would delete one of another kind just as well.
            failed[name] = f"Group '{name}' is not a share group."
            continue
        try:
            admin.call(delete_group, name)
            done.append(name)
        except Refused as error:
            failed[name] = error.reason
    quoted = ", ".join(f"'{name}'" for name in done)
    if not failed:
        lines = [f"Deletion of requested share groups ({quoted}) was successful."]
    else:
        lines = ["", "Error: Deletion of some share groups failed:"]
        lines += [f"* Group '{name}' could not be deleted due to: {why}" for name, why in failed.items()]
        if done:
            lines += ["", f"These share groups were deleted successfully: {quoted}"]
    show(given, {"deleted": done, "failed": failed}, lines)
    return 1 if failed else 0


def _reset_offsets(given: argparse.Namespace, admin: Admin) -> int:
    from ottla.cli.cluster.offset_reset import new_offsets, scenario
    from ottla.client.admin.share_groups import alter_shared_offsets, describe_share_group, shared_offsets
    from ottla.wire.errors import ErrorCode

    how = scenario(given)
    if given.execute and given.dry_run:
        raise ToolError("--execute and --dry-run cannot be used together")
    (name,) = given.group
    known = {}
    try:
        if admin.call(describe_share_group, name).state != "Empty":
            raise ToolError(f"Share group '{name}' is not empty.")
        offsets = admin.call(shared_offsets, name)
        known = {place: offset.start for place, offset in offsets.items()}
    except Refused as error:
        if error.code != ErrorCode.group_id_not_found:
            raise
    now_ms = time.time_ns() // 1_000_000
    resets = new_offsets(given, admin, name, how, now_ms, known)
    if given.execute and resets:
        admin.call(alter_shared_offsets, name, resets)
    rows: list[tuple[Any, ...]] = [(name, p.topic, p.number, offset) for p, offset in resets.items()]
    if given.export:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(row[1:] for row in rows)
        show(given, rows, [text.getvalue()])
        return 0
    head = ("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET")
    data = [dict(zip(("group", "topic", "partition", "newOffset"), row, strict=True)) for row in rows]
    show(given, data, ["", *aligned([head, *rows])] if rows else [""], [Table(head, rows)])
    return 0


def _delete_offsets(given: argparse.Namespace, admin: Admin) -> int:
    from ottla.client.admin.share_groups import delete_shared_offsets

    if not given.topic:
        raise ToolError("--delete-offsets needs --topic")
    (name,) = given.group
    results = admin.call(delete_shared_offsets, name, given.topic)
    rows = [(topic, f"Error: {why}" if why else "Successful") for topic, why in sorted(results.items())]
    failed = any(results.values())
    lines = (
        ["", "Error: Encountered some topic-level error, see the follow-up details."]
        if failed
        else [f"Request succeeded for deleting offsets from group {name}."]
    )
    head = ("TOPIC", "STATUS")
    data = [{"topic": topic, "status": status} for topic, status in rows]
    show(given, data, [*lines, "", *aligned([head, *rows])], [Table(head, rows)])
    return 1 if failed else 0


def _groups(given: argparse.Namespace, admin: Admin) -> list[str]:
    from ottla.client.admin.share_groups import list_share_groups

    if given.all_groups:
        return [group.id for group in admin.call(list_share_groups)]
    return list(given.group)


def _failure(name: str, error: Refused) -> str:
    from ottla.wire.errors import ErrorCode

    if error.code == ErrorCode.group_id_not_found:
        return f"Error: Share group '{name}' does not exist."
    return f"Error: {error.reason}"


_RUN = {
    "list": _list,
    "describe": _describe,
    "delete": _delete,
    "reset_offsets": _reset_offsets,
    "delete_offsets": _delete_offsets,
}

TOOL = Tool(
    name="share-groups",
    description="See where share groups are and who is in them, reset their offsets, delete them.",
    run=run,
    options=(
        EITHER_SERVER,
        COMMAND_CONFIG,
        Option("list", "list share groups"),
        Option("describe", "show a group: its offsets and lag, or its --members or --state"),
        Option("delete", "delete groups"),
        Option("reset-offsets", "set where a group goes on; see --execute"),
        Option("delete-offsets", "let a group forget topics"),
        Option("group", "the group; may be repeated", "GROUP", repeats=True),
        Option("all-groups", "all share groups"),
        Option("topic", "a topic, or TOPIC:0,1 for some partitions; may be repeated", "TOPIC", repeats=True),
        Option("all-topics", "all topics that the group has read"),
        Option("members", "with --describe: the members"),
        Option("offsets", "with --describe: the offsets, as without it"),
        Option(
            "state",
            "with --describe: the state; with --list: show states, or only groups in these",
            "STATES",
            value_if_bare="",
        ),
        Option("verbose", "with --describe: more columns"),
        Option("dry-run", "with --reset-offsets: only show what would be set, as without --execute"),
        Option("execute", "with --reset-offsets: do it"),
        Option("export", "with --reset-offsets: print as CSV, for --from-file"),
        Option("to-earliest", "to the oldest record"),
        Option("to-latest", "to the end"),
        Option("to-current", "to where the group is; to the end where it has no offset"),
        Option("to-offset", "to an offset", "OFFSET", int),
        Option("to-datetime", "to the first record of that time", "YYYY-MM-DDTHH:mm:SS.sss"),
        Option("from-file", "to what a file of --export says", "FILE"),
        Option("timeout", "how long requests may take", "MS", int),
    ),
    examples=(
        "--bootstrap-server localhost:9092 --describe --group workers",
        "--bootstrap-server localhost:9092 --reset-offsets --group workers --topic jobs "
        "--to-earliest --execute",
    ),
)
