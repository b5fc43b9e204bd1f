"""`kafka-share-groups`: where share groups are and who is in them, offsets reset, groups deleted."""

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
from ottla.cli.framework.output import Table
from ottla.cli.framework.tool import Tool

if TYPE_CHECKING:
    from ottla.cli.cluster.admin import Admin


def run(given: argparse.Namespace) -> int:
    action = chosen_action(given, of_one_group={"reset_offsets", "delete_offsets"})
    with asked_cluster(given) as admin:
        return _RUN[action](given, admin)


def _list(given: argparse.Namespace, admin: Admin) -> int:
    from ottla.client.admin.share_groups import list_share_groups

    groups = admin.call(list_share_groups, listed(given.state))
    head = ["GROUP", *(["STATE"] if given.state is not None else [])]
    rows = [[group.id, group.state][: len(head)] for group in groups]
    show_groups(given, head, rows, [{"group": group.id, "state": group.state} for group in groups])
    return 0


def _describe(given: argparse.Namespace, admin: Admin) -> int:
    describe: Describe = _members if given.members else _offsets if given.state is None else _state
    return describe_each(given, admin, _groups(given, admin), describe, "share")


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
    from ottla.client.admin.share_groups import list_share_groups

    known = {group.id for group in admin.call(list_share_groups)}
    names = _groups(given, admin)
    # DeleteGroups would delete one of another kind just as well.
    refused = {name: f"Group '{name}' is not a share group." for name in names if name not in known}
    return delete_each(given, admin, names, "share", refused)


def _reset_offsets(given: argparse.Namespace, admin: Admin) -> int:
    from ottla.cli.cluster.offset_reset import new_offsets, scenario
    from ottla.client.admin.share_groups import alter_shared_offsets, describe_share_group, shared_offsets
    from ottla.wire.errors import ErrorCode

    how = scenario(given)
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
    show_resets(given, {name: resets})
    return 0


def _delete_offsets(given: argparse.Namespace, admin: Admin) -> int:
    from ottla.client.admin.share_groups import delete_shared_offsets

    if not given.topic:
        raise ToolError("--delete-offsets needs --topic")
    (name,) = given.group
    results = admin.call(delete_shared_offsets, name, given.topic)
    by_topic = {(topic,): why for topic, why in results.items()}
    return show_deleted_offsets(given, name, ("TOPIC", "STATUS"), by_topic)


def _groups(given: argparse.Namespace, admin: Admin) -> list[str]:
    from ottla.client.admin.share_groups import list_share_groups

    if given.all_groups:
        return [group.id for group in admin.call(list_share_groups)]
    return list(given.group)


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
    options=(*ACTION_OPTIONS, *RESET_OPTIONS),
    examples=(
        "--bootstrap-server localhost:9092 --describe --group workers",
        "--bootstrap-server localhost:9092 --reset-offsets --group workers --topic jobs "
        "--to-earliest --execute",
    ),
)
