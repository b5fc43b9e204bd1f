"""`kafka-consumer-groups`: lag and members of groups, their offsets reset, groups deleted."""

from __future__ import annotations

import argparse
import csv
import io
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.cli.cluster.group_tables import MISSING, aligned, places_text
from ottla.cli.framework.errors import Refused, ToolError
from ottla.cli.framework.output import Table, show
from ottla.cli.framework.properties import merged
from ottla.cli.framework.tool import COMMAND_CONFIG, EITHER_SERVER, Option, Tool

if TYPE_CHECKING:
    from ottla.cli.cluster.admin import Admin
    from ottla.client.admin.groups import Group
    from ottla.client.admin.topics import Partition

_ACTIONS = ("list", "describe", "delete", "reset_offsets", "delete_offsets")
_WATCH_SECONDS = 2.0


def run(given: argparse.Namespace) -> int:
    from ottla.cli.cluster.admin import cluster

    if given.validate_regex is not None:
        return _validate_regex(given)
    if not given.bootstrap_server:
        raise ToolError("--bootstrap-server is required")
    actions = [action for action in _ACTIONS if getattr(given, action)]
    if len(actions) != 1:
        raise ToolError("give exactly one of --list, --describe, --delete, --reset-offsets, --delete-offsets")
    if actions != ["list"] and not given.group and not given.all_groups:
        raise ToolError(f"--{actions[0].replace('_', '-')} needs --group or --all-groups")
    if given.describe and sum((given.members, given.offsets, given.state is not None)) > 1:
        raise ToolError("--describe takes at most one of --members, --offsets and --state")
    properties = merged("command-config", given.command_config)
    if given.timeout is not None:
        properties["default.api.timeout.ms"] = str(given.timeout)
    with cluster(given, properties) as admin:
        return _RUN[actions[0]](given, admin)


def _validate_regex(given: argparse.Namespace) -> int:
    from ottla.runtime.regex import RegexError, compile_regex

    problem: str | None = None
    try:
        compile_regex(given.validate_regex)
    except RegexError as error:
        problem = str(error)
    verdict = "valid." if problem is None else f"invalid: {problem}."
    line = f"The regular expression `{given.validate_regex}` is {verdict}"
    show(given, {"regex": given.validate_regex, "error": problem}, [line])
    return 0


def _list(given: argparse.Namespace, admin: Admin) -> int:
    from ottla.client.admin.groups import list_groups

    states = [state.strip() for state in (given.state or "").split(",") if state]
    types = [kind.strip() for kind in (given.type or "").split(",") if kind]
    groups = admin.call(list_groups, states, types)
    head = ["GROUP"] + (["TYPE"] if given.type is not None else [])
    head += ["STATE"] if given.state is not None else []
    rows = [[getattr(group, {"GROUP": "id"}.get(name, name.lower())) for name in head] for group in groups]
    data = [{"group": group.id, "type": group.type, "state": group.state} for group in groups]
    lines = [row[0] for row in rows] if len(head) == 1 else aligned([head, *rows])
    show(given, data, lines, [Table(head, rows)])
    return 0


def _describe(given: argparse.Namespace, admin: Admin) -> int:
    if given.members:
        describe = _members
    elif given.state is not None:
        describe = _state
    else:
        describe = _offsets
    if given.watch:
        return _watch(given, admin, describe)
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


def _watch(given: argparse.Namespace, admin: Admin, describe: Callable[..., tuple[Table, str]]) -> int:
    """The table, again and again, until somebody has seen enough."""
    from rich.console import Group as Stack
    from rich.live import Live

    from ottla.cli.framework.output import rich_table

    def picture() -> Stack:
        tables = [describe(given, admin, name)[0] for name in _groups(given, admin)]
        return Stack(*(rich_table(table) for table in tables))

    with Live(picture(), refresh_per_second=4) as live:
        while True:
            time.sleep(_WATCH_SECONDS)
            live.update(picture())


