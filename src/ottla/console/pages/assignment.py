"""Which member of a group reads which partition, as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from ottla.console.html import Html, span, th, together, tr
from ottla.console.pages.cells import (
    DRAWN_PARTITIONS_MAX,
    cell,
    cells_row,
    legend,
    more,
    picture_of_cells,
)
from ottla.console.pages.parts import number

DRAWN_MEMBERS_MAX = 50
COLOURS = 6
"""After so many members they begin again: it is the row that says whose a cell is."""


def assignment(members: Sequence[Mapping[str, Any]], partitions: Sequence[Mapping[str, Any]]) -> Html | None:
    """A row for each member, a column for each partition, and a row for what nobody reads."""
    if not partitions:
        return None
    drawn = partitions[:DRAWN_PARTITIONS_MAX]
    rows = [
        cells_row(
            span(member["client"] or member["id"], class_="name"),
            [_of(member, each, at % COLOURS) for each in drawn],
            title=member["id"],
        )
        for at, member in enumerate(members[:DRAWN_MEMBERS_MAX])
    ]
    if any(not each["members"] for each in drawn):
        rows.append(cells_row("Nobody", [_of_nobody(each) for each in drawn]))
    left = [
        *more(len(partitions) - len(drawn), "partition", "partitions"),
        *more(len(members) - DRAWN_MEMBERS_MAX, "member", "members"),
    ]
    unread = sum(not each["members"] for each in partitions)
    return together(
        legend(("unread", "0", f"read by nobody: {number(unread)} of {number(len(partitions))}"))
        if unread
        else None,
        picture_of_cells(_heads(drawn), rows, "Who reads which partition", left),
    )


def _heads(drawn: Sequence[Mapping[str, Any]]) -> Html:
    topics = [(topic, len(list(each))) for topic, each in groupby(drawn, key=lambda each: each["topic"])]
    return together(
        tr(
            th("Member", scope="col", rowspan=2),
            [
                th(topic, scope="colgroup", colspan=count, title=topic, class_="topic")
                for topic, count in topics
            ],
        ),
        tr(th(each["partition"], scope="col") for each in drawn),
    )


def _of(member: Mapping[str, Any], each: Mapping[str, Any], colour: int) -> Html:
    if member["id"] not in each["members"]:
        return cell()
    others = len(each["members"]) - 1
    shared = f", and by {others} more" if others else ""
    title = f"{each['topic']}-{each['partition']}: read by {member['client'] or member['id']}{shared}"
    return cell(f"held colour-{colour}", each["partition"], title)


def _of_nobody(each: Mapping[str, Any]) -> Html:
    if each["members"]:
        return cell()
    return cell("unread", each["partition"], f"{each['topic']}-{each['partition']}: read by nobody")
