"""The list of groups, and one group with its members and lag."""

from __future__ import annotations

from typing import Any

from ottla.console.api import groups as api
from ottla.console.clusters import Cluster
from ottla.console.html import (
    Child,
    Html,
    a,
    code,
    div,
    element,
    h1,
    h2,
    link,
    p,
    section,
    span,
    together,
)
from ottla.console.pages.assignment import assignment
from ottla.console.pages.charts import lag_charts
from ottla.console.pages.page import View, page
from ottla.console.pages.parts import (
    Column,
    Input,
    api_form,
    api_path,
    data_table,
    dialog_with,
    figure,
    number,
    opens,
    pages_of,
    search_form,
    state_tag,
    typed_name,
)

_meter = element("meter")


@page("/groups")
async def groups_page(cluster: Cluster, asked: api.FindGroups) -> View:
    found = await api.find_groups(cluster, asked)

    def address(**changed: object) -> str:
        given: dict[str, object] = {
            "q": asked.q,
            "sort": asked.sort if asked.sort != "name" else None,
            "down": asked.down,
            **changed,
        }
        return link("c", cluster.name, "groups", **given)

    rows = [
        (
            a(group["name"], href=link("c", cluster.name, "groups", group["name"]), data_row=True),
            group["type"],
            state_tag(group["state"]),
            group["protocol"] or "–",
            number(group["topics"]),
            number(group["lag"]),
        )
        for group in found["groups"]
    ]
    columns = (
        Column("Group", "name"),
        "Type",
        Column("State", "state"),
        "For",
        Column("Topics", "topics", numeric=True),
        Column("Lag", "lag", numeric=True),
    )
    body = together(
        h1("Groups"),
        search_form(asked.q, "Find a group", sort=asked.sort, down="true" if asked.down else ""),
        div(
            p(f"{number(found['total'])} {'group' if found['total'] == 1 else 'groups'}", class_="quiet"),
            data_table(
                columns,
                rows,
                caption="Groups",
                empty="No group has that in its name." if asked.q else "There are no groups yet.",
                sorted_by=(asked.sort, asked.down),
                sort_link=lambda sort, down: address(sort=sort, down="true" if down else ""),
            ),
            pages_of(found["page"], found["pages"], lambda page: address(page=page)),
            id="results",
        ),
    )
    return View("Groups", body, "groups")


@page("/groups/{group}")
async def group_page(cluster: Cluster, asked: api.OneGroup) -> View:
    found = await api.group(cluster, asked)
    name = found["name"]
    is_share = found["type"].lower() == "share"
    drawn = assignment(found["members"], found["partitions"])
    actions: list[Child] = []
    dialogs: list[Child] = []
    if not cluster.read_only:
        actions = [opens("reset", "Reset offsets"), opens("delete", "Delete", danger=True)]
        dialogs = _dialogs(cluster, found)
    body = together(
        div(h1(name), div(actions, class_="buttons"), class_="title"),
        p(
            state_tag(found["state"]),
            f" {found['type']} group",
            f" · assignor {found['assignor']}" if found["assignor"] else None,
            f" · coordinated by broker {found['coordinator']}",
            class_="quiet",
        ),
        div(
            figure("Lag", number(found["lag"]), "records to read"),
            figure("Members", number(len(found["members"]))),
            figure("Partitions", number(len(found["partitions"]))),
            class_="figures",
        ),
        lag_charts(api_path(cluster, "groups", name, "history")),
        section(h2("Members"), _members(cluster, found)),
        section(h2("Who reads what"), drawn) if drawn else None,
        section(h2("Partitions"), _lags(cluster, found, "Done before" if is_share else "Committed")),
        dialogs,
    )
    return View(name, body, "groups")


def _members(cluster: Cluster, found: dict[str, Any]) -> Html:
    rows = [
        (
            together(
                code(member["client"]), span(member["instance"], class_="tag") if member["instance"] else None
            ),
            code(member["id"]),
            member["host"],
            [
                div(
                    a(each["topic"], href=link("c", cluster.name, "topics", each["topic"])),
                    " ",
                    [span(number, class_="chip") for number in each["partitions"]],
                )
                for each in member["assigned"]
            ]
            or span("idle", class_="quiet"),
        )
        for member in found["members"]
    ]
    return data_table(
        ("Client", "Member", "Host", "Reads"), rows, caption="Members", empty="Nobody is in the group."
    )


def _lags(cluster: Cluster, found: dict[str, Any], offset: str) -> Html:
    """`offset` is what the group's place in a partition is called."""
    largest = max((each["lag"] or 0 for each in found["partitions"]), default=0)
    rows = [
        (
            a(each["topic"], href=link("c", cluster.name, "topics", each["topic"])),
            each["partition"],
            number(each["offset"]),
            number(each["endOffset"]),
            together(
                number(each["lag"]),
                " ",
                _meter(value=each["lag"], min=0, max=max(largest, 1), aria_hidden="true")
                if each["lag"] is not None
                else None,
            ),
            ", ".join(each["clients"]) or "–",
        )
        for each in found["partitions"]
    ]
    columns = (
        "Topic",
        Column("Partition", numeric=True),
        Column(offset, numeric=True),
        Column("End", numeric=True),
        Column("Lag", numeric=True),
        "Read by",
    )
    return data_table(columns, rows, caption="Partitions", empty="The group has no offsets.")


def _dialogs(cluster: Cluster, found: dict[str, Any]) -> list[Child]:
    place = ("groups", found["name"])
    topics = sorted({each["topic"] for each in found["partitions"]})
    reset = (
        Input("topic", "Topic", choices=topics, value=topics[0], required=True)
        if topics
        else Input("topic", "Topic", required=True),
        Input("partitions", "Partitions", "list", hint="such as 0,2; empty: all"),
        Input("to", "To", choices=("earliest", "latest", "offset", "shift", "time"), value="earliest"),
        Input("offset", "Offset", "int", hint="with offset: which; with shift: by how many"),
        Input("time", "Time", hint="with time: such as 2026-01-31T12:00:00, UTC"),
        Input("preview", "Only show what would change", "bool", value="true"),
    )
    return [
        dialog_with(
            "reset",
            "Reset offsets",
            p("The group must have no members that run. First look at what would change, then do it."),
            api_form("POST", api_path(cluster, *place, "offsets"), reset, "Reset", then="show"),
        ),
        dialog_with(
            "delete",
            "Delete the group",
            p("The group forgets all its offsets. It must have no members."),
            api_form(
                "DELETE",
                api_path(cluster, *place),
                [typed_name(found["name"], "this cannot be undone")],
                "Delete the group",
                danger=True,
                then="go",
            ),
        ),
    ]


PAGES = (groups_page, group_page)