def _offsets(given: argparse.Namespace, admin: Admin, name: str) -> tuple[Table, str]:
    from ottla.client.admin.groups import committed_offsets, describe_group
    from ottla.client.admin.topics import list_offsets, list_topics
    from ottla.client.cluster import LATEST
    from ottla.wire.errors import KafkaError

    group = admin.call(describe_group, name)
    committed = admin.call(committed_offsets, name)
    owners = {place: member for member in group.members for place in member.assigned}
    places = sorted({*committed, *owners})
    topics = admin.call(list_topics)
    ends = (
        admin.call(list_offsets, {place: LATEST for place in places if place.topic in topics})
        if places
        else {}
    )
    rows: list[list[Any]] = []
    for place in places:
        member = owners.get(place)
        offset = committed[place].offset if place in committed else None
        end = ends.get(place)
        end_offset = None if end is None or isinstance(end, KafkaError) else end.offset
        lag = None if offset is None or end_offset is None else end_offset - offset
        epoch = committed[place].leader_epoch if place in committed else -1
        rows.append(
            [
                name,
                place.topic,
                place.number,
                *([epoch if epoch >= 0 else MISSING] if given.verbose else []),
                *(MISSING if value is None else value for value in (offset, end_offset, lag)),
                *((member.id, member.host, member.client_id) if member else (MISSING,) * 3),
            ]
        )
    head = ["GROUP", "TOPIC", "PARTITION", *(["LEADER-EPOCH"] if given.verbose else [])]
    head += ["CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"]
    return Table(head, rows), _note(group)


def _members(given: argparse.Namespace, admin: Admin, name: str) -> tuple[Table, str]:
    from ottla.client.admin.groups import describe_group

    group = admin.call(describe_group, name)
    with_instances = any(member.instance_id for member in group.members)
    head = ["GROUP", "CONSUMER-ID", *(["GROUP-INSTANCE-ID"] if with_instances else [])]
    head += ["HOST", "CLIENT-ID", "#PARTITIONS"]
    head += (
        ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"] if given.verbose else []
    )
    rows = []
    for member in group.members:
        row: list[Any] = [name, member.id, *([member.instance_id or MISSING] if with_instances else [])]
        row += [member.host, member.client_id, len(member.assigned)]
        if given.verbose:
            target_epoch = group.target_epoch if group.target_epoch is not None else MISSING
            row += [member.epoch if member.epoch is not None else MISSING, places_text(member.assigned)]
            row += [target_epoch, places_text(member.target)]
        rows.append(row)
    return Table(head, rows), _note(group)


def _state(given: argparse.Namespace, admin: Admin, name: str) -> tuple[Table, str]:
    from ottla.client.admin.groups import describe_group

    group = admin.call(describe_group, name)
    node = group.coordinator
    row: list[Any] = [name, f"{node.host}:{node.port}  ({node.id})", group.assignor or MISSING, group.state]
    head = ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE"]
    if given.verbose:
        head += ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"]
        row += [MISSING if epoch is None else epoch for epoch in (group.epoch, group.target_epoch)]
    return Table([*head, "#MEMBERS"], [[*row, len(group.members)]]), _note(group)


def _delete(given: argparse.Namespace, admin: Admin) -> int:
    from ottla.client.admin.groups import delete_group

    done: list[str] = []
    failed: dict[str, str] = {}
    for name in _groups(given, admin):
        try:
            admin.call(delete_group, name)
            done.append(name)
        except Refused as error:
            failed[name] = error.reason
    quoted = ", ".join(f"'{name}'" for name in done)
    lines: list[str] = []
    if not failed:
        lines = [f"Deletion of requested consumer groups ({quoted}) was successful."]
    else:
        lines = ["", "Error: Deletion of some consumer groups failed:"]
        lines += [f"* Group '{name}' could not be deleted due to: {why}" for name, why in failed.items()]
        if done:
            lines += ["", f"These consumer groups were deleted successfully: {quoted}"]
    show(given, {"deleted": done, "failed": failed}, lines)
    return 1 if failed else 0


def _reset_offsets(given: argparse.Namespace, admin: Admin) -> int:
    from ottla.cli.cluster.offset_reset import new_offsets, scenario
    from ottla.client.admin.groups import commit_offsets, committed_offsets, describe_group
    from ottla.wire.errors import ErrorCode

    how = scenario(given)
    if given.execute and given.dry_run:
        raise ToolError("--execute and --dry-run cannot be used together")
    now_ms = time.time_ns() // 1_000_000
    resets: dict[str, dict[Partition, int]] = {}
    for name in _groups(given, admin):
        try:
            state = admin.call(describe_group, name).state
        except Refused as error:
            if error.code != ErrorCode.group_id_not_found:
                raise
            state = "Empty"
        if state not in {"Empty", "Dead"}:
            raise ToolError(
                f"Assignments can only be reset if the group '{name}' is inactive, "
                f"but the current state is {state}."
            )
        known = {place: found.offset for place, found in admin.call(committed_offsets, name).items()}
        resets[name] = new_offsets(given, admin, name, how, now_ms, known)
        if given.execute and resets[name]:
            admin.call(commit_offsets, name, resets[name])
    rows: list[tuple[Any, ...]] = [
        (name, place.topic, place.number, offset)
        for name, offsets in resets.items()
        for place, offset in offsets.items()
    ]
    if given.export:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(
            row[1:] if len(given.group) == 1 else row for row in rows
        )
        show(given, rows, [text.getvalue()])
        return 0
    head = ("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET")
    data = [dict(zip(("group", "topic", "partition", "newOffset"), row, strict=True)) for row in rows]
    show(given, data, ["", *aligned([head, *rows])] if rows else [""], [Table(head, rows)])
    return 0


