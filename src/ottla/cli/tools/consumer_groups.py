"""`kafka-consumer-groups`: lag and members of groups, their offsets reset, groups deleted."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from ottla.cli.cluster.group_actions import (
    ACTION_OPTIONS,
    RESET_OPTIONS,
    Describe,
    asked_cluster,
    chosen_action,
    delete_each,
    describe_each,
    listed,
    show_deleted_offsets,
    show_groups,
    show_resets,
)
from ottla.cli.cluster.group_tables import MISSING, places_text
from ottla.cli.framework.errors import Refused, ToolError
from ottla.cli.framework.output import Table, show
from ottla.cli.framework.tool import Option, Tool

if TYPE_CHECKING:
    from ottla.cli.cluster.admin import Admin
    from ottla.client.admin.groups import Group
    from ottla.client.admin.topics import Partition

_WATCH_SECONDS = 2.0


def run(given: argparse.Namespace) -> int:
    if given.validate_regex is not None:
        return _validate_regex(given)
    action = chosen_action(given, of_one_group={"delete_offsets"})
    with asked_cluster(given) as admin:
        return _RUN[action](given, admin)


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

    groups = admin.call(list_groups, listed(given.state), listed(given.type))
    head = ["GROUP"] + (["TYPE"] if given.type is not None else [])
    head += ["STATE"] if given.state is not None else []
    rows = [[getattr(group, {"GROUP": "id"}.get(name, name.lower())) for name in head] for group in groups]
    data = [{"group": group.id, "type": group.type, "state": group.state} for group in groups]
    show_groups(given, head, rows, data)
    return 0


def _describe(given: argparse.Namespace, admin: Admin) -> int:
    describe: Describe = _members if given.members else _offsets if given.state is None else _state
    if given.watch:
        return _watch(given, admin, describe)
    return describe_each(given, admin, _groups(given, admin), describe, "consumer")


def _watch(given: argparse.Namespace, admin: Admin, describe: Describe) -> int:
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
    return delete_each(given, admin, _groups(given, admin), "consumer")


def _reset_offsets(given: argparse.Namespace, admin: Admin) -> int:
    from ottla.cli.cluster.offset_reset import new_offsets, scenario
    from ottla.client.admin.groups import commit_offsets, committed_offsets, describe_group
    from ottla.wire.errors import ErrorCode

    how = scenario(given)
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
    show_resets(given, resets)
    return 0


def _delete_offsets(given: argparse.Namespace, admin: Admin) -> int:
    from ottla.cli.cluster.offset_reset import chosen_partitions
    from ottla.client.admin.groups import committed_offsets, delete_offsets

    (name,) = given.group
    places = chosen_partitions(given, admin, list(admin.call(committed_offsets, name)))
    results = admin.call(delete_offsets, name, places)
    return show_deleted_offsets(given, name, ("TOPIC", "PARTITION", "STATUS"), results)


def _groups(given: argparse.Namespace, admin: Admin) -> list[str]:
    from ottla.client.admin.groups import list_groups

    return [group.id for group in admin.call(list_groups)] if given.all_groups else list(given.group)


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
        *ACTION_OPTIONS,
        Option("type", "with --list: show types, or only groups of these", "TYPES", value_if_bare=""),
        Option("watch", "with --describe: a live view"),
        *RESET_OPTIONS,
        Option("shift-by", "forwards, or backwards with a negative number", "COUNT", int),
        Option("by-duration", "to the first record since so long ago", "PnDTnHnMnS"),
        Option("validate-regex", "only check an expression that a member may subscribe with", "REGEX"),
    ),
    examples=(
        "--bootstrap-server localhost:9092 --describe --group billing",
        "--bootstrap-server localhost:9092 --reset-offsets --group billing --topic orders "
        "--to-earliest --execute",
    ),
)
