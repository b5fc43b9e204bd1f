"""Connectors: the list, one with its tasks and settings, and the form that a plugin's declarations make."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ottla.console.api import connectors as api
from ottla.console.clusters import Cluster
from ottla.console.html import (
    Child,
    Html,
    a,
    button,
    code,
    details,
    div,
    element,
    form,
    h1,
    h2,
    input_,
    label,
    li,
    link,
    option,
    output,
    p,
    pre,
    section,
    select,
    small,
    span,
    summary,
    together,
    ul,
)
from ottla.console.pages.page import View, page
from ottla.console.pages.parts import (
    Column,
    api_form,
    api_path,
    data_table,
    dialog_with,
    figure,
    moment,
    number,
    opens,
    search_form,
    state_tag,
    typed_name,
)

REFRESH_MS = 5000
_LEVELS = {"WARNING": "busy", "ERROR": "bad", "CRITICAL": "bad"}
_datalist = element("datalist")


@page("/connectors")
async def connectors_page(cluster: Cluster, asked: api.FindConnectors) -> View:
    found = await api.find_connectors(cluster, asked)
    rows = [
        (
            a(each["name"], href=_place(cluster, each["name"]), data_row=True),
            each["type"],
            code(_short(each["class"])),
            state_tag(each["state"]),
            _tasks_cell(each),
            each["worker"] or "–",
        )
        for each in found["connectors"]
    ]
    columns = ("Connector", "Type", "Plugin", "State", Column("Tasks", numeric=True), "Worker")
    new = a("New connector", href=link("c", cluster.name, "connector-plugins"), class_="button")
    body = together(
        div(h1("Connectors"), None if cluster.read_only else new, class_="title"),
        search_form(asked.q, "Find a connector"),
        div(
            p(f"{number(len(rows))} at {found['address']}", class_="quiet"),
            data_table(
                columns,
                rows,
                caption="Connectors",
                empty="No connector has that in its name." if asked.q else "There are no connectors yet.",
            ),
            id="results",
            data_refreshes=REFRESH_MS,
        ),
    )
    return View("Connectors", body, "connectors")


@page("/connectors/{connector}")
async def connector_page(cluster: Cluster, asked: api.OneConnector) -> View:
    found = await api.connector(cluster, asked)
    name = found["name"]
    told = await api.connector_log(cluster, api.FindLines(name))
    may_change = not cluster.read_only
    body = together(
        div(
            div(h1(name), _actions(cluster, found) if may_change else None, class_="title"),
            p(state_tag(found["state"]), f" {found['type']} · ", code(found["class"]), class_="quiet"),
            div(
                figure("State", found["state"], bad=found["state"] == "FAILED"),
                figure("Tasks", f"{found['running']} of {found['tasks']}", "run"),
                figure("Failed", number(found["failed"]), bad=found["failed"] > 0),
                figure("Worker", code(found["worker"] or "–")),
                class_="figures",
            ),
            _trace("The connector failed", found["trace"]) if found["trace"] else None,
            section(h2("Tasks"), _tasks(cluster, found)),
            section(h2("Log"), _log(told)),
            id="results",
            data_refreshes=REFRESH_MS,
        ),
        section(h2("Topics"), _topics(cluster, found)),
        section(
            h2("Offsets"),
            _offsets(found),
            opens("forget", "Forget offsets", danger=True) if may_change else None,
        ),
        section(h2("Settings"), _settings(cluster, found)),
        _dialogs(cluster, name) if may_change else None,
    )
    return View(name, body, "connectors")


def _place(cluster: Cluster, name: str) -> str:
    return link("c", cluster.name, "connectors", name)


def _short(class_name: str) -> str:
    return class_name.rpartition(".")[2] or "–"


def _tasks_cell(each: dict[str, Any]) -> Child:
    if each["failed"]:
        return span(f"{each['failed']} of {each['tasks']} failed", class_="bad")
    return f"{each['running']} of {each['tasks']}"


def _do(cluster: Cluster, text: str, name: str, *action: str, danger: bool = False, **values: bool) -> Html:
    """A button that tells the API to do something, and then shows how it is."""
    return form(
        [
            input_(type="checkbox", name=key, checked=value, data_kind="bool", hidden=True, aria_label=key)
            for key, value in values.items()
        ],
        button(text, type="submit", class_="plain danger" if danger else "plain"),
        output(class_="answer", aria_live="polite"),
        method="dialog",
        data_method="POST",
        data_action=api_path(cluster, "connectors", name, *action),
        data_then="reload",
        class_="api inline",
    )


def _actions(cluster: Cluster, found: dict[str, Any]) -> Html:
    name, state = found["name"], found["state"]
    is_idle = state in {"PAUSED", "STOPPED"}
    return div(
        _do(cluster, "Resume", name, "resume") if is_idle else _do(cluster, "Pause", name, "pause"),
        _do(cluster, "Stop", name, "stop") if state != "STOPPED" else None,
        _do(cluster, "Restart", name, "restart", include_tasks=True, only_failed=False),
        _do(cluster, "Restart what failed", name, "restart", include_tasks=True, only_failed=True)
        if found["failed"] or state == "FAILED"
        else None,
        opens("delete", "Delete", danger=True),
        class_="buttons framed",
    )


def _tasks(cluster: Cluster, found: dict[str, Any]) -> Html:
    rows = [
        (
            task["task"],
            state_tag(task["state"]),
            task["worker"] or "–",
            _trace("What went wrong", task["trace"]) if task["trace"] else "–",
            None
            if cluster.read_only
            else _do(cluster, "Restart", found["name"], "tasks", str(task["task"]), "restart"),
        )
        for task in found["taskStates"]
    ]
    columns = (Column("Task", numeric=True), "State", "Worker", "Error", "")
    return data_table(columns, rows, caption="Tasks", empty="It has no tasks at present.")


def _trace(title: str, trace: str, *, is_bad: bool = True) -> Html:
    """Its first line says what, the rest where."""
    first = next((line for line in trace.splitlines() if line.strip()), title)
    shown = span(first, class_="bad" if is_bad else "line")
    return details(summary(shown), pre(trace, tabindex="0"), class_="trace")


def _log(told: dict[str, Any]) -> Html:
    """The newest line first."""
    rows = [
        (
            moment(each["time"]),
            span(each["level"], class_=f"tag {_LEVELS.get(each['level'], '')}".strip()),
            "–" if each["task"] is None else each["task"],
            _said(each["text"]),
        )
        for each in told["lines"]
    ]
    columns = ("Time (UTC)", "Level", Column("Task", numeric=True), "Text")
    empty = "It has not said anything yet." if not told["missing"] else "There is nothing to show."
    return together(
        [p(f"{each[:1].upper()}{each[1:]}.", class_="quiet") for each in told["missing"]],
        div(data_table(columns, rows, caption="Log", empty=empty), class_="log"),
    )


def _said(text: str) -> Html:
    first, line_end, _ = text.partition("\n")
    return _trace(first, text, is_bad=False) if line_end else span(first, class_="line")


def _topics(cluster: Cluster, found: dict[str, Any]) -> Html:
    entries = [li(a(name, href=link("c", cluster.name, "topics", name))) for name in found["topics"]]
    dead_letters: Child = None
    if found["deadLetters"]:
        records = link("c", cluster.name, "topics", found["deadLetters"], "records")
        dead_letters = p(
            "What it could not handle goes to ",
            a(found["deadLetters"], href=records),
            ": headers of each record say why.",
        )
    listed = ul(entries, class_="names") if entries else p("It has not used any topic yet.", class_="quiet")
    return together(listed, dead_letters)


def _offsets(found: dict[str, Any]) -> Html:
    if found["offsetsError"]:
        return p(f"They are not told: {found['offsetsError']}", class_="empty")
    rows = [
        (code(json.dumps(each["partition"])), code(json.dumps(each["offset"]))) for each in found["offsets"]
    ]
    return data_table(("Where", "How far"), rows, caption="Offsets", empty="It has not come anywhere yet.")


# Settings that are there


def _settings(cluster: Cluster, found: dict[str, Any]) -> Html:
    shown = [_setting(cluster, found["name"], each) for each in found["settings"]]
    return together(
        label(
            span("Find a setting", class_="hidden"),
            input_(type="search", placeholder="Find a setting", data_filters="settings", autocomplete="off"),
            class_="filter",
        ),
        div(shown, class_="settings", id="settings"),
    )


def _setting(cluster: Cluster, connector: str, each: dict[str, Any]) -> Html:
    value = "–" if each["value"] is None else each["value"]
    change: Child = None
    if not cluster.read_only and each["name"] not in {"name", api.CLASS}:
        change = form(
            _input({**each, "default": None, "isRequired": False}, each["value"] or ""),
            div(
                button("Change", type="submit"),
                button(
                    "Back to the default", type="submit", name="delete", value=each["name"], class_="plain"
                )
                if each["isGiven"] and not each["isRequired"]
                else None,
                class_="buttons",
            ),
            output(class_="answer", aria_live="polite"),
            method="dialog",
            data_method="PATCH",
            data_action=api_path(cluster, "connectors", connector, "settings"),
            data_then="reload",
            class_="api",
            autocomplete="off",
        )
    return details(
        summary(
            code(each["name"]),
            span(value, class_="setting-value"),
            span("given" if each["isGiven"] else "default", class_="tag busy" if each["isGiven"] else "tag"),
        ),
        p(each["doc"]) if each["doc"] else None,
        [p(error, class_="bad") for error in each["errors"]],
        change,
        data_text=each["name"],
        class_="setting",
    )


# A new connector


@page("/connector-plugins")
async def plugins_page(cluster: Cluster, asked: api.NoQuestion) -> View:
    found = (await api.find_plugins(cluster, asked))["plugins"]

    def of(kind: str) -> Html:
        cards = [
            a(
                span(_short(each["class"]), class_="card-title"),
                code(each["class"]),
                small(each.get("version") or ""),
                href=link("c", cluster.name, "connector-plugins", each["class"]),
                class_="card",
            )
            for each in found
            if each["type"] == kind
        ]
        return div(cards, class_="cards") if cards else p("There are none.", class_="empty")

    body = together(
        h1("New connector"),
        section(h2("Sources: into topics"), of("source")),
        section(h2("Sinks: out of topics"), of("sink")),
    )
    return View("New connector", body, "connectors")


@page("/connector-plugins/{plugin}")
async def plugin_page(cluster: Cluster, asked: api.OnePlugin) -> View:
    found = await api.plugin(cluster, asked)
    name = asked.plugin
    body = together(
        h1(f"New {_short(name)}"),
        p(code(name), class_="quiet"),
        p("The console only looks at this cluster.", class_="empty")
        if cluster.read_only
        else _new(cluster, name, found),
    )
    return View(f"New {_short(name)}", body, "connectors")


def _new(cluster: Cluster, plugin_class: str, found: dict[str, Any]) -> Html:
    asked_for = [each for each in found["settings"] if each["name"] not in {"name", api.CLASS}]
    first = [each for each in asked_for if each["isRequired"] or each["importance"] == "HIGH"]
    rest = [each for each in asked_for if each not in first]
    groups = list(dict.fromkeys([*found["groups"], *(each["group"] for each in rest)]))
    check = button(
        "Check",
        type="submit",
        class_="plain",
        data_method="POST",
        data_action=api_path(cluster, "connector-plugins", plugin_class, "check"),
        data_then="check",
    )
    return form(
        input_(type="hidden", name=f"set.{api.CLASS}", value=plugin_class, data_kind="text"),
        label(
            span("Name"),
            input_(
                type="text",
                name="connector",
                required=True,
                spellcheck="false",
                data_kind="text",
                data_place=True,
            ),
            small("of the connector, for people and for its offsets"),
        ),
        div([_input(each) for each in first], class_="fields wide"),
        [_group(group, [each for each in rest if each["group"] == group]) for group in groups],
        div(check, button("Create", type="submit"), class_="buttons"),
        output(class_="answer", aria_live="polite"),
        method="dialog",
        data_method="PUT",
        data_action=api_path(cluster, "connectors") + "/{connector}",
        data_then="go",
        class_="api panel",
        autocomplete="off",
    )


def _group(name: str, settings: Sequence[dict[str, Any]]) -> Html | None:
    if not settings:
        return None
    ordered = sorted(settings, key=lambda each: each["order"])
    return details(
        summary(f"{name or 'More'} · {len(ordered)}"),
        div([_input(each) for each in ordered], class_="fields wide"),
    )


def _input(each: dict[str, Any], value: str = "") -> Html:
    """One setting as a field. What is left empty is not sent: its default holds."""
    common: dict[str, Any] = {
        "name": f"set.{each['name']}",
        "data_kind": "text",
        "data_optional": True,
        "required": each["isRequired"],
    }
    hint = f"default: {each['default']}" if each["default"] not in (None, "") else ""
    listed: Child = None
    choices = ["true", "false"] if each["type"] == "BOOLEAN" else []
    if choices:
        shown = select(
            [
                option(hint or "–", value=""),
                *(option(choice, value=choice, selected=choice == value) for choice in choices),
            ],
            **common,
        )
    else:
        if each["recommended"]:
            name = f"known-{each['name']}"
            common["list"] = name
            listed = _datalist([option(value=str(choice)) for choice in each["recommended"]], id=name)
        is_number = each["type"] in {"INT", "SHORT", "LONG", "DOUBLE"}
        shown = input_(
            type="password" if each["isSecret"] else "text",
            value="" if each["isSecret"] else value,
            placeholder=hint or None,
            inputmode="numeric" if is_number else None,
            spellcheck="false",
            autocomplete="new-password" if each["isSecret"] else "off",
            **common,
        )
    title = together(each["title"], span(" required", class_="bad") if each["isRequired"] else None)
    return label(span(title), shown, listed, small(each["doc"], class_="doc"))


def _dialogs(cluster: Cluster, name: str) -> Html:
    sure = [typed_name(name, "this cannot be undone")]
    return together(
        dialog_with(
            "delete",
            "Delete the connector",
            p("Its tasks end. Topics stay, and so do the offsets of a source, under its name."),
            api_form(
                "DELETE",
                api_path(cluster, "connectors", name),
                sure,
                "Delete the connector",
                danger=True,
                then="go",
            ),
        ),
        dialog_with(
            "forget",
            "Forget offsets",
            p(
                "It begins anew: a source reads everything again, a sink from where its consumer begins. "
                "It has to be stopped."
            ),
            api_form(
                "DELETE",
                api_path(cluster, "connectors", name, "offsets"),
                sure,
                "Forget offsets",
                danger=True,
            ),
        ),
    )


PAGES = (connectors_page, connector_page, plugins_page, plugin_page)