def _delete_offsets(given: argparse.Namespace, admin: Admin) -> int:
    from ottla.cli.cluster.offset_reset import chosen_partitions
    from ottla.client.admin.groups import committed_offsets, delete_offsets

    (name,) = _groups(given, admin)
    places = chosen_partitions(given, admin, list(admin.call(committed_offsets, name)))
    results = admin.call(delete_offsets, name, places)
    rows = [
        (place.topic, place.number, f"Error: {why}" if why else "Successful")
        for place, why in sorted(results.items())
    ]
    failed = any(results.values())
    lines = (
        ["", "Error: Encountered some partition-level error, see the follow-up details."]
        if failed
        else [f"Request succeeded for deleting offsets from group {name}."]
    )
    head = ("TOPIC", "PARTITION", "STATUS")
    data = [dict(zip(("topic", "partition", "status"), row, strict=True)) for row in rows]
    show(given, data, [*lines, "", *aligned([head, *rows])], [Table(head, rows)])
    return 1 if failed else 0


def _groups(given: argparse.Namespace, admin: Admin) -> list[str]:
    from ottla.client.admin.groups import list_groups

    return [group.id for group in admin.call(list_groups)] if given.all_groups else list(given.group)


def _failure(name: str, error: Refused) -> str:
    from ottla.wire.errors import ErrorCode

    if error.code == ErrorCode.group_id_not_found:
        return f"Error: Consumer group '{name}' does not exist."
    return f"Error: {error.reason}"


def _note(group: Group) -> str:
    if group.state == "Empty":
        return f"Consumer group '{group.id}' has no active members."
    if group.state in {"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"}:
        return f"Warning: Consumer group '{group.id}' is rebalancing."
    return ""


_RUN = {
    "list": _list,
    "describe": _describe,
    "delete": _delete,
    "reset_offsets": _reset_offsets,
    "delete_offsets": _delete_offsets,
}

TOOL = Tool(
    name="consumer-groups",
    description="See lag and members of consumer groups, reset their offsets, delete them.",
    run=run,
    options=(
        EITHER_SERVER,
        COMMAND_CONFIG,
        Option("list", "list groups"),
        Option("describe", "show a group: its offsets and lag, or its --members or --state"),
        Option("delete", "delete groups"),
        Option("reset-offsets", "set where a group goes on; see --execute"),
        Option("delete-offsets", "delete a group's offsets of topics"),
        Option("group", "the group; may be repeated", "GROUP", repeats=True),
        Option("all-groups", "all groups"),
        Option("topic", "a topic, or TOPIC:0,1 for some partitions; may be repeated", "TOPIC", repeats=True),
        Option("all-topics", "all topics that the group has offsets for"),
        Option("members", "with --describe: the members"),
        Option("offsets", "with --describe: the offsets, as without it"),
        Option(
            "state",
            "with --describe: the state; with --list: show states, or only groups in these",
            "STATES",
            value_if_bare="",
        ),
        Option("type", "with --list: show types, or only groups of these", "TYPES", value_if_bare=""),
        Option("verbose", "with --describe: more columns"),
        Option("watch", "with --describe: a live view"),
        Option("dry-run", "with --reset-offsets: only show what would be set, as without --execute"),
        Option("execute", "with --reset-offsets: do it"),
        Option("export", "with --reset-offsets: print as CSV, for --from-file"),
        Option("to-earliest", "to the oldest record"),
        Option("to-latest", "to the end"),
        Option("to-current", "to where the group is; to the end where it has no offset"),
        Option("to-offset", "to an offset", "OFFSET", int),
        Option("shift-by", "forwards, or backwards with a negative number", "COUNT", int),
        Option("to-datetime", "to the first record of that time", "YYYY-MM-DDTHH:mm:SS.sss"),
        Option("by-duration", "to the first record since so long ago", "PnDTnHnMnS"),
        Option("from-file", "to what a file of --export says", "FILE"),
        Option("timeout", "how long requests may take", "MS", int),
        Option("validate-regex", "only check an expression that a member may subscribe with", "REGEX"),
    ),
    examples=(
        "--bootstrap-server localhost:9092 --describe --group billing",
        "--bootstrap-server localhost:9092 --reset-offsets --group billing --topic orders "
        "--to-earliest --execute",
    ),
)
