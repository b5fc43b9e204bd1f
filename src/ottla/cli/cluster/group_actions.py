"""What `kafka-consumer-groups` and `kafka-share-groups` have in common: which action is asked for, and how
its result is shown."""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from ottla.cli.cluster.group_tables import aligned
from ottla.cli.framework.errors import Refused, ToolError
from ottla.cli.framework.output import Table, show
from ottla.cli.framework.properties import merged
from ottla.cli.framework.tool import COMMAND_CONFIG, EITHER_SERVER, Option

if TYPE_CHECKING:
    from ottla.cli.cluster.admin import Admin
    from ottla.client.admin.topics import Partition

Place = TypeVar("Place", bound=tuple[Any, ...])

_ACTIONS = ("list", "describe", "delete", "reset_offsets", "delete_offsets")

Describe: TypeAlias = "Callable[[argparse.Namespace, Admin, str], tuple[Table, str]]"
"""What is known of one group, and a remark."""

ACTION_OPTIONS = (
    EITHER_SERVER,
    COMMAND_CONFIG,
    Option("list", "list groups"),
    Option("describe", "show a group: its offsets and lag, or its --members or --state"),
    Option("delete", "delete groups"),
    Option("reset-offsets", "set where a group goes on; see --execute"),
    Option("delete-offsets", "let a group forget its offsets of topics"),
    Option("group", "the group; may be repeated", "GROUP", repeats=True),
    Option("all-groups", "all groups of this kind"),
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
    Option("verbose", "with --describe: more columns"),
    Option("timeout", "how long requests may take", "MS", int),
)
RESET_OPTIONS = (
    Option("dry-run", "with --reset-offsets: only show what would be set, as without --execute"),
    Option("execute", "with --reset-offsets: do it"),
    Option("export", "with --reset-offsets: print as CSV, for --from-file"),
    Option("to-earliest", "to the oldest record"),
    Option("to-latest", "to the end"),
    Option("to-current", "to where the group is; to the end where it has no offset"),
    Option("to-offset", "to an offset", "OFFSET", int),
    Option("to-datetime", "to the first record of that time", "YYYY-MM-DDTHH:mm:SS.sss"),
    Option("from-file", "to what a file of --export says", "FILE"),
)


def chosen_action(given: argparse.Namespace, *, of_one_group: Collection[str]) -> str:
    """`of_one_group` are actions that take a single one; others take several, or all there are."""
    if not given.bootstrap_server:
        raise ToolError("--bootstrap-server is required")
    actions = [action for action in _ACTIONS if getattr(given, action)]
    if len(actions) != 1:
        raise ToolError("give exactly one of --list, --describe, --delete, --reset-offsets, --delete-offsets")
    if given.describe and sum((given.members, given.offsets, given.state is not None)) > 1:
        raise ToolError("--describe takes at most one of --members, --offsets and --state")
    if given.reset_offsets and given.execute and given.dry_run:
        raise ToolError("--execute and --dry-run cannot be used together")
    (action,) = actions
    flag = f"--{action.replace('_', '-')}"
    may_be_all = action not in of_one_group
    if action != "list" and not given.group and not (may_be_all and given.all_groups):
        raise ToolError(f"{flag} needs --group{' or --all-groups' if may_be_all else ''}")
    if not may_be_all and len(given.group) > 1:
        raise ToolError(f"{flag} takes one group at a time")
    return action


@contextmanager
def asked_cluster(given: argparse.Namespace) -> Iterator[Admin]:
    from ottla.cli.cluster.admin import cluster

    properties = merged("command-config", given.command_config)
    if given.timeout is not None:
        properties["default.api.timeout.ms"] = str(given.timeout)
    with cluster(given, properties) as admin:
        yield admin


def listed(text: str | None) -> list[str]:
    """Of an option that takes several, with commas between them."""
    return [part.strip() for part in (text or "").split(",") if part]


def show_groups(
    given: argparse.Namespace, head: Sequence[str], rows: Sequence[Sequence[str]], data: Any
) -> None:
    lines = [row[0] for row in rows] if len(head) == 1 else aligned([head, *rows])
    show(given, data, lines, [Table(head, rows)])


def describe_each(
    given: argparse.Namespace, admin: Admin, names: Iterable[str], describe: Describe, kind: str
) -> int:
    failed = False
    data: list[dict[str, Any]] = []
    lines: list[str] = []
    tables: list[Table] = []
    for name in names:
        try:
            table, note = describe(given, admin, name)
        except Refused as error:
            failed = True
            print(f"{given.prog}: {_why_not_described(kind, name, error)}", file=sys.stderr)
            continue
        if note:
            print(f"\n{note}", file=sys.stderr)
        if table.rows:
            lines += ["", *aligned([table.columns, *table.rows])]
            tables.append(table)
        data += [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    show(given, data, lines, tables)
    return 1 if failed else 0


def _why_not_described(kind: str, name: str, error: Refused) -> str:
    from ottla.wire.errors import ErrorCode

    if error.code == ErrorCode.group_id_not_found:
        return f"Error: {kind.capitalize()} group '{name}' does not exist."
    return f"Error: {error.reason}"


def delete_each(
    given: argparse.Namespace,
    admin: Admin,
    names: Iterable[str],
    kind: str,
    refused: Mapping[str, str] | None = None,
) -> int:
    """`refused` are those that are not even asked for, with why."""
    from ottla.client.admin.groups import delete_group

    done: list[str] = []
    failed: dict[str, str] = {}
    for name in names:
        if refused is not None and name in refused:
            failed[name] = refused[name]
            continue
        try:
            admin.call(delete_group, name)
            done.append(name)
        except Refused as error:
            failed[name] = error.reason
    quoted = ", ".join(f"'{name}'" for name in done)
    if not failed:
        lines = [f"Deletion of requested {kind} groups ({quoted}) was successful."]
    else:
        lines = ["", f"Error: Deletion of some {kind} groups failed:"]
        lines += [f"* Group '{name}' could not be deleted due to: {why}" for name, why in failed.items()]
        if done:
            lines += ["", f"These {kind} groups were deleted successfully: {quoted}"]
    show(given, {"deleted": done, "failed": failed}, lines)
    return 1 if failed else 0


def show_resets(given: argparse.Namespace, resets: Mapping[str, Mapping[Partition, int]]) -> None:
    """Where each group goes on; with --export as --from-file reads it."""
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
        return
    head = ("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET")
    data = [dict(zip(("group", "topic", "partition", "newOffset"), row, strict=True)) for row in rows]
    show(given, data, ["", *aligned([head, *rows])] if rows else [""], [Table(head, rows)])


def show_deleted_offsets(
    given: argparse.Namespace, group: str, head: Sequence[str], results: Mapping[Place, str]
) -> int:
    """`results` say why not, by what all columns of `head` but the last tell; empty for success."""
    rows = [(*named, f"Error: {why}" if why else "Successful") for named, why in sorted(results.items())]
    failed = any(results.values())
    level = head[-2].lower()
    lines = (
        ["", f"Error: Encountered some {level}-level error, see the follow-up details."]
        if failed
        else [f"Request succeeded for deleting offsets from group {group}."]
    )
    data = [dict(zip(map(str.lower, head), row, strict=True)) for row in rows]
    show(given, data, [*lines, "", *aligned([head, *rows])], [Table(head, rows)])
    return 1 if failed else 0
